/*
 * Shared by the files of the libfabric transport; docs/protocol.md has the messages.
 *
 * A stream is a window of bytes at its reader, which tells the writer how far to fill it. The
 * writer copies bytes into buffers of its own, a few per stream, each of which is a message. So a
 * reader that does not read blocks no other stream, and all memory is allocated while joining.
 * Messages may arrive in another order than they were sent in. Windows are small, so that bytes
 * leave soon after they are written: between hosts, only one peer is sent to at a time.
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
#define FABRIC_ADDRESS    32u /* bytes of a libfabric address; EFA's are the longest known */
#define FABRIC_MESSAGE    (16u << 10)  /* bytes of a message, header included */
#define FABRIC_HEADER     32u          /* bytes of a message's header */
#define FABRIC_CONTROL    128u         /* bytes of a message that carries no bytes of a stream */
#define FABRIC_WINDOW_MIN (32u << 10)  /* bytes that a stream holds at its reader, at least */
#define FABRIC_WINDOW_MAX (128u << 10) /* bytes that a stream holds at its reader, at most */
#define FABRIC_ROOM       (32u << 20)  /* bytes that all streams together should hold, at most */
#define FABRIC_SENDS      2u           /* messages of a stream in flight, at its writer */
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

/* A buffer that is posted to libfabric to send or to receive. */
struct fabric_op {
	struct fi_context2 context; /* must come first; libfabric's while it holds the buffer */
	uint8_t *bytes;             /* the buffer, in fabric.memory */
	uint32_t len_bytes;         /* bytes to send */
	uint32_t peer;              /* rank to send to; UINT32_MAX: the buffer receives */
	bool in_flight;             /* libfabric holds the buffer */
};

/* A stream that this rank reads. */
struct fabric_in {
	uint8_t *ring;     /* window, in fabric.rings */
	uint64_t received; /* bytes received in order, ever: read <= received <= read + window */
	uint64_t read;     /* bytes that the caller has read, ever */
	uint64_t credited; /* value of read in the last credit message */
	uint32_t next;     /* number of the next message in order */
	uint32_t credited_next;           /* value of next in the last credit message */
	uint32_t ahead_len[FABRIC_AHEAD]; /* bytes of messages received early; 0: not received */
};

/* A stream that this rank writes. */
struct fabric_out {
	struct fabric_op ops[FABRIC_SENDS]; /* message n uses ops[n % FABRIC_SENDS] */
	uint64_t sent, limit;          /* bytes sent, ever; limit of it, which the reader sets */
	uint32_t freed, posted, begun; /* messages, ever: freed <= posted <= begun */
	uint32_t acked;                /* messages, ever, that the reader has acknowledged */
	bool blocked;                  /* the last send found no room for all bytes */
};

/* Flags of the control messages that are to be sent. */
#define WANT_HELLO  1u
#define WANT_CREDIT 2u
#define WANT_BYE    4u

struct fabric_peer {
	bool has_streams;                /* bytes are exchanged with this peer */
	fi_addr_t at;                    /* address of the peer */
	uint64_t key;                    /* key in the peer's name */
	bool hello_received, hello_sent; /* handshake: the peer's hello; our hello */
	bool other_version;              /* the peer's hello is of another version */
	const char *broken;              /* static text: why the peer is lost; NULL: it is not */
	bool bye_received;               /* the peer closes its transport */
	uint32_t last[COLL_STREAMS];     /* after BYE: per stream, how many messages were sent */
	uint8_t want;                    /* WANT_ flags: control messages to send */
	uint8_t sending;                 /* WANT_ flag of the message in control; 0: none */
	struct fabric_op control;        /* carries one control message at a time */
	struct fabric_in in[COLL_STREAMS];
	struct fabric_out out[COLL_STREAMS];
};

struct fabric {
	struct coll_transport transport; /* functions for callers; must come first */
	uint32_t rank, ranks;            /* this rank; number of ranks */
	uint64_t key;                    /* key in our name */
	uint32_t window;                 /* bytes that each stream holds */
	uint32_t event_count;            /* part of poll's event count: all but calls of wake */
	atomic_uint wake_count;          /* part of poll's event count: calls of wake */
	int epoll, event;                /* epoll set of wait; eventfd of wake */
	int fd;               /* descriptor of the completion queue; -1: the provider has none */
	bool watched;         /* coll_fabric_events has given fd to a caller */
	uint32_t in_flight;   /* number of messages being sent, whose buffers libfabric holds */
	bool post_pending;    /* something is to be posted to libfabric, or could not be */
	bool posted;          /* the last push has posted something */
	int64_t stalled_ns;   /* time since which nothing could be posted; 0: posting works */
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

extern const struct coll_transport fabric_transport; /* functions of this transport */

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

/* Processes completions, and posts what is pending. May or may not change the event count. */
void fabric_progress(struct fabric *fabric);
/* Sleeps until there is a completion, for timeout_ns at most. */
void fabric_sleep(struct fabric *fabric, int64_t timeout_ns);

/* fabric_message.c; pure, except for the arguments */

void fabric_encode_header(uint8_t *bytes, const struct fabric_header *header);
/* Returns -1 if the bytes are too few for a header, or their number is not the one in the
 * header. */
int fabric_decode_header(const uint8_t *bytes, size_t len_bytes, struct fabric_header *header);
/* Writes the most urgent control message that is wanted into peer->control. */
void fabric_write_control(struct fabric *fabric, struct fabric_peer *peer);
/* Processes a received message. Ignores it if it is not from one of our peers, or lacks the key. */
void fabric_take_message(struct fabric *fabric, const uint8_t *bytes, size_t len_bytes);

#endif
