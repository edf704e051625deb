/* Fuzzes pawl_tensor_decode: each step goes forward, stays inside the table, and keeps the
 * limits. */
#include "fuzz.h"

#include "base/assert.h"
#include "base/wire.h"
#include "ckpt/format/tensors.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	struct pawl_tensor tensor;
	size_t off = 0;
	size_t before = 0;

	while (pawl_tensor_decode(bytes, len_bytes, &off, &tensor, NULL) > 0) {
		struct wire_out out = {0};

		ASSERT(off > before && off <= len_bytes && tensor.ndim <= PAWL_TENSOR_DIMS_MAX);
		tensor_encode(&tensor, &out);
		ASSERT(out.len_bytes == off - before);
		ASSERT(memcmp(out.bytes, bytes + before, off - before) == 0);
		wire_out_deinit(&out);
		before = off;
	}
	return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	struct pawl_tensor tensor = {.name = "transformer.h.0.ln_1.weight",
		.dtype = "bfloat16",
		.storage = 7,
		.offset_bytes = 64,
		.ndim = i % 3,
		.shape = {3, 4},
		.sharded = i > 2,
		.global = {9, 4},
		.start = {6, 0}};
	struct wire_out out = {0};
	size_t len_bytes;

	if (i > 5) {
		return 0;
	}
	for (unsigned n = 0; n < 5; n++) {
		tensor_encode(&tensor, &out);
	}
	len_bytes = out.len_bytes;
	ASSERT(!out.failed && len_bytes <= FUZZ_BYTES_MAX);
	memcpy(buf, out.bytes, len_bytes);
	wire_out_deinit(&out);
	return len_bytes;
}
