/*
 * Shared by the files of the libfabric port; docs/protocol.md has the messages.
 *
 * A stream is a window of bytes at its reader, which says how far it may be filled. Its writer
 * copies into buffers of its own, a few per stream, each of which is a message: so a reader that
 * stands still holds up no other stream, and all memory is taken while joining. Messages may come
 * in another order than they were sent in. Windows are small, so that what we write is what goes
 * over the network now: between hosts, only one peer is sent to at a time.
 */
#ifndef COLL_TRANSPORT_FABRIC_IMPL_H
#define COLL_TRANSPORT_FABRIC_IMPL_H

#include "coll/transport/fabric.h"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <stdbool.h>

#define FABRIC_VERSION    1u
#define FABRIC_ADDRESS    32u /* bytes of an endpoint's address; EFA's are the longest known */
#define FABRIC_MESSAGE    (16u << 10)  /* bytes of a message, header included */
#define FABRIC_HEADER     32u          /* bytes of a message's header */
#define FABRIC_CONTROL    128u         /* bytes of a message that carries no bytes of a stream */
#define FABRIC_WINDOW_MIN (32u << 10)  /* bytes that a stream holds at its reader, at least */
#define FABRIC_WINDOW_MAX (128u << 10) /* bytes that a stream holds at its reader, at most */
#define FABRIC_ROOM       (32u << 20)  /* bytes that all streams should hold together, at most */
#define FABRIC_SENDS      2u           /* messages of a stream under way, at its writer */
#define FABRIC_AHEAD      64u /* messages of a stream not acknowledged by its reader, at most */

enum fabric_kind { FABRIC_HELLO = 1, FABRIC_DATA, FABRIC_CREDIT, FABRIC_BYE };

/* The header of a message, decoded. */
struct fabric_header {
	uint64_t key;       /* key in the receiver's name */
	uint32_t from;      /* rank that sends */
	uint8_t kind;       /* enum fabric_kind */
	uint8_t stream;     /* FABRIC_DATA: number of the stream */
	uint32_t number;    /* FABRIC_DATA: number of the message in its stream */
	uint32_t len_bytes; /* bytes after the header */
	uint64_t off_bytes; /* FABRIC_DATA: offset of the bytes in their stream */
};

/* A buffer that libfabric may hold. */
struct fabric_op {
	struct fi_context2 context; /* libfabric's while it holds the buffer */
	uint8_t *bytes;             /* the buffer, in the port's memory */
	uint32_t len_bytes;         /* bytes to send */
	uint32_t peer;              /* rank to send to; UINT32_MAX: the buffer receives */
	bool in_flight;             /* libfabric holds the buffer */
};

/* A stream that this rank reads. */
struct fabric_in {
	uint8_t *ring;           /* window, in the port's memory */
	uint64_t received, read; /* bytes received and read, ever: read <= came <= read + window */
	uint64_t credited;       /* value of read that the writer was told last */
	uint32_t next, credited_next;     /* next message in order; as last told to the writer */
	uint32_t ahead_len[FABRIC_AHEAD]; /* bytes of messages that came early; 0: not here yet */
};

/* A stream that this rank writes. */
struct fabric_out {
	struct fabric_op ops[FABRIC_SENDS]; /* message n uses ops[n % FABRIC_SENDS] */
	uint64_t sent, limit;          /* bytes sent, ever; limit of sent, which the reader sets */
	uint32_t freed, posted, begun; /* messages, ever: freed <= posted <= begun */
	uint32_t acked;                /* messages, ever, that the reader has acknowledged */
	bool blocked;                  /* the last send found no room for all bytes */
};

#define WANT_HELLO  1u
#define WANT_CREDIT 2u
#define WANT_BYE    4u

struct fabric_peer {
	bool has_streams;                /* bytes are exchanged with this peer */
	fi_addr_t at;                    /* address of the peer */
	uint64_t key;                    /* key in the peer's name */
	bool hello_received, hello_sent; /* the peer's greeting has come; ours has gone */
	bool other_version;              /* the peer's greeting is of another version */
	const char *broken;              /* static text: why the peer is lost; NULL: it is not */
	bool bye_received;               /* the peer said that it closes */
	uint32_t last[COLL_STREAMS];     /* if left: per stream, the message after the last */
	uint8_t want;                    /* WANT_ flags: what control is to say */
	uint8_t sending;                 /* WANT_ flag: what control says now; 0: nothing */
	struct fabric_op control;        /* carries one control message at a time */
	struct fabric_in in[COLL_STREAMS];
	struct fabric_out out[COLL_STREAMS];
};

struct fabric {
	struct coll_transport transport; /* functions for callers; must come first */
	uint32_t rank, ranks;            /* this rank; number of ranks */
	uint64_t key;                    /* key in our name */
	uint32_t window;                 /* bytes that each stream holds */
	uint32_t event_count;            /* part of look's count: all but calls of wake */
	atomic_uint wake_count;          /* part of look's count: calls of wake */
	int epoll, event;                /* epoll set of wait; eventfd of wake */
	int fd;               /* descriptor of the completion queue; -1: the provider has none */
	bool watched;         /* coll_fabric_events has given fd to a caller */
	uint32_t in_flight;   /* messages being sent, whose buffers libfabric holds */
	bool post_pending;    /* something is to be posted, or could not be */
	bool posted;          /* the last push has posted something */
	int64_t stalled_ns;   /* since when nothing could be posted; 0: something can */
	const char *broken;   /* static text: why libfabric has failed; NULL: it has not */
	struct fi_info *info; /* owned, like all fields below */
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	struct fid_mr *mr;         /* registration of memory; NULL: the provider needs none */
	uint8_t *memory;           /* buffers of all ops */
	uint8_t *rings;            /* windows of all streams that we read */
	struct fabric_op *recvs;   /* buffers that receive */
	uint32_t recvs_n;          /* number of entries in recvs */
	struct fabric_peer *peers; /* one per rank */
};

/* The functions of libfabric that its headers do not define inline. */
struct fabric_lib {
	int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
		const struct fi_info *hints, struct fi_info **info);
	void (*freeinfo)(struct fi_info *info);
	struct fi_info *(*dupinfo)(const struct fi_info *info);
	int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
	const char *(*strerror)(int code);
};

extern const struct coll_transport fabric_transport; /* functions of this port */

static inline struct fabric *fabric_of(struct coll_transport *transport)
{
	return (struct fabric *)(void *)transport;
}

/* fabric_open.c */

/* Loads libfabric. NULL with err: PAWL_ENOTSUP. */
const struct fabric_lib *fabric_load(struct pawl_err *err);
/* Releases all objects of libfabric. */
void fabric_release(struct fabric *fabric);

/* fabric.c */

/* Takes what has come and posts what can be posted; seen may or may not change. */
void fabric_progress(struct fabric *fabric);
/* Sleeps until something comes, for timeout_ns at most. */
void fabric_sleep(struct fabric *fabric, int64_t timeout_ns);

/* fabric_message.c; pure, except for the arguments */

void fabric_encode_header(uint8_t *bytes, const struct fabric_header *header);
/* Returns -1 if the bytes are too few for a header, or not as many as the header says. */
int fabric_decode_header(const uint8_t *bytes, size_t len_bytes, struct fabric_header *header);
/* Writes what is wanted most into control. */
void fabric_write_control(struct fabric *fabric, struct fabric_peer *peer);
/* Takes a message that has come. Ignores one that is not from a peer of ours, or lacks the key. */
void fabric_take_message(struct fabric *fabric, const uint8_t *bytes, size_t len_bytes);

#endif
