/*
 * Files for transfers in a directory store: see store.h.
 *
 * Transfers bypass the page cache (O_DIRECT) where the file system allows it; where it refuses, at
 * open or at a transfer, the file goes on buffered, silently. A read of bytes that are in the page
 * cache anyway is served from there at memory speed. mincore is asked first: a read with RWF_NOWAIT
 * that misses makes the kernel read ahead, the same bytes twice from the disk. Bytes that other
 * processes read as well go through the page cache, so that only the first process reads the disk.
 *
 * A file may also be mapped until it is closed. Two things then keep its bytes unchanged: mlock
 * keeps the pages, so that none is read again, with an error or other bytes; and a read lease
 * delays any process that opens the file for writing or truncates it. If either is refused, the
 * file is read by transfers. A file that is not in the page cache is mapped like this only on
 * request (unread), and posix_fill reads its pages.
 */
#include "store/posix_impl.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* sys/mman.h, for headers older than Linux 5.14 */
#endif
/* bytes prefetched at a time: of a longer range Linux reads only what fits one request */
#define PREFETCH_BYTES (512u << 10)
#define MINCORE_PAGES  256u /* pages of one mincore call */
#define MISSING_PART   16u  /* a file is not mapped if more than one page in this many is missing */
#define PAGE_BYTES     4096 /* where pages are larger, the page cache is not used */

_Static_assert(STORE_ALIGN % PAGE_BYTES == 0, "a transfer begins at a page, as mincore requires");
_Static_assert(PREFETCH_BYTES % STORE_ALIGN == 0, "a prefetch begins where a transfer may");
_Static_assert(offsetof(struct posix_slot, req) == 0, "posix_reap converts a request to its slot");

struct store_file {
	int fd;             /* for transfers and syncs */
	bool direct;        /* fd has O_DIRECT */
	unsigned in_flight; /* transfers not reaped */
	int cache_fd;       /* buffered descriptor of the file, for reads from the cache; or -1 */
	/* Mapping of cache_fd. Until mapped is set it serves mincore alone: no access, so no
	 * SIGBUS. */
	char *map;
	size_t map_bytes;          /* length of map: the file's size at open */
	bool mapped;               /* map is readable, its pages are locked, cache_fd has a lease */
	char path[STORE_PATH_MAX]; /* path at open, for messages */
};

/* ---- opening ---- */

/* Makes fd blocking (a regular file always is, but io_uring heeds the flag), and direct if
 * possible. */
static void set_direct(struct store_file *file)
{
	file->direct = FAULT_SYS("store.direct", fcntl(file->fd, F_SETFL, O_DIRECT)) == 0;
	if (!file->direct) {
		fcntl(file->fd, F_SETFL, 0);
	}
}

static int new_file(int fd, const char *path, struct store_file **file, struct pawl_err *err)
{
	struct store_file *f = FAULT_MEM("store.alloc", calloc(1, sizeof(*f)));

	if (f == NULL) {
		close(fd);
		return pawl_err_set(err, PAWL_ENOMEM, "open %s: out of memory", path);
	}
	f->fd = fd;
	f->cache_fd = -1;
	snprintf(f->path, sizeof(f->path), "%s", path);
	set_direct(f);
	*file = f;
	return 0;
}

/* Gives the empty file its size, with blocks where the file system can reserve them. */
static int reserve_size(int fd, uint64_t size_bytes)
{
	int rc;

	if (size_bytes == 0) {
		return 0;
	}
	do {
		rc = FAULT_SYS("store.reserve", fallocate(fd, 0, 0, (off_t)size_bytes));
	} while (rc != 0 && errno == EINTR);
	if (rc != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) {
		rc = FAULT_SYS("store.reserve", ftruncate(fd, (off_t)size_bytes));
	}
	return rc;
}

int posix_create(struct store *store, const char *path, uint64_t size_bytes,
	struct store_file **file, struct pawl_err *err)
{
	struct posix_store *ps = (struct posix_store *)store;
	struct stat st;
	int fd = posix_open_regular(ps, path, O_RDWR | O_CREAT | O_TRUNC, &st, err);
	int rv;

	if (fd < 0) {
		return fd;
	}
	if (reserve_size(fd, size_bytes) != 0) {
		rv = posix_fail(ps, err, "reserve", path);
		close(fd);
		/* otherwise the file would keep its reserved space */
		unlinkat(posix_dir_fd(ps, path), path, 0);
		return rv;
	}
	return new_file(fd, path, file, err);
}

/* Opens a second, buffered description of the file, and a mapping to ask what is cached. Without
 * either all reads are direct. */
