/*
 * An API server of Kubernetes inside of the test process, at 127.0.0.1, with all objects in memory:
 * lists in pages, watches with bookmarks, conflicts, merge patches, subresource status, status 410
 * in both forms. It knows no kinds: any object may be in any collection. It does wrong what a test
 * asks for. What it does is held against a real server by tests/python/kube.
 *
 * Each connection has a thread, so a test may use it from any thread.
 */
#ifndef TEST_KUBE_SERVER_H
#define TEST_KUBE_SERVER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kube_server;

/* A request, as a hook sees it. */
struct kube_server_ask {
	unsigned nth; /* number among all requests since the start or the last reset, from 1 */
	const char *method; /* "GET" */
	const char *path;
	bool watches;
	const char *authorization; /* NULL: none */
};

enum kube_server_fault_kind {
	KUBE_FINE,   /* carries the request out, and answers */
	KUBE_ANSWER, /* answers with status, reason and headers; carries nothing out */
	KUBE_LOSE,   /* carries it out, and closes the connection without an answer */
	KUBE_DROP,   /* closes the connection, and carries nothing out */
	KUBE_BREAK,  /* ends a watch in the middle of its first line */
	KUBE_STALL,  /* a watch says nothing, not even that it has begun, until the server stops */
};

struct kube_server_fault {
	enum kube_server_fault_kind kind;
	int status;
	const char *reason; /* "TooManyRequests"; NULL: none */
	unsigned after_s;   /* Retry-After; 0: none */
};

/* Called for each request, one at a time, with a lock of the server held: call nothing of it. */
typedef void kube_server_hook(void *user, const struct kube_server_ask *ask,
	struct kube_server_fault *fault);

/* Aborts the test if there is no socket or memory. */
struct kube_server *kube_server_start(void);
/* Ends all connections. */
void kube_server_stop(struct kube_server *server);
const char *kube_server_url(const struct kube_server *server);
/* Sets the hook; NULL: none. It is not running any more on return. Begins to count anew. */
void kube_server_set_hook(struct kube_server *server, kube_server_hook *hook, void *user);
/* Returns the number of requests since the hook was set. */
unsigned kube_server_count(struct kube_server *server);

/* ---- objects, without a request ---- */

/* Creates an object, or replaces it. path: "/api/v1/namespaces/a/pods/b". object is taken. */
void kube_server_put(struct kube_server *server, const char *path, json_t *object);
/* Returns a copy of an object, or NULL. */
json_t *kube_server_get(struct kube_server *server, const char *path);
/* Removes an object. Returns whether there was one. */
bool kube_server_remove(struct kube_server *server, const char *path);
/* Forgets all changes so far: watches from before are told so, and pages that were begun. */
void kube_server_compact(struct kube_server *server);
/* Ends all watches: as the time that they asked for would. */
void kube_server_end_watches(struct kube_server *server);
/* Sends a bookmark to all watches. */
void kube_server_bookmark(struct kube_server *server);

#endif
