/* Memory for many bytes: mapped, resized, made present. */
#include "base/pages.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#define MIB     ((uint64_t)1 << 20)
#define TOO_BIG ((uint64_t)1 << 60) /* bytes that no process can map */

static void fill(uint8_t *map, uint64_t size_bytes)
{
	for (uint64_t i = 0; i < size_bytes; i += 512) {
		map[i] = (uint8_t)(i / 512 * 7 + 1);
	}
	map[size_bytes - 1] = 99;
}

static void assert_filled(const uint8_t *map, uint64_t size_bytes)
{
	for (uint64_t i = 0; i < size_bytes; i += 512) {
		assert_int_equal(map[i], (uint8_t)(i / 512 * 7 + 1));
	}
}

static void new_memory_is_zeroed_and_begins_a_huge_page(void **state)
{
	static const uint64_t sizes[] = {1, 4096, 5000, 2 * MIB, 3 * MIB + 1, 9 * MIB};

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		uint8_t *map = pages_map(-1, sizes[s]);

		assert_non_null(map);
		assert_int_equal((uintptr_t)map % PAGES_HUGE, 0);
		pages_populate(map, sizes[s]);
		for (uint64_t i = 0; i < sizes[s]; i++) {
			assert_int_equal(map[i], 0);
		}
		fill(map, sizes[s]);
		pages_unmap(map, sizes[s]);
	}
	pages_unmap(NULL, 0);
}

static void a_files_mapping_is_shared(void **state)
{
	int fd = memfd_create("pages", MFD_CLOEXEC);
	uint8_t byte = 0;
	uint8_t *map;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)(2 * MIB)), 0);
	map = pages_map(fd, 2 * MIB);
	assert_non_null(map);
	map[MIB] = 5;
	assert_int_equal(pread(fd, &byte, 1, (off_t)MIB), 1);
	assert_int_equal(byte, 5);
	pages_unmap(map, 2 * MIB);
	close(fd);
}

static void resized_memory_keeps_what_is_in_it(void **state)
{
	static const uint64_t sizes[] = {MIB + 1, 3 * MIB + 5, 3 * MIB + 4097, 2 * MIB, 7 * MIB, 1,
		12 * MIB};
	uint64_t size = 5 * MIB;
	uint64_t kept = size;
	uint8_t *map = pages_map(-1, size);

	assert_non_null(map);
	fill(map, size);
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		map = pages_resize(map, size, sizes[s]);
		assert_non_null(map);
		assert_int_equal((uintptr_t)map % PAGES_HUGE, 0);
		size = sizes[s];
		kept = size < kept ? size : kept;
		assert_filled(map, kept - 1);
		memset(map + kept, 0, size - kept); /* all of it can be written to */
	}
	pages_unmap(map, size);
}

static void memory_that_cannot_grow_stays_as_it_is(void **state)
{
	uint8_t *map = pages_map(-1, 3 * MIB);

	assert_non_null(map);
	fill(map, 3 * MIB);
	errno = 0;
	assert_null(pages_resize(map, 3 * MIB, TOO_BIG));
	assert_int_equal(errno, ENOMEM);
	assert_filled(map, 3 * MIB);
	pages_unmap(map, 3 * MIB);
	assert_null(pages_map(-1, TOO_BIG));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(new_memory_is_zeroed_and_begins_a_huge_page),
		cmocka_unit_test(a_files_mapping_is_shared),
		cmocka_unit_test(resized_memory_keeps_what_is_in_it),
		cmocka_unit_test(memory_that_cannot_grow_stays_as_it_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