static void open_cache(const struct posix_store *ps, struct store_file *file, const struct stat *st)
{
	struct stat again;
	int fd;
	void *map;

	if (sysconf(_SC_PAGESIZE) != PAGE_BYTES) {
		return; /* transfers need not begin at a page then, as mincore requires */
	}
	fd = FAULT_SYS("store.cache_open",
		file_open_plain(posix_dir_fd(ps, file->path), file->path, O_RDONLY, 0, &again));
	if (fd < 0) {
		return;
	}
	if (again.st_dev != st->st_dev || again.st_ino != st->st_ino) {
		goto close_fd; /* renamed in between */
	}
	map = FAULT_SYS("store.cache_open",
		mmap(NULL, (size_t)st->st_size, PROT_NONE, MAP_SHARED, fd, 0));
	if (map == MAP_FAILED) {
		goto close_fd;
	}
	fcntl(fd, F_SETFL, 0);                      /* io_uring heeds O_NONBLOCK */
	posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); /* no readahead */
	file->cache_fd = fd;
	file->map = map;
	file->map_bytes = (size_t)st->st_size;
	return;
close_fd:
	close(fd);
}

static void close_cache(struct store_file *file)
{
	if (file->cache_fd >= 0) {
		munmap(file->map, file->map_bytes);
		close(file->cache_fd);
		file->cache_fd = -1;
	}
}

int posix_open(struct store *store, const char *path, struct store_file **file,
	uint64_t *size_bytes, struct pawl_err *err)
{
	struct posix_store *ps = (struct posix_store *)store;
	struct stat st;
	int fd = posix_open_regular(ps, path, O_RDONLY, &st, err);
	int rv;

	if (fd < 0) {
		return fd;
	}
	rv = new_file(fd, path, file, err);
	if (rv != 0) {
		return rv;
	}
	if ((*file)->direct && st.st_size > 0) {
		open_cache(ps, *file, &st);
	}
	*size_bytes = (uint64_t)st.st_size;
	return 0;
}

void posix_close_file(struct store *store, struct store_file *file)
{
	ASSERT(file->in_flight == 0);
	close_cache(file);
	close(file->fd); /* fsync has reported every error already */
	free(file);
}

/* ---- the page cache ---- */

/* Returns whether more than one page in MISSING_PART is not in memory, or the system does not
 * say. */
static bool lacks_pages(char *map, size_t len_bytes, size_t most)
{
	unsigned char pages[MINCORE_PAGES];
	size_t missing = 0;

	for (size_t at = 0; at < len_bytes; at += sizeof(pages) * PAGE_BYTES) {
		size_t left = len_bytes - at;
		size_t chunk =
			left < sizeof(pages) * PAGE_BYTES ? left : sizeof(pages) * PAGE_BYTES;

		if (mincore(map + at, chunk, pages) != 0) {
			return true;
		}
		for (size_t i = 0; i < (chunk + PAGE_BYTES - 1) / PAGE_BYTES; i++) {
			missing += (pages[i] & 1) == 0;
		}
		if (missing > most) {
			return true;
		}
	}
	return false;
}

/* Returns how much of a transfer lies in the file: everything, except in the file's last block. */
static size_t bytes_in_file(const struct store_file *file, const struct store_io *io)
{
	uint64_t left = io->off_bytes < file->map_bytes ? file->map_bytes - io->off_bytes : 0;

	if (left >= io->len_bytes) {
		return io->len_bytes;
	}
	return io->len_bytes - left < STORE_ALIGN ? (size_t)left : 0;
}

/* Takes a read lease. A lease is broken by a signal, SIGIO by default, which kills: SIGURG is
 * ignored unless somebody waits for it. */
static bool take_lease(int fd)
{
	return fcntl(fd, F_SETSIG, SIGURG) == 0 &&
		FAULT_SYS("store.lease", fcntl(fd, F_SETLEASE, F_RDLCK)) == 0;
}

/* Locks the pages of the map: all of them, reading those that are missing; or (unread) each when it
 * is read. */
static int lock_pages(struct store_file *file, bool as_they_come)
{
	if (as_they_come && madvise(file->map, 0, MADV_POPULATE_READ) != 0) {
		/* before Linux 5.14 pages cannot be read one by one without a SIGBUS */
		return -1;
	}
	return FAULT_SYS("store.lock",
		as_they_come ? mlock2(file->map, file->map_bytes, MLOCK_ONFAULT)
			     : mlock(file->map, file->map_bytes));
}

int posix_map(struct store *store, struct store_file *file, bool unread, const uint8_t **bytes,
	struct pawl_err *err)
{
	struct stat st;

