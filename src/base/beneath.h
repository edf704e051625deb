/*
 * Names in a directory that other users may write to. To open one follows no symbolic link, leaves
 * no directory, and waits for no other end of a FIFO, whatever is changed there meanwhile. Whoever
 * has opened a file goes on with its descriptor: the path may be another file's by then. For plain
 * files: file_open_beneath (file.h).
 *
 * By openat2(2); where the kernel or a sandbox has none, name after name. From any thread.
 */
#ifndef BASE_BENEATH_H
#define BASE_BENEATH_H

#include <sys/types.h>

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

#endif
