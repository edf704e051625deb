/* What only a store in a directory meets: the page cache, file systems without O_DIRECT, a full
 * disk, a root that goes away, links, and every system call failing in turn. */
#include "../lib/seed.h"
#include "base/err.h"
#include "base/fault.h"
#include "store/dirs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#define FILE_BYTES (16 * STORE_ALIGN)
#define FAULTS_MAX 200u /* points passed in one run of a test */

static char top[64]; /* directory of the root, on a disk */
static char root[96];
static struct store *store;
static struct pawl_err err;
static char *buf;       /* FILE_BYTES, aligned */
static bool is_private; /* this process has a mount namespace of its own */

/* Opens a store on a disk where there is one: /tmp is often tmpfs. */
static int open_store(void **state)
{
	snprintf(top, sizeof(top), "/var/tmp/pawl_posix_XXXXXX");
	assert_non_null(mkdtemp(top));
	snprintf(root, sizeof(root), "%s/deep/root", top);
	buf = aligned_alloc(STORE_ALIGN, FILE_BYTES);
	memset(buf, 'x', FILE_BYTES);
	return buf == NULL || store_posix_open(root, true, &store, &err) != 0;
}

static int close_store(void **state)
{
	struct store *above;
	int rv;

	store_close(store);
	free(buf);
	rv = store_posix_open("/var/tmp", false, &above, &err);
	if (rv == 0) {
		rv = store_remove(above, strrchr(top, '/') + 1, &err);
		store_close(above);
	}
	return rv;
}

/* Returns root/name. */
static const char *real_path(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	return path;
}

static int transfer(struct store_file *file, bool write, size_t len, uint64_t off)
{
	struct store_io io = {.file = file,
		.buf = buf,
		.len_bytes = len,
		.off_bytes = off,
		.write = write};

	assert_int_equal(store_submit(store, &io, &err), 0);
	assert_ptr_equal(store_reap(store, -1), &io);
	return io.rv;
}

/* Makes a durable file of FILE_BYTES, each byte c. */
static void make_file(const char *path, char c)
{
	struct store_file *file;

	memset(buf, c, FILE_BYTES);
	assert_int_equal(store_create(store, path, FILE_BYTES, &file, &err), 0);
	assert_int_equal(transfer(file, true, FILE_BYTES, 0), 0);
	assert_int_equal(store_sync(store, file, &err), 0);
	store_close_file(store, file);
}

static void assert_file(const char *path, char c)
{
	struct store_file *file;

	assert_int_equal(store_open(store, path, &file, NULL, &err), 0);
	memset(buf, '?', FILE_BYTES);
	assert_int_equal(transfer(file, false, FILE_BYTES, 0), 0);
	for (size_t i = 0; i < FILE_BYTES; i++) {
		assert_int_equal(buf[i], c);
	}
	store_close_file(store, file);
}

static unsigned count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(dir);
	while (readdir(dir) != NULL) {
		n++;
	}
	closedir(dir);
	return n;
}

/* ---- the page cache ---- */

/* Returns how many pages of the file are in the page cache. First reads the file into it (warm), or
 * drops the file from it (drop). */
static unsigned cached_pages(const char *name, bool warm, bool drop)
{
	unsigned char pages[FILE_BYTES / 4096];
	static char sink[FILE_BYTES];
	int fd = open(real_path(name), O_RDONLY | O_CLOEXEC);
	void *map;
	unsigned n = 0;

	assert_true(fd >= 0);
	if (drop) {
		assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	}
	if (warm) {
		assert_int_equal(read(fd, sink, FILE_BYTES), FILE_BYTES);
	}
	map = mmap(NULL, FILE_BYTES, PROT_NONE, MAP_SHARED, fd, 0);
	assert_true(map != MAP_FAILED);
	assert_int_equal(mincore(map, FILE_BYTES, pages), 0);
	for (size_t i = 0; i < sizeof(pages); i++) {
		n += pages[i] & 1;
	}
	munmap(map, FILE_BYTES);
	close(fd);
	return n;
}

static void cached_file_is_read_from_the_cache(void **state)
{
	make_file("f", 'c');
	if (cached_pages("f", false, true) != 0) {
		print_message("skipped: /var/tmp keeps its files in the page cache\n");
		skip();
	}
	fault_arm("store.cache_read", UINT64_MAX, EIO, false); /* never fails: counts */
	assert_file("f", 'c');
	assert_int_equal(fault_count(), 0);
	assert_int_equal(cached_pages("f", false, false), 0); /* nothing was read ahead */
	assert_int_equal(cached_pages("f", true, false), FILE_BYTES / 4096);
	assert_file("f", 'c');
	assert_int_equal(fault_count(), 1);
	fault_arm("store.cache_read", 1, EAGAIN, true); /* thrown out just now: from the disk */
	assert_file("f", 'c');
	fault_arm("store.cache_read", 1, EOPNOTSUPP, true);
	assert_file("f", 'c');
	fault_disarm();
}

