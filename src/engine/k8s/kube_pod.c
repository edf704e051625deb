/* See kube_pod.h. */
#include "engine/k8s/kube_pod.h"

#include "base/err.h"
#include "engine/k8s/kube_json.h"
#include "engine/k8s/quantity.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHM           "/dev/shm"
#define SHM_NAME      "pawl-shm"
#define UNSCHEDULABLE "Unschedulable"

/* ---- making ---- */

void kube_pod_name(const struct kube_part *part, char name[KUBE_POD_NAME_MAX])
{
	snprintf(name, KUBE_POD_NAME_MAX, "%.*s-%" PRIu64 "-%" PRIu32, (int)KUBE_JOB_NAME_MAX - 1,
		part->job, part->generation, part->part);
}

static void set_number(json_t *object, const char *name, uint64_t number)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, number);
	json_object_set_new(object, name, json_string(text));
}

static json_t *make_metadata(const struct kube_part *part)
{
	const json_t *given = json_object_get(part->pod_template, "metadata");
	json_t *labels = json_deep_copy(json_object_get(given, "labels"));
	json_t *notes = json_deep_copy(json_object_get(given, "annotations"));
	char name[KUBE_POD_NAME_MAX];

	labels = json_is_object(labels) ? labels : json_object();
	json_object_set_new(labels, KUBE_LABEL_JOB, json_string(part->job));
	set_number(labels, KUBE_LABEL_NUMBER, part->number);
	set_number(labels, KUBE_LABEL_GENERATION, part->generation);
	set_number(labels, KUBE_LABEL_PART, part->part);
	kube_pod_name(part, name);
	return json_pack("{s:s, s:s, s:o, s:o*, s:[{s:s, s:s, s:s, s:s, s:b, s:b}]}", "name", name,
		"namespace", part->name_space, "labels", labels, "annotations", notes,
		"ownerReferences", "apiVersion", part->owner_version, "kind", part->owner_kind,
		"name", part->job, "uid", part->owner_uid, "controller", 1, "blockOwnerDeletion",
		1);
}

/* Returns an object in an object, which is made if it is not there. */
static json_t *object_in(json_t *object, const char *name)
{
	json_t *value = json_object_get(object, name);

	if (!json_is_object(value)) {
		value = json_object();
		json_object_set_new(object, name, value);
	}
	return value;
}

/* Places a Pod on a node, beside what the template demands: terms are alternatives, so each gets
 * the node. The scheduler of Kubernetes still checks taints, volumes and resources. */
static void place(json_t *spec, const char *node)
{
	json_t *required = object_in(object_in(object_in(spec, "affinity"), "nodeAffinity"),
		"requiredDuringSchedulingIgnoredDuringExecution");
	json_t *terms = json_object_get(required, "nodeSelectorTerms");
	json_t *term;
	size_t i;

	if (json_array_size(terms) == 0) {
		terms = json_pack("[{}]");
		json_object_set_new(required, "nodeSelectorTerms", terms);
	}
	json_array_foreach(terms, i, term)
	{
		json_t *fields = json_object_get(term, "matchFields");

		if (!json_is_array(fields)) {
			fields = json_array();
			json_object_set_new(term, "matchFields", fields);
		}
		json_array_append_new(fields,
			json_pack("{s:s, s:s, s:[s]}", "key", "metadata.name", "operator", "In",
				"values", node));
	}
}

static bool is_per_node(const struct kube_part *part, const char *resource)
{
	const json_t *name;
	size_t i;

	json_array_foreach(part->per_node, i, name)
	{
		if (strcmp(json_string_value(name) != NULL ? json_string_value(name) : "",
			    resource) == 0) {
			return true;
		}
	}
	return false;
}

