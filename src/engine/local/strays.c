/*
 * Finds processes in /proc (proc(5)): see strays.h. A process is examined while its pidfd is open,
 * so a process that reuses the number gets no signal. In a sandbox without pidfds, it might.
 *
 * The user of a process is checked before its environment is read. Reading the environment reads
 * the process's memory, and another user's process can make that take arbitrarily long.
 */
#include "engine/local/strays.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"
#include "engine/local/order.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENVIRON_MAX (1u << 20) /* bytes of an environment that are searched */

/* ---- by a mark ---- */

void strays_mark_set(struct strays_mark *mark, const struct order *order)
{
	char boot[PROC_BOOT_ID];

	mark->uid = order->uid;
	mark->booted =
		order->boot[0] != '\0' && proc_boot_id(boot) && strcmp(order->boot, boot) != 0;
	if (order->key[0] != '\0') {
		snprintf(mark->text, sizeof(mark->text), RUN_KEY_VAR "=%s", order->key);
	} else {
		snprintf(mark->text, sizeof(mark->text), RUN_VAR "=%s", order->run_dir);
	}
}

int strays_mark_load(struct strays_mark *mark, const char *run_dir, struct pawl_err *err)
{
	struct order *order = malloc(sizeof(*order));
	struct wire_out bytes = {NULL};
	int rv = order ? order_load(order, &bytes, run_dir, err)
		       : pawl_err_set(err, PAWL_ENOMEM, "no memory for the order of a run");

	*mark = (struct strays_mark){.uid = STRAYS_ANY_USER};
	if (rv == 0) {
		strays_mark_set(mark, order);
	} else if (rv == PAWL_ECORRUPT) {
		snprintf(mark->text, sizeof(mark->text), RUN_VAR "=%s", run_dir);
	}
	wire_out_deinit(&bytes);
	free(order);
	/* The order is written before any process starts: without one there is none. */
	return rv == PAWL_ECORRUPT || rv == PAWL_ENOENT ? 0 : rv;
}

/* Reads up to ENVIRON_MAX bytes of a process's environment. Returns 0 if the process is gone, or
 * access is denied; -1 if it could not be opened. */
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

