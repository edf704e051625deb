/*
 * Tells that something below a directory has changed; what, a scan finds out. fanotify, or inotify
 * where that is not allowed; where neither works, nothing is told, and the caller has to look now
 * and then. One thread.
 */
#ifndef MIRROR_WATCH_H
#define MIRROR_WATCH_H

#include <stdbool.h>

struct pawl_err;

/* A watch, in the caller's memory. */
struct watch {
	int fd;        /* readable after a change; -1: nothing is watched */
	bool fanotify; /* by fanotify, else by inotify */
	bool failing;  /* a directory could not be watched: look now and then */
};

void dir_watch_open(struct watch *watch);
void dir_watch_close(struct watch *watch);
/* Watches one directory, open as fd; one that is watched already is fine. Call it before the
 * directory is read: no change after that is missed. */
void dir_watch_add(struct watch *watch, int fd);
/* Takes all that was told. Returns whether anything was. */
bool dir_watch_take(struct watch *watch);

#endif
