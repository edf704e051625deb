/* Plugins that print credentials for an API server, as client.authentication.k8s.io documents them.
 * Pure. */
#ifndef ENGINE_K8S_EXEC_CREDENTIAL_H
#define ENGINE_K8S_EXEC_CREDENTIAL_H

#include "engine/k8s/kubeconfig.h"

/* What a plugin has printed. Owned; wiped by exec_credential_deinit. */
struct exec_credential {
	char *token;         /* NULL: none */
	char *certificate;   /* PEM; NULL: none */
	char *key;           /* PEM, with certificate */
	int64_t end_wall_ns; /* time of expiry; INT64_MAX: none is said */
};

/* Writes the value of KUBERNETES_EXEC_INFO, which the caller frees. NULL: no memory. */
char *exec_credential_ask(const struct kubeconfig *config);
/* Reads what a plugin has printed. PAWL_EIO: it is no ExecCredential of the version that was asked
 * for, or has no credential. */
int exec_credential_read(const struct kubeconfig *config, const char *text,
	struct exec_credential *credential, struct pawl_err *err);
/* Zeroed is fine. */
void exec_credential_deinit(struct exec_credential *credential);

#endif
