/*
 * Names in a directory that other users may write to. None of these follows a symbolic link, leaves
 * the directory, or waits for the other end of a FIFO, whatever is changed there meanwhile. Whoever
 * has opened a file goes on with its descriptor: the path may be another file's by then.
 *
 * By openat2(2); where the kernel or a sandbox has none, name after name. From any thread.
 */
#ifndef BASE_BENEATH_H
#define BASE_BENEATH_H

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

struct pawl_err;

/* What a path may cross. */
enum beneath {
	BENEATH_ANY,       /* mounts, too */
	BENEATH_ONE_MOUNT, /* no mount: a user's own file system could keep us waiting */
};

/*
 * openat(2) of path, which is relative and without "..". O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK and
 * O_NOCTTY go without saying. Returns a descriptor, or -1 and errno: ELOOP or ENOTDIR of a link,
 * ENXIO of a FIFO or a socket that cannot be opened, EXDEV of what leads out.
 */
int beneath_open(int dir_fd, const char *path, int flags, mode_t mode, enum beneath how);

/*
 * The same for a plain file, whose state *st gets; O_CREAT makes it, O_TRUNC is not allowed (what
 * is there is known only once it is open). dir: its name, for errors. Errors: PAWL_ENOENT;
 * PAWL_EINVAL: it is something else, the error says what; PAWL_EIO and its like.
 */
int beneath_file(int dir_fd, const char *dir, const char *path, int flags, mode_t mode,
	enum beneath how, struct stat *st, struct pawl_err *err);

/* "a FIFO", "a symbolic link" … */
const char *beneath_kind(mode_t mode);

#endif
