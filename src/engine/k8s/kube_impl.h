/*
 * What the files of the client share.
 *
 * The loop's thread makes calls and watches, and gives them to the thread by kube.inbox; the thread
 * answers by events in kube.outbox, and an eventfd wakes the loop. Each side frees nothing that the
 * other may still use: a call is freed by the loop behind its answer, a watch by the loop behind
 * the thread's last event about it. `unwanted` belongs to the loop alone: who has it set gets no
 * callback.
 *
 * Lock: kube.lock guards inbox, outbox, stopping and each watch's `ending`. Nothing is called under
 * it.
 */
#ifndef ENGINE_K8S_KUBE_IMPL_H
#define ENGINE_K8S_KUBE_IMPL_H

#include "base/err.h"
#include "base/rng.h"
#include "engine/k8s/json_lines.h"
#include "engine/k8s/kube.h"
#include "io/http.h"
#include "io/http_request.h"
#include "io/loop.h"

#include <pthread.h>

#define KUBE_CONNECTIONS 16u /* requests in flight, beside watches */

enum kube_event_kind {
	KUBE_ANSWERED, /* a call; it is freed behind its callback */
	KUBE_SEEN,
	KUBE_GONE,
	KUBE_LISTED,
	KUBE_FAILED,
	KUBE_ENDED, /* the thread knows the watch no more */
};

struct kube_event {
	enum kube_event_kind kind;
	struct kube_call *call;   /* with KUBE_ANSWERED */
	struct kube_watch *watch; /* else */
	json_t *object;           /* owned; or NULL */
	char why[KUBE_WHY_MAX];   /* with KUBE_FAILED */
	struct kube_event *next;
};

/* A request on its way: at most KUBE_CONNECTIONS of them, and one for each watch. The thread's. */
struct kube_flight {
	struct http_request request;
	struct http_call http;
	struct kube_call *call;   /* the call that it carries out; NULL: a watch's request */
	struct kube_watch *watch; /* the watch that it serves; NULL: a call's request */
};

struct kube_call {
	struct kube *kube;
	enum kube_verb verb;
	char path[KUBE_PATH_MAX];
	char query[KUBE_QUERY_MAX];
	char *body; /* text, owned; NULL: none */
	int64_t patience_ns;
	void (*done)(void *user, const struct kube_answer *answer); /* the loop's */
	void *user;
	bool unwanted; /* the loop's */
	/* The thread's, until it is answered. */
	int64_t end_ns;   /* then patience is over; 0: not begun */
	int64_t begin_ns; /* time of the next attempt */
	unsigned attempts;
	bool refused; /* the server did not take the credentials */
	int rv;
	int status;
	char reason[KUBE_REASON_MAX];
	char why[KUBE_WHY_MAX];
	json_t *answer;             /* owned */
	struct kube_event event;    /* hands the answer over, which so needs no memory */
	struct kube_flight *flight; /* NULL: it waits */
	struct kube_call *next;
};

enum kube_watch_state {
	KUBE_WATCH_WAITS, /* until begin_ns */
	KUBE_WATCH_LISTS,
	KUBE_WATCH_WATCHES,
};

struct kube_watch {
	struct kube *kube;
	char path[KUBE_PATH_MAX];
	char selector[KUBE_QUERY_MAX];
	struct kube_watch_options options; /* the loop's */
	bool unwanted;                     /* the loop's */
	bool ending;                       /* under kube.lock: the loop wants no more */
	/* The thread's. */
	enum kube_watch_state state;
	bool lists_next;   /* the next request reads the list anew, from its first page */
	int64_t begin_ns;  /* when the next request is sent */
	unsigned failures; /* in a row */
	bool refused;
	char version[64]; /* resourceVersion from which changes are watched; "": none */
	char *more;       /* token of a list's next page, owned; NULL: the first one */
	json_t *known;    /* key of each object that is there: its resourceVersion */
	json_t *listed;   /* keys of the list that is being read */
	struct json_lines lines;
	bool expired; /* the server no longer has the changes since version */
	bool broken;  /* a line made no sense, or there was no memory */
	struct kube_flight *flight;
	struct kube_event ended; /* the last event about the watch */
	struct kube_watch *next;
};

struct kube {
	struct loop *loop;          /* the caller's */
	struct loop_source source;  /* eventfd, owned */
	struct kube_access *access; /* the thread's, once it runs; owned */
	pthread_t thread;
	bool started;

	pthread_mutex_t lock;
	pthread_cond_t changed; /* the inbox is not empty, a watch ends, or stopping */
	bool stopping;
	bool poked;                     /* something changed since the thread looked last */
	struct kube_call *inbox;        /* newest first */
	struct kube_watch *new_watches; /* newest first */
	struct kube_event *outbox;      /* oldest first */
	struct kube_event **outbox_end;

	/* The thread's. */
	struct http_pool *http;
	uint64_t version;        /* version of the access with which http was made */
	struct rng rng;          /* jitter */
	struct kube_call *calls; /* all that are not answered, oldest first */
	struct kube_call **calls_end;
	uint32_t flights_n; /* calls that have one */
	struct kube_watch *watches;
};

/* ---- kube.c; the thread's ---- */

/* Hands an event to the loop. */
void kube_post(struct kube *kube, struct kube_event *event);
/* Makes an event and hands it over. object is taken. Returns false if there is no memory. */
bool kube_report(struct kube_watch *watch, enum kube_event_kind kind, json_t *object);
/* Returns a delay before the next attempt after so many failures, or what the server asked for. */
int64_t kube_delay(struct kube *kube, unsigned failures, const struct http_call *http);
/* Begins a request; NULL and err: it cannot be. */
struct kube_flight *kube_fly(struct kube *kube, const char *method, const char *path,
	const char *query, bool refused, struct pawl_err *err);
/* Frees what is over, or ends what is in flight. NULL is fine. */
void kube_land(struct kube *kube, struct kube_flight *flight, bool over);
/* Explains an answer that is no success, for people: "GET /path: 403: pods is forbidden …". */
void kube_explain(const char *what, const char *path, const struct http_call *http, char *reason,
	char *why);

/* ---- kube_watch.c; the thread's ---- */

/* Sends the watch's next request, if it is time. Returns when that is. */
int64_t kube_watch_step(struct kube_watch *watch, int64_t now_ns);
/* Handles the end of its request. */
void kube_watch_answered(struct kube_watch *watch);
/* Frees all but the watch itself. */
void kube_watch_clear(struct kube_watch *watch);

#endif
