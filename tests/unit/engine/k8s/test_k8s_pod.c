/* Pods: what is made of users' templates, and what API servers, kubelets and autoscalers say of
 * them. */
#include "../lib/expect.h"
#include "base/err.h"
#include "engine/k8s/kube_pod.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static struct pawl_err err;
static struct kube_pod pod;

static json_t *parse(const char *text)
{
	json_error_t error;
	json_t *json = json_loads(text, 0, &error);

	if (json == NULL) {
		fail_msg("%s: %s", text, error.text);
	}
	return json;
}

/* ---- making ---- */

static struct kube_part part;

/* Makes a Pod of a template, three replicas on node n1. */
static int make(const char *text, json_t **made)
{
	json_t *pod_template = parse(text);
	int rv;

	part.pod_template = pod_template;
	part.job = "bert";
	part.name_space = "team";
	part.owner_kind = "PawlJob";
	part.owner_version = "pawl.dev/v1";
	part.owner_uid = "u-1";
	part.node = "n1";
	part.number = 7;
	part.generation = 12;
	part.part = 1;
	part.replicas = 3;
	part.grace_s = 40;
	rv = kube_pod_make(&part, made, &err);
	json_decref(pod_template);
	return rv;
}

static int begin(void **state)
{
	memset(&part, 0, sizeof(part));
	return 0;
}

static void check_equal(const json_t *made, const char *wanted)
{
	json_t *json = parse(wanted);

	if (!json_equal((json_t *)made, json)) {
		fail_msg("%s\nis not\n%s", json_dumps(made, JSON_SORT_KEYS | JSON_INDENT(1)),
			json_dumps(json, JSON_SORT_KEYS | JSON_INDENT(1)));
	}
	json_decref(json);
}

static void a_pod_is_the_template_on_a_node(void **state)
{
	static const char *const launcher[] = {"pawl", "run", "-n", "3", NULL};
	json_t *env = parse("{\"PAWL_A\": \"b\"}");
	json_t *made;

	part.launcher = launcher;
	part.env = env;
	OK(make("{\"metadata\": {\"labels\": {\"team\": \"x\"}}, \"spec\": {\"containers\": "
		"[{\"name\": \"main\", \"image\": \"i\", \"command\": [\"python\", \"t.py\"], "
		"\"args\": [\"--x\"], \"resources\": {\"limits\": {\"nvidia.com/gpu\": 1, \"cpu\": "
		"\"500m\", \"memory\": \"1Gi\"}}}, {\"name\": \"other\", \"resources\": "
		"{\"limits\": {\"cpu\": \"1\"}}}]}}",
		&made));
	check_equal(made,
		"{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": "
		"\"bert-12-1\", \"namespace\": \"team\", \"labels\": {\"team\": \"x\", "
		"\"pawl.dev/job\": \"bert\", \"pawl.dev/number\": \"7\", \"pawl.dev/generation\": "
		"\"12\", \"pawl.dev/part\": \"1\"}, \"ownerReferences\": [{\"apiVersion\": "
		"\"pawl.dev/v1\", \"kind\": \"PawlJob\", \"name\": \"bert\", \"uid\": \"u-1\", "
		"\"controller\": true, \"blockOwnerDeletion\": true}]}, \"spec\": "
		"{\"restartPolicy\": \"Never\", \"terminationGracePeriodSeconds\": 40, "
		"\"affinity\": {\"nodeAffinity\": "
		"{\"requiredDuringSchedulingIgnoredDuringExecution\": {\"nodeSelectorTerms\": "
		"[{\"matchFields\": [{\"key\": \"metadata.name\", \"operator\": \"In\", "
		"\"values\": [\"n1\"]}]}]}}}, \"volumes\": [{\"name\": \"pawl-shm\", \"emptyDir\": "
		"{\"medium\": \"Memory\"}}], \"containers\": [{\"name\": \"main\", \"image\": "
		"\"i\", \"command\": [\"pawl\", \"run\", \"-n\", \"3\", \"python\", \"t.py\"], "
		"\"args\": [\"--x\"], \"env\": [{\"name\": \"PAWL_A\", \"value\": \"b\"}], "
		"\"volumeMounts\": [{\"name\": \"pawl-shm\", \"mountPath\": \"/dev/shm\"}], "
		"\"resources\": {\"limits\": {\"nvidia.com/gpu\": \"3\", \"cpu\": \"1500m\", "
		"\"memory\": \"3221225472\"}}}, {\"name\": \"other\", \"resources\": {\"limits\": "
		"{\"cpu\": \"1\"}}}]}}");
	json_decref(made);
	json_decref(env);
}

