/*
 * A client of a Kubernetes API server: requests, and collections that are watched. A thread of its
 * own sends and receives, and parses what comes, so that neither a slow server nor a long list
 * holds up the loop.
 *
 * All functions belong to the loop's thread, and so do all callbacks, which may call any of them
 * but kube_close.
 */
#ifndef ENGINE_K8S_KUBE_H
#define ENGINE_K8S_KUBE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct kube;
struct kube_access;
struct kube_call;
struct kube_watch;
struct loop;
struct pawl_err;

#define KUBE_PATH_MAX   1024u /* bytes of a path, terminator included */
#define KUBE_QUERY_MAX  512u
#define KUBE_REASON_MAX 64u
#define KUBE_WHY_MAX    512u

/* Opens a client, which owns access from then on, also if this fails. Sends nothing yet. */
int kube_open(struct loop *loop, struct kube_access *access, struct kube **out,
	struct pawl_err *err);
/* Gives up all requests and watches without a callback. NULL is fine. */
void kube_close(struct kube *kube);
/* Returns the namespace of the access. */
const char *kube_namespace(const struct kube *kube);

/* ---- requests ---- */

enum kube_verb {
	KUBE_GET,
	KUBE_POST,
	KUBE_PUT,
	KUBE_PATCH, /* a merge patch: null removes */
	KUBE_DELETE,
};

/* What the server has answered, or why it has not. Valid during the callback. */
struct kube_answer {
	/*
	 * 0: it did what was asked. PAWL_ENOENT: 404. PAWL_EEXIST: there is such an object.
	 * PAWL_EBUSY: the object is no longer what it was (409). PAWL_EINVAL: the server does not
	 * take it (400, 403, 422 …). PAWL_ETIMEDOUT: no answer for as long as the caller has
	 * patience. PAWL_ENOMEM. PAWL_EIO: the answer makes no sense.
	 */
	int rv;
	int status;         /* status of HTTP; 0: none */
	const char *reason; /* the API's word: "AlreadyExists"; "": none */
	const char *why;    /* text for people, with what was asked; "" if rv is 0 */
	const json_t *body; /* NULL: none */
};

struct kube_ask {
	enum kube_verb verb;
	const char *path;  /* "/apis/pawl.dev/v1/…"; copied */
	const char *query; /* "a=b&c=d", percent-encoded; NULL: none; copied */
	json_t *body;      /* taken over, also on failure; NULL: none */
	/* How long it is tried again while the server is away or has no time; 0: once. A POST whose
	 * answer was lost may fail with PAWL_EEXIST then. */
	int64_t patience_ns;
	void (*done)(void *user, const struct kube_answer *answer);
	void *user;
};

/* Sends a request. Returns a handle that is valid until done has been called; NULL: there is no
 * memory, and done is not called. */
struct kube_call *kube_send(struct kube *kube, const struct kube_ask *ask);
/* Lets the callback not be called. The request may be carried out all the same. */
void kube_cancel(struct kube_call *call);

/* ---- watches ---- */

struct kube_watch_options {
	const char *path;     /* path of a collection: "/api/v1/pods"; copied */
	const char *selector; /* "labelSelector=…", percent-encoded; NULL: all; copied */
	/* An object is there, or has changed. A list has no kind and apiVersion in its objects. */
	void (*seen)(void *user, const json_t *object);
	/* An object is gone. object: its last state, or only its name and namespace. */
	void (*gone)(void *user, const json_t *object);
	/* All that is there has been seen. Again after each time when changes were missed; what is
	 * gone by then was reported before. */
	void (*listed)(void *user);
	/* The server does not let itself be watched, and why; it is tried again. NULL: nobody wants
	 * to know. */
	void (*failed)(void *user, const char *why);
	void *user;
};

/* Begins to watch; NULL: there is no memory. */
struct kube_watch *kube_watch(struct kube *kube, const struct kube_watch_options *options);
/* Ends a watch: no callback of it is called any more. */
void kube_unwatch(struct kube_watch *watch);

#endif