static void cached_reads_come_back_once_each(void **state)
{
	struct store_io ios[STORE_DEPTH];
	struct store_file *file;
	unsigned reaped = 0;

	make_file("f", 'c');
	cached_pages("f", true, false);
	assert_int_equal(store_open(store, "f", &file, NULL, &err), 0);
	for (unsigned i = 0; i < 4 * STORE_DEPTH; i++) { /* now and then a full queue */
		unsigned at = i % STORE_DEPTH;
		bool drain = at == STORE_DEPTH - 1 || i < 3;

		ios[at] = (struct store_io){.file = file,
			.buf = buf + at * STORE_ALIGN,
			.len_bytes = STORE_ALIGN,
			.off_bytes = at * STORE_ALIGN,
			.rv = -99};
		assert_int_equal(store_submit(store, &ios[at], &err), 0);
		while (drain && reaped < i + 1) {
			struct store_io *io = store_reap(store, -1);

			assert_non_null(io);
			assert_int_equal(io->rv, 0);
			io->rv = -99;
			reaped++;
		}
	}
	assert_null(store_reap(store, -1));
	store_close_file(store, file);
}

/* ---- without O_DIRECT ---- */

static void refused_at_open_goes_buffered(void **state)
{
	fault_arm("store.direct", 1, EINVAL, true);
	make_file("f", 'b');
	assert_file("f", 'b');
	fault_disarm();
	assert_file("f", 'b');
}

static void refused_at_a_transfer_goes_buffered(void **state)
{
	fault_arm("store.write", 1, EINVAL, false);
	make_file("f", 't');
	fault_disarm();
	assert_file("f", 't');
	cached_pages("f", false, true); /* the disk has it, not only the cache */
	fault_arm("store.read", 1, EINVAL, false);
	assert_file("f", 't');
	fault_arm("store.read", 1, EINVAL, true); /* refused buffered too: an error, not a loop */
	cached_pages("f", false, true);
	{
		struct store_file *file;

		assert_int_equal(store_open(store, "f", &file, NULL, &err), 0);
		if (cached_pages("f", false, true) == 0) {
			assert_int_equal(transfer(file, false, FILE_BYTES, 0), PAWL_EIO);
		}
		store_close_file(store, file);
	}
	fault_disarm();
}

static void works_in_shm(void **state)
{
	struct store *disk = store;
	char path[64];

	snprintf(path, sizeof(path), "/dev/shm/pawl_posix_%d", (int)getpid());
	if (store_posix_open(path, true, &store, &err) != 0) {
		print_message("skipped: %s\n", err.msg);
		store = disk;
		skip();
	}
	make_file("f", 's');
	assert_file("f", 's');
	store_remove(store, "f", &err);
	store_close(store);
	store = disk;
	rmdir(path);
}

/* ---- no space ---- */

/* Publishes over an old text with room for less than the new one. */
static void check_full_disk(size_t big_bytes)
{
	struct store_file *file;
	struct store_io io;
	void *bytes;
	size_t len;
	char *big = calloc(1, big_bytes);

	assert_int_equal(store_publish(store, "small", "old", 3, &err), 0);
	assert_int_equal(store_create(store, "f", big_bytes, &file, &err), PAWL_ENOSPC);
	assert_int_equal(err.sys, ENOSPC);
	assert_int_equal(store_stat(store, "f", NULL, NULL, &err), PAWL_ENOENT);
	assert_int_equal(store_publish(store, "small", big, big_bytes, &err), PAWL_ENOSPC);
	assert_int_equal(store_read_small(store, "small", &bytes, &len, 100, &err), 0);
	assert_string_equal(bytes, "old");
	free(bytes);
	assert_int_equal(store_create(store, "f", 0, &file, &err), 0);
	io = (struct store_io){.file = file, .buf = buf, .len_bytes = FILE_BYTES, .write = true};
	do {
		assert_int_equal(store_submit(store, &io, &err), 0);
		assert_ptr_equal(store_reap(store, -1), &io);
		io.off_bytes += FILE_BYTES;
	} while (io.rv == 0 && io.off_bytes < big_bytes);
	assert_int_equal(io.rv, PAWL_ENOSPC);
	assert_int_equal(io.sys, ENOSPC);
	store_close_file(store, file);
	free(big);
}

