/* Shared by fetch.c (interface, thread), fetch_open.c and fetch_read.c: see fetch.h. */
#ifndef AGENT_PEER_FETCH_IMPL_H
#define AGENT_PEER_FETCH_IMPL_H

#include "agent/peer/fetch.h"
#include "agent/peer/image.h"

#include <pthread.h>

struct held_part;
struct peer_link;
struct record;

/* A request. */
struct fetch_request {
	uint32_t rank, part; /* partition of a rank, by their indices */
	uint64_t lo, hi;     /* bytes of its file that are asked for */
	bool forgotten;      /* lock: the one in progress is not to be returned */
	struct peer_fetch_done done;
	struct fetch_request *next;
};

struct fetch_queue {
	struct fetch_request *head; /* oldest request */
	struct fetch_request *tail; /* newest request */
};

/* What one host's ranks hold of the save. Its records never change once the fetch is ready. */
struct fetch_part {
	uint32_t first_rank, ranks;
	const struct recover_source *sources; /* hosts that hold it, in order of preference */
	uint32_t sources_n;                   /* entries in sources */
	struct record *records;               /* ranks entries; zeroed: the rank has no part */
	const struct record **at;             /* ranks entries, into records */
	struct image image;
	/* image.parts_n entries: the number of pieces of the image before each of them */
	uint32_t *pieces_before;
	uint32_t pieces_n;      /* pieces of the image */
	uint8_t *there;         /* thread's: bit set of the pieces that are in the memory */
	struct held_part *held; /* the part as this host holds it, or NULL */
};

/* One rank of the save, with what it owns. */
struct fetch_own {
	uint8_t *blob;                /* encoded record, owned; NULL: no part in the save */
	struct peer_fetch_rank given; /* as peer_fetch_rank gives it */
};

/* The host that serves a part, as the thread uses it. */
struct fetch_host {
	struct peer_link *link; /* lock: open link, set and freed by the thread; NULL: none */
	bool lost;              /* thread's: its last link failed; other hosts are tried first */
};

struct peer_fetch {
	struct peers *peers; /* constant, like all up to parts_n */
	struct loop *loop;
	uint64_t root;
	uint32_t world; /* ranks of the save */
	struct recover_plan *plan;
	struct peer_map *map;
	struct fetch_part *parts;
	uint32_t parts_n;
	pthread_t thread;
	pthread_mutex_t lock;                    /* guards what is marked "lock" */
	pthread_cond_t changed;                  /* stop or todo changed */
	bool stop;                               /* lock: the thread is to end */
	enum peer_fetch_state state;             /* lock */
	struct pawl_err err;                     /* lock: why the state is FETCH_FAILED */
	struct fetch_queue todo;                 /* lock: requests to be done */
	struct fetch_queue ended;                /* lock: requests that have ended */
	struct fetch_request *current;           /* lock: the request in progress, or NULL */
	struct fetch_host hosts[PEER_HOSTS_MAX]; /* by index in map */
	struct fetch_own *ranks;                 /* world entries; constant once ready */
	int fd;              /* memory of all arenas, -1: none yet; constant once ready */
	uint64_t size_bytes; /* size of that memory; constant once ready */
	uint8_t *piece;      /* thread's: CKPT_CHUNK bytes, the piece that is being received */
};

/* ---- fetch.c; not to be called with the lock held ---- */

/* Whether the thread is to drop what it does: the fetch ends, or the request in progress is
 * forgotten. */
bool fetch_interrupted(struct peer_fetch *fetch);
/* Returns the part that has a rank, below world; NULL: none has. */
struct fetch_part *fetch_find(struct peer_fetch *fetch, uint32_t rank);

/* ---- peer_fetch_open.c ---- */

/* Gets the records of all ranks and makes the memory. */
int fetch_get_records(struct peer_fetch *fetch, struct pawl_err *err);
/* Frees what that has made. */
void fetch_drop_records(struct peer_fetch *fetch);

/* ---- fetch_read.c ---- */

/* Returns an open link to a host of the map, by its index; it stays open. After an error of this
 * call, or of the link, fetch_lose is to be called. */
int fetch_link(struct peer_fetch *fetch, uint32_t host, struct peer_link **link,
	struct pawl_err *err);
/* Closes a link that is of no more use, and remembers that the host was lost. */
void fetch_lose(struct peer_fetch *fetch, uint32_t host);
/* Finds the index in the map of the host of a source. PAWL_EPEER: it is no host of the run. */
int fetch_host_of(const struct peer_fetch *fetch, const struct recover_source *source,
	uint32_t *host, struct pawl_err *err);
/* Brings the bytes of a request into the memory. PAWL_ECANCELED: interrupted. */
int fetch_bring(struct peer_fetch *fetch, const struct fetch_request *request,
	struct pawl_err *err);

#endif
