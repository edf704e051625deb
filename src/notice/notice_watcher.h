/*
 * Asks a cloud's metadata service, in a thread of its own, whether it takes this machine away, and
 * hands the answers to a loop. Asks the service directly, whatever proxies the environment names,
 * and follows no redirect.
 */
#ifndef NOTICE_NOTICE_WATCHER_H
#define NOTICE_NOTICE_WATCHER_H

#include "notice/notice.h"

struct loop;
struct notice_watcher;
struct pawl_err;

/* Where the firmware's texts are, if not in /sys/class/dmi/id; for tests. */
#define NOTICE_DMI_ENV "PAWL_TEST_DMI"

/* Reads what the firmware says; what cannot be read is "". */
void notice_dmi_read(struct notice_dmi *dmi);

/* Starts. took is called on the loop's thread for each event but NOTICE_NOTHING; deadline_ns: when
 * left_ns is over, on the monotonic clock. After NOTICE_STOP there are no more events. PAWL_ENOMEM;
 * PAWL_EIO. */
int notice_watcher_start(struct notice_watcher **out, struct loop *loop,
	const struct notice_source *source,
	void (*took)(void *user, const struct notice_event *event, int64_t deadline_ns), void *user,
	struct pawl_err *err);
/* Ends the thread, without waiting for the service. No event follows. NULL is fine. */
void notice_watcher_stop(struct notice_watcher *watcher);

#endif
