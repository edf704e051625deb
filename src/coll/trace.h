/*
 * What a rank has done last, as it lies in a file: docs/trace.md. Pure.
 *
 * A file is a head, a count, and room for TRACE_CAP records, the count's last of which are there:
 * record i, counted from 0, lies at place i modulo TRACE_CAP. The count is raised once a record is
 * written, so whoever reads a file that is being written to reads the count before and after.
 */
#ifndef COLL_TRACE_H
#define COLL_TRACE_H

#include "coll/plan.h"

#include "pawl/coll.h"

#include <stddef.h>

#define TRACE_CAP          65536u /* records of a file */
#define TRACE_HEAD_BYTES   256u
#define TRACE_COUNT_AT     256u /* of 8 bytes, in a cache line of its own */
#define TRACE_RECORDS_AT   320u
#define TRACE_RECORD_BYTES 96u
#define TRACE_FILE_BYTES   (TRACE_RECORDS_AT + (size_t)TRACE_CAP * TRACE_RECORD_BYTES)
#define TRACE_TEXT         80u /* bytes of a host's or job's name, terminator included */
#define TRACE_SUFFIX       ".pawltrace"

enum trace_what {
	TRACE_OPERATION, /* that is done, and well */
	TRACE_WAIT,      /* of a thread, for one */
	TRACE_LINK,      /* what a collective sent to one other host's rank */
	TRACE_WHATS
};

/* When what was; each no earlier than the one before. Of a wait and a link, and of messages but for
 * the first, all but the last are the beginning. */
enum trace_at {
	TRACE_SUBMITTED,
	TRACE_FIRST,    /* no other before it on its channel */
	TRACE_BEGUN,    /* somebody took it up */
	TRACE_TOGETHER, /* so had the last of the ranks that it exchanges bytes with */
	TRACE_FAR,      /* the last byte from or to another host was there */
	TRACE_DONE,
	TRACE_ATS
};

struct trace_record {
	enum trace_what what;
	enum pawl_coll kind;      /* of the operation */
	enum pawl_reduce_op op;   /* the same */
	enum pawl_dtype dtype;    /* the same */
	enum coll_way way;        /* the same */
	bool mean;                /* the same */
	uint64_t number;          /* the same */
	uint32_t peer;            /* who was last to begin, or PAWL_ANY_RANK; of a message the
				     other one; of a link where it leads */
	uint32_t root;            /* of the operation */
	uint64_t bytes;           /* the same; of a link what went */
	int64_t at_ns[TRACE_ATS]; /* see above; CLOCK_MONOTONIC */
	int64_t busy_ns;          /* of an operation: adding; of a link: it was its turn */
};

/* Whose file it is. */
struct trace_head {
	uint64_t group;       /* the same at all ranks of it */
	uint32_t rank, ranks; /* of it */
	uint32_t peers;       /* ranks and servers */
	uint32_t host, hosts; /* which of them the rank is on; numbers are alike at all ranks */
	uint32_t pid;         /* the rank's process */
	int64_t mono_ns;      /* the clock of the records, */
	int64_t wall_ns;      /* when CLOCK_REALTIME was this */
	char hostname[TRACE_TEXT]; /* printable; neither quotes nor backslashes */
	char job[TRACE_TEXT];      /* the same; "": unknown */
};

/* bytes: TRACE_HEAD_BYTES; what cannot be in names is replaced. */
void trace_head_encode(uint8_t *bytes, const struct trace_head *head);
/* PAWL_ECORRUPT; PAWL_ENOTSUP: another version. */
int trace_head_decode(const uint8_t *bytes, struct trace_head *head, struct pawl_err *err);
/* bytes: TRACE_RECORD_BYTES. i: which one, counted from 0. */
void trace_record_encode(uint8_t *bytes, const struct trace_record *record, uint64_t i);
/* False: it is not record i, or nothing that was written by a group of head. */
bool trace_record_decode(const uint8_t *bytes, const struct trace_head *head, uint64_t i,
	struct trace_record *record);

/* What of a file is there. */
struct trace {
	struct trace_head head;
	struct trace_record *records; /* owned; in the order in which they were written */
	size_t n;                     /* of them */
	uint64_t written;             /* ever; the first ones may be gone */
};

/* Reads a whole file; count_after: the count once bytes were read. PAWL_ECORRUPT, PAWL_ENOTSUP,
 * PAWL_ENOMEM. */
int trace_decode(struct trace *trace, const uint8_t *bytes, size_t len_bytes, uint64_t count_after,
	struct pawl_err *err);
void trace_deinit(struct trace *trace);

#endif
