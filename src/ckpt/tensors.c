/* The tensor table: see tensors.h for the contract, docs/format.md for the bytes.
 */
#include "ckpt/tensors.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/wire.h"

#include <string.h>

void tensor_encode(const struct pawl_tensor *tensor, struct wire_out *out)
{
	ASSERT(tensor->ndim <= PAWL_TENSOR_DIMS_MAX);
	wire_put_str(out, tensor->name);
	wire_put_str(out, tensor->dtype);
	wire_put_u32(out, tensor->storage);
	wire_put_u64(out, tensor->offset_bytes);
	wire_put_u32(out, tensor->ndim);
	for (uint32_t d = 0; d < tensor->ndim; d++) {
		wire_put_u64(out, tensor->shape[d]);
	}
}

int pawl_tensor_decode(const void *table, size_t table_bytes, size_t *off,
	struct pawl_tensor *tensor, struct pawl_err *err)
{
	struct wire_in in;

	ASSERT(*off <= table_bytes);
	if (*off == table_bytes) {
		return 0;
	}
	wire_in_init(&in, (const uint8_t *)table + *off, table_bytes - *off);
	wire_get_str(&in, tensor->name, sizeof(tensor->name));
	wire_get_str(&in, tensor->dtype, sizeof(tensor->dtype));
	tensor->storage = wire_get_u32(&in);
	tensor->offset_bytes = wire_get_u64(&in);
	tensor->ndim = wire_get_u32(&in);
	if (tensor->ndim > PAWL_TENSOR_DIMS_MAX) {
		in.failed = true;
	}
	for (uint32_t d = 0; d < tensor->ndim && !in.failed; d++) {
		tensor->shape[d] = wire_get_u64(&in);
	}
	if (in.failed) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"tensor table is damaged at byte %zu of %zu", *off, table_bytes);
	}
	*off = table_bytes - wire_in_left(&in);
	return 1;
}
