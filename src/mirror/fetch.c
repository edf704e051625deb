/* Fetches units: see fetch.h. */
#include "mirror/fetch.h"

#include "base/clock.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "ckpt/format/pieces.h"
#include "ckpt/read.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "mirror/walk.h"
#include "mirror/workdir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Times of files may lag behind the clock by so much. A unit rests longer before it is shipped. */
#define COARSE_NS (NS_PER_S / 10)
#define WINDOW    (16u << 20) /* bytes read, verified and written at a time */

struct fetch {
	struct tags_root *root;     /* the opener's */
	const struct workdir *work; /* the opener's */
	bool (*stop)(void *user);   /* the opener's, or NULL */
	void *user;                 /* for stop */
	struct reader *reader;      /* owned */
};

int fetch_open(struct fetch **out, struct tags_root *root, const struct workdir *work,
	bool (*stop)(void *user), void *user, struct pawl_err *err)
{
	struct fetch *fetch = FAULT_MEM("fetch.open", calloc(1, sizeof(*fetch)));
	int rv;

	if (fetch == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to fetch units");
	}
	*fetch = (struct fetch){root, work, stop, user, NULL};
	rv = reader_open(&fetch->reader, tags_root_store(root), err);
	if (rv != 0) {
		free(fetch);
		return rv;
	}
	*out = fetch;
	return 0;
}

void fetch_close(struct fetch *fetch)
{
	if (fetch != NULL) {
		reader_close(fetch->reader);
		free(fetch);
	}
}

static int check_stop(const struct fetch *fetch, struct pawl_err *err)
{
	return fetch->stop != NULL && fetch->stop(fetch->user)
		? pawl_err_set(err, PAWL_ECANCELED, "stopped")
		: 0;
}

/* ---- comparing ---- */

/* A comparison of a unit with its tag. */
struct comparing {
	const struct manifest *manifest; /* the tag's */
	uint32_t same;                   /* files that are in both, with one size */
	bool differs;                    /* a file is in one only, or has two sizes */
	bool newer;                      /* a file was written after the tag was made */
};

static int compare_file(void *user, const struct walk_entry *entry, bool *enter,
	struct pawl_err *err)
{
	struct comparing *comparing = user;
	const struct manifest_part *part;
	int64_t written_ns;

	if (entry->skipped != NULL) {
		return 0;
	}
	*enter = S_ISDIR(entry->st->st_mode);
	if (*enter) {
		return 0;
	}
	part = manifest_find_file(comparing->manifest, entry->path);
	written_ns = entry->st->st_mtim.tv_sec * NS_PER_S + entry->st->st_mtim.tv_nsec;
	comparing->newer =
		comparing->newer || written_ns > comparing->manifest->created_ns - COARSE_NS;
	if (part != NULL && part->size_bytes == (uint64_t)entry->st->st_size) {
		comparing->same++;
	} else {
		comparing->differs = true;
	}
	return 0;
}

/* Returns whether an open file has the bytes of a part; one that cannot be read has not. */
static int compare_bytes(const struct fetch *fetch, const struct manifest_part *part, int fd,
	bool *same, struct pawl_err *err)
{
	uint8_t *chunk = FAULT_MEM("fetch.chunk", malloc(CKPT_CHUNK));
	int rv = chunk == NULL ? pawl_err_set(err, PAWL_ENOMEM, "no memory to compare units") : 0;

	*same = true;
	for (uint32_t i = 0; i < part->chunks_n && rv == 0 && *same; i++) {
		uint64_t off = (uint64_t)i * CKPT_CHUNK;
		uint64_t left = part->size_bytes - off;
		size_t want = left < CKPT_CHUNK ? (size_t)left : CKPT_CHUNK;
		size_t done = 0;
		ssize_t n;

		while (done < want &&
			(n = pread(fd, chunk + done, want - done, (off_t)(off + done))) > 0) {
			done += (size_t)n;
		}
		*same = done == want && crc32c(0, chunk, want) == part->chunks[i];
		rv = check_stop(fetch, err);
	}
	free(chunk);
	return rv;
}

static int compare_all_bytes(const struct fetch *fetch, const struct manifest *manifest,
	const char *path, bool *same, struct pawl_err *err)
{
	int rv = 0;

	for (uint32_t i = 0; i < manifest->parts_n && rv == 0 && *same; i++) {
		char file[WALK_PATH_MAX + CKPT_NAME_MAX];
		struct stat st;
		int fd;

		snprintf(file, sizeof(file), "%s/%s", path, manifest->parts[i].file);
		fd = file_open_beneath(fetch->work->dir_fd, fetch->work->dir, file, O_RDONLY, 0,
			BENEATH_ANY, &st, NULL);
		*same = fd >= 0;
		if (fd >= 0) {
			rv = compare_bytes(fetch, &manifest->parts[i], fd, same, err);
			close(fd);
		}
	}
	return rv;
}

int fetch_compare(struct fetch *fetch, const char *path, const char *tag, bool bytes,
	enum fetch_local *local, struct pawl_err *err)
{
	struct manifest manifest;
	struct comparing comparing = {.manifest = &manifest};
	const struct walk_ops ops = {NULL, compare_file, &comparing};
	bool same;
	int rv = tag_open(fetch->root, tag, &manifest, err);

	if (rv != 0) {
		return rv;
	}
	rv = walk(fetch->work->dir_fd, path, &ops, err);
	same = !comparing.differs && comparing.same == manifest.parts_n;
	if (rv == 0 && same && bytes) {
		rv = compare_all_bytes(fetch, &manifest, path, &same, err);
	}
	if (rv == 0) {
		*local = same ? FETCH_SAME : comparing.newer ? FETCH_NEWER : FETCH_DAMAGED;
	}
	manifest_deinit(&manifest);
	return rv;
}

