/* Fuzzes record_decode: an accepted record encodes to bytes that are accepted again, byte for
 * byte. */
#include "fuzz.h"

#include "base/assert.h"
#include "base/wire.h"
#include "ckpt/format/pieces.h"
#include "ckpt/format/record.h"
#include "ckpt/format/tensors.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	struct record record, again;
	struct wire_out out = {0};

	if (record_decode(&record, bytes, len_bytes, NULL) != 0) {
		return 0;
	}
	record_encode(&record, &out);
	ASSERT(!out.failed && record_decode(&again, out.bytes, out.len_bytes, NULL) == 0);
	ASSERT(again.parts_n == record.parts_n && again.step == record.step);
	record_deinit(&again);
	record_deinit(&record);
	wire_out_deinit(&out);
	return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	uint64_t storage_bytes[] = {CKPT_CHUNK, 0, 5000};
	struct record_piece pieces[] = {{CKPT_CHUNK, CKPT_CHUNK, 1}, {2 * CKPT_CHUNK, 10, 2},
		{3 * CKPT_CHUNK - 1, 1, 4}};
	uint32_t sums[] = {1, 2, 3};
	const struct pawl_tensor tensor = {.name = "a.weight",
		.dtype = "float32",
		.storage = 2,
		.ndim = 2,
		.shape = {3, 4}};
	struct record_part parts[] = {
		{.name = "model",
			.shared = true,
			.size_bytes = 3 * CKPT_CHUNK,
			.pickle_bytes = 100,
			.lo = CKPT_CHUNK,
			.hi = 3 * CKPT_CHUNK,
			.arena_off = 8192,
			.storages = 3,
			.storage_bytes = storage_bytes,
			.pieces_n = 3,
			.pieces = pieces,
			.sums_n = 3,
			.sums = sums,
			.chunks_n = 3,
			.chunks = sums},
		{.name = "rng", .size_bytes = 4096, .hi = 4096},
	};
	const struct record record = {.step = 12,
		.rank = 1,
		.world = 2,
		.parts_n = 2 - i,
		.parts = parts};
	struct wire_out table = {0}, out = {0};
	size_t len_bytes;

	if (i > 1) {
		return 0;
	}
	tensor_encode(&tensor, &table);
	parts[0].tensors = table.bytes;
	parts[0].tensors_bytes = (uint32_t)table.len_bytes;
	record_encode(&record, &out);
	len_bytes = out.len_bytes;
	ASSERT(!out.failed && len_bytes <= FUZZ_BYTES_MAX);
	memcpy(buf, out.bytes, len_bytes);
	wire_out_deinit(&table);
	wire_out_deinit(&out);
	return len_bytes;
}
