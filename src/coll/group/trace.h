/*
 * The format of a trace, the file with the last operations of a rank: docs/trace.md. Pure.
 * group_trace.h writes traces.
 *
 * A file has a header, a count, and room for TRACE_CAP records. The count is the number of records
 * ever written; the last TRACE_CAP of them are kept. Record i, counted from 0, is at place i modulo
 * TRACE_CAP. The writer raises the count once a record is written. So a reader of a file that is
 * being written reads the count before and after.
 */
#ifndef COLL_GROUP_TRACE_H
#define COLL_GROUP_TRACE_H

#include "coll/plan/plan.h"

#include "pawl/coll.h"

#include <stddef.h>

#define TRACE_CAP          65536u /* most records in a file */
#define TRACE_HEADER_BYTES 256u
#define TRACE_COUNT_AT     256u /* offset of the count: 8 bytes, in a cache line of their own */
#define TRACE_RECORDS_AT   320u
#define TRACE_RECORD_BYTES 96u
#define TRACE_FILE_BYTES   (TRACE_RECORDS_AT + (size_t)TRACE_CAP * TRACE_RECORD_BYTES)
#define TRACE_TEXT         80u /* bytes of a host's or job's name, terminator included */
#define TRACE_SUFFIX       ".pawltrace"

enum trace_type {
	TRACE_OPERATION, /* an operation that succeeded */
	TRACE_WAIT,      /* a thread's wait for an operation */
	TRACE_LINK,      /* the bytes that a collective sent to one rank on another host */
	TRACE_STEP,      /* a step of a pipeline, of which the rank is a stage */
	TRACE_TYPES
};

/* The times of a record, each no earlier than the one before. In a wait, a link, a message or a
 * step, all but the last are the beginning. */
enum trace_time {
	TRACE_SUBMITTED,
	TRACE_FIRST,     /* the operation was the first on its channel */
	TRACE_BEGUN,     /* a driver took the operation up */
	TRACE_ALL_BEGUN, /* all ranks that it exchanges bytes with had begun */
	TRACE_REMOTE,    /* the last byte from or to another host had come or gone */
	TRACE_DONE,
	TRACE_TIMES
};

struct trace_record {
	enum trace_type type;
	enum pawl_coll kind;           /* kind of the operation */
	enum pawl_reduce_op op;        /* reduction of the operation */
	enum pawl_dtype dtype;         /* element type of the operation */
	enum coll_algorithm algorithm; /* algorithm of the operation */
	bool mean;                     /* the sum is divided by the number of ranks */
	uint64_t number;               /* number of the operation, or step */
	/* The last rank to begin, or PAWL_ANY_RANK; the other rank of a message; the receiving rank
	 * of a link. */
	uint32_t peer;
	uint32_t root; /* root of the operation */
	/* Size of the operation; for a link, bytes sent; for a step, ns that the stage was to be
	 * busy, 0: not known. */
	uint64_t bytes;
	int64_t at_ns[TRACE_TIMES]; /* one per enum trace_time; CLOCK_MONOTONIC */
	/* Time spent adding; for a link, time of its turns; for a step, time in which the stage did
	 * not wait. */
	int64_t busy_ns;
};

/* The header of a file: the rank and group that it belongs to. */
struct trace_header {
	uint64_t group;       /* number of the group, equal at all its ranks */
	uint32_t rank, ranks; /* number of the rank; number of ranks */
	uint32_t peers;       /* number of ranks and servers */
	uint32_t host,
		hosts;   /* host of the rank, with the same number at all ranks; number of hosts */
	uint32_t pid;    /* process of the rank */
	int64_t mono_ns; /* CLOCK_MONOTONIC, the clock of records, when the file was made */
	int64_t wall_ns; /* CLOCK_REALTIME at mono_ns */
	char hostname[TRACE_TEXT]; /* printable; neither quotes nor backslashes */
	char job[TRACE_TEXT];      /* printable; neither quotes nor backslashes; "": unknown */
};

/* Writes a header of TRACE_HEADER_BYTES. Characters that cannot be in names are replaced. */
void trace_header_encode(uint8_t *bytes, const struct trace_header *header);
/* Reads a header. PAWL_ECORRUPT; PAWL_ENOTSUP: another version. */
int trace_header_decode(const uint8_t *bytes, struct trace_header *header, struct pawl_err *err);
/* Writes record i, counted from 0, of TRACE_RECORD_BYTES. */
void trace_record_encode(uint8_t *bytes, const struct trace_record *record, uint64_t i);
/* Reads record i. False: the bytes are not record i, or do not fit the header's group. */
bool trace_record_decode(const uint8_t *bytes, const struct trace_header *header, uint64_t i,
	struct trace_record *record);

/* A trace that was read. */
struct trace {
	struct trace_header header;
	struct trace_record *records; /* owned; in the order in which they were written */
	size_t n;                     /* number of entries in records */
	uint64_t written; /* number of records ever written; the first may be overwritten */
};

/* Reads a whole file. count_after: the count, read after the bytes. PAWL_ECORRUPT, PAWL_ENOTSUP,
 * PAWL_ENOMEM. */
int trace_decode(struct trace *trace, const uint8_t *bytes, size_t len_bytes, uint64_t count_after,
	struct pawl_err *err);
void trace_deinit(struct trace *trace);

#endif
