/* See exec_credential.h. */
#include "engine/k8s/exec_credential.h"

#include "base/date.h"
#include "base/err.h"
#include "base/fault.h"

#include <jansson.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#define KIND "ExecCredential"

/* Adds the cluster to what a plugin is told. */
static void add_cluster(json_t *spec, const struct kubeconfig *config)
{
	json_t *cluster = json_object();

	json_object_set_new(cluster, "server", json_string(config->server));
	if (config->tls_name != NULL) {
		json_object_set_new(cluster, "tls-server-name", json_string(config->tls_name));
	}
	if (config->insecure) {
		json_object_set_new(cluster, "insecure-skip-tls-verify", json_true());
	}
	if (config->proxy != NULL) {
		json_object_set_new(cluster, "proxy-url", json_string(config->proxy));
	}
	if (config->authority.text != NULL) {
		size_t len_bytes = config->authority.text_bytes;
		unsigned char *base64 = FAULT_MEM("exec_credential", malloc(len_bytes / 3 * 4 + 5));

		if (base64 != NULL) {
			EVP_EncodeBlock(base64, (const unsigned char *)config->authority.text,
				(int)len_bytes);
			json_object_set_new(cluster, "certificate-authority-data",
				json_string((const char *)base64));
			free(base64);
		}
	}
	json_object_set_new(spec, "cluster", cluster);
}

char *exec_credential_ask(const struct kubeconfig *config)
{
	json_t *spec = json_pack("{s:b}", "interactive", 0);
	json_t *ask = json_pack("{s:s, s:s, s:o}", "apiVersion", config->exec.api_version, "kind",
		KIND, "spec", spec);
	char *text;

	if (ask != NULL && config->exec.wants_cluster) {
		add_cluster(spec, config);
	}
	text = ask != NULL ? FAULT_MEM("exec_credential", json_dumps(ask, JSON_COMPACT)) : NULL;
	json_decref(ask);
	return text;
}

/* Copies a text, if there is one that is not empty. Returns false if there is no memory. */
static bool copy_text(const json_t *status, const char *name, char **copy)
{
	const char *text = json_string_value(json_object_get(status, name));

	if (text == NULL || text[0] == '\0') {
		return true;
	}
	*copy = FAULT_MEM("exec_credential", strdup(text));
	return *copy != NULL;
}

/* Takes what all, which a plugin has printed, says. */
static int take(const struct kubeconfig *config, const json_t *all,
	struct exec_credential *credential, struct pawl_err *err)
{
	const char *kind = json_string_value(json_object_get(all, "kind"));
	const char *version = json_string_value(json_object_get(all, "apiVersion"));
	const json_t *status = json_object_get(all, "status");
	const char *end = json_string_value(json_object_get(status, "expirationTimestamp"));

	if (kind == NULL || strcmp(kind, KIND) != 0 || version == NULL) {
		return pawl_err_set(err, PAWL_EIO, "what it printed is no " KIND);
	}
	if (strcmp(version, config->exec.api_version) != 0) {
		return pawl_err_set(err, PAWL_EIO,
			"it printed apiVersion %.64s, and the kubeconfig asks for %s", version,
			config->exec.api_version);
	}
	if (end != NULL && !date_read(end, &credential->end_wall_ns)) {
		return pawl_err_set(err, PAWL_EIO, "its expirationTimestamp is no time");
	}
	if (!copy_text(status, "token", &credential->token) ||
		!copy_text(status, "clientCertificateData", &credential->certificate) ||
		!copy_text(status, "clientKeyData", &credential->key)) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for credentials");
	}
	if ((credential->certificate == NULL) != (credential->key == NULL)) {
		return pawl_err_set(err, PAWL_EIO,
			"it printed one of clientCertificateData and clientKeyData alone");
	}
	if (credential->token == NULL && credential->certificate == NULL) {
		return pawl_err_set(err, PAWL_EIO, "it printed neither a token nor a certificate");
	}
	return 0;
}

int exec_credential_read(const struct kubeconfig *config, const char *text,
	struct exec_credential *credential, struct pawl_err *err)
{
	json_t *all = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	int rv;

	*credential = (struct exec_credential){.end_wall_ns = INT64_MAX};
	rv = take(config, all, credential, err);
	json_decref(all);
	if (rv != 0) {
		exec_credential_deinit(credential);
	}
	return rv;
}

static void wipe(char *text)
{
	if (text != NULL) {
		explicit_bzero(text, strlen(text));
		free(text);
	}
}

void exec_credential_deinit(struct exec_credential *credential)
{
	wipe(credential->token);
	wipe(credential->certificate);
	wipe(credential->key);
	*credential = (struct exec_credential){.token = NULL};
}
