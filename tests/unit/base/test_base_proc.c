/* Descent of processes, and the process at the other end of a socket: both are known from the
 * kernel, not from what processes claim, and never by a pid that another process has by now. */
#include "base/fault.h"
#include "base/proc.h"
#include "within.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

/* ---- descent ---- */

static pid_t start(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		pause();
		_exit(0);
	}
	assert_true(pid > 0);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Starts a child that starts a child of its own, whose pid goes to *inner. Returns the outer pid;
 * that process exits at once if ends is set, and waits otherwise. */
static pid_t start_pair(bool ends, pid_t *inner)
{
	int fds[2];
	pid_t outer;

	assert_int_equal(pipe(fds), 0);
	outer = fork();
	if (outer == 0) {
		pid_t pid = start();

		(void)!write(fds[1], &pid, sizeof(pid));
		if (!ends) {
			pause();
		}
		_exit(0);
	}
	close(fds[1]);
	assert_int_equal(read(fds[0], inner, sizeof(*inner)), sizeof(*inner));
	close(fds[0]);
	return outer;
}

static void children_of_children_are_ours(void **state)
{
	pid_t inner;
	pid_t outer = start_pair(false, &inner);

	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	assert_true(proc_is_descendant((uint32_t)outer));
	assert_true(proc_is_descendant((uint32_t)inner));
	kill(inner, SIGKILL);
	end(outer); /* we adopt the orphan that outer leaves */
	WITHIN(WITHIN_LONG_S, proc_is_child((uint32_t)inner));
	assert_true(proc_is_descendant((uint32_t)inner)); /* a zombie */
	assert_int_equal(waitpid(inner, NULL, 0), inner);
	assert_false(proc_is_descendant((uint32_t)inner));
	outer = start_pair(true, &inner);
	assert_int_equal(waitpid(outer, NULL, 0), outer);
	assert_true(
		proc_is_descendant((uint32_t)inner)); /* still ours, though its parent is gone */
	end(inner);
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}

static void others_are_not(void **state)
{
	assert_false(proc_is_descendant((uint32_t)getppid()));
	assert_false(proc_is_descendant((uint32_t)getpid()));
	assert_false(proc_is_descendant(1));
	assert_false(proc_is_descendant(0));
	assert_false(proc_is_descendant(UINT32_MAX));
}

/* ---- the other end ---- */

static bool has_ended(int pidfd)
{
	struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};

	return poll(&poll_fd, 1, 0) == 1;
}

/* Starts a child that connects to an address without a name in the file system, and lives on. */
static pid_t connect_from_child(int listener)
{
	struct sockaddr_un address;
	socklen_t len = sizeof(address);
	int fds[2];
	pid_t pid;
	char byte;

	assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &len), 0);
	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		int fd = socket(AF_UNIX, SOCK_STREAM, 0);

		if (connect(fd, (struct sockaddr *)&address, len) == 0) {
			(void)!write(fds[1], "x", 1);
		}
		pause();
	}
	close(fds[1]);
	assert_int_equal(read(fds[0], &byte, 1), 1);
	close(fds[0]);
	return pid;
}

static int listen_somewhere(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(sa_family_t)), 0);
	assert_int_equal(listen(fd, 5), 0);
	return fd;
}

static void who_connected_is_known(void **state)
{
	int listener = listen_somewhere();
	uint32_t pid;

	for (int old = 0; old < 2; old++) {
		pid_t child = connect_from_child(listener);
		int fd = accept(listener, NULL, NULL);
		int pidfd;

		if (old) {
			fault_arm("proc.peer", 1, ENOPROTOOPT, false); /* Linux before 6.5 */
		}
		pidfd = proc_peer(fd, &pid);
		fault_disarm();
		assert_true(pidfd >= 0);
		assert_int_equal(pid, child);
		assert_false(has_ended(pidfd));
		end(child);
		assert_true(has_ended(pidfd));
		close(pidfd);
		close(fd);
	}
	close(listener);
	assert_int_equal(proc_peer(-1, &pid), -1);
	assert_int_equal(pid, 0);
}

/* Starts a process with that pid. Returns false if none can be made here. */
static bool start_as(pid_t wanted, pid_t *pid)
{
	char text[16];
	int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
	int len = snprintf(text, sizeof(text), "%d", (int)wanted - 1);
	bool set = fd >= 0 && write(fd, text, (size_t)len) == len;

	if (fd >= 0) {
		close(fd);
	}
	*pid = set ? start() : -1;
	return *pid == wanted;
}

/* The child died between its connect and our accept, and another process got its pid. */
static void a_pid_that_is_anothers_by_now_is_not_taken(void **state)
{
	int listener = listen_somewhere();
	pid_t child = connect_from_child(listener);
	uint32_t pid;
	pid_t other;
	int pidfd;
	int fd;

	end(child);
	fd = accept(listener, NULL, NULL);
	if (!start_as(child, &other)) {
		printf("skipped: a pid cannot be chosen here\n");
		if (other > 0) {
			end(other);
		}
		skip();
	}
	pidfd = proc_peer(fd, &pid);
	if (pidfd >= 0) { /* The pidfd is that of the dead child. */
		assert_true(has_ended(pidfd));
		close(pidfd);
	} else {
		assert_int_equal(errno, ESRCH);
	}
	end(other);
	close(fd);
	close(listener);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(children_of_children_are_ours),
		cmocka_unit_test(others_are_not),
		cmocka_unit_test(who_connected_is_known),
		cmocka_unit_test(a_pid_that_is_anothers_by_now_is_not_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
