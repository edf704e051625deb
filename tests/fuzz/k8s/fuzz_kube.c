/*
 * Fuzzes what the client of Kubernetes reads: kubeconfigs, what a plugin prints, the lines of a
 * watch, quantities, nodes and Pods. The first byte says which, the second one in what pieces lines
 * come.
 */
#include "fuzz.h"

#include "base/assert.h"
#include "base/err.h"
#include "engine/k8s/exec_credential.h"
#include "engine/k8s/json_lines.h"
#include "engine/k8s/kube_node.h"
#include "engine/k8s/kube_pod.h"
#include "engine/k8s/quantity.h"

#include <stdlib.h>
#include <string.h>

enum kind {
	KIND_CONFIG,
	KIND_CREDENTIAL,
	KIND_LINES,
	KIND_QUANTITY,
	KIND_NODE,
	KIND_POD,
	KINDS_N,
};

/* ---- access ---- */

static void try_config(const char *text)
{
	const struct kubeconfig_file file = {"/k/config", text, strlen(text)};
	struct kubeconfig config;
	struct pawl_err err;

	if (kubeconfig_read(&file, 1, NULL, &config, &err) == 0) {
		ASSERT(config.context[0] != '\0' && config.server != NULL);
		ASSERT(config.exec.args_n <= KUBECONFIG_ARGS_MAX);
		if (config.exec.command != NULL) {
			char *ask = exec_credential_ask(&config);
			json_t *json = json_loads(ask, 0, NULL);

			ASSERT(json_is_object(json));
			json_decref(json);
			free(ask);
		}
	}
	kubeconfig_deinit(&config);
}

static void try_credential(const char *text)
{
	const struct kubeconfig config = {
		.exec = {.command = "c", .api_version = "client.authentication.k8s.io/v1"}};
	struct exec_credential credential;
	struct pawl_err err;

	if (exec_credential_read(&config, text, &credential, &err) == 0) {
		ASSERT(credential.token != NULL || credential.certificate != NULL);
		ASSERT((credential.certificate == NULL) == (credential.key == NULL));
	} else {
		ASSERT(credential.token == NULL && credential.certificate == NULL);
	}
	exec_credential_deinit(&credential);
}

/* ---- lines ---- */

/* The line that is expected next. */
struct expected {
	const char *at;
	const char *end;
};

static bool take_line(void *user, char *line, size_t len_bytes)
{
	struct expected *expected = user;

	while (expected->at < expected->end && *expected->at == '\n') {
		expected->at++;
	}
	ASSERT(len_bytes > 0 && len_bytes < (size_t)(expected->end - expected->at));
	ASSERT(memcmp(expected->at, line, len_bytes) == 0);
	ASSERT(line[len_bytes] == '\0' && expected->at[len_bytes] == '\n');
	expected->at += len_bytes + 1;
	return true;
}

/* In whatever pieces they come, lines are the same. */
static void try_lines(const char *bytes, size_t len_bytes, size_t piece_bytes)
{
	struct json_lines lines = {.bytes = NULL};
	struct expected expected = {bytes, bytes + len_bytes};

	for (size_t off = 0; off < len_bytes; off += piece_bytes) {
		size_t left = len_bytes - off;

		ASSERT(json_lines_add(&lines, bytes + off, left < piece_bytes ? left : piece_bytes,
			take_line, &expected));
	}
	while (expected.at < expected.end && *expected.at == '\n') {
		expected.at++;
	}
	ASSERT(memchr(expected.at, '\n', (size_t)(expected.end - expected.at)) == NULL);
	json_lines_deinit(&lines);
}

/* ---- objects ---- */

/* A value in small units is the one in large units, but for what was rounded up. */
static void try_quantity(const char *text)
{
	uint64_t whole, milli;

	if (!quantity_read(text, 1, &whole)) {
		ASSERT(!quantity_read(text, 1000, &milli));
		return;
	}
	ASSERT(quantity_read(text, 1000, &milli));
	if (milli < UINT64_MAX) {
		ASSERT(milli <= whole * 1000 && (whole == 0 || milli > (whole - 1) * 1000));
	}
}

/* Reads an object as a Pod, and makes a Pod of it as a template. */
static void try_pod(const json_t *object)
{
	static const char *const launcher[] = {"pawl", "run", NULL};
	const struct kube_part part = {.pod_template = object,
		.job = "job",
		.name_space = "team",
		.owner_kind = "PawlJob",
		.owner_version = "pawl.dev/v1",
		.owner_uid = "uid",
		.node = "n1",
		.replicas = 3,
		.launcher = launcher};
	const char *name = NULL;
	uint64_t takes = kube_pod_takes(object, "nvidia.com/gpu", 1, &name);
	uint64_t milli = kube_pod_takes(object, "nvidia.com/gpu", 1000, &name);
	struct kube_pod pod;
	json_t *made;

	ASSERT(name != NULL && (takes == 0) == (milli == 0));
	if (kube_pod_read(object, &pod)) {
		ASSERT((pod.state == KUBE_POD_FAILED) <= (pod.exit_code != 0));
	}
	if (kube_pod_make(&part, &made, NULL) == 0) {
		ASSERT(kube_pod_read(made, &pod) && pod.state == KUBE_POD_WAITS);
		json_decref(made);
	}
}

