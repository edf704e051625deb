/* Reads /proc (proc(5)): see strays.h. A process is looked at through its pidfd's life: who got its
 * number meanwhile gets no signal. */
#include "daemon/strays.h"

#include "base/proc.h"
#include "daemon/order.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ENVIRON_MAX (1u << 20) /* bytes of an environment that are looked at */

/* ENVIRON_MAX bytes of it at most; -1: it cannot be read. */
static ssize_t read_environ(long pid, char *into)
{
	char path[64];
	ssize_t len = 0;
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "/proc/%ld/environ", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		return -1;
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

static bool is_of_run(long pid, const char *needle, size_t needle_bytes, char *room)
{
	ssize_t len = read_environ(pid, room);
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

uint32_t strays_signal(const char *run_dir, bool children, int signal)
{
	char needle[PATH_MAX + sizeof(RUN_VAR) + 1];
	int needle_len = snprintf(needle, sizeof(needle), "%s=%s", RUN_VAR, run_dir);
	char *room = malloc(ENVIRON_MAX);
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	uint32_t n = 0;

	while (room && proc && (entry = readdir(proc))) {
		long pid = strtol(entry->d_name, NULL, 10);
		int fd = pid > 1 && pid != getpid() ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;

		if (fd < 0) {
			continue;
		}
		if ((children && is_child(pid)) ||
			is_of_run(pid, needle, (size_t)needle_len + 1, room)) {
			n++;
			if (signal != 0) {
				syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0);
			}
		}
		close(fd);
	}
	if (proc) {
		closedir(proc);
	}
	free(room);
	return n;
}