/* Returns a quantity times n. NULL: it is none. */
static json_t *multiply(const json_t *quantity, uint32_t n)
{
	const char *text = json_string_value(quantity);
	char number[24];
	uint64_t milli;

	if (text == NULL) { /* YAML may have 1 for "1" */
		snprintf(number, sizeof(number), "%.3f", json_number_value(quantity));
		text = json_is_number(quantity) ? number : "";
	}
	if (!quantity_read(text, 1000, &milli) || milli > UINT64_MAX / n) {
		return NULL;
	}
	milli *= n;
	snprintf(number, sizeof(number), "%" PRIu64 "%s", milli % 1000 == 0 ? milli / 1000 : milli,
		milli % 1000 == 0 ? "" : "m");
	return json_string(number);
}

/* Makes the resources in a map (limits, requests) those of all replicas. Returns the name of one
 * that is no quantity, or NULL. */
static const char *scale_map(const struct kube_part *part, json_t *resources, const char *kind)
{
	json_t *map = json_object_get(resources, kind);
	json_t *scaled = json_object();
	const char *resource;
	json_t *value;

	json_object_foreach(map, resource, value)
	{
		json_t *all = is_per_node(part, resource) ? json_incref(value)
							  : multiply(value, part->replicas);

		if (all == NULL) {
			json_decref(scaled);
			return resource;
		}
		json_object_set_new(scaled, resource, all);
	}
	if (map != NULL) {
		json_object_set(resources, kind, scaled);
	}
	json_decref(scaled);
	return NULL;
}

/* Makes the resources of a container those of all replicas of the part. */
static int scale(const struct kube_part *part, json_t *container, struct pawl_err *err)
{
	static const char *const kinds[] = {"limits", "requests"};
	json_t *resources = json_object_get(container, "resources");

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		const char *wrong = scale_map(part, resources, kinds[i]);

		if (wrong != NULL) {
			return pawl_err_set(err, PAWL_EINVAL,
				"spec.template: resources.%s.%.100s is no quantity that can be "
				"taken %u times",
				kinds[i], wrong, part->replicas);
		}
	}
	return 0;
}

/* Puts the launcher's words in front of a container's command. */
static int launch(const struct kube_part *part, json_t *container, struct pawl_err *err)
{
	json_t *command = json_object_get(container, "command");
	json_t *words = json_array();

	if (json_array_size(command) == 0) {
		json_decref(words);
		return pawl_err_set(err, PAWL_EINVAL,
			"spec.template: the first container needs a command: that of its image "
			"cannot be run by pawl run");
	}
	for (const char *const *word = part->launcher; *word != NULL; word++) {
		json_array_append_new(words, json_string(*word));
	}
	json_array_extend(words, command);
	json_object_set_new(container, "command", words);
	return 0;
}

/* Adds variables to a container. Those of the template come first, so that ours count. */
static void add_env(const struct kube_part *part, json_t *container)
{
	json_t *list = json_object_get(container, "env");
	const char *name;
	json_t *value;

	if (!json_is_array(list)) {
		list = json_array();
		json_object_set_new(container, "env", list);
	}
	json_object_foreach((json_t *)part->env, name, value)
	{
		json_array_append_new(list, json_pack("{s:s, s:O}", "name", name, "value", value));
	}
}

/* Gives a container shared memory of the size of the Pod's: without a volume it has 64 MiB, which
 * neither an agent nor a data loader can live on. */
static void add_shm(json_t *spec, json_t *container)
{
	json_t *mounts = json_object_get(container, "volumeMounts");
	json_t *volumes = json_object_get(spec, "volumes");
	const json_t *mount;
	size_t i;

	json_array_foreach(mounts, i, mount)
	{
		if (strcmp(kube_json_text(mount, "mountPath"), SHM) == 0) {
			return;
		}
	}
	if (!json_is_array(mounts)) {
		mounts = json_array();
		json_object_set_new(container, "volumeMounts", mounts);
	}
	if (!json_is_array(volumes)) {
		volumes = json_array();
		json_object_set_new(spec, "volumes", volumes);
	}
	json_array_append_new(mounts, json_pack("{s:s, s:s}", "name", SHM_NAME, "mountPath", SHM));
	json_array_append_new(volumes,
		json_pack("{s:s, s:{s:s}}", "name", SHM_NAME, "emptyDir", "medium", "Memory"));
}