/* A full disk is injected, where nothing may be mounted. */
static void no_space_keeps_its_code(void **state)
{
	static const char *const points[] = {"store.reserve", "store.write", "store.sync"};

	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		struct store_file *file = NULL;
		int rv;

		fault_arm(points[i], 1, i == 0 ? EDQUOT : ENOSPC, false);
		rv = store_create(store, "f", FILE_BYTES, &file, &err);
		rv = rv != 0 ? rv : transfer(file, true, FILE_BYTES, 0);
		rv = rv != 0 ? rv : store_sync(store, file, &err);
		assert_int_equal(rv, PAWL_ENOSPC);
		fault_disarm();
		store_close_file(store, file);
	}
}

static void full_disk_is_reported_and_harms_nothing(void **state)
{
	struct store *disk = store;
	char path[256];

	snprintf(path, sizeof(path), "%s", real_path("mnt"));
	assert_int_equal(mkdir(path, 0700), 0);
	if (!is_private || mount("tmpfs", path, "tmpfs", 0, "size=1m") != 0) {
		print_message("skipped: may not mount a small tmpfs\n");
		skip();
	}
	assert_int_equal(store_posix_open(path, false, &store, &err), 0);
	check_full_disk(4 << 20);
	store_close(store);
	store = disk;
	assert_int_equal(umount(path), 0);
}

/* Each piece is as short as it can be. */
static void short_transfers_are_continued(void **state)
{
	struct store_file *file;

	assert_int_equal(store_create(store, "f", 0, &file, &err), 0);
	for (size_t i = 0; i < FILE_BYTES; i++) {
		buf[i] = (char)(i / STORE_ALIGN);
	}
	fault_arm("store.short", 1, EIO, true);
	assert_int_equal(transfer(file, true, FILE_BYTES, 0), 0);
	memset(buf, '?', FILE_BYTES);
	assert_int_equal(transfer(file, false, FILE_BYTES, 0), 0);
	assert_int_equal(fault_count(), 2 * (FILE_BYTES / STORE_ALIGN - 1));
	fault_disarm();
	for (size_t i = 0; i < FILE_BYTES; i++) {
		assert_int_equal(buf[i], i / STORE_ALIGN);
	}
	store_close_file(store, file);
}

/* The refused transfer is started again, buffered, and that start fails. */
static void failed_restart_is_reported(void **state)
{
	struct store_file *file;

	assert_int_equal(store_create(store, "f", 0, &file, &err), 0);
	fault_arm("", 2, EINVAL, true); /* the result, and all that follows */
	assert_int_equal(transfer(file, true, FILE_BYTES, 0), PAWL_EIO);
	fault_disarm();
	assert_int_equal(transfer(file, true, FILE_BYTES, 0), 0);
	store_close_file(store, file);
}

/* The transfer really is short: it ends at the limit, and the rest is refused. */
static void file_size_limit_is_an_error(void **state)
{
	struct store_file *file;
	struct rlimit old;
	struct rlimit low;
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	struct sigaction was;
	uint64_t size;
	int rv;

	getrlimit(RLIMIT_FSIZE, &old);
	low = (struct rlimit){.rlim_cur = 3 * STORE_ALIGN, .rlim_max = old.rlim_max};
	sigaction(SIGXFSZ, &ignore, &was);
	assert_int_equal(store_create(store, "f", 0, &file, &err), 0);
	setrlimit(RLIMIT_FSIZE, &low);
	rv = transfer(file, true, FILE_BYTES, 0);
	setrlimit(RLIMIT_FSIZE, &old);
	sigaction(SIGXFSZ, &was, NULL);
	store_close_file(store, file);
	assert_int_equal(rv, PAWL_EIO);
	assert_int_equal(store_stat(store, "f", NULL, &size, &err), 0);
	assert_int_equal(size, 3 * STORE_ALIGN);
}

/* ---- the root ---- */

static void renamed_root_goes_on(void **state)
{
	char moved[128];

	snprintf(moved, sizeof(moved), "%s/moved", top);
	make_file("f", 'r');
	assert_int_equal(rename(root, moved), 0);
	assert_file("f", 'r');
	make_file("g", 'r');
	assert_int_equal(store_sync_dir(store, "", &err), 0);
	snprintf(root, sizeof(root), "%.60s", moved);
	assert_int_equal(access(real_path("g"), F_OK), 0);
}

