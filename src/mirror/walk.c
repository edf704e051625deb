/* Walks the files below a directory: see walk.h. */
#include "mirror/walk.h"

#include "base/beneath.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* One walk. */
struct walker {
	const struct walk_ops *ops; /* the caller's */
	char path[WALK_PATH_MAX];   /* path of the directory that is being read; "": the start */
	struct pawl_err *err;       /* the caller's; may be NULL */
};

static int read_folder(struct walker *walker, int fd, uint32_t depth);

/* Describes why a name is passed by; NULL: it is not. */
static const char *why_skipped(const struct stat *st, size_t len_bytes, uint32_t depth)
{
	if (len_bytes >= WALK_PATH_MAX) {
		return "its path is too long";
	}
	if (S_ISREG(st->st_mode)) {
		return NULL;
	}
	if (S_ISDIR(st->st_mode)) {
		return depth >= WALK_DEPTH ? "it lies too deep" : NULL;
	}
	return file_mode_kind(st->st_mode);
}

/* Reads one more directory, that of an entry. */
static int go_into(struct walker *walker, struct walk_entry *entry, uint32_t depth)
{
	int fd = FAULT_SYS("mirror.walk",
		beneath_open(entry->dir_fd, entry->name, O_RDONLY | O_DIRECTORY, 0, BENEATH_ANY));
	bool enter = false;

	if (fd >= 0) {
		return read_folder(walker, fd, depth + 1);
	}
	if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP) {
		return 0; /* the folder has vanished, or is something else by now */
	}
	if (errno == EACCES || errno == EPERM) {
		entry->skipped = "a folder that may not be read";
		entry->unreadable = true;
		return walker->ops->entry(walker->ops->user, entry, &enter, walker->err);
	}
	return pawl_err_sys(walker->err, "read the folder %s", walker->path);
}

static int take_name(struct walker *walker, int dir_fd, const char *name, uint32_t depth)
{
	size_t before = strlen(walker->path);
	size_t len_bytes = before + (before > 0) + strlen(name);
	struct walk_entry entry = {.name = name, .dir_fd = dir_fd};
	struct stat st;
	bool enter = false;
	int rv;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
		return 0; /* the name has vanished */
	}
	entry.st = &st;
	entry.skipped = why_skipped(&st, len_bytes, depth);
	if (len_bytes < WALK_PATH_MAX) {
		snprintf(walker->path + before, WALK_PATH_MAX - before, "%s%s",
			before > 0 ? "/" : "", name);
	}
	entry.path = walker->path;
	rv = walker->ops->entry(walker->ops->user, &entry, &enter, walker->err);
	if (rv == 0 && enter && entry.skipped == NULL && S_ISDIR(st.st_mode)) {
		rv = go_into(walker, &entry, depth);
	}
	walker->path[before] = '\0';
	return rv;
}

/* Reads a directory, and closes fd. */
static int read_folder(struct walker *walker, int fd, uint32_t depth)
{
	DIR *dir;
	struct dirent *at;
	int rv = 0;

	if (walker->ops->enter != NULL) {
		walker->ops->enter(walker->ops->user, walker->path, fd);
	}
	dir = FAULT_MEM("mirror.walk", fdopendir(fd));
	if (dir == NULL) {
		rv = pawl_err_sys(walker->err, "read the folder %s", walker->path);
		close(fd);
		return rv;
	}
	while (rv == 0 && (at = readdir(dir)) != NULL) {
		if (strcmp(at->d_name, ".") != 0 && strcmp(at->d_name, "..") != 0) {
			rv = take_name(walker, dirfd(dir), at->d_name, depth);
		}
	}
	closedir(dir);
	return rv;
}

int walk(int dir_fd, const char *path, const struct walk_ops *ops, struct pawl_err *err)
{
	struct walker walker = {.ops = ops, .err = err};
	int fd = FAULT_SYS("mirror.walk",
		beneath_open(dir_fd, path[0] != '\0' ? path : ".", O_RDONLY | O_DIRECTORY, 0,
			BENEATH_ANY));

	return fd < 0 ? pawl_err_sys(err, "read the folder %s", path) : read_folder(&walker, fd, 0);
}

/* ---- removing ---- */

static int remove_entry(void *user, const struct walk_entry *entry, bool *enter,
	struct pawl_err *err)
{
	bool *again = user;

	if (S_ISDIR(entry->st->st_mode)) {
		*enter = !entry->unreadable &&
			unlinkat(entry->dir_fd, entry->name, AT_REMOVEDIR) != 0;
		*again = *again || *enter;
	} else {
		unlinkat(entry->dir_fd, entry->name, 0);
	}
	return 0;
}

void walk_remove(int dir_fd, const char *path)
{
	bool again = true;

	/* each round removes the files, and the folders that were empty by then */
	for (uint32_t i = 0; i <= WALK_DEPTH && again; i++) {
		const struct walk_ops ops = {NULL, remove_entry, &again};

		again = false;
		if (walk(dir_fd, path, &ops, NULL) != 0) {
			break;
		}
	}
	unlinkat(dir_fd, path, AT_REMOVEDIR);
}

/* ---- telling files apart ---- */

/* Mixes 64 bits into a number (the finalizer of SplitMix64). */
static uint64_t mix(uint64_t number, uint64_t bits)
{
	number += bits + 0x9e3779b97f4a7c15u;
	number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9u;
	number = (number ^ (number >> 27)) * 0x94d049bb133111ebu;
	return number ^ (number >> 31);
}

uint64_t walk_file_number(const char *path, const struct stat *st)
{
	uint64_t number = 0;

	for (const char *at = path; *at != '\0'; at++) {
		number = mix(number, (unsigned char)*at);
	}
	number = mix(number, (uint64_t)st->st_ino);
	number = mix(number, (uint64_t)st->st_size);
	number = mix(number,
		(uint64_t)st->st_mtim.tv_sec * (uint64_t)NS_PER_S + (uint64_t)st->st_mtim.tv_nsec);
	return number != 0 ? number : 1;
}
