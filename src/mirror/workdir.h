/*
 * The directory in which a mirror keeps what is its own: its lock, its socket, and what is on the
 * way into the mirrored directory or out of it. For the mirrored directory /data/out it is
 * /data/.out.pawl; or /data/out/.pawl.mirror, if that cannot be made, or is another file system.
 *
 *   lock     held by the mirror that runs
 *   socket   where it answers (msg.h)
 *   fetch/   units and files that are being downloaded; removed at start
 *   sealed/  what units that wait had when they were whole (sealed.h)
 *   half/    units that a crash left unfinished: <name>.<number>
 *   running  there from the start of the program to an orderly end
 */
#ifndef MIRROR_WORKDIR_H
#define MIRROR_WORKDIR_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct pawl_err;
struct sockaddr_un;

/* The directories, in the caller's memory. */
struct workdir {
	char dir[PATH_MAX];  /* the mirrored directory, without links */
	char path[PATH_MAX]; /* the mirror's own */
	int dir_fd;          /* the mirrored directory */
	int fd;              /* the mirror's own */
	int fetch_fd;        /* fetch/; -1: not opened */
	int half_fd;         /* half/; -1: not opened */
	int lock_fd;         /* the lock; -1: not held */
	bool crashed;        /* the last mirror here did not end in order */
};

/* Opens and locks both directories, and makes them if they are not there. PAWL_EBUSY: another
 * mirror has the directory. */
int workdir_open(struct workdir *work, const char *dir, struct pawl_err *err);
/* Finds them for a command that asks the mirror, and changes nothing. PAWL_ENOENT. */
int workdir_find(struct workdir *work, const char *dir, struct pawl_err *err);
/* Notes that the program is about to begin. */
int workdir_begin(struct workdir *work, struct pawl_err *err);
/* Notes an orderly end. */
void workdir_end(struct workdir *work);
void workdir_close(struct workdir *work);
/* Moves a unit of the mirrored directory to half/. where: its new path, of PATH_MAX bytes. */
int workdir_put_half(struct workdir *work, const char *unit, char *where, struct pawl_err *err);
/* Gets the address of the socket, whatever the length of its path. */
void workdir_socket(const struct workdir *work, struct sockaddr_un *address);

#endif
