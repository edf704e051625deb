/* Shared by fetch.c (interface, thread), fetch_open.c, fetch_read.c and fetch_rebuild.c: see
 * fetch.h. */
#ifndef AGENT_PEER_FETCH_IMPL_H
#define AGENT_PEER_FETCH_IMPL_H

#include "agent/peer/fetch.h"
#include "agent/peer/image.h"
#include "agent/peer/parity.h"
#include "ckpt/format/pieces.h"

#include <pthread.h>

#define FETCH_ROW_BYTES (4u << 20) /* bytes that are rebuilt at a time, at most */

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
	/* Hosts that hold it, in order of preference; then hosts with sums in which it is. */
	const struct recover_source *sources;
	uint32_t sources_n;                /* hosts that hold it */
	const struct recover_source *sums; /* the last of sources */
	uint32_t sums_n;                   /* entries in sums */
	struct record *records;            /* ranks entries; zeroed: the rank has no part */
	const struct record **at;          /* ranks entries, into records */
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
	pthread_cond_t changed;                  /* stop, todo or a request's forgotten changed */
	bool stop;                               /* lock: the thread is to end */
	enum peer_fetch_state state;             /* lock */
	struct pawl_err err;                     /* lock: why the state is FETCH_FAILED */
	struct fetch_queue todo;                 /* lock: requests to be done */
	struct fetch_queue ended;                /* lock: requests that have ended */
	struct fetch_request *current;           /* lock: the request in progress, or NULL */
	struct fetch_host hosts[PEER_HOSTS_MAX]; /* by index in map */
	struct fetch_own *ranks;                 /* world entries; constant once ready */
	int fd;                 /* memory of all arenas, -1: none yet; constant once ready */
	uint64_t size_bytes;    /* size of that memory; constant once ready */
	uint64_t most_bytes;    /* thread's: bytes that may be brought, see fetch.h */
	uint64_t brought_bytes; /* thread's: bytes of all pieces that are there */
	uint8_t *piece;         /* thread's: CKPT_CHUNK bytes, the piece that is being received */
	uint8_t *rows; /* thread's: FETCH_ROW_BYTES for each of rows_n rows; NULL until needed */
	uint32_t rows_n;
};

/* The rows from which a part is rebuilt: parts of its group, then sums, numbered as in parity.h. */
struct fetch_rows {
	struct parity code;
	uint32_t own;                                       /* row of the part itself */
	struct fetch_part *parts[PARITY_DATA_MAX];          /* NULL: the plan does not name it */
	const struct recover_source *sums[PARITY_ROWS_MAX]; /* NULL: nobody has that sum */
	uint64_t left_out; /* bit set of the rows that are not to be used */
	uint64_t used;     /* bit set of the rows that were read last */
};

/* Pieces that come from one host, or are rebuilt, in order. */
struct fetch_run {
	struct peer_fetch *fetch;
	struct fetch_part *part;
	const struct recover_source *source; /* NULL: they are rebuilt */
	uint32_t host;                       /* index in the map of the source */
	struct fetch_rows *rows;             /* rows that they are rebuilt from, or NULL */
	struct image_at at;                  /* behind the piece that is next */
	struct image_piece piece;            /* the piece that is next */
	uint32_t index;                      /* number of that piece in the image */
	uint32_t filled_bytes;               /* bytes of it that have come */
	uint64_t end;                        /* offset in the image of the end of the run */
	bool broken;                         /* this host's memory failed: no other source helps */
	struct pawl_err damage;              /* the first damaged piece; code 0: none */
};

/* ---- fetch.c; not to be called with the lock held ---- */

/* Whether the thread is to drop what it does: the fetch ends, or the request in progress is
 * forgotten. */
bool fetch_interrupted(struct peer_fetch *fetch);
/* Waits for TIME_PEER_RETRY if a host was lost, which may come back meanwhile. Returns whether
 * there is one; false, at once, if the thread is interrupted. */
bool fetch_await_lost(struct peer_fetch *fetch);
/* Returns the part that has a rank, below world; NULL: none has. */
struct fetch_part *fetch_find(struct peer_fetch *fetch, uint32_t rank);

/* ---- fetch_open.c ---- */

/* Gets the records of all ranks and makes the memory. */
int fetch_get_records(struct peer_fetch *fetch, struct pawl_err *err);
/* Frees what that has made. */
void fetch_drop_records(struct peer_fetch *fetch);
/* Checks that more bytes may be brought: PAWL_ENOMEM. */
int fetch_check_room(const struct peer_fetch *fetch, uint64_t more_bytes, struct pawl_err *err);

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
/* Finds what this host holds for a source. NULL: nothing. To be released. */
struct held_part *fetch_held(const struct peer_fetch *fetch, const struct recover_source *source);
/* Fills in a request for the part, or the sum, of a source. */
void fetch_request_msg(const struct peer_fetch *fetch, const struct recover_source *source,
	enum peer_kind kind, struct peer_msg *msg);
/* Receives bytes of an answer: those from off on, and not beyond end. */
int fetch_receive_bytes(struct peer_link *link, uint64_t off, uint64_t end, struct peer_msg *reply,
	struct pawl_err *err);
/* Takes the next bytes of the run, which end in it: writes the pieces that are right. */
int fetch_take_bytes(struct fetch_run *run, const uint8_t *bytes, uint32_t len_bytes,
	struct pawl_err *err);
/* Brings what is missing of [off, end) of the image from its source. PAWL_ECORRUPT: some bytes
 * are damaged; all others are there. */
int fetch_bring_from(struct fetch_run *run, uint64_t off, uint64_t end, struct pawl_err *err);

/* ---- fetch_rebuild.c ---- */

/* Brings what is missing of [off, end) of the image of a part that is in sums. PAWL_EPEER: too few
 * rows are left; PAWL_ECORRUPT: pieces are not what was staged, whichever rows are used. */
int fetch_rebuild(struct peer_fetch *fetch, struct fetch_part *part, uint64_t off, uint64_t end,
	struct pawl_err *err);
/* Rebuilds the pieces of the run, of FETCH_ROW_BYTES at most. */
int fetch_read_rebuilt(struct fetch_run *run, struct pawl_err *err);

#endif
