/* Reads /proc (proc(5)): see strays.h. A process is looked at through its pidfd's life: who got its
 * number meanwhile gets no signal (where a sandbox has no pidfds, it might). */
#include "daemon/strays.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/proc.h"
#include "base/times.h"
#include "daemon/order.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ENVIRON_MAX (1u << 20) /* bytes of an environment that are looked at */

/* ENVIRON_MAX bytes of it at most; 0: it is gone, or another user's; -1: it cannot be looked at. */
static ssize_t read_environ(long pid, char *into)
{
	char path[64];
	ssize_t len = 0;
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "/proc/%ld/environ", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		return errno == ENOENT || errno == ESRCH || errno == EACCES || errno == EPERM ? 0
											      : -1;
	}
	while ((got = read(fd, into + len, ENVIRON_MAX - (size_t)len)) > 0) {
		len += got;
	}
	close(fd);
	return len;
}

static bool is_child(long pid)
{
	uint32_t parent;
	char state;

	return proc_look((uint32_t)pid, &state, &parent) && state != 'Z' &&
		parent == (uint32_t)getpid();
}

static bool has(const char *room, ssize_t len, const char *needle, size_t needle_bytes)
{
	const char *at = room;

	while (len > 0 && (size_t)(room + len - at) >= needle_bytes) {
		const char *end = memchr(at, '\0', (size_t)(room + len - at));

		if (memcmp(at, needle, needle_bytes) == 0) {
			return true;
		}
		if (!end) {
			return false;
		}
		at = end + 1;
	}
	return false;
}

/* 1: it is one of them, and was sent the signal; 0: it is none; -1: that is not known. */
static int look_at(long pid, const char *needle, size_t needle_bytes, char *room, bool children,
	int signal)
{
	int fd = FAULT_SYS("strays.open", (int)syscall(SYS_pidfd_open, pid, 0));
	ssize_t len;
	int found = 1;

	if (fd < 0 && errno != ENOSYS && errno != EPERM) { /* those two: no process has any here */
		return errno == ESRCH || errno == EINVAL ? 0 : -1; /* no process, or not any more */
	}
	if (!children || !is_child(pid)) {
		len = read_environ(pid, room);
		found = len < 0 ? -1 : has(room, len, needle, needle_bytes);
	}
	if (found == 1 && signal != 0 && fd >= 0) {
		syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0);
	} else if (found == 1 && signal != 0) {
		kill((pid_t)pid, signal);
	}
	if (fd >= 0) {
		close(fd);
	}
	return found;
}

int strays_signal(const char *run_dir, bool children, int signal)
{
	char needle[PATH_MAX + sizeof(RUN_VAR) + 1];
	int needle_len = snprintf(needle, sizeof(needle), "%s=%s", RUN_VAR, run_dir);
	char *room = malloc(ENVIRON_MAX);
	DIR *proc = FAULT_MEM("strays.look", opendir("/proc"));
	struct dirent *entry;
	bool known = room && proc;
	int n = 0;

	while (room && proc && (errno = 0, entry = readdir(proc))) {
		long pid = strtol(entry->d_name, NULL, 10);
		int found = 0;

		if (pid > 1 && pid != getpid()) {
			found = look_at(pid, needle, (size_t)needle_len + 1, room, children,
				signal);
		}
		known = known && found >= 0;
		n += found > 0;
	}
	known = known && errno == 0;
	if (proc) {
		closedir(proc);
	}
	free(room);
	return n > 0 || known ? n : -1;
}

int64_t strays_wait(int64_t *wait_ns)
{
	int64_t most_ns = times_ns(TIME_STRAYS_LOOK_MAX);

	*wait_ns = *wait_ns == 0         ? times_ns(TIME_STRAYS_LOOK)
		: *wait_ns < most_ns / 2 ? 2 * *wait_ns
					 : most_ns;
	return *wait_ns;
}
