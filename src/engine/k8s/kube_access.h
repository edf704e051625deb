/*
 * How to reach an API server, and as whom: by a kubeconfig, or by the service account of the Pod in
 * which this process runs. Reads files and runs plugins, and so may block for up to
 * TIME_KUBE_PLUGIN: for one thread, which is not the loop's. No error holds a secret.
 */
#ifndef ENGINE_K8S_KUBE_ACCESS_H
#define ENGINE_K8S_KUBE_ACCESS_H

#include <stdbool.h>
#include <stdint.h>

struct http_options;
struct http_request;
struct kube_access;
struct pawl_err;

struct kube_access_options {
	/* A kubeconfig, or several with ':' between them. NULL: KUBECONFIG; without that,
	 * ~/.kube/config; and without such a file, the Pod's account. */
	const char *kubeconfig;
	const char *context;     /* NULL: the current one */
	const char *account_dir; /* directory of the Pod's account; NULL: where Kubernetes has it */
};

/* Finds the server, and reads what does not change. PAWL_ENOENT: there is neither kubeconfig nor
 * account; else as kubeconfig_read. */
int kube_access_open(const struct kube_access_options *options, struct kube_access **out,
	struct pawl_err *err);
void kube_access_close(struct kube_access *a); /* NULL is fine */
/* Returns where requests go: "http[s]://HOST[:PORT]", and the path that theirs begin with. */
const char *kube_access_endpoint(const struct kube_access *a);
const char *kube_access_path(const struct kube_access *a);
/* Returns the namespace of the context, or of the Pod; "default" if none is said. */
const char *kube_access_namespace(const struct kube_access *a);
/* Adds to the options of a pool how its connections are made. What they point to is the access's,
 * until its version changes. */
void kube_access_connect(const struct kube_access *a, struct http_options *options);
/* Returns the number of the certificates in use: with another one, a new pool is needed. */
uint64_t kube_access_version(const struct kube_access *a);
/* Adds the header that says who asks. refused: the server did not take the last one, so another
 * one is got if there is a source. */
int kube_access_authorize(struct kube_access *a, bool refused, struct http_request *request,
	struct pawl_err *err);

#endif
