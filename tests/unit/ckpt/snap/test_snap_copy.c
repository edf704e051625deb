/* All copy kernels give what memcpy and the slow checksum give, at every alignment and length. */
#include "../lib/seed.h"
#include "base/crc.h"
#include "base/rng.h"
#include "ckpt/snap/copy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#define BUF_BYTES (64u << 10)
#define MARGIN    128u /* bytes that nobody may touch */
#define ROUNDS    60u  /* random copies of each kernel */

static uint64_t seed;
static uint8_t src[BUF_BYTES];
static uint8_t dst[BUF_BYTES + 2 * MARGIN];

static void check_copy(enum copy_kernel kernel, size_t src_off, size_t dst_off, size_t len_bytes)
{
	uint8_t *to = dst + MARGIN + dst_off;
	uint32_t crc;

	memset(dst, 0x5a, sizeof(dst));
	crc = copy_crc32c(kernel, to, src + src_off, len_bytes);
	assert_int_equal(crc, crc32c_slow(0, src + src_off, len_bytes));
	assert_memory_equal(to, src + src_off, len_bytes);
	for (uint8_t *p = dst; p < dst + sizeof(dst); p++) {
		assert_true((p >= to && p < to + len_bytes) || *p == 0x5a);
	}
	assert_int_equal(copy_crc32c(kernel, NULL, src + src_off, len_bytes), crc);
}

static void kernels_agree(void **state)
{
	struct rng rng = {seed};

	for (size_t i = 0; i < sizeof(src); i++) {
		src[i] = (uint8_t)rng_u64(&rng);
	}
	for (enum copy_kernel kernel = COPY_PLAIN; kernel <= COPY_AVX2_ROW; kernel++) {
		if (!copy_has(kernel)) {
			print_message("kernel %d is not for this processor\n", (int)kernel);
			continue;
		}
		for (size_t len = 0; len <= 300; len += 1 + len / 64) {
			check_copy(kernel, len % 7, len % 65, len);
		}
		for (unsigned i = 0; i < ROUNDS; i++) {
			size_t src_off = rng_below(&rng, 256);
			size_t dst_off = rng_below(&rng, 256);

			check_copy(kernel, src_off, dst_off, rng_below(&rng, BUF_BYTES - 256));
		}
	}
	assert_true(copy_has(copy_best()));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernels_agree),
	};

	seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