/* What users demand of nodes stays: terms are alternatives, and each gets the node. */
static void what_the_template_demands_stays(void **state)
{
	json_t *per_node = parse("[\"vpc.amazonaws.com/efa\"]");
	json_t *made, *spec;

	part.per_node = per_node;
	OK(make("{\"spec\": {\"affinity\": {\"nodeAffinity\": "
		"{\"requiredDuringSchedulingIgnoredDuringExecution\": {\"nodeSelectorTerms\": "
		"[{\"matchExpressions\": [1]}, {\"matchFields\": [2]}]}}}, \"volumes\": "
		"[{\"name\": "
		"\"big\"}], \"containers\": [{\"name\": \"main\", \"env\": [{\"name\": \"A\"}], "
		"\"volumeMounts\": [{\"name\": \"big\", \"mountPath\": \"/dev/shm\"}], "
		"\"resources\": {\"requests\": {\"vpc.amazonaws.com/efa\": 4, \"cpu\": 0.5}}}]}}",
		&made));
	spec = json_object_get(made, "spec");
	check_equal(json_object_get(spec, "affinity"),
		"{\"nodeAffinity\": {\"requiredDuringSchedulingIgnoredDuringExecution\": "
		"{\"nodeSelectorTerms\": [{\"matchExpressions\": [1], \"matchFields\": [{\"key\": "
		"\"metadata.name\", \"operator\": \"In\", \"values\": [\"n1\"]}]}, "
		"{\"matchFields\": [2, {\"key\": \"metadata.name\", \"operator\": \"In\", "
		"\"values\": [\"n1\"]}]}]}}}");
	check_equal(json_object_get(spec, "volumes"), "[{\"name\": \"big\"}]");
	check_equal(json_object_get(spec, "containers"),
		"[{\"name\": \"main\", \"env\": [{\"name\": \"A\"}], \"volumeMounts\": [{\"name\": "
		"\"big\", \"mountPath\": \"/dev/shm\"}], \"resources\": {\"requests\": "
		"{\"vpc.amazonaws.com/efa\": 4, \"cpu\": \"1500m\"}}}]");
	json_decref(made);
	json_decref(per_node);
}

static void a_template_that_cannot_be_used_is_refused(void **state)
{
	static const char *const launcher[] = {"pawl", "run", NULL};
	static const struct {
		const char *text;
		const char *says;
	} rows[] = {
		{"{}", "has no containers"},
		{"{\"spec\": {\"containers\": []}}", "has no containers"},
		{"{\"spec\": {\"nodeName\": \"n2\", \"containers\": [{\"command\": [\"a\"]}]}}",
			"nodeName must not be given"},
		{"{\"spec\": {\"containers\": [{\"args\": [\"a\"]}]}}", "needs a command"},
		{"{\"spec\": {\"containers\": [{\"command\": [\"a\"], \"resources\": {\"limits\": "
		 "{\"cpu\": \"many\"}}}]}}",
			"resources.limits.cpu is no quantity"},
		{"{\"spec\": {\"containers\": [{\"command\": [\"a\"], \"resources\": "
		 "{\"requests\": {\"memory\": \"8Ei\"}}}]}}",
			"resources.requests.memory is no quantity that can be taken 3 times"},
	};

	part.launcher = launcher;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		json_t *made;

		FAILS(PAWL_EINVAL, make(rows[i].text, &made));
		SAYS(rows[i].says);
	}
}

static void names_are_those_of_hosts(void **state)
{
	struct kube_part longest = {.job = "a123456789b123456789c123456789d123456789e123456789xx",
		.generation = 999999,
		.part = 99};
	char name[KUBE_POD_NAME_MAX];

	assert_int_equal(strlen(longest.job), KUBE_JOB_NAME_MAX - 1);
	kube_pod_name(&longest, name);
	assert_string_equal(name, "a123456789b123456789c123456789d123456789e123456789xx-999999-99");
}

/* ---- reading ---- */

static void read_pod(const char *status)
{
	char text[2048];
	json_t *object;

	snprintf(text, sizeof(text),
		"{\"metadata\": {\"name\": \"p\", \"labels\": {\"pawl.dev/number\": \"7\", "
		"\"pawl.dev/generation\": \"12\", \"pawl.dev/part\": \"1\"}}, \"spec\": "
		"{\"nodeName\": \"n1\"}, \"status\": {%s}}",
		status);
	object = parse(text);
	assert_true(kube_pod_read(object, &pod));
	json_decref(object);
}

#define ENDED(code, reason)                                                                        \
	"\"containerStatuses\": [{\"name\": \"side\", \"state\": {\"terminated\": {\"exitCode\": " \
	"0}}}, {\"name\": \"main\", \"state\": {\"terminated\": {\"exitCode\": " #code             \
	", \"reason\": \"" reason "\"}}}]"

