/*
 * Messages between the agents of one job on several hosts, over the links of peer_link.h:
 * docs/protocol.md has the bytes. Also what both ends call a save. Pure.
 *
 * A client sends requests, a server answers each in order, with PEER_OK if nothing else is said.
 * PEER_PUT_RECORD and PEER_PUT_BYTES have no answer; PEER_GET_RECORDS and PEER_GET have several.
 * Any other request may be answered by PEER_ERROR; it ends an answer of several messages.
 */
#ifndef AGENT_PEER_PEER_MSG_H
#define AGENT_PEER_PEER_MSG_H

#include "base/wire.h"
#include "ckpt/format/manifest.h"
#include "io/address.h"

#define PEER_VERSION     1u
#define PEER_HEADER      5u           /* bytes before a body: u32 length of the body, u8 kind */
#define PEER_BODY_MAX    (512u << 20) /* bytes of a body */
#define PEER_BLOCK       (1u << 20)   /* bytes of an image in one message, at most */
#define PEER_ADDRESS_MAX 80u          /* bytes of "host:port", terminator included */
#define PEER_DOMAIN_MAX  64u          /* bytes of a failure domain's name, terminator included */
#define PEER_PATH_MAX    192u         /* bytes of a note's path, terminator included */
#define PEER_TEXT_MAX    256u         /* bytes of a text for users, terminator included */
#define PEER_HOSTS_MAX   256u         /* hosts of a job, at most */
#define PEER_PARTS_MAX   1024u        /* parts of a save, and hosts that a restore asks, at most */
#define PEER_RANKS_MAX   16384u       /* ranks of a job, at most: 64 on each host */

enum peer_kind {
	/* client to server */
	PEER_HELLO = 1, /* version, job */
	/* root, save: the newest announced one that the client knows, global: the newest global one
	 * that it knows. Answered by PEER_ROUND when either is newer, or after a while. */
	PEER_NEXT,
	PEER_DONE, /* root, part, code, text: the part is at all its peers, or failed */
	/* root, part, global, len_bytes: image. A part follows; with parity, for a sum */
	PEER_PUT,
	PEER_PUT_RECORD, /* rank, size_bytes, crc, blob: record of a rank, in order of ranks */
	PEER_PUT_BYTES,  /* off, blob: bytes of the image, in order */
	PEER_PUT_END,    /* answered by the first error since PEER_PUT, or PEER_OK */
	/* root, part: save, first_rank, parity. Answered by a PEER_RECORD for each rank */
	PEER_GET_RECORDS,
	/* root, part: save, first_rank, parity; off, len_bytes: of the image, or of the sum.
	 * Answered by PEER_BYTES messages, in order, until all bytes are there */
	PEER_GET,
	PEER_NOTE_WRITE, /* root, path, blob */
	PEER_NOTE_READ,  /* root, path. Answered by PEER_NOTE */
	/* root, save: the chosen one that the client knows, wanted: one that is to be made durable,
	 * or none. Answered by PEER_CHOSEN when another save is chosen, or after a while. */
	PEER_CHOICE,
	/* server to client */
	PEER_OK = 64,
	PEER_ERROR,  /* code, text */
	PEER_ROUND,  /* save: announced, global */
	PEER_RECORD, /* rank, size_bytes, crc, blob */
	PEER_BYTES,  /* off, blob */
	PEER_NOTE,   /* blob */
	PEER_CHOSEN, /* save: the one that all hosts make durable now, or none */
};

/* A save, as all hosts of its job know it; run 0: none. */
struct peer_save {
	uint64_t run;    /* run of the hosts in which it was made (agree.h); a random number */
	uint64_t number; /* number in that run; grows with each save */
};

/* A sum over the parts of a group of hosts, in which a part is one of k data rows (parity.h). */
struct peer_parity {
	uint32_t group; /* lowest first rank of the group's hosts */
	uint32_t k;     /* number of hosts in the group, at most PARITY_DATA_MAX; 0: no sum */
	uint32_t m;     /* number of sums of the group, at most PARITY_ROWS_MAX */
	uint32_t row;   /* number of this sum, below m */
	uint32_t index; /* number of the part's host in the group, below k */
};

/* What the ranks of one host hold of a save. Somebody holds it as it is, or, with parity, a sum in
 * which it is. A sum is listed once for each of its parts. */
struct peer_part {
	struct peer_save save;
	uint64_t step;          /* training step */
	char tag[CKPT_TAG_MAX]; /* name of the checkpoint */
	uint32_t world;         /* ranks of the job */
	uint32_t first_rank;    /* lowest rank of the part */
	uint32_t ranks;         /* number of ranks, consecutive; at least 1 */
	struct peer_parity parity;
};

/* A message; each kind uses the fields that it names, the rest is zero. */
struct peer_msg {
	enum peer_kind kind;
	uint16_t version;         /* PEER_VERSION of the client */
	char job[CKPT_JOB_MAX];   /* job id */
	uint64_t root;            /* number of the root: peer_root */
	struct peer_save save;    /* a save */
	struct peer_save global;  /* newest save of which every host's part is at its peers */
	struct peer_save wanted;  /* save that a rank waits for until it is durable */
	struct peer_part part;    /* a part */
	uint32_t rank;            /* rank in the job */
	uint64_t size_bytes;      /* size of the rank's arena */
	uint32_t crc;             /* CRC-32C of the record, blob */
	uint64_t off, len_bytes;  /* bytes of the image */
	int code;                 /* PAWL_E code; 0: none */
	char text[PEER_TEXT_MAX]; /* reason of code, for users */
	char path[PEER_PATH_MAX]; /* path of a note */
	const uint8_t *blob;      /* points into what was received; NULL if it is empty */
	uint32_t blob_bytes;      /* bytes of blob */
};

/* Returns the number of a root, by the path or address that all hosts know it by. */
uint64_t peer_root(const char *path);
/* Whether both are the same save, and none is "none". */
bool peer_save_is(const struct peer_save *a, const struct peer_save *b);
/* Whether these numbers can be those of a part with this first rank. */
bool peer_parity_is_valid(const struct peer_parity *parity, uint32_t first_rank);

/* Appends a message, header and body. Check out->failed afterwards. */
void peer_msg_put(struct wire_out *out, const struct peer_msg *msg);
/* Appends a message but for the bytes of its blob, which the caller sends behind it. */
void peer_msg_put_head(struct wire_out *out, const struct peer_msg *msg);
/* Reads a body. PAWL_ECORRUPT: it is malformed, or has a field beyond its limit. */
int peer_msg_get(struct peer_msg *msg, uint8_t kind, const uint8_t *body, size_t len_bytes,
	struct pawl_err *err);

#endif