/* ---- fetching ---- */

static int write_all(int fd, const uint8_t *bytes, uint64_t len_bytes, struct pawl_err *err)
{
	while (len_bytes > 0) {
		ssize_t n = FAULT_SYS("fetch.write", write(fd, bytes, (size_t)len_bytes));

		if (n < 0 && errno != EINTR) {
			return pawl_err_sys(err, "write");
		}
		if (n > 0) {
			bytes += n;
			len_bytes -= (uint64_t)n;
		}
	}
	return 0;
}

static int copy_part(const struct fetch *fetch, const struct manifest *manifest,
	const struct manifest_part *part, int fd, struct pawl_err *err)
{
	struct part_image *image;
	int rv = part_image_open(&image, fetch->reader, manifest, part, err);

	if (rv != 0) {
		return rv;
	}
	for (uint64_t at = 0; at < part->size_bytes && rv == 0; at += WINDOW) {
		uint64_t left = part->size_bytes - at;
		uint64_t len_bytes = left < WINDOW ? left : WINDOW;

		rv = check_stop(fetch, err);
		rv = rv == 0 ? part_image_read(image, at, len_bytes, err) : rv;
		rv = rv == 0 ? write_all(fd, part_image_at(image, at), len_bytes, err) : rv;
		part_image_drop(image, at + len_bytes);
	}
	part_image_close(image);
	return rv;
}

static int fetch_part(const struct fetch *fetch, const struct manifest *manifest,
	const struct manifest_part *part, int unit_fd, struct pawl_err *err)
{
	int fd = -1;
	int rv;

	if (file_make_folders(unit_fd, part->file, 0777) == 0) {
		fd = FAULT_SYS("fetch.create",
			openat(unit_fd, part->file,
				O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
	}
	if (fd < 0) {
		return pawl_err_sys(err, "create %s/%s", manifest->tag, part->file);
	}
	rv = copy_part(fetch, manifest, part, fd, err);
	if (rv == 0 && FAULT_SYS("fetch.sync", fsync(fd)) != 0) {
		rv = pawl_err_sys(err, "sync %s/%s", manifest->tag, part->file);
	}
	close(fd);
	return rv;
}

/* Makes the names in a folder durable; errors are found where files are written. */
static void sync_folder(void *user, const char *path, int fd)
{
	fsync(fd);
}

static int pass_by(void *user, const struct walk_entry *entry, bool *enter, struct pawl_err *err)
{
	*enter = S_ISDIR(entry->st->st_mode);
	return 0;
}

static int fetch_parts(const struct fetch *fetch, const struct manifest *manifest, int unit_fd,
	int64_t mtime_ns, struct pawl_err *err)
{
	const struct walk_ops ops = {sync_folder, pass_by, NULL};
	const struct timespec times[] = {{0, UTIME_OMIT},
		{(time_t)(mtime_ns / NS_PER_S), (long)(mtime_ns % NS_PER_S)}};
	int rv = 0;

	for (uint32_t i = 0; i < manifest->parts_n && rv == 0; i++) {
		rv = fetch_part(fetch, manifest, &manifest->parts[i], unit_fd, err);
	}
	if (rv == 0 && futimens(unit_fd, times) != 0) {
		rv = pawl_err_sys(err, "set the time of %s", manifest->tag);
	}
	return rv == 0 ? walk(unit_fd, "", &ops, err) : rv;
}

int fetch_unit(struct fetch *fetch, const char *tag, int64_t mtime_ns, struct pawl_err *err)
{
	struct manifest manifest;
	int fd = -1;
	int rv = tag_open(fetch->root, tag, &manifest, err);

	if (rv != 0) {
		return rv;
	}
	fetch_drop(fetch->work, tag);
	if (mkdirat(fetch->work->fetch_fd, tag, 0777) == 0) {
		fd = openat(fetch->work->fetch_fd, tag,
			O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	}
	rv = fd < 0 ? pawl_err_sys(err, "make %s/fetch/%s", fetch->work->path, tag)
		    : fetch_parts(fetch, &manifest, fd, mtime_ns, err);
	if (fd >= 0) {
		close(fd);
	}
	if (rv != 0) {
		fetch_drop(fetch->work, tag);
	}
	manifest_deinit(&manifest);
	return rv;
}

bool fetch_is_damage(int rv)
{
	return rv == PAWL_ECORRUPT || rv == PAWL_ENOENT || rv == PAWL_EINVAL;
}

int fetch_place(const struct workdir *work, const char *tag, const char *path, struct pawl_err *err)
{
	char folder[WALK_PATH_MAX];
	int fd;

	if (file_make_folders(work->dir_fd, path, 0777) != 0 ||
		FAULT_SYS("fetch.place",
			renameat2(work->fetch_fd, tag, work->dir_fd, path, RENAME_NOREPLACE)) !=
			0) {
		return pawl_err_sys(err, "put %s in place", path);
	}
	snprintf(folder, sizeof(folder), "%s", path);
	if (strrchr(folder, '/') != NULL) {
		*strrchr(folder, '/') = '\0';
	} else {
		snprintf(folder, sizeof(folder), ".");
	}
	fd = openat(work->dir_fd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		fsync(fd); /* if it is lost, it is fetched again */
		close(fd);
	}
	return 0;
}

void fetch_drop(const struct workdir *work, const char *tag)
{
	walk_remove(work->fetch_fd, tag);
}