static int count_name(void *user, const char *name, enum store_kind kind)
{
	++*(unsigned *)user;
	return 0;
}

static void removed_root_is_reported(void **state)
{
	struct store_file *file;
	unsigned n = 0;

	assert_int_equal(rmdir(root), 0);
	assert_int_equal(store_mkdir(store, "d", &err), PAWL_EIO);
	assert_string_equal(err.msg, "make directory d: the store's own directory was removed");
	assert_int_equal(store_publish(store, "f", "x", 1, &err), PAWL_EIO);
	assert_int_equal(store_create(store, "f", 0, &file, &err), PAWL_EIO);
	assert_int_equal(store_open(store, "f", &file, NULL, &err), PAWL_EIO);
	assert_int_equal(store_append_small(store, "f", "x", 1, true, &err), PAWL_EIO);
	assert_int_equal(store_stat(store, "f", NULL, NULL, &err), PAWL_EIO);
	assert_int_equal(store_stat(store, "", NULL, NULL, &err), PAWL_EIO);
	assert_int_equal(store_list(store, "", count_name, &n, &err), PAWL_EIO);
	assert_int_equal(store_sync_dir(store, "", &err), PAWL_EIO);
	assert_int_equal(store_rename(store, "a", "b", STORE_REPLACE, &err), PAWL_EIO);
	assert_int_equal(store_remove(store, "f", &err), 0); /* nothing is there */
}

static void open_reports_what_is_missing(void **state)
{
	struct store *none = NULL;

	assert_int_equal(store_posix_open(real_path("none"), false, &none, &err), PAWL_ENOENT);
	assert_int_equal(store_write_small(store, "f", "x", 1, &err), 0);
	assert_int_equal(store_posix_open(real_path("f"), true, &none, &err), PAWL_EIO);
	assert_int_equal(store_posix_open(real_path("f/g"), true, &none, &err), PAWL_EIO);
	assert_int_equal(store_posix_open("", true, &none, &err), PAWL_ENOENT);
	assert_null(none);
	assert_int_equal(store_posix_open(real_path("new//a/b/"), true, &none, &err), 0);
	store_close(none);
	assert_int_equal(access(real_path("new/a/b"), F_OK), 0);
}

/* ---- what else may lie in a directory ---- */

static void remove_follows_no_link(void **state)
{
	assert_int_equal(store_mkdir(store, "keep", &err), 0);
	assert_int_equal(store_write_small(store, "keep/f", "x", 1, &err), 0);
	assert_int_equal(store_mkdir(store, "gone", &err), 0);
	assert_int_equal(symlink("../keep", real_path("gone/link")), 0);
	assert_int_equal(symlink("keep", real_path("top")), 0);
	assert_int_equal(store_remove(store, "gone", &err), 0);
	assert_int_equal(store_remove(store, "top", &err), 0);
	assert_int_equal(store_stat(store, "keep/f", NULL, NULL, &err), 0);
	assert_int_equal(store_stat(store, "gone", NULL, NULL, &err), PAWL_ENOENT);
}

static void remove_has_a_depth_limit(void **state)
{
	char path[STORE_NEST_MAX * 2 + 256];
	size_t len;

	snprintf(path, sizeof(path), "%s", real_path("d"));
	assert_int_equal(mkdir(path, 0700), 0);
	for (unsigned i = 0; i <= STORE_NEST_MAX; i++) {
		len = strlen(path);
		snprintf(path + len, sizeof(path) - len, "/d");
		assert_int_equal(mkdir(path, 0700), 0);
	}
	assert_int_equal(store_remove(store, "d", &err), PAWL_ELIMIT);
	for (len = strlen(path); len > strlen(real_path("d")); len -= 2) {
		path[len] = '\0';
		assert_int_equal(rmdir(path), 0);
	}
}

/* A FIFO where a file should be would hang a plain open. */
static void odd_files_are_refused(void **state)
{
	struct store_file *file;
	void *bytes;
	size_t len;
	unsigned n = 0;

	assert_int_equal(mkfifo(real_path("fifo"), 0600), 0);
	assert_int_equal(store_open(store, "fifo", &file, NULL, &err), PAWL_EINVAL);
	assert_int_equal(store_create(store, "fifo", 0, &file, &err), PAWL_EIO);
	assert_int_equal(store_read_small(store, "fifo", &bytes, &len, 9, &err), PAWL_EINVAL);
	assert_int_not_equal(store_write_small(store, "fifo", "x", 1, &err), 0);
	assert_int_equal(store_rename(store, "fifo", "x", STORE_REPLACE, &err), 0);
	assert_int_equal(symlink("nowhere", real_path("dangling")), 0);
	assert_int_equal(store_list(store, "", count_name, &n, &err), 0);
	assert_int_equal(n, 2);
}

