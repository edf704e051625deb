/* Nodes and Pods as API servers, clouds and autoscalers describe them. */
#include "engine/k8s/kube_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define GPU "nvidia.com/gpu"

static struct kube_node node;

static json_t *parse(const char *text)
{
	json_error_t error;
	json_t *json = json_loads(text, 0, &error);

	if (json == NULL) {
		fail_msg("%s: %s", text, error.text);
	}
	return json;
}

/* Reads a node with these parts of metadata, spec and status. */
static void read_node(const char *metadata, const char *spec, const char *ready)
{
	char text[2048];
	json_t *object;

	snprintf(text, sizeof(text),
		"{\"metadata\": {\"name\": \"n1\"%s}, \"spec\": {%s}, \"status\": "
		"{\"allocatable\": "
		"{\"cpu\": \"7910m\", \"memory\": \"31Gi\", \"" GPU
		"\": \"4\"}, \"conditions\": [{\"type\": \"MemoryPressure\", \"status\": "
		"\"False\"}%s]}}",
		metadata, spec, ready);
	object = parse(text);
	assert_true(kube_node_read(object, GPU, &node));
	json_decref(object);
}

#define READY ", {\"type\": \"Ready\", \"status\": \"True\", \"reason\": \"KubeletReady\"}"

static void what_a_node_offers_is_read(void **state)
{
	read_node(", \"labels\": {\"node.kubernetes.io/instance-type\": \"p4d.24xlarge\", "
		  "\"nvidia.com/gpu.product\": \"A100\"}",
		"", READY);
	assert_string_equal(node.name, "n1");
	assert_int_equal(node.state, KUBE_NODE_READY);
	assert_int_equal(node.devices, 4);
	assert_int_equal(node.milli_cpus, 7910);
	assert_int_equal(node.memory_bytes, (uint64_t)31 << 30);
	assert_string_equal(node.type, "A100");
	assert_false(node.spot);
	assert_false(node.has_efa);
}

static void spot_nodes_are_known_by_labels(void **state)
{
	static const char *const labels[] = {"\"karpenter.sh/capacity-type\": \"spot\"",
		"\"eks.amazonaws.com/capacityType\": \"SPOT\"",
		"\"cloud.google.com/gke-spot\": \"true\"",
		"\"kubernetes.azure.com/scalesetpriority\": \"spot\""};
	char text[256];

	for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++) {
		snprintf(text, sizeof(text), ", \"labels\": {%s}", labels[i]);
		read_node(text, "", READY);
		assert_true(node.spot);
	}
	read_node(", \"labels\": {\"karpenter.sh/capacity-type\": \"on-demand\"}", "", READY);
	assert_false(node.spot);
}

static void nodes_that_go_are_known_by_taints(void **state)
{
	static const char *const keys[] = {"aws-node-termination-handler/spot-itn",
		"aws-node-termination-handler/asg-lifecycle-termination",
		"cloud.google.com/impending-node-termination", "karpenter.sh/disrupted",
		"karpenter.sh/disruption", "ToBeDeletedByClusterAutoscaler",
		"node.kubernetes.io/out-of-service"};
	char text[256];

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		snprintf(text, sizeof(text),
			"\"unschedulable\": true, \"taints\": [{\"key\": \"a\"}, {\"key\": \"%s\", "
			"\"effect\": \"NoSchedule\"}]",
			keys[i]);
		read_node("", text, READY);
		assert_int_equal(node.state, KUBE_NODE_GOING);
		assert_string_equal(node.why, keys[i]);
	}
	read_node("",
		"\"taints\": [{\"key\": \"DeletionCandidateOfClusterAutoscaler\"}, {\"key\": "
		"\"kubernetes.azure.com/scalesetpriority\", \"value\": \"spot\"}]",
		READY);
	assert_int_equal(node.state, KUBE_NODE_READY);
	read_node(", \"deletionTimestamp\": \"2026-11-26T13:09:00Z\"", "", READY);
	assert_int_equal(node.state, KUBE_NODE_GOING);
}