/* Returns whether one of the NUL-terminated strings in room equals needle. */
static bool has(const char *room, ssize_t len, const char *needle)
{
	size_t needle_bytes = strlen(needle) + 1;
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

/* Returns 1 if the process has the mark, 0 if not, -1 if that is not known. A process of the
 * scheduler's user may also belong to the run: it may not have become the run's user yet, or have
 * become root with permission (sudo). */
static int is_marked(long pid, const struct strays_mark *mark, char *room)
{
	ssize_t len;
	uint32_t uid;
	int rv = proc_user((uint32_t)pid, &uid, NULL);

	if (rv != 0) {
		return rv == PAWL_ENOENT ? 0 : -1;
	}
	if (mark->uid != STRAYS_ANY_USER && uid != mark->uid && uid != (uint32_t)geteuid()) {
		return 0;
	}
	len = read_environ(pid, room);
	return len < 0 ? -1 : has(room, len, mark->text);
}

/* Sends the signal to the process if it has the mark. Returns as is_marked does. */
static int signal_if_marked(long pid, const struct strays_mark *mark, char *room, int signal)
{
	int fd = FAULT_SYS("strays.open", (int)syscall(SYS_pidfd_open, pid, 0));
	int found;

	/* ENOSYS and EPERM: a sandbox without pidfds. */
	if (fd < 0 && errno != ENOSYS && errno != EPERM) {
		return errno == ESRCH || errno == EINVAL ? 0 : -1; /* the process is gone */
	}
	found = is_marked(pid, mark, room);
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

int strays_signal(const struct strays_mark *mark, int signal)
{
	char *room;
	DIR *proc;
	struct dirent *entry;
	bool known;
	int n = 0;

	if (mark->text[0] == '\0') {
		return 0;
	}
	room = malloc(ENVIRON_MAX);
	proc = FAULT_MEM("strays.look", opendir("/proc"));
	known = room && proc;
	while (room && proc && (errno = 0, entry = readdir(proc))) {
		long pid = strtol(entry->d_name, NULL, 10);
		int found =
			pid > 1 && pid != getpid() ? signal_if_marked(pid, mark, room, signal) : 0;

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

/* ---- by descent ---- */

struct process {
	uint32_t pid;
	bool ours; /* descends from this process */
	struct proc_facts facts;
};

/* All processes of this machine, at most the kernel's pid_max. */
struct processes {
	struct process *at; /* owned; by pid */
	size_t n;
	size_t max; /* number of entries that at has room for */
};

static bool add_process(struct processes *all, uint32_t pid)
{
	if (all->n == all->max) {
		size_t max = 2 * all->max + 256;
		void *more = realloc(all->at, max * sizeof(*all->at));

		if (!more) {
			return false;
		}
		all->at = more;
		all->max = max;
	}
	all->at[all->n].pid = pid;
	all->at[all->n].ours = false;
	all->n += proc_read_facts(pid, &all->at[all->n].facts);
	return true;
}

static int compare(const void *a, const void *b)
{
	uint32_t x = ((const struct process *)a)->pid;
	uint32_t y = ((const struct process *)b)->pid;

	return (x > y) - (x < y);
}

static void list_processes(struct processes *all)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	bool room = true;

	while (proc && room && (entry = readdir(proc))) {
		long pid = strtol(entry->d_name, NULL, 10);

		room = pid <= 0 || add_process(all, (uint32_t)pid);
	}
	if (proc) {
		closedir(proc);
	}
	if (all->n > 0) {
		qsort(all->at, all->n, sizeof(*all->at), compare);
	}
}

static bool is_ours(const struct processes *all, const struct process *one)
{
	const struct process key = {.pid = one->facts.parent};
	const struct process *parent;

	if (one->facts.parent == (uint32_t)getpid()) {
		return true;
	}
	parent = bsearch(&key, all->at, all->n, sizeof(*all->at), compare);
	return parent && parent->ours;
}

/* Finds all descendants of this process, one generation per pass: a child may have a lower number
 * than its parent. */
static void find_ours(struct processes *all)
{
	bool more = all->n > 0;

	while (more) {
		more = false;
		for (size_t i = 0; i < all->n; i++) {
			if (!all->at[i].ours && is_ours(all, &all->at[i])) {
				all->at[i].ours = true;
				more = true;
			}
		}
	}
}

/* Sends a signal to a process, unless another process has its number by now. */
static void signal_process(const struct process *one, int signal)
{
	int fd = (int)syscall(SYS_pidfd_open, (pid_t)one->pid, 0);
	struct proc_facts facts;

	if (proc_read_facts(one->pid, &facts) && facts.start_ticks == one->facts.start_ticks) {
		if (fd >= 0) {
			syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0);
		} else {
			kill((pid_t)one->pid, signal);
		}
	}
	if (fd >= 0) {
		close(fd);
	}
}

void strays_signal_own(int signal)
{
	struct processes all = {NULL};

	list_processes(&all);
	find_ours(&all);
	for (size_t i = 0; i < all.n; i++) {
		if (all.at[i].ours) {
			signal_process(&all.at[i], signal);
		}
	}
	free(all.at);
}

/* Any descendant is a child of this process, or has an ancestor that is one: so it is enough to
 * look for children. */
bool strays_has_own(void)
{
	siginfo_t info;

	return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

int64_t strays_backoff_ns(int64_t *wait_ns)
{
	int64_t most_ns = times_ns(TIME_STRAYS_LOOK_MAX);

	*wait_ns = *wait_ns == 0         ? times_ns(TIME_STRAYS_LOOK)
		: *wait_ns < most_ns / 2 ? 2 * *wait_ns
					 : most_ns;
	return *wait_ns;
}
