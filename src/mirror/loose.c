/* Loose files, each an object: see loose.h. */
#include "mirror/loose.h"

#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "mirror/units.h"
#include "mirror/walk.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE       (1u << 20) /* bytes of one transfer */
#define SMALL_MAX   PIECE      /* a file up to this size is put in one request */
#define PART_FILE   "part"     /* file that is being downloaded */
#define SAVE_PREFIX "save-"

_Static_assert(PIECE % STORE_ALIGN == 0, "a piece can be transferred");

/* ---- up ---- */

static int read_piece(int fd, const char *path, uint8_t *at, size_t len_bytes, uint64_t off,
	struct pawl_err *err)
{
	size_t done = 0;

	while (done < len_bytes) {
		ssize_t n = FAULT_SYS("loose.read",
			pread(fd, at + done, len_bytes - done, (off_t)(off + done)));

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0) {
			return pawl_err_sys(err, "read %s", path);
		}
		if (n == 0) {
			return pawl_err_set(err, PAWL_ECANCELED, "%s became shorter", path);
		}
		done += (size_t)n;
	}
	return 0;
}

/* One transfer after the other: such files are few, and nothing waits for them. */
static int transfer(struct store *store, struct store_io *io, struct pawl_err *err)
{
	int rv = store_submit(store, io, err);

	if (rv != 0) {
		return rv;
	}
	while (store_reap(store, -1) == NULL) {
	}
	return io->rv == 0 ? 0 : pawl_err_set(err, io->rv, "%s", store_io_why(io));
}

static size_t round_up(uint64_t bytes)
{
	return (size_t)((bytes + STORE_ALIGN - 1) / STORE_ALIGN * STORE_ALIGN);
}

static int send_pieces(struct store *store, struct store_file *object, int fd, const char *path,
	uint64_t size_bytes, uint8_t *piece, struct pawl_err *err)
{
	int rv = 0;

	for (uint64_t at = 0; at < size_bytes && rv == 0; at += PIECE) {
		size_t len_bytes = size_bytes - at < PIECE ? (size_t)(size_bytes - at) : PIECE;
		struct store_io io = {.file = object,
			.buf = piece,
			.len_bytes = round_up(len_bytes),
			.off_bytes = at,
			.write = true};

		rv = read_piece(fd, path, piece, len_bytes, at, err);
		if (rv == 0) {
			memset(piece + len_bytes, 0, io.len_bytes - len_bytes);
			rv = transfer(store, &io, err);
		}
	}
	return rv;
}

static bool same_state(int fd, const struct stat *before)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_size == before->st_size &&
		st.st_mtim.tv_sec == before->st_mtim.tv_sec &&
		st.st_mtim.tv_nsec == before->st_mtim.tv_nsec;
}

static int check_state(int fd, const char *path, const struct stat *before, bool forced,
	struct pawl_err *err)
{
	return forced || same_state(fd, before)
		? 0
		: pawl_err_set(err, PAWL_ECANCELED, "%s changed while it was shipped", path);
}

static int send_large(struct store *store, int fd, const char *path, const struct stat *st,
	bool forced, uint8_t *piece, struct pawl_err *err)
{
	uint64_t size_bytes = (uint64_t)st->st_size;
	struct store_file *object = NULL;
	int rv = store_create(store, path, size_bytes, &object, err);

	if (rv != 0) {
		return rv;
	}
	rv = send_pieces(store, object, fd, path, size_bytes, piece, err);
	rv = rv == 0 ? check_state(fd, path, st, forced, err) : rv;
	rv = rv == 0 ? store_resize(store, object, size_bytes, err) : rv;
	rv = rv == 0 ? store_sync(store, object, err) : rv;
	store_close_file(store, object);
	return rv;
}

int loose_ship(struct store *store, int dir_fd, const char *path, bool forced,
	struct loose_sent *sent, struct pawl_err *err)
{
	struct stat st;
	uint8_t *piece = FAULT_MEM("loose.piece", aligned_alloc(STORE_ALIGN, PIECE));
	int fd = -1;
	int rv = 0;

	if (piece == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to ship %s", path);
	}
	fd = file_open_beneath(dir_fd, ".", path, O_RDONLY, 0, BENEATH_ANY, &st, err);
	if (fd < 0) {
		rv = fd == PAWL_ENOENT ? fd : PAWL_ENOTSUP;
	}
	if (rv == 0 && st.st_size <= (off_t)SMALL_MAX) {
		rv = read_piece(fd, path, piece, (size_t)st.st_size, 0, err);
		rv = rv == 0 ? check_state(fd, path, &st, forced, err) : rv;
		rv = rv == 0 ? store_write_small(store, path, piece, (size_t)st.st_size, err) : rv;
	} else if (rv == 0) {
		rv = send_large(store, fd, path, &st, forced, piece, err);
	}
	if (rv == 0) {
		*sent = (struct loose_sent){walk_file_number(path, &st), (uint64_t)st.st_size};
	}
	if (fd >= 0) {
		close(fd);
	}
	free(piece);
	return rv;
}

/* ---- list ---- */

/* A folder of the bucket being listed. */
struct listing {
	char path[STORE_PATH_MAX]; /* folder; "": the root */
	uint32_t depth;            /* names in path */
	char **names;              /* names of folders and files, a kind before each; owned */
	uint32_t n, cap;           /* number of names, and room */
	bool failed;               /* no memory */
};