static void what_a_pod_does_is_read(void **state)
{
	read_pod("\"phase\": \"Running\", \"podIP\": \"10.0.0.7\"");
	assert_int_equal(pod.state, KUBE_POD_RUNS);
	assert_int_equal(pod.number, 7);
	assert_int_equal(pod.generation, 12);
	assert_int_equal(pod.part, 1);
	assert_string_equal(pod.node, "n1");
	assert_string_equal(pod.address, "10.0.0.7");
	assert_false(pod.deleted || pod.leaves || pod.stuck);
	read_pod("\"phase\": \"Succeeded\"");
	assert_int_equal(pod.state, KUBE_POD_DONE);
	read_pod("\"phase\": \"Failed\", " ENDED(7, "Error"));
	assert_int_equal(pod.state, KUBE_POD_FAILED);
	assert_int_equal(pod.exit_code, 7);
	assert_string_equal(pod.why, "container main: Error, exit code 7");
	read_pod("\"phase\": \"Failed\", " ENDED(137, "OOMKilled"));
	assert_int_equal(pod.state, KUBE_POD_FAILED);
	assert_string_equal(pod.why, "container main: OOMKilled, exit code 137");
	read_pod("\"phase\": \"Failed\", \"reason\": \"DeadlineExceeded\", \"message\": \"too "
		 "long\"");
	assert_int_equal(pod.state, KUBE_POD_FAILED);
	assert_int_equal(pod.exit_code, 1);
	assert_string_equal(pod.why, "DeadlineExceeded: too long");
}

/* The cluster's doing is not the job's fault, whatever the exit code says. */
static void disruptions_are_told_from_failures(void **state)
{
	static const char *const reasons[] = {"Evicted", "NodeShutdown", "Terminated", "OutOfcpu",
		"OutOfnvidia.com/gpu", "UnexpectedAdmissionError", "Preempting"};
	char status[512];

	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
		snprintf(status, sizeof(status),
			"\"phase\": \"Failed\", \"reason\": \"%s\", \"message\": \"words\", %s",
			reasons[i], ENDED(143, "Error"));
		read_pod(status);
		assert_int_equal(pod.state, KUBE_POD_DISRUPTED);
		assert_int_equal(pod.exit_code, 143);
		assert_int_equal(strncmp(pod.why, reasons[i], strlen(reasons[i])), 0);
	}
	read_pod("\"phase\": \"Failed\", \"conditions\": [{\"type\": \"DisruptionTarget\", "
		 "\"status\": \"True\", \"reason\": \"PreemptionByScheduler\", \"message\": "
		 "\"more urgent\"}], " ENDED(143, "Error"));
	assert_int_equal(pod.state, KUBE_POD_DISRUPTED);
	assert_string_equal(pod.why, "PreemptionByScheduler: more urgent");
	read_pod("\"phase\": \"Running\", \"conditions\": [{\"type\": \"DisruptionTarget\", "
		 "\"status\": \"True\"}]");
	assert_true(pod.leaves);
}

static void what_a_pod_waits_for_is_read(void **state)
{
	read_pod("\"phase\": \"Pending\"");
	assert_int_equal(pod.state, KUBE_POD_WAITS);
	assert_false(pod.stuck);
	read_pod(
		"\"phase\": \"Pending\", \"conditions\": [{\"type\": \"PodScheduled\", \"status\": "
		"\"False\", \"reason\": \"Unschedulable\", \"message\": \"0/3 nodes are "
		"available\"}]");
	assert_true(pod.stuck);
	assert_string_equal(pod.why, "Unschedulable: 0/3 nodes are available");
	read_pod(
		"\"phase\": \"Pending\", \"conditions\": [{\"type\": \"PodScheduled\", \"status\": "
		"\"False\", \"reason\": \"SchedulingGated\"}]");
	assert_false(pod.stuck);
	read_pod("\"phase\": \"Pending\", \"containerStatuses\": [{\"name\": \"main\", \"state\": "
		 "{\"waiting\": {\"reason\": \"ImagePullBackOff\", \"message\": \"no such "
		 "image\"}}}]");
	assert_true(pod.stuck);
	assert_string_equal(pod.why, "ImagePullBackOff: no such image");
	read_pod("\"phase\": \"Pending\", \"containerStatuses\": [{\"name\": \"main\", \"state\": "
		 "{\"waiting\": {\"reason\": \"ContainerCreating\"}}}]");
	assert_false(pod.stuck);
}

static void anything_else_is_no_pod(void **state)
{
	static const char *const texts[] = {"[]", "{}", "{\"metadata\": {}}", "{\"spec\": {}}",
		"{\"metadata\": 1, \"spec\": 2}"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		json_t *object = parse(texts[i]);

		assert_false(kube_pod_read(object, &pod));
		json_decref(object);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_pod_is_the_template_on_a_node, begin),
		cmocka_unit_test_setup(what_the_template_demands_stays, begin),
		cmocka_unit_test_setup(a_template_that_cannot_be_used_is_refused, begin),
		cmocka_unit_test(names_are_those_of_hosts),
		cmocka_unit_test(what_a_pod_does_is_read),
		cmocka_unit_test(disruptions_are_told_from_failures),
		cmocka_unit_test(what_a_pod_waits_for_is_read),
		cmocka_unit_test(anything_else_is_no_pod),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
