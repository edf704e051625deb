/* Files of a directory store that are mapped because they are in the page cache: which bytes stay,
 * what refuses, and that nothing is left. */
#include "base/err.h"
#include "base/fault.h"
#include "store/dirs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define PAGE       4096u
#define PAGES      64u
#define FILE_BYTES (PAGES * PAGE)

static char root[64];
static char path[80]; /* path of the file "f" in root */
static struct store *store;
static struct store_file *file;
static struct pawl_err err;
static char bytes[FILE_BYTES]; /* content of the file */

/* Returns how many pages of the file are in the page cache. */
static unsigned count_cached(int fd)
{
	void *map = mmap(NULL, FILE_BYTES, PROT_NONE, MAP_SHARED, fd, 0);
	unsigned char in[PAGES];
	unsigned found = 0;

	assert_true(map != MAP_FAILED);
	assert_int_equal(mincore(map, FILE_BYTES, in), 0);
	for (unsigned i = 0; i < PAGES; i++) {
		found += in[i] & 1;
	}
	munmap(map, FILE_BYTES);
	return found;
}

/* Throws the file out of the page cache, then reads so many of its pages into it, without reading
 * ahead. Returns false if the file system keeps what it has. */
static bool cache_pages(unsigned n)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	unsigned found;
	char page[PAGE];

	assert_true(fd >= 0);
	assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM), 0);
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(pread(fd, page, PAGE, i * (off_t)PAGE), PAGE);
	}
	found = count_cached(fd);
	close(fd);
	return found == n;
}

/* Makes a file "f" on a disk (/tmp is often tmpfs), all of it in the page cache, and opens it. */
static int setup(void **state)
{
	int fd;

	snprintf(root, sizeof(root), "/var/tmp/pawl_map_XXXXXX");
	assert_non_null(mkdtemp(root));
	snprintf(path, sizeof(path), "%s/f", root);
	for (unsigned i = 0; i < FILE_BYTES; i++) {
		bytes[i] = (char)(i % 251);
	}
	if (store_posix_open(root, true, &store, &err) != 0) {
		return 1;
	}
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, bytes, FILE_BYTES), FILE_BYTES);
	assert_int_equal(fsync(fd), 0);
	close(fd);
	return store_open(store, "f", &file, NULL, &err);
}

static int teardown(void **state)
{
	fault_disarm();
	store_close_file(store, file);
	store_remove(store, "f", &err);
	store_close(store);
	return rmdir(root);
}

/* Returns how many KiB of this process are locked. */
static unsigned locked_kib(void)
{
	FILE *status = fopen("/proc/self/status", "re");
	char line[256];
	unsigned kib = 0;

	assert_non_null(status);
	while (fgets(line, sizeof(line), status) != NULL && sscanf(line, "VmLck: %u", &kib) != 1) {
	}
	fclose(status);
	return kib;
}

/* Returns the mapped file; skips the test where this system maps none. */
static const uint8_t *map_file(void)
{
	const uint8_t *map = NULL;

	if (store_map(store, file, &map, &err) != 0) {
		print_message("skipped: %s\n", err.msg);
		skip();
	}
	return map;
}

/* Skips tests that look at locked memory where mlock does nothing, as under the sanitizers. */
static void skip_without_mlock(void)
{
	bool locks;

	assert_int_equal(mlock(bytes, PAGE), 0);
	locks = locked_kib() > 0;
	munlock(bytes, PAGE);
	if (!locks) {
		print_message("skipped: mlock does nothing in this build\n");
		skip();
	}
}

static void assert_refused(const char *why)
{
	const uint8_t *map = NULL;

	assert_int_equal(store_map(store, file, &map, &err), PAWL_ENOTSUP);
	assert_non_null(strstr(err.msg, why));
	assert_null(map);
	assert_int_equal(locked_kib(), 0);
}

static void cached_file_is_kept_until_it_is_closed(void **state)
{
	const uint8_t *map;

	skip_without_mlock();
	map = map_file();
	assert_memory_equal(map, bytes, FILE_BYTES);
	assert_int_equal(locked_kib(), FILE_BYTES / 1024);
	assert_false(cache_pages(0)); /* cannot throw them out */
	assert_int_equal(unlink(path), 0);
	assert_memory_equal(map, bytes, FILE_BYTES);
	store_close_file(store, file);
	file = NULL;
	assert_int_equal(locked_kib(), 0);
}

