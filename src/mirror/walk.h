/*
 * Walks the files below a directory that a program is changing meanwhile. Follows no symbolic link,
 * opens nothing but directories, and is not stopped by what vanishes while it looks. Any thread.
 */
#ifndef MIRROR_WALK_H
#define MIRROR_WALK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct pawl_err;

#define WALK_PATH_MAX 1024u /* bytes of a path below the start, terminator included */
#define WALK_DEPTH    24u   /* directories below the start that are entered, at most */

/* What was found. */
struct walk_entry {
	const char *path;      /* path below the start; NULL: the start itself */
	const char *name;      /* last name of path */
	int dir_fd;            /* directory that holds it; of a directory to be left, itself */
	const struct stat *st; /* as lstat(2) gives it */
	const char *skipped;   /* why it is neither file nor directory to enter; NULL: it is one */
	bool unreadable;       /* skipped: a directory that exists, and may not be read */
};

/* Called for each directory before it is read (fd is open on it), and for each name in it. */
struct walk_ops {
	/* Before a directory is read. path "": the start. May be NULL. */
	void (*enter)(void *user, const char *path, int fd);
	/* For each name; again for a directory that turns out to be unreadable. Returns 0, or an
	 * error that ends the walk; *enter, of a directory, is whether to go into it. */
	int (*entry)(void *user, const struct walk_entry *entry, bool *enter, struct pawl_err *err);
	void *user;
};

/* Walks what lies below path, relative to dir_fd ("": dir_fd itself). A start that does not exist
 * is PAWL_ENOENT. Any other error means that not everything was seen. */
int walk(int dir_fd, const char *path, const struct walk_ops *ops, struct pawl_err *err);

/* Removes a directory with all its content, best effort. */
void walk_remove(int dir_fd, const char *path);

/* Returns a number for a file: another one if its path in the unit, inode, size or time of change
 * is another. Never 0. */
uint64_t walk_file_number(const char *path, const struct stat *st);

#endif
