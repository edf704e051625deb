/* Tensor tables: they decode to what was encoded; damaged ones are refused, or stay within the
 * limits. */
#include "base/err.h"
#include "base/rng.h"
#include "base/wire.h"
#include "ckpt/format/tensors.h"
#include "seed.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define SEEDS 100

static uint64_t first_seed; /* seed of the first of SEEDS random runs */

static void random_tensor(struct pawl_tensor *tensor, struct rng *rng)
{
	memset(tensor, 0, sizeof(*tensor));
	memset(tensor->name, 'n', rng_below(rng, PAWL_TENSOR_NAME_MAX));
	memset(tensor->dtype, 'd', rng_below(rng, PAWL_TENSOR_DTYPE_MAX));
	tensor->storage = (uint32_t)rng_u64(rng);
	tensor->offset_bytes = rng_u64(rng);
	tensor->ndim = (uint32_t)rng_below(rng, PAWL_TENSOR_DIMS_MAX + 1);
	for (uint32_t d = 0; d < tensor->ndim; d++) {
		tensor->shape[d] = rng_u64(rng);
	}
	tensor->sharded = rng_below(rng, 2) == 1;
	for (uint32_t d = 0; d < tensor->ndim && tensor->sharded; d++) {
		tensor->start[d] = rng_below(rng, UINT64_MAX - tensor->shape[d]);
		tensor->global[d] = tensor->start[d] + tensor->shape[d];
	}
}

static void tensors_come_back(void **state)
{
	for (uint64_t seed = first_seed; seed < first_seed + SEEDS; seed++) {
		struct rng rng = {seed}, again = {seed};
		struct pawl_tensor put, got;
		struct wire_out out = {0};
		size_t off = 0;

		for (int i = 0; i < 5; i++) {
			random_tensor(&put, &rng);
			tensor_encode(&put, &out);
		}
		for (int i = 0; i < 5; i++) {
			random_tensor(&put, &again);
			memset(&got, 0, sizeof(got));
			assert_int_equal(
				pawl_tensor_decode(out.bytes, out.len_bytes, &off, &got, NULL), 1);
			assert_string_equal(got.name, put.name);
			assert_string_equal(got.dtype, put.dtype);
			assert_int_equal(got.storage, put.storage);
			assert_true(got.offset_bytes == put.offset_bytes);
			assert_int_equal(got.ndim, put.ndim);
			assert_memory_equal(got.shape, put.shape, put.ndim * sizeof(put.shape[0]));
			assert_true(got.sharded == put.sharded);
			assert_memory_equal(got.global, put.global,
				put.ndim * sizeof(put.global[0]));
			assert_memory_equal(got.start, put.start, put.ndim * sizeof(put.start[0]));
		}
		assert_int_equal(pawl_tensor_decode(out.bytes, out.len_bytes, &off, &got, NULL), 0);
		wire_out_deinit(&out);
	}
}

static void damaged_tables_are_refused_or_within_limits(void **state)
{
	struct pawl_tensor tensor = {.name = "w", .dtype = "int8", .ndim = 3, .shape = {1, 2, 3}};
	struct wire_out out = {0};

	tensor_encode(&tensor, &out);
	for (size_t n = 1; n < out.len_bytes; n++) {
		uint8_t *copy = malloc(n);
		size_t off = 0;

		memcpy(copy, out.bytes, n);
		assert_int_equal(pawl_tensor_decode(copy, n, &off, &tensor, NULL), PAWL_ECORRUPT);
		assert_int_equal(off, 0);
		free(copy);
	}
	for (size_t bit = 0; bit < out.len_bytes * 8; bit++) {
		size_t off = 0;

		out.bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		while (pawl_tensor_decode(out.bytes, out.len_bytes, &off, &tensor, NULL) > 0) {
			assert_true(tensor.ndim <= PAWL_TENSOR_DIMS_MAX && off <= out.len_bytes);
		}
		out.bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
	}
	wire_out_deinit(&out);
}

static void a_shard_lies_in_its_tensor(void **state)
{
	struct pawl_tensor tensor = {.name = "w",
		.dtype = "int8",
		.ndim = 2,
		.shape = {1, 2},
		.sharded = true,
		.global = {4, 2},
		.start = {4, 0}};
	struct wire_out out = {0};
	size_t off = 0;

	tensor_encode(&tensor, &out);
	assert_int_equal(pawl_tensor_decode(out.bytes, out.len_bytes, &off, &tensor, NULL),
		PAWL_ECORRUPT);
	wire_out_reset(&out);
	tensor.shape[0] = 0; /* ranks at the end may have nothing */
	tensor_encode(&tensor, &out);
	assert_int_equal(pawl_tensor_decode(out.bytes, out.len_bytes, &off, &tensor, NULL), 1);
	wire_out_deinit(&out);
}

static void tensors_have_a_limit_of_dimensions(void **state)
{
	struct pawl_tensor tensor = {.name = "w", .dtype = "int8", .ndim = PAWL_TENSOR_DIMS_MAX};
	struct wire_out out = {0};
	size_t off = 0;
	size_t ndim_off;

	tensor_encode(&tensor, &out);
	assert_int_equal(pawl_tensor_decode(out.bytes, out.len_bytes, &off, &tensor, NULL), 1);
	ndim_off = out.len_bytes - PAWL_TENSOR_DIMS_MAX * sizeof(uint64_t) - sizeof(uint32_t);
	wire_patch_u32(&out, ndim_off, PAWL_TENSOR_DIMS_MAX + 1);
	wire_put_u64(&out, 1);
	off = 0;
	assert_int_equal(pawl_tensor_decode(out.bytes, out.len_bytes, &off, &tensor, NULL),
		PAWL_ECORRUPT);
	wire_out_deinit(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tensors_come_back),
		cmocka_unit_test(damaged_tables_are_refused_or_within_limits),
		cmocka_unit_test(a_shard_lies_in_its_tensor),
		cmocka_unit_test(tensors_have_a_limit_of_dimensions),
	};
	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
