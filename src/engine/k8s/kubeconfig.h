/*
 * Kubeconfig files: which API server to talk to, and as whom. Pure: kube_access.h reads the
 * files, runs commands and follows tokens that change.
 *
 * Several files are one, as KUBECONFIG lists them: of two entries of one name, or two values of
 * current-context, the first one counts. Paths are relative to the file that has them.
 */
#ifndef ENGINE_K8S_KUBECONFIG_H
#define ENGINE_K8S_KUBECONFIG_H

#include "sched/jobfile/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pawl_err;

#define KUBECONFIG_FILES_MAX 16u
#define KUBECONFIG_ARGS_MAX  64u /* arguments, and variables, of a command */

/* A file that was read. */
struct kubeconfig_file {
	const char *path; /* for errors, and what relative paths are relative to */
	const void *bytes;
	size_t len_bytes;
};

/* A certificate or a key: a file, or its text. */
struct kubeconfig_pem {
	const char *file; /* NULL: none */
	const char *text; /* decoded, a NUL behind it; NULL: none. It counts more than file */
	size_t text_bytes;
};

/* A variable of a command's environment. */
struct kubeconfig_variable {
	const char *name;
	const char *value;
};

/* A command that prints credentials (ExecCredential). */
struct kubeconfig_exec {
	const char *command;     /* a path, or a name to be found in PATH; NULL: there is none */
	const char *api_version; /* "client.authentication.k8s.io/v1" or "…/v1beta1" */
	const char *hint;        /* how to install the command, for people; NULL: none given */
	const char *args[KUBECONFIG_ARGS_MAX];
	uint32_t args_n;
	struct kubeconfig_variable env[KUBECONFIG_ARGS_MAX]; /* added to this process's */
	uint32_t env_n;
	bool wants_cluster; /* the command is told about the cluster */
};

/* What one context says. Strings are the arena's; NULL: it does not say so. */
struct kubeconfig {
	struct sched_arena arena;
	const char *context;
	const char *name_space;
	const char *server;   /* "https://HOST[:PORT][/PATH]" */
	const char *tls_name; /* name that the server's certificate must have, if not the host's */
	const char *proxy;    /* URL */
	bool insecure;        /* the server's certificate is not checked */
	struct kubeconfig_pem authority;
	struct kubeconfig_pem certificate;
	struct kubeconfig_pem key;
	const char *token;
	const char *token_file; /* counts more than token */
	const char *user;       /* with password: basic authentication */
	const char *password;
	struct kubeconfig_exec exec;
};

/*
 * Reads what the files say about a context (NULL: the current one). err names the file and the
 * entry, and holds no secret. PAWL_ENOENT: there is no such context; PAWL_EINVAL: something is
 * wrong; PAWL_ENOTSUP: it needs what clients of Kubernetes gave up (auth-provider), or what this
 * one has not (impersonation); PAWL_ENOMEM. Call kubeconfig_deinit in any case.
 */
int kubeconfig_read(const struct kubeconfig_file *files, size_t files_n, const char *context,
	struct kubeconfig *config, struct pawl_err *err);
/* Zeroed is fine. */
void kubeconfig_deinit(struct kubeconfig *config);

#endif
