/* Tells that something has changed: see watch.h. Events are only counted, so an overflow of the
 * kernel's queue, which is an event as well, loses nothing. */
#include "mirror/watch.h"

#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <unistd.h>

#define FAN_WHAT                                                                                   \
	(FAN_CREATE | FAN_MODIFY | FAN_CLOSE_WRITE | FAN_MOVED_TO | FAN_MOVED_FROM | FAN_DELETE |  \
		FAN_ONDIR | FAN_EVENT_ON_CHILD)
#define INOTIFY_WHAT                                                                               \
	(IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE |        \
		IN_ONLYDIR | IN_EXCL_UNLINK)

void dir_watch_open(struct watch *watch)
{
	*watch = (struct watch){.fanotify = true};
	watch->fd = FAULT_SYS("mirror.fanotify",
		fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_DFID_NAME | FAN_NONBLOCK | FAN_CLOEXEC,
			O_RDONLY | O_CLOEXEC));
	if (watch->fd < 0) {
		watch->fanotify = false;
		watch->fd = FAULT_SYS("mirror.inotify", inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
	}
}

void dir_watch_close(struct watch *watch)
{
	if (watch->fd >= 0) {
		close(watch->fd);
	}
	watch->fd = -1;
}

void dir_watch_add(struct watch *watch, int fd)
{
	char path[64];
	bool added;

	if (watch->fd < 0) {
		return;
	}
	if (watch->fanotify) {
		added = FAULT_SYS("mirror.mark",
				fanotify_mark(watch->fd, FAN_MARK_ADD | FAN_MARK_ONLYDIR, FAN_WHAT,
					fd, NULL)) == 0;
	} else {
		snprintf(path, sizeof(path), "/proc/self/fd/%d/.", fd);
		added = FAULT_SYS("mirror.mark",
				inotify_add_watch(watch->fd, path, INOTIFY_WHAT)) >= 0;
	}
	watch->failing = watch->failing || !added;
}

bool dir_watch_take(struct watch *watch)
{
	/* holds the longest event of either kind */
	_Alignas(struct fanotify_event_metadata) char events[16384];
	bool any = false;

	while (watch->fd >= 0 && read(watch->fd, events, sizeof(events)) > 0) {
		any = true;
	}
	return any;
}