static void nothing_is_written_through_a_link(void **state)
{
	struct store_file *file;

	make_file("theirs", 'a');
	assert_int_equal(symlink("theirs", real_path("link")), 0);
	assert_int_not_equal(store_append_small(store, "link", "x", 1, false, &err), 0);
	assert_int_not_equal(store_write_small(store, "link", "x", 1, &err), 0);
	assert_int_not_equal(store_create(store, "link", 0, &file, &err), 0);
	assert_int_equal(store_publish(store, "link", "b", 1, &err), 0); /* replaces the link */
	assert_file("theirs", 'a');
}

static void exchange_may_be_unsupported(void **state)
{
	make_file("a", 'a');
	make_file("b", 'b');
	fault_arm("store.rename", 1, EINVAL, false);
	assert_int_equal(store_rename(store, "a", "b", STORE_EXCHANGE, &err), PAWL_ENOTSUP);
	fault_disarm();
	assert_file("a", 'a');
}

/* ---- every call failing in turn ---- */

/*
 * Runs body with the n-th of the points failing, for all n, once and for good, until all are passed
 * unharmed. body returns the code that the store gave, which is 0 only where nothing failed or the
 * store promises to do without.
 */
static void fail_each(const char *point, bool optional, int (*body)(void), void (*check)(int))
{
	for (int forever = 0; forever <= 1; forever++) {
		bool hit = true;

		for (uint64_t n = 1; hit; n++) {
			unsigned fds = count_fds();
			int rv;

			assert_true(n < FAULTS_MAX);
			err.msg[0] = '\0';
			fault_arm(point, n, EIO, forever);
			rv = body();
			hit = fault_count() >= n;
			fault_disarm();
			assert_int_equal(count_fds(), fds);
			assert_true(rv == 0 || rv == PAWL_EIO || rv == PAWL_ENOMEM);
			assert_int_equal(rv != 0, hit && !optional);
			assert_true(rv == 0 || err.msg[0] != '\0');
			check(rv);
		}
	}
}

static int publish_new(void)
{
	return store_publish(store, "f", "new", 3, &err);
}

static void check_published(int rv)
{
	void *bytes;
	size_t len;
	bool new;

	assert_int_equal(store_read_small(store, "f", &bytes, &len, 100, NULL), 0);
	new = strcmp(bytes, "new") == 0;
	assert_true(new || (rv != 0 && strcmp(bytes, "old") == 0));
	free(bytes);
	assert_int_equal(store_publish(store, "f", "old", 3, NULL), 0); /* works again at once */
}

static void publish_survives_each_failure(void **state)
{
	assert_int_equal(store_publish(store, "f", "old", 3, &err), 0);
	fail_each("", false, publish_new, check_published);
}

/* Moves a whole file by four transfers. */
static int move_file(struct store *s, struct store_file *file, bool write)
{
	const size_t part = FILE_BYTES / 4;
	struct store_io ios[4];
	struct store_io *io;
	int rv = 0;

	for (unsigned i = 0; i < 4 && rv == 0; i++) {
		ios[i] = (struct store_io){.file = file,
			.buf = buf + i * part,
			.len_bytes = part,
			.off_bytes = i * part,
			.write = write};
		rv = store_submit(s, &ios[i], &err);
	}
	while ((io = store_reap(s, -1)) != NULL) {
		if (io->rv != 0) {
			rv = pawl_err_set(&err, io->rv, "transfer");
		}
	}
	return rv;
}

static int write_file(struct store *s)
{
	struct store_file *file;
	int rv = store_create(s, "d/f.new", FILE_BYTES, &file, &err);

	if (rv != 0) {
		return rv;
	}
	memset(buf, 'n', FILE_BYTES);
	rv = move_file(s, file, true);
	rv = rv != 0 ? rv : store_sync(s, file, &err);
	store_close_file(s, file);
	rv = rv != 0 ? rv : store_rename(s, "d/f.new", "d/f", STORE_REPLACE, &err);
	return rv != 0 ? rv : store_sync_dir(s, "d", &err);
}

