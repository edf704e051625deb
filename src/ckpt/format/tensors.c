/* The tensor table: see tensors.h for the contract, docs/format.md for the bytes. */
#include "ckpt/format/tensors.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/wire.h"

#include <string.h>

#define SHARDED (1u << 31) /* flag in the number of dimensions: two more lists follow the shape */

static void put_list(struct wire_out *out, const uint64_t *at, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		wire_put_u64(out, at[i]);
	}
}

void tensor_encode(const struct pawl_tensor *tensor, struct wire_out *out)
{
	ASSERT(tensor->ndim <= PAWL_TENSOR_DIMS_MAX);
	wire_put_str(out, tensor->name);
	wire_put_str(out, tensor->dtype);
	wire_put_u32(out, tensor->storage);
	wire_put_u64(out, tensor->offset_bytes);
	wire_put_u32(out, tensor->ndim | (tensor->sharded ? SHARDED : 0));
	put_list(out, tensor->shape, tensor->ndim);
	if (tensor->sharded) {
		put_list(out, tensor->global, tensor->ndim);
		put_list(out, tensor->start, tensor->ndim);
	}
}

static void get_list(struct wire_in *in, uint64_t *at, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		at[i] = wire_get_u64(in);
	}
}

/* Returns whether a shard lies within its tensor. */
static bool is_box(const struct pawl_tensor *tensor)
{
	for (uint32_t d = 0; d < tensor->ndim; d++) {
		if (tensor->start[d] > tensor->global[d] ||
			tensor->shape[d] > tensor->global[d] - tensor->start[d]) {
			return false;
		}
	}
	return true;
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
	tensor->sharded = (tensor->ndim & SHARDED) != 0;
	tensor->ndim &= ~SHARDED;
	if (tensor->ndim > PAWL_TENSOR_DIMS_MAX) {
		in.failed = true;
		tensor->ndim = 0;
	}
	get_list(&in, tensor->shape, tensor->ndim);
	if (tensor->sharded) {
		get_list(&in, tensor->global, tensor->ndim);
		get_list(&in, tensor->start, tensor->ndim);
		in.failed = in.failed || !is_box(tensor);
	}
	if (in.failed) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"tensor table is damaged at byte %zu of %zu", *off, table_bytes);
	}
	/* A row is not empty, so that callers come to an end. */
	ASSERT(table_bytes - wire_in_left(&in) > *off);
	*off = table_bytes - wire_in_left(&in);
	return 1;
}
