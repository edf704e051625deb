/*
 * What the files of the libfabric port share: docs/protocol.md has the messages.
 *
 * A stream is a window of bytes at its reader, which says how far it may be filled. Its writer
 * copies into buffers of its own, a few a stream, each of which is a message: so a reader that
 * stands still holds up no other stream, and all memory is taken while joining. Messages may come
 * in another order than they were sent in. Windows are small, so that what we write is what goes
 * over the network now: between hosts one is sent to at a time.
 */
#ifndef COLL_FABRIC_IMPL_H
#define COLL_FABRIC_IMPL_H

#include "coll/fabric.h"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <stdbool.h>

#define FABRIC_VERSION    1u
#define FABRIC_ADDRESS    32u          /* bytes of an endpoint's: EFA's are the longest we know */
#define FABRIC_MESSAGE    (16u << 10)  /* bytes of a message, its head included */
#define FABRIC_HEAD       32u          /* of the head */
#define FABRIC_CONTROL    128u         /* of a message that carries none of a stream's bytes */
#define FABRIC_WINDOW_MIN (32u << 10)  /* bytes that a stream holds at its reader */
#define FABRIC_WINDOW_MAX (128u << 10) /* the same; between them, so that all … */
#define FABRIC_ROOM       (32u << 20)  /* … take no more than this */
#define FABRIC_SENDS      2u           /* messages of a stream on their way, at its writer */
#define FABRIC_AHEAD      64u          /* messages of a stream that its reader has not owned to */

enum fabric_kind { FABRIC_HELLO = 1, FABRIC_DATA, FABRIC_CREDIT, FABRIC_BYE };

/* A head, decoded. */
struct fabric_head {
	uint64_t key;       /* of the name of whom it is for */
	uint32_t from;      /* rank */
	uint8_t kind;       /* enum fabric_kind */
	uint8_t stream;     /* FABRIC_DATA: which */
	uint32_t number;    /* FABRIC_DATA: of the message in its stream */
	uint32_t len_bytes; /* of what follows */
	uint64_t off_bytes; /* FABRIC_DATA: where it is in its stream */
};

/* A buffer that libfabric may have. */
struct fabric_op {
	struct fi_context2 context; /* libfabric's while it has the buffer */
	uint8_t *bytes;             /* in the port's memory */
	uint32_t len_bytes;         /* of them, to be sent */
	uint32_t peer;              /* whom to; UINT32_MAX: it receives */
	bool away;                  /* libfabric has it */
};

/* A stream that we read. */
struct fabric_in {
	uint8_t *ring;                    /* in the port's memory; a window */
	uint64_t came, read;              /* bytes, ever: read <= came <= read + window */
	uint64_t told;                    /* of read, that the writer was told */
	uint32_t next, told_next;         /* message that came continues with; the same */
	uint32_t ahead_len[FABRIC_AHEAD]; /* bytes of messages that came early; 0: has not come */
};

/* A stream that we write. */
struct fabric_out {
	struct fabric_op ops[FABRIC_SENDS]; /* of message n: n % FABRIC_SENDS */
	uint64_t sent, room;                /* bytes, ever: sent <= room, which is its reader's */
	uint32_t freed, posted, begun;      /* messages, ever: in this order */
	uint32_t owned;                     /* of them, that its reader has owned to */
	bool refused;                       /* the last send found no room for all */
};

#define WANT_HELLO  1u
#define WANT_CREDIT 2u
#define WANT_BYE    4u

struct fabric_peer {
	bool meets;          /* bytes are exchanged with it */
	fi_addr_t at;        /* where it is */
	uint64_t key;        /* of its name */
	bool heard, greeted; /* its greeting has come; ours has gone */
	bool other_version;  /* its greeting is another one */
	const char *broken;  /* static text: why nothing goes or comes any more */
	bool left;           /* it said that it closes */
	uint32_t
		last[COLL_STREAMS]; /* … and what the next message of each stream would have been */
	uint8_t want;               /* WANT_…: to be said */
	uint8_t saying;             /* WANT_…: what control has */
	struct fabric_op control;   /* for one of them at a time */
	struct fabric_in in[COLL_STREAMS];
	struct fabric_out out[COLL_STREAMS];
};

struct fabric {
	struct coll_port port; /* what others see */
	uint32_t rank, ranks;  /* ours; all */
	uint64_t key;          /* of our name */
	uint32_t window;       /* bytes of a stream */
	uint32_t seen;         /* what look says, but for … */
	atomic_uint woken;     /* … calls of wake */
	int epoll, event;      /* of wait; for wake */
	int fd;                /* of the completion queue; -1: this provider has none */
	bool watched;          /* by others, through coll_fabric_events */
	uint32_t away;         /* messages that libfabric has */
	bool held_up;          /* something could not be posted */
	bool posted;           /* something was, in the last attempt at all of that */
	int64_t stalled_ns;    /* since when nothing could be; 0: it can */
	const char *broken;    /* static text: libfabric has failed */
	struct fi_info *info;  /* owned, as all that follows */
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	struct fid_mr *mr;         /* of memory; NULL: the provider does without */
	uint8_t *memory;           /* buffers of ops */
	uint8_t *rings;            /* of streams */
	struct fabric_op *recvs;   /* that receive */
	uint32_t recvs_n;          /* of them */
	struct fabric_peer *peers; /* of each rank */
};

/* What is needed of libfabric beside what its headers have. */
struct fabric_lib {
	int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
		const struct fi_info *hints, struct fi_info **info);
	void (*freeinfo)(struct fi_info *info);
	struct fi_info *(*dupinfo)(const struct fi_info *info);
	int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
	const char *(*strerror)(int code);
};

extern const struct coll_port fabric_port; /* its functions */

static inline struct fabric *fabric_of(struct coll_port *port)
{
	return (struct fabric *)(void *)port;
}

/* fabric_open.c */

/* Loads it; NULL with err: PAWL_ENOTSUP. */
const struct fabric_lib *fabric_load(struct pawl_err *err);
/* Gives back all that is libfabric's. */
void fabric_release(struct fabric *fabric);

/* fabric.c */

/* Takes what has come and posts what can be; whether seen has changed is another matter. */
void fabric_progress(struct fabric *fabric);
/* Sleeps until something comes, but no longer than so. */
void fabric_sleep(struct fabric *fabric, int64_t timeout_ns);

/* fabric_message.c; pure but for what they are given */

void fabric_encode_head(uint8_t *bytes, const struct fabric_head *head);
/* -1: there is too little for a head, or for what it says that follows. */
int fabric_decode_head(const uint8_t *bytes, size_t len_bytes, struct fabric_head *head);
/* Into control: what is wanted first. */
void fabric_write_control(struct fabric *fabric, struct fabric_peer *peer);
/* A message has come; of none of our peers, or without the key: nothing happens. */
void fabric_take_message(struct fabric *fabric, const uint8_t *bytes, size_t len_bytes);

#endif
