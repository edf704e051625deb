/* Facts about other processes, from /proc (proc(5)): see proc.h. */
#include "base/proc.h"

#include "base/err.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* from asm-generic/socket.h, for older headers */
#endif
#define READS_MAX    256u  /* processes read on the way to an ancestor, repeats included */
#define STAT_BYTES   512u  /* more than the fields that are read can take */
#define STATUS_BYTES 1024u /* more than the lines of /proc/PID/status up to Uid: can take */

/* Reads the beginning of a file of a process, and terminates it. Returns 0 or a negative errno. */
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

bool proc_read_facts(uint32_t pid, struct proc_facts *facts)
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

	return proc_read_facts(pid, &facts) && facts.state == 'T';
}

bool proc_is_child(uint32_t pid)
{
	struct proc_facts facts;

	return proc_read_facts(pid, &facts) && facts.parent == (uint32_t)getpid();
}

bool proc_is_descendant(uint32_t pid)
{
	uint32_t ours = (uint32_t)getpid();
	uint32_t at = pid;

	for (unsigned i = 0; i < READS_MAX; i++) {
		struct proc_facts facts;
		bool found = proc_read_facts(at, &facts);

		if (found && facts.parent == ours) {
			return true;
		}
		if ((found && facts.parent == 0) || (!found && at == pid)) {
			return false;
		}
		/* An ancestor has gone, so pid has another parent by now: start again. */
		at = found ? facts.parent : pid;
	}
	return false;
}

int proc_peer(int socket_fd, uint32_t *pid)
{
	struct ucred peer;
	socklen_t peer_bytes = sizeof(peer);
	int fd = -1;
	socklen_t fd_bytes = sizeof(fd);

	*pid = 0;
	if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) != 0) {
		return -1;
	}
	*pid = (uint32_t)peer.pid;
	if (FAULT_SYS("proc.peer",
		    getsockopt(socket_fd, SOL_SOCKET, SO_PEERPIDFD, &fd, &fd_bytes)) == 0) {
		return fd;
	}
	if (errno == ENOPROTOOPT) {
		return (int)syscall(SYS_pidfd_open, peer.pid, 0);
	}
	errno = errno == EINVAL ? ESRCH : errno; /* some kernels return EINVAL for ESRCH */
	return -1;
}

int proc_user(uint32_t pid, uint32_t *uid, struct pawl_err *err)
{
	char text[STATUS_BYTES]; /* a line feed in the process name is written as \n here */
	const char *at;
	int sys = read_file(pid, "status", text, sizeof(text));

	if (sys == -ENOENT || sys == -ESRCH) {
		return pawl_err_set(err, PAWL_ENOENT, "there is no process %u", pid);
	}
	at = sys == 0 ? strstr(text, "\nUid:") : NULL;
	if (at == NULL || sscanf(at, " Uid: %10" SCNu32, uid) != 1) {
		errno = sys != 0 ? -sys : EIO;
		return pawl_err_sys(err, "find the user of process %u", pid);
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
