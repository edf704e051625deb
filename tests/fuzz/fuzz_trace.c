/* Fuzzes trace_decode, with the bytes as they are and with the header's checksum corrected, so that
 * the fields behind it are reached. An accepted trace is explained, and its records encode to the
 * same bytes. */
#include "fuzz.h"

#include "base/assert.h"
#include "base/crc.h"
#include "cli/explain.h"

#include <stdlib.h>
#include <string.h>

#define CRC_AT 252u /* offset in the header: see docs/trace.md */
#define RANKS  2u   /* ranks at most, each with a copy of the trace */

static uint8_t file[TRACE_FILE_BYTES]; /* zero, except while an input is decoded */

/* Explains the trace with the input as the beginning of each rank's file. */
static void explain(const struct trace *trace, const uint8_t *bytes)
{
	struct trace traces[RANKS] = {*trace, *trace};
	int64_t base_ns[RANKS] = {trace->header.wall_ns - trace->header.mono_ns, 0};
	struct explain_group group = {.ranks = trace->header.ranks,
		.hosts = trace->header.hosts,
		.traced_ranks = trace->header.ranks,
		.traces = traces,
		.base_ns = base_ns};
	uint8_t again[TRACE_RECORD_BYTES];
	struct explain_sum sum;

	for (size_t i = 0; i < trace->n; i++) {
		trace_record_encode(again, &trace->records[i], i);
		ASSERT(memcmp(again, bytes + TRACE_RECORDS_AT + i * TRACE_RECORD_BYTES,
			       sizeof(again)) == 0);
	}
	if (group.ranks <= RANKS) {
		traces[RANKS - 1].header.host = group.hosts - 1;
		explain_align(&group);
		if (explain_sum_init(&sum, &group, NULL) == 0) {
			explain_sum_deinit(&sum);
		}
	}
}

static void decode(size_t len_bytes)
{
	struct trace trace;
	uint64_t count;

	memcpy(&count, file + TRACE_COUNT_AT, sizeof(count));
	if (trace_decode(&trace, file, sizeof(file), count, NULL) == 0) {
		ASSERT(trace.n <= len_bytes / TRACE_RECORD_BYTES);
		explain(&trace, file);
		trace_deinit(&trace);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	uint32_t crc;

	if (len_bytes > sizeof(file)) {
		return 0;
	}
	memcpy(file, bytes, len_bytes);
	decode(len_bytes);
	crc = crc32c(0, file, CRC_AT);
	memcpy(file + CRC_AT, &crc, sizeof(crc));
	decode(len_bytes);
	memset(file, 0, len_bytes > CRC_AT + sizeof(crc) ? len_bytes : CRC_AT + sizeof(crc));
	return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	const struct trace_header header = {.group = 7,
		.rank = 0,
		.ranks = 1 + i,
		.peers = 2 + i,
		.hosts = 1 + i,
		.mono_ns = 1000,
		.wall_ns = 1700000000000000000,
		.hostname = "a",
		.job = "b"};
	const uint64_t n = 12;

	if (i >= RANKS) {
		return 0;
	}
	memset(buf, 0, TRACE_RECORDS_AT);
	trace_header_encode(buf, &header);
	memcpy(buf + TRACE_COUNT_AT, &n, sizeof(n));
	for (uint64_t r = 0; r < n; r++) {
		int64_t at_ns = 2000000 * (int64_t)(r + 1);
		const struct trace_record record = {.type = r % 4 == 3 ? TRACE_LINK
								       : TRACE_OPERATION,
			.kind = r % 2 == 0 ? PAWL_ALL_REDUCE : PAWL_BARRIER,
			.number = r,
			.peer = (uint32_t)(r % 2),
			.bytes = 1000,
			.at_ns = {at_ns, at_ns, at_ns + 1, at_ns + 500000, at_ns + 500000,
				at_ns + 1000000},
			.busy_ns = 100};

		trace_record_encode(buf + TRACE_RECORDS_AT + r * TRACE_RECORD_BYTES, &record, r);
	}
	return TRACE_RECORDS_AT + n * TRACE_RECORD_BYTES;
}