static void try_object(const char *text, bool pod)
{
	json_t *object = json_loads(text, 0, NULL);
	struct kube_node node;

	if (pod) {
		try_pod(object);
	} else if (kube_node_read(object, "nvidia.com/gpu", &node)) {
		ASSERT(node.name[0] != '\0' && node.state <= KUBE_NODE_AWAY);
	}
	json_decref(object);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	char *text;

	if (len_bytes < 2) {
		return 0;
	}
	text = strndup((const char *)bytes + 2, len_bytes - 2);
	ASSERT(text != NULL);
	switch ((enum kind)(bytes[0] % KINDS_N)) {
	case KIND_CONFIG:
		try_config(text);
		break;
	case KIND_CREDENTIAL:
		try_credential(text);
		break;
	case KIND_LINES:
		try_lines((const char *)bytes + 2, len_bytes - 2, bytes[1] + 1u);
		break;
	case KIND_QUANTITY:
		try_quantity(text);
		break;
	case KIND_NODE:
	case KIND_POD:
		try_object(text, bytes[0] % KINDS_N == KIND_POD);
		break;
	case KINDS_N:
		break;
	}
	free(text);
	return 0;
}

/* ---- seeds ---- */

#define CONFIG_OF(user)                                                                            \
	"apiVersion: v1\nkind: Config\ncurrent-context: here\n"                                    \
	"contexts:\n- name: here\n  context: {cluster: c, user: u, namespace: team}\n"             \
	"clusters:\n- name: c\n  cluster:\n    server: https://10.0.0.1:6443\n"                    \
	"    certificate-authority-data: Q0EK\nusers:\n- name: u\n  user:\n" user
#define CREDENTIAL_OF(status)                                                                      \
	"{\"kind\": \"ExecCredential\", \"apiVersion\": \"client.authentication.k8s.io/v1\", "     \
	"\"status\": {" status "}}"

static const struct {
	enum kind kind;
	uint8_t piece;
	const char *text;
} seeds[] = {
	{KIND_CONFIG, 0,
		CONFIG_OF("    client-certificate-data: Q0VSVA==\n    client-key: key.pem\n")},
	{KIND_CONFIG, 0, CONFIG_OF("    token: t\n    tokenFile: /run/token\n")},
	{KIND_CONFIG, 0,
		CONFIG_OF("    exec:\n      command: ./plugin\n      apiVersion: "
			  "client.authentication.k8s.io/v1\n      args: [a, \"b c\"]\n      env:\n"
			  "      - {name: A, value: b}\n      provideClusterInfo: true\n")},
	{KIND_CONFIG, 0, CONFIG_OF("    auth-provider: {name: gcp}\n")},
	{KIND_CREDENTIAL, 0,
		CREDENTIAL_OF("\"token\": \"t\", \"expirationTimestamp\": "
			      "\"2026-11-26T13:09:00.5+01:00\"")},
	{KIND_CREDENTIAL, 0,
		CREDENTIAL_OF("\"clientCertificateData\": \"c\", \"clientKeyData\": \"k\"")},
	{KIND_LINES, 2, "{\"type\": \"ADDED\"}\n\n{\"type\": \"BOOKMARK\"}\r\n{\"type\""},
	{KIND_LINES, 255, "{}\n{}\n{}\n"},
	{KIND_QUANTITY, 0, "1.5Gi"},
	{KIND_QUANTITY, 0, "0.001234567890123456789Ei"},
	{KIND_QUANTITY, 0, "7910m"},
	{KIND_QUANTITY, 0, "12345678901e-9"},
	{KIND_NODE, 0,
		"{\"metadata\": {\"name\": \"n1\", \"labels\": {\"karpenter.sh/capacity-type\": "
		"\"spot\", \"nvidia.com/gpu.product\": \"A100\"}}, \"spec\": {\"taints\": "
		"[{\"key\": \"karpenter.sh/disrupted\", \"effect\": \"NoSchedule\"}]}, "
		"\"status\": {\"allocatable\": {\"cpu\": \"7910m\", \"memory\": \"31Gi\", "
		"\"nvidia.com/gpu\": \"4\"}, \"conditions\": [{\"type\": \"Ready\", "
		"\"status\": \"True\"}]}}"},
	{KIND_POD, 0,
		"{\"spec\": {\"nodeName\": \"n1\", \"containers\": [{\"resources\": {\"requests\": "
		"{\"nvidia.com/gpu\": \"2\"}}}], \"initContainers\": [{\"restartPolicy\": "
		"\"Always\", \"resources\": {\"requests\": {\"nvidia.com/gpu\": \"1\"}}}], "
		"\"overhead\": {\"nvidia.com/gpu\": \"1\"}}, \"status\": {\"phase\": "
		"\"Running\"}}"},
	{KIND_POD, 0,
		"{\"metadata\": {\"name\": \"p\", \"labels\": {\"pawl.dev/number\": \"7\"}}, "
		"\"spec\": {\"affinity\": {\"nodeAffinity\": {}}, \"containers\": [{\"name\": "
		"\"main\", \"command\": [\"a\"], \"env\": [], \"resources\": {\"limits\": "
		"{\"cpu\": \"1.5\", \"memory\": \"1Gi\"}}}]}, \"status\": {\"phase\": "
		"\"Failed\", \"reason\": \"Evicted\", \"containerStatuses\": [{\"state\": "
		"{\"terminated\": {\"exitCode\": 137, \"reason\": \"OOMKilled\"}}}]}}"},
};

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	size_t len_bytes;

	if (i >= sizeof(seeds) / sizeof(*seeds)) {
		return 0;
	}
	len_bytes = strlen(seeds[i].text);
	buf[0] = (uint8_t)seeds[i].kind;
	buf[1] = seeds[i].piece;
	memcpy(buf + 2, seeds[i].text, len_bytes);
	return 2 + len_bytes;
}