	if (file->cache_fd < 0 ||
		(!unread &&
			lacks_pages(file->map, file->map_bytes,
				file->map_bytes / PAGE_BYTES / MISSING_PART))) {
		return pawl_err_set(err, PAWL_ENOTSUP, "map %s: not in the page cache", file->path);
	}
	if (!take_lease(file->cache_fd)) {
		return pawl_err_set(err, PAWL_ENOTSUP, "map %s: cannot take a read lease",
			file->path);
	}
	/* if the size differs, the file was cut after it was opened, which the reads will report */
	if (fstat(file->cache_fd, &st) != 0 || (uint64_t)st.st_size != file->map_bytes ||
		mprotect(file->map, file->map_bytes, PROT_READ) != 0 ||
		lock_pages(file, unread) != 0) {
		munlock(file->map, file->map_bytes);
		mprotect(file->map, file->map_bytes, PROT_NONE);
		fcntl(file->cache_fd, F_SETLEASE, F_UNLCK);
		return pawl_err_set(err, PAWL_ENOTSUP, "map %s: cannot lock its pages", file->path);
	}
	file->mapped = true;
	*bytes = (const uint8_t *)file->map;
	return 0;
}

void posix_prefetch(struct store_file *file, uint64_t off_bytes, uint64_t len_bytes)
{
	for (uint64_t at = 0; at < len_bytes; at += PREFETCH_BYTES) {
		posix_fadvise(file->cache_fd, (off_t)(off_bytes + at),
			(off_t)(len_bytes - at < PREFETCH_BYTES ? len_bytes - at : PREFETCH_BYTES),
			POSIX_FADV_WILLNEED);
	}
}

int posix_fill(struct store_file *file, uint64_t off_bytes, uint64_t len_bytes,
	struct pawl_err *err)
{
	ASSERT(file->mapped);
	ASSERT(off_bytes <= file->map_bytes && len_bytes <= file->map_bytes - off_bytes);
	if (FAULT_SYS("store.fill",
		    madvise(file->map + off_bytes, len_bytes, MADV_POPULATE_READ)) == 0) {
		return 0;
	}
	errno = EIO; /* EFAULT means that a page cannot be read */
	return pawl_err_sys(err, "%s: read at %" PRIu64, file->path, off_bytes);
}

/* ---- transfers ---- */

/* Reads io from the page cache. Returns whether that succeeded. */
static bool read_cached(const struct store_io *io)
{
	struct store_file *file = io->file;
	size_t len_bytes = file->cache_fd < 0 ? 0 : bytes_in_file(file, io);
	struct iovec iov = {.iov_base = io->buf, .iov_len = len_bytes};
	ssize_t n;

	if (len_bytes == 0 || lacks_pages(file->map + io->off_bytes, len_bytes, 0)) {
		return false;
	}
	n = FAULT_SYS("store.cache_read",
		preadv2(file->cache_fd, &iov, 1, (off_t)io->off_bytes, RWF_NOWAIT));
	if (n == (ssize_t)len_bytes) {
		return true;
	}
	/* evicted just now, not supported, or mincore may not tell us: do not try again, since each
	 * miss makes the kernel read ahead */
	if (!file->mapped) {
		close_cache(file);
	}
	return false;
}

static struct posix_slot *find_free_slot(struct posix_store *ps)
{
	unsigned i = 0;

	while (ps->slots[i].io != NULL) {
		i++;
		ASSERT(i < STORE_DEPTH); /* in_flight bounds their number */
	}
	return &ps->slots[i];
}

/* Starts the rest of slot's transfer. */
static int start_slot(struct posix_store *ps, struct posix_slot *slot, struct pawl_err *err)
{
	const struct store_io *io = slot->io;

	bool cached = io->shared && io->file->cache_fd >= 0;

	slot->direct = io->file->direct && !cached;
	slot->req = (struct aio_req){
		.buf = (char *)io->buf + slot->moved_bytes,
		.len_bytes = io->len_bytes - slot->moved_bytes,
		.off_bytes = io->off_bytes + slot->moved_bytes,
		.fd = cached ? io->file->cache_fd : io->file->fd,
		.write = io->write,
	};
	return aio_submit(ps->aio, &slot->req, err);
}

int posix_submit(struct store *store, struct store_io *io, struct pawl_err *err)
{
	struct posix_store *ps = (struct posix_store *)store;
	struct posix_slot *slot;
	int rv;

	ASSERT(ps->in_flight < STORE_DEPTH);
	io->next = NULL;
	if (!io->write && read_cached(io)) {
		*ps->done_end = io;
		ps->done_end = &io->next;
		goto taken;
	}
	slot = find_free_slot(ps);
	slot->io = io;
	slot->moved_bytes = 0;
	rv = start_slot(ps, slot, err);
	if (rv != 0) {
		slot->io = NULL;
		return pawl_err_prefix(err, rv, "%s %s", io->write ? "write" : "read",
			io->file->path);
	}
taken:
	io->rv = 0;
	io->sys = 0;
	io->file->in_flight++;
	ps->in_flight++;
	return 0;
}