/* Reads the file. Whatever failed: if the result is 0, the bytes are right. */
static int read_file(struct store *s)
{
	struct store_file *file;
	int rv = store_open(s, "d/f", &file, NULL, &err);

	if (rv != 0) {
		return rv;
	}
	memset(buf, '?', FILE_BYTES);
	rv = move_file(s, file, false);
	store_close_file(s, file);
	for (size_t i = 0; rv == 0 && i < FILE_BYTES; i++) {
		assert_int_equal(buf[i], 'n');
	}
	return rv;
}

static char own_parent[128]; /* parent of the root of use_store's store */

/* Does all that can be done with a file, in a store of its own. */
static int use_store(void)
{
	struct store *s;
	enum store_kind kind;
	unsigned n = 0;
	char own_root[256];
	int rv;

	snprintf(own_root, sizeof(own_root), "%s/root", own_parent);
	rv = store_posix_open(own_root, true, &s, &err);
	if (rv != 0) {
		return rv;
	}
	rv = store_mkdir(s, "d", &err);
	rv = rv != 0 ? rv : write_file(s);
	rv = rv != 0 ? rv : read_file(s);
	rv = rv != 0 ? rv : store_append_small(s, "d/log", "line\n", 5, true, &err);
	rv = rv != 0 ? rv : store_list(s, "d", count_name, &n, &err);
	rv = rv != 0 ? rv : store_stat(s, "d/log", &kind, NULL, &err);
	rv = rv != 0 ? rv : store_remove(s, "d", &err);
	store_close(s);
	return rv;
}

static void remove_own(int rv)
{
	struct store *above;

	if (store_posix_open(own_parent, false, &above, &err) == 0) {
		assert_int_equal(store_remove(above, "root", &err), 0);
		store_close(above);
	}
}

static void every_call_survives_each_failure(void **state)
{
	static const char *const reported[] = {"store.alloc", "store.create", "store.list",
		"store.mkdir", "store.open", "store.read", "store.remove", "store.rename",
		"store.reserve", "store.stat", "store.sync", "store.write", "aio.submit"};
	static const char *const done_without[] = {"store.cache", "store.direct", "store.short",
		"aio.uring"};

	/* First in memory, where a sync costs nothing; then on a disk, which has what can be
	 * refused. */
	snprintf(own_parent, sizeof(own_parent), "%s/pawl_posix_own_%d",
		access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/var/tmp", (int)getpid());
	for (size_t i = 0; i < sizeof(reported) / sizeof(reported[0]); i++) {
		fail_each(reported[i], false, use_store, remove_own);
	}
	rmdir(own_parent);
	snprintf(own_parent, sizeof(own_parent), "%.120s", real_path("own"));
	for (size_t i = 0; i < sizeof(done_without) / sizeof(done_without[0]); i++) {
		fail_each(done_without[i], true, use_store, remove_own);
	}
}

#define POSIX_TEST(f) cmocka_unit_test_setup_teardown(f, open_store, close_store)

int main(void)
{
	const struct CMUnitTest tests[] = {
		POSIX_TEST(cached_file_is_read_from_the_cache),
		POSIX_TEST(cached_reads_come_back_once_each),
		POSIX_TEST(refused_at_open_goes_buffered),
		POSIX_TEST(refused_at_a_transfer_goes_buffered),
		POSIX_TEST(works_in_shm),
		POSIX_TEST(no_space_keeps_its_code),
		POSIX_TEST(full_disk_is_reported_and_harms_nothing),
		POSIX_TEST(short_transfers_are_continued),
		POSIX_TEST(failed_restart_is_reported),
		POSIX_TEST(file_size_limit_is_an_error),
		POSIX_TEST(renamed_root_goes_on),
		POSIX_TEST(removed_root_is_reported),
		POSIX_TEST(open_reports_what_is_missing),
		POSIX_TEST(remove_follows_no_link),
		POSIX_TEST(remove_has_a_depth_limit),
		POSIX_TEST(odd_files_are_refused),
		POSIX_TEST(nothing_is_written_through_a_link),
		POSIX_TEST(exchange_may_be_unsupported),
		POSIX_TEST(publish_survives_each_failure),
		POSIX_TEST(every_call_survives_each_failure),
	};
	int failed;

	/* What the tests mount vanishes with this process; if a mount is refused, they skip. */
	is_private = unshare(CLONE_NEWNS) == 0 &&
		mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
	failed = cmocka_run_group_tests_name("io_uring", tests, NULL, NULL);
	setenv("PAWL_NO_URING", "1", 1);
	return failed + cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
