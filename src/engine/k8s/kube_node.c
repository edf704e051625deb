/* See kube_node.h. */
#include "engine/k8s/kube_node.h"

#include "engine/k8s/kube_json.h"
#include "engine/k8s/quantity.h"

#include <stdio.h>
#include <string.h>

#define EFA "vpc.amazonaws.com/efa"

/* Taints that announce the end of a node. A key that ends with '/' is the beginning of several. */
static const char *const ends[] = {
	"aws-node-termination-handler/",
	"cloud.google.com/impending-node-termination",
	"karpenter.sh/disrupted",
	"karpenter.sh/disruption", /* before Karpenter 1.0 */
	"node.cloudprovider.kubernetes.io/shutdown",
	"node.kubernetes.io/out-of-service",
	"ToBeDeletedByClusterAutoscaler",
};

/* Labels of nodes that a cloud may take away. */
static const struct {
	const char *name;
	const char *value;
} spots[] = {
	{"karpenter.sh/capacity-type", "spot"},
	{"eks.amazonaws.com/capacityType", "SPOT"},
	{"cloud.google.com/gke-spot", "true"},
	{"cloud.google.com/gke-preemptible", "true"},
	{"kubernetes.azure.com/scalesetpriority", "spot"},
};

/* Labels that say of what kind a node's devices are, the best one first. */
static const char *const types[] = {
	"nvidia.com/gpu.product",
	"cloud.google.com/gke-accelerator",
	"karpenter.k8s.aws/instance-gpu-name",
	"node.kubernetes.io/instance-type",
};

/* ---- nodes ---- */

static bool announces_end(const char *key)
{
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		size_t n = strlen(ends[i]);

		if (ends[i][n - 1] == '/' ? strncmp(key, ends[i], n) == 0
					  : strcmp(key, ends[i]) == 0) {
			return true;
		}
	}
	return false;
}

/* Finds the taint that announces the node's end. */
static const char *find_end(const json_t *spec)
{
	const json_t *taint;
	size_t i;

	json_array_foreach(json_object_get(spec, "taints"), i, taint)
	{
		if (announces_end(kube_json_text(taint, "key"))) {
			return kube_json_text(taint, "key");
		}
	}
	return NULL;
}

static void read_state(const json_t *object, struct kube_node *node)
{
	const json_t *spec = json_object_get(object, "spec");
	const json_t *ready = kube_json_condition(json_object_get(object, "status"), "Ready", NULL);
	const char *end = find_end(spec);

	node->state = KUBE_NODE_READY;
	node->why[0] = '\0';
	if (strcmp(kube_json_text(ready, "status"), "True") != 0) {
		node->state = KUBE_NODE_AWAY;
		snprintf(node->why, sizeof(node->why), "%s",
			ready != NULL ? kube_json_text(ready, "reason")
				      : "it has never been ready");
	} else if (end != NULL) {
		node->state = KUBE_NODE_GOING;
		snprintf(node->why, sizeof(node->why), "%s", end);
	} else if (json_is_string(json_object_get(json_object_get(object, "metadata"),
			   "deletionTimestamp"))) {
		node->state = KUBE_NODE_GOING;
		snprintf(node->why, sizeof(node->why), "the node is being deleted");
	} else if (json_is_true(json_object_get(spec, "unschedulable"))) {
		node->state = KUBE_NODE_CORDONED;
		snprintf(node->why, sizeof(node->why), "spec.unschedulable");
	}
}

static uint64_t read_quantity(const json_t *map, const char *resource, uint32_t per)
{
	const char *text = json_string_value(json_object_get(map, resource));
	uint64_t value = 0;

	return text != NULL && quantity_read(text, per, &value) ? value : 0;
}

static void read_labels(const json_t *labels, struct kube_node *node)
{
	node->spot = false;
	node->type[0] = '\0';
	for (size_t i = 0; i < sizeof(spots) / sizeof(spots[0]); i++) {
		node->spot = node->spot ||
			strcmp(kube_json_text(labels, spots[i].name), spots[i].value) == 0;
	}
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]) && node->type[0] == '\0'; i++) {
		snprintf(node->type, sizeof(node->type), "%s", kube_json_text(labels, types[i]));
	}
}

bool kube_node_read(const json_t *object, const char *resource, struct kube_node *node)
{
	const json_t *metadata = json_object_get(object, "metadata");
	const json_t *allocatable =
		json_object_get(json_object_get(object, "status"), "allocatable");
	const char *name = kube_json_text(metadata, "name");

	if (name[0] == '\0' || strlen(name) >= sizeof(node->name)) {
		return false;
	}
	snprintf(node->name, sizeof(node->name), "%s", name);
	read_state(object, node);
	read_labels(json_object_get(metadata, "labels"), node);
	node->devices = read_quantity(allocatable, resource, 1);
	node->milli_cpus = read_quantity(allocatable, "cpu", 1000);
	node->memory_bytes = read_quantity(allocatable, "memory", 1);
	node->has_efa = read_quantity(allocatable, EFA, 1) > 0;
	return true;
}

/* ---- Pods ---- */

static uint64_t add(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t container_takes(const json_t *container, const char *resource, uint32_t per)
{
	return read_quantity(json_object_get(json_object_get(container, "resources"), "requests"),
		resource, per);
}

uint64_t kube_pod_takes(const json_t *pod, const char *resource, uint32_t per, const char **node)
{
	const json_t *spec = json_object_get(pod, "spec");
	const char *phase = kube_json_text(json_object_get(pod, "status"), "phase");
	uint64_t all = 0, sidecars = 0, most = 0;
	const json_t *container;
	size_t i;

	*node = kube_json_text(spec, "nodeName");
	if (strcmp(phase, "Succeeded") == 0 || strcmp(phase, "Failed") == 0) {
		return 0;
	}
	json_array_foreach(json_object_get(spec, "containers"), i, container)
	{
		all = add(all, container_takes(container, resource, per));
	}
	/* An init container runs beside the sidecars before it. */
	json_array_foreach(json_object_get(spec, "initContainers"), i, container)
	{
		uint64_t takes = container_takes(container, resource, per);

		if (strcmp(kube_json_text(container, "restartPolicy"), "Always") == 0) {
			sidecars = add(sidecars, takes);
			most = sidecars > most ? sidecars : most;
		} else if (add(sidecars, takes) > most) {
			most = add(sidecars, takes);
		}
	}
	all = add(all, sidecars);
	return add(all > most ? all : most,
		read_quantity(json_object_get(spec, "overhead"), resource, per));
}
