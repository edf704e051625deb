/* Starts a thread of the engine: see snap_thread.h for the contract. */
#include "ckpt/snap/snap_thread.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

int snap_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *user,
	struct pawl_err *err)
{
	sigset_t blocked;
	sigset_t before;
	int sys;

	ASSERT(strlen(name) < 16); /* or the kernel gives the thread no name */
	sigfillset(&blocked);      /* all signals except those of the thread's own faults */
	sigdelset(&blocked, SIGSEGV);
	sigdelset(&blocked, SIGBUS);
	sigdelset(&blocked, SIGFPE);
	sigdelset(&blocked, SIGILL);
	pthread_sigmask(SIG_SETMASK, &blocked, &before);
	sys = FAULT_SYS("snap.thread", pthread_create(thread, NULL, run, user));
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (sys != 0) {
		/* pthread_create returns its error; an injected fault sets errno. */
		errno = sys > 0 ? sys : errno;
		return pawl_err_sys(err, "start the thread %s", name);
	}
	(void)pthread_setname_np(*thread, name);
	(void)pthread_setschedparam(*thread, SCHED_BATCH, &(struct sched_param){0});
	return 0;
}