static void cold_file_is_not_mapped(void **state)
{
	if (!cache_pages(0)) {
		print_message("skipped: /var/tmp keeps its files in the page cache\n");
		skip();
	}
	assert_refused("not in the page cache");
	assert_true(cache_pages(PAGES - PAGES / 16 - 1));
	assert_refused("not in the page cache");
	assert_true(cache_pages(PAGES - PAGES / 16)); /* the rest is read into the cache */
	assert_memory_equal(map_file(), bytes, FILE_BYTES);
}

/* A cold file that is mapped nevertheless is read as far as it is wanted, and these bytes stay. */
static void cold_file_is_filled_as_wanted(void **state)
{
	const uint8_t *map = NULL;
	int fd;

	if (!cache_pages(0)) {
		print_message("skipped: /var/tmp keeps its files in the page cache\n");
		skip();
	}
	if (store_map_unread(store, file, &map, &err) != 0) {
		print_message("skipped: %s\n", err.msg);
		skip();
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(count_cached(fd), 0);
	store_prefetch(store, file, 8 * PAGE, 4 * PAGE);
	assert_int_equal(store_fill(store, file, 8 * PAGE, 4 * PAGE, &err), 0);
	assert_int_equal(count_cached(fd), 4);
	assert_memory_equal(map + 8 * PAGE, bytes + 8 * PAGE, 4 * PAGE);
	fault_arm("store.fill", 1, EFAULT, false);
	assert_int_equal(store_fill(store, file, 0, PAGE, &err), PAWL_EIO);
	assert_non_null(strstr(err.msg, "f: read at 0"));
	close(fd);
}

static void writers_are_held_up(void **state)
{
	int fd;

	map_file();
	assert_int_equal(open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC), -1);
	assert_int_equal(errno, EWOULDBLOCK); /* the signal did not kill this process */
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	close(fd);
	store_close_file(store, file);
	file = NULL;
	fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	assert_true(fd >= 0);
	close(fd);
}

static void file_being_written_is_not_mapped(void **state)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	assert_refused("take a read lease");
	close(fd);
	map_file();
}

static void file_that_was_cut_is_not_mapped(void **state)
{
	assert_int_equal(truncate(path, FILE_BYTES - PAGE), 0);
	assert_int_equal(store_map(store, file, &(const uint8_t *){NULL}, &err), PAWL_ENOTSUP);
}

/* After each refusal, the file can be read as if it had never been mapped. */
static void refusals_leave_nothing_behind(void **state)
{
	static const char *const points[][2] = {{"store.lease", "take a read lease"},
		{"store.lock", "lock its pages"}};
	struct store_io io = {.file = file, .len_bytes = FILE_BYTES};
	int fd;

	map_file();
	store_close_file(store, file);
	io.buf = aligned_alloc(STORE_ALIGN, FILE_BYTES);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(store_open(store, "f", &file, NULL, &err), 0);
		fault_arm(points[i][0], 1, EPERM, false);
		assert_refused(points[i][1]);
		fault_disarm();
		fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
		assert_true(fd >= 0);
		close(fd);
		io.file = file;
		memset(io.buf, 0, FILE_BYTES);
		assert_int_equal(store_submit(store, &io, &err), 0);
		assert_ptr_equal(store_reap(store, -1), &io);
		assert_int_equal(io.rv, 0);
		assert_memory_equal(io.buf, bytes, FILE_BYTES);
		map_file();
		store_close_file(store, file);
	}
	file = NULL;
	free(io.buf);
}

/* The process may lock nothing, as in most containers. */
static void without_a_right_to_lock_it_is_not_mapped(void **state)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct caps[2] = {{0}};
	int status = -1;
	pid_t pid;

	skip_without_mlock();
	map_file();
	store_close_file(store, file);
	assert_int_equal(store_open(store, "f", &file, NULL, &err), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		const uint8_t *map;
		bool armed = setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){0, 0}) == 0 &&
			syscall(SYS_capget, &header, caps) == 0;

		caps[0].effective &= ~(1u << CAP_IPC_LOCK);
		armed = armed && syscall(SYS_capset, &header, caps) == 0;
		_exit(!armed || store_map(store, file, &map, &err) != PAWL_ENOTSUP ||
			strstr(err.msg, "lock its pages") == NULL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

#define MAP_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		MAP_TEST(cached_file_is_kept_until_it_is_closed),
		MAP_TEST(cold_file_is_not_mapped),
		MAP_TEST(cold_file_is_filled_as_wanted),
		MAP_TEST(writers_are_held_up),
		MAP_TEST(file_being_written_is_not_mapped),
		MAP_TEST(file_that_was_cut_is_not_mapped),
		MAP_TEST(refusals_leave_nothing_behind),
		MAP_TEST(without_a_right_to_lock_it_is_not_mapped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
