/* The program that a mirror starts, and the signals for both: see mirror_impl.h. */
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "mirror/mirror_impl.h"

#include <errno.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* Signals that are passed on to the program. The first three ask the mirror to end, too. */
static const int passed_on[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};

static bool asks_to_end(int signal)
{
	return signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
}

/* Takes note that the program has ended, if it has. */
static void reap(struct mirror *mirror)
{
	int status;
	pid_t pid = mirror->program > 0 ? waitpid(mirror->program, &status, WNOHANG) : 0;

	if (pid <= 0) {
		return;
	}
	mirror->program = 0;
	mirror->ended = true;
	mirror->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	core_end(&mirror->core, mirror->code == 0, clock_mono_ns());
	loop_timer_start(mirror->loop, &mirror->look_timer, 0);
}

/* Begins to end: the program is to end by the signal, which it has got. */
static void begin_end(struct mirror *mirror, int signal)
{
	if (mirror->signal != 0) {
		if (mirror->ended) {
			mirror->late = true; /* asked twice */
		}
		return;
	}
	mirror->signal = signal;
	loop_timer_start(mirror->loop, &mirror->grace_timer,
		clock_add_ns(clock_mono_ns(), mirror->options->grace_ns));
	if (mirror->program == 0 && !mirror->ended) {
		mirror->ended = true;
		core_end(&mirror->core, false, clock_mono_ns());
		loop_timer_start(mirror->loop, &mirror->look_timer, 0);
	}
}

static void on_signal(struct loop_source *source, uint32_t events)
{
	struct mirror *mirror = source->user;
	struct signalfd_siginfo info;

	while (read(source->fd, &info, sizeof(info)) == sizeof(info)) {
		int signal = (int)info.ssi_signo;

		if (signal == SIGCHLD) {
			reap(mirror);
			continue;
		}
		/* a terminal's Ctrl-C has reached the program already */
		if (mirror->program > 0 && !(signal == SIGINT && info.ssi_code == SI_KERNEL)) {
			kill(mirror->program, signal);
		}
		if (asks_to_end(signal)) {
			begin_end(mirror, signal);
		}
	}
	mirror_step(mirror);
}

int mirror_take_signals(struct mirror *mirror, struct pawl_err *err)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	sigset_t set;

	sigaction(SIGPIPE, &ignore, NULL);
	pthread_sigmask(SIG_SETMASK, NULL, &mirror->old_mask);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++) {
		sigaddset(&set, passed_on[i]);
	}
	mirror->signals.ready = on_signal;
	mirror->signals.user = mirror;
	return loop_add_signals(mirror->loop, &mirror->signals, &set, err);
}

static void *guard(void *user)
{
	struct mirror *mirror = user;
	struct pollfd polls[] = {{mirror->signals.fd, POLLIN, 0}, {mirror->guard_fd, POLLIN, 0}};
	struct signalfd_siginfo info;

	while (polls[1].revents == 0) {
		if (poll(polls, 2, -1) > 0 && polls[0].revents != 0 &&
			read(polls[0].fd, &info, sizeof(info)) == sizeof(info) &&
			asks_to_end((int)info.ssi_signo)) {
			log_line(LOG_WARNING, "stopped before the program was started");
			_exit(128 + (int)info.ssi_signo);
		}
	}
	return NULL;
}

int mirror_guard(struct mirror *mirror, struct pawl_err *err)
{
	mirror->guard_fd = FAULT_SYS("mirror.guard", eventfd(0, EFD_CLOEXEC));
	if (mirror->guard_fd < 0) {
		return pawl_err_sys(err, "watch for signals");
	}
	errno = pthread_create(&mirror->guard, NULL, guard, mirror);
	if (errno != 0) {
		int rv = pawl_err_sys(err, "start a thread for signals");

		close(mirror->guard_fd);
		mirror->guard_fd = -1;
		return rv;
	}
	return 0;
}

void mirror_unguard(struct mirror *mirror)
{
	const uint64_t one = 1;

	if (mirror->guard_fd >= 0) {
		while (write(mirror->guard_fd, &one, sizeof(one)) < 0 && errno == EINTR) {
		}
		pthread_join(mirror->guard, NULL);
		close(mirror->guard_fd);
		mirror->guard_fd = -1;
	}
}

/* Files of pins are open all at once. The program keeps its own limit. */
static void raise_files_max(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

int mirror_start_program(struct mirror *mirror, struct pawl_err *err)
{
	extern char **environ;
	char *const *words = mirror->options->program;
	posix_spawnattr_t attr;
	sigset_t defaults;
	pid_t pid = 0;

	if (words != NULL) {
		posix_spawnattr_init(&attr);
		sigemptyset(&defaults);
		sigaddset(&defaults, SIGPIPE);
		posix_spawnattr_setsigdefault(&attr, &defaults);
		posix_spawnattr_setsigmask(&attr, &mirror->old_mask);
		posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
		errno = posix_spawnp(&pid, words[0], NULL, &attr, words, environ);
		posix_spawnattr_destroy(&attr);
		if (errno != 0) {
			return pawl_err_sys(err, "start %s", words[0]);
		}
		mirror->program = pid;
	}
	raise_files_max();
	return 0;
}
