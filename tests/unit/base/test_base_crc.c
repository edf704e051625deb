/* The fast checksums are the published ones and equal their references for every small length,
 * alignment and split. */
#include "../lib/seed.h"
#include "base/crc.h"
#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#define LEN_MAX 600u

static uint8_t bytes[LEN_MAX + 64];

static int fill_bytes(void **state)
{
	struct rng r = {test_seed()};

	for (size_t i = 0; i < sizeof(bytes); i++) {
		bytes[i] = (uint8_t)rng_u64(&r);
	}
	return 0;
}

static void gives_check_values(void **state)
{
	assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283u);
	assert_int_equal(crc32_zip(0, "123456789", 9), 0xcbf43926u);
	assert_int_equal(crc32c_slow(0, "123456789", 9), 0xe3069283u);
	assert_int_equal(crc32_zip_slow(0, "123456789", 9), 0xcbf43926u);
	assert_int_equal(crc64(0, "123456789", 9), 0xae8b14860a799888u);
	assert_int_equal(crc64_slow(0, "123456789", 9), 0xae8b14860a799888u);
	assert_int_equal(crc32c_add(0xe3069283u, 0x31323334), crc32c(0, "1234567891234", 13));
	assert_int_equal(crc32c(0, NULL, 0), 0);
	assert_int_equal(crc32_zip(0, NULL, 0), 0);
	assert_int_equal(crc64(0, NULL, 0), 0);
	assert_int_equal(crc32c(0x12345678, NULL, 0), 0x12345678);
	assert_int_equal(crc32_zip(0x12345678, NULL, 0), 0x12345678);
}

static void equals_reference(void **state)
{
	for (size_t align = 0; align < 16; align++) {
		for (size_t len = 0; len <= LEN_MAX; len++) {
			const uint8_t *at = bytes + align;

			assert_int_equal(crc32c(0, at, len), crc32c_slow(0, at, len));
			assert_int_equal(crc32_zip(0, at, len), crc32_zip_slow(0, at, len));
			assert_int_equal(crc64(0, at, len), crc64_slow(0, at, len));
			assert_int_equal(crc64_tables(0, at, len), crc64_slow(0, at, len));
		}
	}
}

static void continues_at_any_split(void **state)
{
	uint32_t c = crc32c_slow(0, bytes, LEN_MAX);
	uint32_t z = crc32_zip_slow(0, bytes, LEN_MAX);
	uint64_t w = crc64_slow(0, bytes, LEN_MAX);

	for (size_t at = 0; at <= LEN_MAX; at++) {
		assert_int_equal(crc32c(crc32c(0, bytes, at), bytes + at, LEN_MAX - at), c);
		assert_int_equal(crc32_zip(crc32_zip(0, bytes, at), bytes + at, LEN_MAX - at), z);
		assert_int_equal(crc64(crc64(0, bytes, at), bytes + at, LEN_MAX - at), w);
	}
}

static void joins_at_any_split(void **state)
{
	uint32_t whole = crc32c_slow(0, bytes, LEN_MAX);

	for (size_t at = 0; at <= LEN_MAX; at++) {
		uint32_t a = crc32c_slow(0, bytes, at);
		uint32_t b = crc32c_slow(0, bytes + at, LEN_MAX - at);

		assert_int_equal(crc32c_combine(a, b, LEN_MAX - at), whole);
	}
}

/* Lengths above 32 bits are not cut. The memory is never written: it reads as zeros and costs
 * none. */
static void takes_huge_lengths(void **state)
{
	const size_t page = 1u << 20;
	const size_t len = (1ull << 32) + 4096;
	uint8_t *area =
		mmap(NULL, len, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint32_t c = 0;
	uint32_t z = 0;

	if (area == MAP_FAILED) {
		printf("skipped: no address space for 4 GiB\n");
		skip();
	}
	for (size_t at = 0; at < len; at += page) {
		size_t n = len - at < page ? len - at : page;

		c = crc32c(c, area, n);
		z = crc32_zip(z, area, n);
	}
	assert_int_equal(crc32c(0, area, len), c);
	assert_int_equal(crc32_zip(0, area, len), z);
	assert_int_equal(
		crc32c_combine(crc32c(0, area, page), crc32c(0, area, len - page), len - page), c);
	munmap(area, len);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gives_check_values),
		cmocka_unit_test(equals_reference),
		cmocka_unit_test(continues_at_any_split),
		cmocka_unit_test(joins_at_any_split),
		cmocka_unit_test(takes_huge_lengths),
	};

	return cmocka_run_group_tests(tests, fill_bytes, NULL);
}
