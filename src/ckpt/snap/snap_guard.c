/*
 * Reading memory that may vanish: see snap_guard.h for the contract.
 *
 * A tensor's memory can be unmapped while the engine copies it (a storage resized to nothing). The
 * kernel offers no way to prevent that, and reading through it (process_vm_readv) is much slower.
 * So a fault in the range that this thread is reading jumps back out of the read.
 */
#include "ckpt/snap/snap_guard.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>

/* A read in progress. */
struct guard {
	uintptr_t lo, hi; /* addresses whose faults are caught */
	sigjmp_buf out;   /* where a fault jumps to */
};

/* The read that this thread is doing, or NULL. initial-exec: a handler may not allocate
 * thread-local storage. */
static __thread struct guard *volatile guard_now __attribute__((tls_model("initial-exec")));

/* The previous handlers; written once, before ours exist. */
static struct sigaction before_segv, before_bus;

static void handle_fault(int sig, siginfo_t *info, void *context)
{
	const struct sigaction *before = sig == SIGSEGV ? &before_segv : &before_bus;
	struct guard *guard = guard_now;
	uintptr_t at = (uintptr_t)info->si_addr;

	if (guard != NULL && info->si_code > 0 && at >= guard->lo && at < guard->hi) {
		siglongjmp(guard->out, 1);
	}
	if ((before->sa_flags & SA_SIGINFO) != 0) {
		before->sa_sigaction(sig, info, context);
	} else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN) {
		before->sa_handler(sig);
	} else {
		/* A fault happens again on return; a signal sent by kill does not. */
		sigaction(sig, before, NULL);
		if (info->si_code <= 0) {
			raise(sig);
		}
	}
}

static int install_handlers(struct pawl_err *err)
{
	struct sigaction action = {.sa_sigaction = handle_fault,
		.sa_flags = SA_SIGINFO | SA_ONSTACK};

	sigemptyset(&action.sa_mask);
	if (sigaction(SIGSEGV, NULL, &before_segv) != 0 ||
		sigaction(SIGBUS, NULL, &before_bus) != 0 ||
		FAULT_SYS("snap.guard", sigaction(SIGSEGV, &action, NULL)) != 0 ||
		sigaction(SIGBUS, &action, NULL) != 0) {
		return pawl_err_sys(err, "install the handler of faults");
	}
	return 0;
}

int snap_guard_init(struct pawl_err *err)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards installed; a leaf lock */
	static bool installed;
	int rv = 0;

	pthread_mutex_lock(&lock);
	if (!installed) {
		rv = install_handlers(err);
		installed = rv == 0;
	}
	pthread_mutex_unlock(&lock);
	return rv;
}

bool snap_guard(void (*read)(void *user), void *user, uintptr_t lo, uintptr_t hi)
{
	struct guard guard = {.lo = lo, .hi = hi};

	ASSERT(guard_now == NULL);
	if (sigsetjmp(guard.out, 1) != 0) { /* 1: the jump unblocks the signal */
		guard_now = NULL;
		return false;
	}
	guard_now = &guard;
	read(user);
	guard_now = NULL;
	return true;
}