static int take_name(void *user, const char *name, enum store_kind kind)
{
	struct listing *listing = user;
	size_t bytes = strlen(name) + 2;
	char *copy;

	if (listing->path[0] == '\0' && name[0] == '.') {
		return 0; /* ours */
	}
	if (listing->n == listing->cap) {
		uint32_t cap = listing->cap == 0 ? 16 : listing->cap * 2;
		char **names =
			FAULT_MEM("loose.list", realloc(listing->names, cap * sizeof(*names)));

		if (names == NULL) {
			listing->failed = true;
			return 1;
		}
		listing->names = names;
		listing->cap = cap;
	}
	copy = FAULT_MEM("loose.list", malloc(bytes));
	if (copy == NULL) {
		listing->failed = true;
		return 1;
	}
	snprintf(copy, bytes, "%c%s", kind == STORE_DIR ? 'd' : 'f', name);
	listing->names[listing->n++] = copy;
	return 0;
}

static int list_folder(struct store *store, const char *folder, uint32_t depth,
	int (*each)(void *user, const char *path), void *user, struct pawl_err *err);

static int take_listed(struct store *store, const struct listing *listing, const char *name,
	int (*each)(void *user, const char *path), void *user, struct pawl_err *err)
{
	char path[STORE_PATH_MAX + STORE_NAME_MAX];
	bool save = listing->depth == 1 && strncmp(name + 1, SAVE_PREFIX, strlen(SAVE_PREFIX)) == 0;

	snprintf(path, sizeof(path), "%s%s%s", listing->path, listing->path[0] != '\0' ? "/" : "",
		name + 1);
	if (save || unit_bad_file(name + 1) != NULL || strlen(path) >= STORE_PATH_MAX) {
		return 0; /* files of tags; and what could not have come from here */
	}
	if (name[0] == 'f') {
		return each(user, path);
	}
	return listing->depth + 1 < STORE_NEST_MAX
		? list_folder(store, path, listing->depth + 1, each, user, err)
		: 0;
}

static int list_folder(struct store *store, const char *folder, uint32_t depth,
	int (*each)(void *user, const char *path), void *user, struct pawl_err *err)
{
	struct listing listing = {.depth = depth};
	int rv;

	snprintf(listing.path, sizeof(listing.path), "%s", folder);
	rv = store_list(store, folder, take_name, &listing, err);
	rv = rv == PAWL_ENOENT ? 0 : rv;
	if (rv == 0 && listing.failed) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory to list a bucket");
	}
	for (uint32_t i = 0; i < listing.n; i++) {
		rv = rv == 0 ? take_listed(store, &listing, listing.names[i], each, user, err) : rv;
		free(listing.names[i]);
	}
	free(listing.names);
	return rv;
}

int loose_list(struct store *store, int (*each)(void *user, const char *path), void *user,
	struct pawl_err *err)
{
	return list_folder(store, "", 0, each, user, err);
}

/* ---- down ---- */

static int write_all(int fd, const uint8_t *bytes, size_t len_bytes, struct pawl_err *err)
{
	while (len_bytes > 0) {
		ssize_t n = FAULT_SYS("loose.write", write(fd, bytes, len_bytes));

		if (n < 0 && errno != EINTR) {
			return pawl_err_sys(err, "write");
		}
		if (n > 0) {
			bytes += n;
			len_bytes -= (size_t)n;
		}
	}
	return 0;
}

static int receive(struct store *store, struct store_file *object, uint64_t size_bytes, int fd,
	struct pawl_err *err)
{
	uint8_t *piece = FAULT_MEM("loose.piece", aligned_alloc(STORE_ALIGN, PIECE));
	int rv = 0;

	if (piece == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory");
	}
	for (uint64_t at = 0; at < size_bytes && rv == 0; at += PIECE) {
		size_t len_bytes = size_bytes - at < PIECE ? (size_t)(size_bytes - at) : PIECE;
		struct store_io io = {.file = object,
			.buf = piece,
			.len_bytes = round_up(len_bytes),
			.off_bytes = at};

		rv = transfer(store, &io, err);
		rv = rv == 0 ? write_all(fd, piece, len_bytes, err) : rv;
	}
	free(piece);
	return rv;
}

/* Gives the downloaded file its name, unless that is taken. */
static int place(const char *path, int dir_fd, int work_fd, struct pawl_err *err)
{
	if (file_make_folders(dir_fd, path, 0777) != 0 ||
		FAULT_SYS("loose.place",
			renameat2(work_fd, PART_FILE, dir_fd, path, RENAME_NOREPLACE)) != 0) {
		return pawl_err_sys(err, "put %s in place", path);
	}
	return 0;
}

int loose_fetch(struct store *store, const char *path, int dir_fd, int work_fd,
	struct pawl_err *err)
{
	struct store_file *object = NULL;
	uint64_t size_bytes;
	struct stat st;
	int fd = -1;
	int rv;

	if (fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		return pawl_err_set(err, PAWL_EEXIST, "%s exists", path);
	}
	rv = store_open(store, path, &object, &size_bytes, err);
	if (rv != 0) {
		return rv;
	}
	unlinkat(work_fd, PART_FILE, 0);
	fd = FAULT_SYS("loose.create",
		openat(work_fd, PART_FILE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
			0666));
	rv = fd < 0 ? pawl_err_sys(err, "create a file") : 0;
	rv = rv == 0 ? receive(store, object, size_bytes, fd, err) : rv;
	if (rv == 0 && FAULT_SYS("loose.sync", fsync(fd)) != 0) {
		rv = pawl_err_sys(err, "sync");
	}
	if (fd >= 0) {
		close(fd);
	}
	rv = rv == 0 ? place(path, dir_fd, work_fd, err) : rv;
	if (rv != 0) {
		unlinkat(work_fd, PART_FILE, 0);
	}
	store_close_file(store, object);
	return rv == 0 || rv == PAWL_EEXIST ? rv : pawl_err_prefix(err, rv, "fetch %s", path);
}
