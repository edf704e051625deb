/* The bytes of a trace: see trace.h for the contract, docs/trace.md for the format. Pure. */
#include "coll/group/trace.h"

#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC     0x3163727477617070ULL /* "ppawtrc1", little endian */
#define VERSION   1u
#define CRC_AT    252u /* offset of the CRC-32C of all bytes of the header before */
#define TEXTS_AT  64u
#define MEAN      1u /* flag in a record */
#define TIMES_AT  40u
#define BUSY_AT   88u
#define RANKS_MAX (2 * COLL_RANKS_MAX) /* most ranks and servers */
#define MONO_MAX  (1LL << 60)          /* ns; so that sums and differences do not overflow */
#define WALL_MAX  (1LL << 62)          /* ns; so that sums and differences do not overflow */

static void put_u32(uint8_t *at, uint32_t v)
{
	v = htole32(v);
	memcpy(at, &v, 4);
}

static void put_u64(uint8_t *at, uint64_t v)
{
	v = htole64(v);
	memcpy(at, &v, 8);
}

static uint32_t get_u32(const uint8_t *at)
{
	uint32_t v;

	memcpy(&v, at, 4);
	return le32toh(v);
}

static uint64_t get_u64(const uint8_t *at)
{
	uint64_t v;

	memcpy(&v, at, 8);
	return le64toh(v);
}

/* ---- the header ---- */

static bool is_plain(char c)
{
	return c >= ' ' && c <= '~' && c != '"' && c != '\\';
}

static void put_text(uint8_t *at, const char *text)
{
	for (size_t i = 0; i + 1 < TRACE_TEXT && text[i] != '\0'; i++) {
		at[i] = (uint8_t)(is_plain(text[i]) ? text[i] : '?');
	}
}

static bool get_text(const uint8_t *at, char *text)
{
	size_t len = 0;

	memcpy(text, at, TRACE_TEXT);
	while (len < TRACE_TEXT && is_plain(text[len])) {
		len++;
	}
	return len < TRACE_TEXT && text[len] == '\0';
}

void trace_header_encode(uint8_t *bytes, const struct trace_header *header)
{
	memset(bytes, 0, TRACE_HEADER_BYTES);
	put_u64(bytes, MAGIC);
	put_u32(bytes + 8, VERSION);
	put_u32(bytes + 12, header->pid);
	put_u64(bytes + 16, header->group);
	put_u32(bytes + 24, header->rank);
	put_u32(bytes + 28, header->ranks);
	put_u32(bytes + 32, header->peers);
	put_u32(bytes + 36, header->host);
	put_u32(bytes + 40, header->hosts);
	put_u64(bytes + 48, (uint64_t)header->mono_ns);
	put_u64(bytes + 56, (uint64_t)header->wall_ns);
	put_text(bytes + TEXTS_AT, header->hostname);
	put_text(bytes + TEXTS_AT + TRACE_TEXT, header->job);
	put_u32(bytes + CRC_AT, crc32c(0, bytes, CRC_AT));
}

int trace_header_decode(const uint8_t *bytes, struct trace_header *header, struct pawl_err *err)
{
	if (get_u64(bytes) != MAGIC) {
		return pawl_err_set(err, PAWL_ECORRUPT, "this is not a trace");
	}
	if (get_u32(bytes + 8) != VERSION) {
		return pawl_err_set(err, PAWL_ENOTSUP, "a trace of version %u; this reads %u",
			get_u32(bytes + 8), VERSION);
	}
	*header = (struct trace_header){.pid = get_u32(bytes + 12),
		.group = get_u64(bytes + 16),
		.rank = get_u32(bytes + 24),
		.ranks = get_u32(bytes + 28),
		.peers = get_u32(bytes + 32),
		.host = get_u32(bytes + 36),
		.hosts = get_u32(bytes + 40),
		.mono_ns = (int64_t)get_u64(bytes + 48),
		.wall_ns = (int64_t)get_u64(bytes + 56)};
	if (get_u32(bytes + CRC_AT) != crc32c(0, bytes, CRC_AT) ||
		!get_text(bytes + TEXTS_AT, header->hostname) ||
		!get_text(bytes + TEXTS_AT + TRACE_TEXT, header->job) ||
		header->rank >= header->ranks || header->ranks > header->peers ||
		header->peers > RANKS_MAX || header->host >= header->hosts ||
		header->hosts > header->ranks || header->mono_ns < 0 ||
		header->mono_ns > MONO_MAX || header->wall_ns < header->mono_ns ||
		header->wall_ns > WALL_MAX) {
		return pawl_err_set(err, PAWL_ECORRUPT, "the header of this trace is damaged");
	}
	return 0;
}

/* ---- records ---- */