static int make_spec(const struct kube_part *part, json_t *spec, struct pawl_err *err)
{
	json_t *container = json_array_get(json_object_get(spec, "containers"), 0);
	int rv;

	if (!json_is_object(container)) {
		return pawl_err_set(err, PAWL_EINVAL, "spec.template has no containers");
	}
	if (json_object_get(spec, "nodeName") != NULL) {
		return pawl_err_set(err, PAWL_EINVAL,
			"spec.template: nodeName must not be given: Pawl chooses nodes");
	}
	json_object_set_new(spec, "restartPolicy", json_string("Never"));
	json_object_set_new(spec, "terminationGracePeriodSeconds", json_integer(part->grace_s));
	place(spec, part->node);
	add_env(part, container);
	add_shm(spec, container);
	rv = scale(part, container, err);
	return rv == 0 && part->launcher != NULL ? launch(part, container, err) : rv;
}

int kube_pod_make(const struct kube_part *part, json_t **pod, struct pawl_err *err)
{
	json_t *spec = json_deep_copy(json_object_get(part->pod_template, "spec"));
	int rv = make_spec(part, spec, err);

	if (rv != 0) {
		json_decref(spec);
		return rv;
	}
	*pod = json_pack("{s:s, s:s, s:o, s:o}", "apiVersion", "v1", "kind", "Pod", "metadata",
		make_metadata(part), "spec", spec);
	return *pod != NULL ? 0 : pawl_err_set(err, PAWL_ENOMEM, "no memory for a Pod");
}

/* ---- reading ---- */

static uint64_t read_label(const json_t *labels, const char *name)
{
	return strtoull(kube_json_text(labels, name), NULL, 10);
}

__attribute__((format(printf, 2, 3))) static void explain(struct kube_pod *pod, const char *format,
	...)
{
	va_list args;

	if (pod->why[0] == '\0') { /* the first reason found is the most specific one */
		va_start(args, format);
		vsnprintf(pod->why, sizeof(pod->why), format, args);
		va_end(args);
	}
}

/* Explains a state by what the cluster says: "Evicted: The node was low on resource: memory". */
static void quote(struct kube_pod *pod, const json_t *from)
{
	const char *reason = kube_json_text(from, "reason");
	const char *message = kube_json_text(from, "message");

	explain(pod, "%s%s%s", reason, reason[0] != '\0' && message[0] != '\0' ? ": " : "",
		message);
}

/* Returns whether a Pod ended by the cluster's doing, by the reason of its status: a kubelet that
 * evicts it, shuts down or does not admit it. Whoever is deleted ends by our own doing. */
static bool is_disruption(const char *reason)
{
	static const char *const reasons[] = {"Evicted", "NodeAffinity", "NodeLost", "NodeShutdown",
		"Preempting", "Shutdown", "Terminated", "UnexpectedAdmissionError"};

	if (strncmp(reason, "OutOf", 5) == 0) { /* OutOfcpu, OutOfnvidia.com/gpu … */
		return true;
	}
	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
		if (strcmp(reason, reasons[i]) == 0) {
			return true;
		}
	}
	return false;
}

/* Reads how the containers ended: the first one that did not end with 0 counts. */
static void read_ends(const json_t *status, struct kube_pod *pod)
{
	static const char *const lists[] = {"containerStatuses", "initContainerStatuses"};
	const json_t *container;
	size_t i;

	for (size_t n = 0; n < sizeof(lists) / sizeof(lists[0]); n++) {
		json_array_foreach(json_object_get(status, lists[n]), i, container)
		{
			const json_t *end =
				json_object_get(json_object_get(container, "state"), "terminated");
			int code = (int)json_integer_value(json_object_get(end, "exitCode"));

			if (code != 0 && pod->exit_code == 0) {
				pod->exit_code = code;
				explain(pod, "container %s: %s, exit code %d",
					kube_json_text(container, "name"),
					kube_json_text(end, "reason"), code);
			}
		}
	}
}

