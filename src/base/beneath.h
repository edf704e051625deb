/*
 * Opens names in a directory that other users may write to. An open follows no symbolic link, does
 * not leave the directory, and does not wait for the other end of a FIFO, whatever other users
 * change meanwhile. After the open use only the descriptor: the path may lead to another file by
 * then. For plain files: file_open_beneath (file.h).
 *
 * Uses openat2(2). Where the kernel or a sandbox lacks it, opens one name after the other. From any
 * thread.
 */
#ifndef BASE_BENEATH_H
#define BASE_BENEATH_H

#include <sys/types.h>

/* Limits of a path. */
enum beneath {
	BENEATH_ANY,       /* may cross mounts */
	BENEATH_ONE_MOUNT, /* may cross no mount: a user's file system could block us */
};

/*
 * Opens path, which is relative and without "..", as openat(2) does. O_CLOEXEC, O_NOFOLLOW,
 * O_NONBLOCK and O_NOCTTY are always set. Returns a descriptor, or -1 and errno: ELOOP or ENOTDIR
 * for a link, ENXIO for a FIFO or a socket that cannot be opened, EXDEV for a path that leads out.
 */
int beneath_open(int dir_fd, const char *path, int flags, mode_t mode, enum beneath how);

#endif