void trace_record_encode(uint8_t *bytes, const struct trace_record *record, uint64_t i)
{
	put_u64(bytes, i + 1);
	bytes[8] = (uint8_t)record->type;
	bytes[9] = (uint8_t)record->kind;
	bytes[10] = (uint8_t)record->op;
	bytes[11] = (uint8_t)record->dtype;
	bytes[12] = (uint8_t)record->algorithm;
	bytes[13] = record->mean ? MEAN : 0;
	bytes[14] = bytes[15] = 0;
	put_u64(bytes + 16, record->number);
	put_u32(bytes + 24, record->peer);
	put_u32(bytes + 28, record->root);
	put_u64(bytes + 32, record->bytes);
	for (int t = 0; t < TRACE_TIMES; t++) {
		put_u64(bytes + TIMES_AT + 8 * t, (uint64_t)record->at_ns[t]);
	}
	put_u64(bytes + BUSY_AT, (uint64_t)record->busy_ns);
}

/* Returns whether the times are in order, and small enough to be added. */
static bool check_times(const struct trace_record *record)
{
	int64_t before_ns = 0;
	bool good = true;

	for (int t = 0; t < TRACE_TIMES; t++) {
		good &= record->at_ns[t] >= before_ns && record->at_ns[t] <= MONO_MAX;
		before_ns = record->at_ns[t];
	}
	return good && record->busy_ns >= 0 &&
		record->busy_ns <= record->at_ns[TRACE_DONE] - record->at_ns[TRACE_SUBMITTED];
}

bool trace_record_decode(const uint8_t *bytes, const struct trace_header *header, uint64_t i,
	struct trace_record *record)
{
	*record = (struct trace_record){.type = (enum trace_type)bytes[8],
		.kind = (enum pawl_coll)bytes[9],
		.op = (enum pawl_reduce_op)bytes[10],
		.dtype = (enum pawl_dtype)bytes[11],
		.algorithm = (enum coll_algorithm)bytes[12],
		.mean = bytes[13] == MEAN,
		.number = get_u64(bytes + 16),
		.peer = get_u32(bytes + 24),
		.root = get_u32(bytes + 28),
		.bytes = get_u64(bytes + 32),
		.busy_ns = (int64_t)get_u64(bytes + BUSY_AT)};
	for (int t = 0; t < TRACE_TIMES; t++) {
		record->at_ns[t] = (int64_t)get_u64(bytes + TIMES_AT + 8 * t);
	}
	return get_u64(bytes) == i + 1 && record->type < TRACE_TYPES && record->kind < PAWL_COLLS &&
		record->op < PAWL_REDUCE_OPS && record->dtype < PAWL_DTYPES &&
		record->algorithm < COLL_ALGORITHMS && bytes[13] <= MEAN && bytes[14] == 0 &&
		bytes[15] == 0 && (record->peer < header->peers || record->peer == PAWL_ANY_RANK) &&
		(record->peer != PAWL_ANY_RANK || record->type != TRACE_LINK) &&
		check_times(record);
}

/* ---- files ---- */

int trace_decode(struct trace *trace, const uint8_t *bytes, size_t len_bytes, uint64_t count_after,
	struct pawl_err *err)
{
	struct trace made = {0};
	uint64_t count;
	uint64_t from;
	int rv;

	if (len_bytes != TRACE_FILE_BYTES) {
		return pawl_err_set(err, PAWL_ECORRUPT, "a trace has %zu bytes; this has %zu",
			TRACE_FILE_BYTES, len_bytes);
	}
	rv = trace_header_decode(bytes, &made.header, err);
	count = get_u64(bytes + TRACE_COUNT_AT);
	if (rv == 0 && (count > count_after || count_after >= UINT64_MAX - TRACE_CAP)) {
		rv = pawl_err_set(err, PAWL_ECORRUPT, "the count of this trace is damaged");
	}
	if (rv != 0) {
		return rv;
	}
	/* Record count_after may be half written, in the place of an old record. */
	from = count_after + 1 > TRACE_CAP ? count_after + 1 - TRACE_CAP : 0;
	made.written = count;
	made.records = FAULT_MEM("coll.trace",
		calloc(count > from ? count - from + 1 : 1, sizeof(*made.records)));
	if (!made.records) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a trace");
	}
	for (uint64_t i = from; i < count; i++) {
		const uint8_t *at = bytes + TRACE_RECORDS_AT + i % TRACE_CAP * TRACE_RECORD_BYTES;

		if (!trace_record_decode(at, &made.header, i, &made.records[made.n])) {
			trace_deinit(&made);
			return pawl_err_set(err, PAWL_ECORRUPT, "record %llu is damaged",
				(unsigned long long)i);
		}
		made.n++;
	}
	*trace = made;
	return 0;
}

void trace_deinit(struct trace *trace)
{
	free(trace->records);
	*trace = (struct trace){0};
}