static void other_states_are_read(void **state)
{
	read_node("", "\"unschedulable\": true", READY);
	assert_int_equal(node.state, KUBE_NODE_CORDONED);
	read_node("", "\"taints\": null",
		", {\"type\": \"Ready\", \"status\": \"Unknown\", \"reason\": "
		"\"NodeStatusUnknown\"}");
	assert_int_equal(node.state, KUBE_NODE_AWAY);
	assert_string_equal(node.why, "NodeStatusUnknown");
	read_node("", "", "");
	assert_int_equal(node.state, KUBE_NODE_AWAY);
}

static void what_is_no_node_is_refused(void **state)
{
	static const char *const texts[] = {"{}", "[]", "{\"metadata\": {}}",
		"{\"metadata\": {\"name\": 3}}", "{\"metadata\": {\"name\": \"\"}}"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		json_t *object = parse(texts[i]);

		assert_false(kube_node_read(object, GPU, &node));
		json_decref(object);
	}
	{
		json_t *object = parse("{\"metadata\": {\"name\": \"n\"}, \"spec\": 3, \"status\": "
				       "{\"allocatable\": {\"cpu\": \"many\", \"" GPU
				       "\": -1}, \"conditions\": {}}}");

		assert_true(kube_node_read(object, GPU, &node)); /* with nothing to offer */
		assert_int_equal(node.devices, 0);
		assert_int_equal(node.milli_cpus, 0);
		assert_int_equal(node.state, KUBE_NODE_AWAY);
		json_decref(object);
	}
}

static uint64_t takes(const char *resource, uint32_t per, const char *spec, const char *phase)
{
	char text[1024];
	const char *on;
	json_t *pod;
	uint64_t n;

	snprintf(text, sizeof(text),
		"{\"spec\": {\"nodeName\": \"n1\"%s}, \"status\": {\"phase\": \"%s\"}}", spec,
		phase);
	pod = parse(text);
	n = kube_pod_takes(pod, resource, per, &on);
	assert_string_equal(on, "n1");
	json_decref(pod);
	return n;
}

#define TAKES(n) "{\"resources\": {\"requests\": {\"" GPU "\": \"" n "\", \"cpu\": \"1500m\"}}}"
#define SIDECAR(n)                                                                                 \
	"{\"restartPolicy\": \"Always\", \"resources\": {\"requests\": {\"" GPU "\": \"" n "\"}}}"

static void what_pods_take_is_added_up(void **state)
{
	const char *two = ", \"containers\": [" TAKES("1") ", " TAKES("2") "]";

	assert_int_equal(takes(GPU, 1, two, "Running"), 3);
	assert_int_equal(takes(GPU, 1, two, "Pending"), 3);
	assert_int_equal(takes("cpu", 1000, two, "Running"), 3000);
	assert_int_equal(takes(GPU, 1, two, "Succeeded"), 0);
	assert_int_equal(takes(GPU, 1, two, "Failed"), 0);
	assert_int_equal(takes(GPU, 1,
				 ", \"containers\": [" TAKES("1") "], \"initContainers\": [" TAKES(
					 "4") ", " TAKES("2") "]",
				 "Running"),
		4);
	assert_int_equal(
		takes(GPU, 1,
			", \"containers\": [" TAKES("1") "], \"initContainers\": [" SIDECAR(
				"1") ", " TAKES("4") ", " SIDECAR("1") "]",
			"Running"),
		5); /* the second runs beside the first */
	assert_int_equal(takes(GPU, 1,
				 ", \"containers\": [" TAKES("1") "], \"overhead\": {\"" GPU
								  "\": \"1\"}",
				 "Running"),
		2);
	assert_int_equal(takes(GPU, 1, "", "Running"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_a_node_offers_is_read),
		cmocka_unit_test(spot_nodes_are_known_by_labels),
		cmocka_unit_test(nodes_that_go_are_known_by_taints),
		cmocka_unit_test(other_states_are_read),
		cmocka_unit_test(what_is_no_node_is_refused),
		cmocka_unit_test(what_pods_take_is_added_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