/* Returns the bytes moved, or a negative errno. */
static int64_t take_result(const struct aio_req *req)
{
	if (FAULT_SYS(req->write ? "store.write" : "store.read", 0) != 0) {
		return -errno;
	}
	if (req->res > STORE_ALIGN && FAULT_SYS("store.short", 0) != 0) {
		return STORE_ALIGN; /* a short transfer: the rest is moved again */
	}
	return req->res;
}

/* Returns whether a read has reached the end of the file, in its last block. */
static bool is_last_block(const struct posix_slot *slot)
{
	struct stat st;

	return slot->moved_bytes % STORE_ALIGN != 0 &&
		slot->io->len_bytes - slot->moved_bytes < STORE_ALIGN &&
		fstat(slot->io->file->fd, &st) == 0 &&
		slot->io->off_bytes + slot->moved_bytes == (uint64_t)st.st_size;
}

/* Handles the result of slot's request. Returns true when its transfer is over, with io->rv and
 * io->sys set; false when the rest must be started. */
static bool handle_result(struct posix_slot *slot)
{
	struct store_io *io = slot->io;
	int64_t res = take_result(&slot->req);

	if (res == -EINTR) {
		return false;
	}
	if (res == -EINVAL && slot->direct) {
		fcntl(io->file->fd, F_SETFL, 0);
		io->file->direct = false;
		return false;
	}
	if (res < 0) {
		io->sys = (int)-res;
		io->rv = pawl_err_from_sys(io->sys);
		return true;
	}
	slot->moved_bytes += (size_t)res;
	if (!io->write && is_last_block(slot)) {
		return true;
	}
	if (res == 0) {
		io->rv = io->write ? PAWL_EIO : PAWL_ECORRUPT; /* the file ends here */
		return true;
	}
	return slot->moved_bytes == io->len_bytes;
}

/* Waits for a transfer. The timeout restarts with each rest of a short transfer, which is rare. */
struct store_io *posix_reap(struct store *store, int timeout_ms)
{
	struct posix_store *ps = (struct posix_store *)store;
	struct store_io *io = ps->done;

	if (io != NULL) {
		ps->done = io->next;
		ps->done_end = ps->done == NULL ? &ps->done : ps->done_end;
	}
	while (io == NULL) {
		struct pawl_err err;
		struct aio_req *req = aio_reap(ps->aio, timeout_ms);
		/* The request is the first field of its slot. */
		struct posix_slot *slot = (struct posix_slot *)req;

		if (req == NULL) {
			return NULL;
		}
		if (!handle_result(slot)) {
			slot->io->rv = start_slot(ps, slot, &err);
			if (slot->io->rv == 0) {
				continue;
			}
			slot->io->sys = err.sys;
		}
		io = slot->io;
		slot->io = NULL;
	}
	ASSERT(ps->in_flight > 0 && io->file->in_flight > 0);
	io->next = NULL;
	io->file->in_flight--;
	ps->in_flight--;
	return io;
}

int posix_resize(struct store *store, struct store_file *file, uint64_t size_bytes,
	struct pawl_err *err)
{
	if (FAULT_SYS("store.resize", ftruncate(file->fd, (off_t)size_bytes)) != 0) {
		return posix_fail((struct posix_store *)store, err, "resize", file->path);
	}
	return 0;
}

int posix_clone(struct store *store, const struct store_range *to, const struct store_range *from,
	uint64_t len_bytes, struct pawl_err *err)
{
	struct file_clone_range range = {.src_fd = from->file->fd,
		.src_offset = from->off_bytes,
		.src_length = len_bytes,
		.dest_offset = to->off_bytes};

	if (FAULT_SYS("store.clone", ioctl(to->file->fd, FICLONERANGE, &range)) == 0) {
		return 0;
	}
	if (errno == EOPNOTSUPP || errno == ENOTTY || errno == ENOSYS || errno == EXDEV ||
		errno == EINVAL) { /* EINVAL also for block sizes that do not divide 1 MiB */
		return pawl_err_set(err, PAWL_ENOTSUP,
			"clone %s: not supported by this file system", from->file->path);
	}
	return posix_fail((struct posix_store *)store, err, "clone into", to->file->path);
}

int posix_sync(struct store *store, struct store_file *file, struct pawl_err *err)
{
	/* fsync, not fdatasync: the file is new, with its size and blocks */
	if (FAULT_SYS("store.sync", fsync(file->fd)) != 0) {
		return posix_fail((struct posix_store *)store, err, "sync", file->path);
	}
	return 0;
}