static void read_over(const json_t *status, struct kube_pod *pod)
{
	const json_t *disruption = kube_json_condition(status, "DisruptionTarget", "True");
	bool failed = strcmp(kube_json_text(status, "phase"), "Failed") == 0;

	pod->state = failed ? KUBE_POD_FAILED : KUBE_POD_DONE;
	if (failed && (disruption != NULL || is_disruption(kube_json_text(status, "reason")))) {
		pod->state = KUBE_POD_DISRUPTED;
		quote(pod, disruption != NULL ? disruption : status);
	}
	read_ends(status, pod);
	if (failed) {
		quote(pod, status);
		pod->exit_code = pod->exit_code != 0 ? pod->exit_code : 1;
	}
}

/* Returns whether a container waits for what does not come by itself. */
static bool is_stuck(const char *reason)
{
	static const char *const reasons[] = {"CreateContainerConfigError", "CreateContainerError",
		"ErrImageNeverPull", "ErrImagePull", "ImageInspectError", "ImagePullBackOff",
		"InvalidImageName", "RunContainerError"};

	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
		if (strcmp(reason, reasons[i]) == 0) {
			return true;
		}
	}
	return false;
}

static void read_waiting(const json_t *status, struct kube_pod *pod)
{
	static const char *const lists[] = {"initContainerStatuses", "containerStatuses"};
	const json_t *unscheduled = kube_json_condition(status, "PodScheduled", "False");
	const json_t *container;
	size_t i;

	if (unscheduled != NULL) {
		pod->stuck = strcmp(kube_json_text(unscheduled, "reason"), UNSCHEDULABLE) == 0;
		quote(pod, unscheduled);
	}
	for (size_t n = 0; n < sizeof(lists) / sizeof(lists[0]); n++) {
		json_array_foreach(json_object_get(status, lists[n]), i, container)
		{
			const json_t *waiting =
				json_object_get(json_object_get(container, "state"), "waiting");

			if (is_stuck(kube_json_text(waiting, "reason"))) {
				pod->stuck = true;
				quote(pod, waiting);
			}
		}
	}
}

bool kube_pod_read(const json_t *object, struct kube_pod *pod)
{
	const json_t *metadata = json_object_get(object, "metadata");
	const json_t *labels = json_object_get(metadata, "labels");
	const json_t *status = json_object_get(object, "status");
	const char *phase = kube_json_text(status, "phase");

	if (!json_is_object(metadata) || !json_is_object(json_object_get(object, "spec"))) {
		return false;
	}
	*pod = (struct kube_pod){.number = read_label(labels, KUBE_LABEL_NUMBER),
		.generation = read_label(labels, KUBE_LABEL_GENERATION),
		.part = (uint32_t)read_label(labels, KUBE_LABEL_PART),
		.deleted = json_is_string(json_object_get(metadata, "deletionTimestamp")),
		.leaves = kube_json_condition(status, "DisruptionTarget", "True") != NULL};
	snprintf(pod->node, sizeof(pod->node), "%s",
		kube_json_text(json_object_get(object, "spec"), "nodeName"));
	snprintf(pod->address, sizeof(pod->address), "%s", kube_json_text(status, "podIP"));
	if (strcmp(phase, "Succeeded") == 0 || strcmp(phase, "Failed") == 0) {
		read_over(status, pod);
	} else if (strcmp(phase, "Running") == 0) {
		pod->state = KUBE_POD_RUNS;
	} else {
		read_waiting(status, pod);
	}
	return true;
}
