/* Reads /proc (proc(5)).
 */
#include "base/proc.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define STAT_BYTES   512u  /* more than the fields that are read take */
#define STATUS_BYTES 1024u /* more than the lines of /proc/PID/status up to Uid: take */

/* The first bytes of a file of a process, terminated. Negative: an errno. */
static int read_file(uint32_t pid, const char *name, char *text, size_t cap_bytes)
{
	char path[48];
	ssize_t n;
	int sys;
	int fd;

	snprintf(path, sizeof(path), "/proc/%u/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd >= 0 ? read(fd, text, cap_bytes - 1) : -1;
	sys = errno;
	if (fd >= 0) {
		close(fd);
	}
	text[n > 0 ? n : 0] = '\0';
	return n >= 0 ? 0 : -sys;
}

bool proc_look(uint32_t pid, struct proc_facts *facts)
{
	char text[STAT_BYTES]; /* "pid (name) state parent …"; a name may have any bytes in it */
	const char *after;

	if (read_file(pid, "stat", text, sizeof(text)) != 0) {
		return false;
	}
	after = strrchr(text, ')');
	return after != NULL &&
		sscanf(after + 1,
			" %c %10" SCNu32 " %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d"
			" %*d %*d %*d %20" SCNu64,
			&facts->state, &facts->parent, &facts->start_ticks) == 3;
}

bool proc_is_stopped(uint32_t pid)
{
	struct proc_facts facts;

	return proc_look(pid, &facts) && facts.state == 'T';
}

bool proc_is_child(uint32_t pid)
{
	struct proc_facts facts;

	return proc_look(pid, &facts) && facts.parent == (uint32_t)getpid();
}

int proc_user(uint32_t pid, uint32_t *uid, struct pawl_err *err)
{
	char text[STATUS_BYTES]; /* a line feed in a name is written as \n there */
	const char *at;
	int sys = read_file(pid, "status", text, sizeof(text));

	if (sys == -ENOENT || sys == -ESRCH) {
		return pawl_err_set(err, PAWL_ENOENT, "there is no process %u", pid);
	}
	at = sys == 0 ? strstr(text, "\nUid:") : NULL;
	if (at == NULL || sscanf(at, " Uid: %10" SCNu32, uid) != 1) {
		errno = sys != 0 ? -sys : EIO;
		return pawl_err_sys(err, "whose process %u is", pid);
	}
	return 0;
}

bool proc_boot_id(char id[PROC_BOOT_ID])
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, id, PROC_BOOT_ID - 1) : -1;

	if (fd >= 0) {
		close(fd);
	}
	id[n > 0 ? n : 0] = '\0';
	id[strcspn(id, "\n")] = '\0';
	return id[0] != '\0';
}
