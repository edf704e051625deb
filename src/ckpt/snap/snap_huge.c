/*
 * Turns watched memory into huge pages: see snap_huge.h for the contract.
 *
 * A round goes over the extents and collapses each huge page's worth that lies wholly inside one.
 * The first round is due when the same memory is protected again, since memory that is saved only
 * once is not worth it. Another round is due when pages were busy, or when protecting has become
 * slow again because writes have split them. There are at most HUGE_ROUNDS_MAX rounds, so that a
 * program that always splits the pages is left alone.
 *
 * One lock guards everything; it is a leaf lock, and not held while the kernel works.
 */
#include "ckpt/snap/snap_huge.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"
#include "ckpt/snap/snap_list.h"
#include "ckpt/snap/snap_thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* sys/mman.h, for headers older than Linux 6.1 */
#endif

#define HUGE_ROUNDS_MAX  3u
#define HUGE_NICE        5 /* added to the nice value of the thread: below training */
#define HUGE_SLOW_FACTOR 4 /* protecting is slow if it takes this times the fastest seen, … */
#define HUGE_SLOW_NS     1000000LL /* … and at least this long: pages were split */
/* The pause after a step is this times as long as the step took, at most TIME_HUGE_PAUSE: a thread
 * that needs the page, or has any page fault, waits for a step. */
#define HUGE_PAUSE 7

struct huge {
	pthread_mutex_t lock;       /* guards all below */
	pthread_cond_t changed;     /* signaled when there is something to do, or no longer */
	pthread_t thread;           /* the thread that does the work */
	struct snap_range *extents; /* owned */
	size_t extents_n;
	size_t extent;       /* index of the extent being worked on; extents_n: no round is due */
	uintptr_t at;        /* next address in the extent; 0: not begun */
	bool seen;           /* the extents were protected once */
	unsigned rounds;     /* rounds started for these extents */
	bool busy;           /* a page was busy in this round, and may be free in the next */
	int64_t fastest_ns;  /* shortest time to protect everything after a round; 0: none yet */
	uint64_t generation; /* incremented with new extents, so that a step recognizes its own */
	bool allowed;        /* the thread may work */
	bool closing;        /* tells the thread to end */
};

static bool is_due(const struct huge *huge)
{
	return huge->extent < huge->extents_n;
}

/* Starts a round, unless there were enough. */
static void start_round(struct huge *huge)
{
	ASSERT(!is_due(huge));
	if (huge->rounds < HUGE_ROUNDS_MAX) {
		huge->rounds++;
		huge->extent = 0;
		huge->at = 0;
		huge->busy = false;
		pthread_cond_broadcast(&huge->changed);
	}
}

static void end_extent(struct huge *huge)
{
	huge->at = 0;
	huge->extent++;
	if (!is_due(huge) && huge->busy) {
		start_round(huge);
	}
}

/* Finds the next step of the round: an extent to flag, or a page to collapse. Returns false at the
 * end of the extent. */
static bool next_step(struct huge *huge, struct snap_range *step, int *advice)
{
	struct snap_range extent;

	ASSERT(is_due(huge));
	extent = huge->extents[huge->extent];
	if (huge->at == 0) {
		huge->at = (extent.lo + SNAP_UNIT - 1) / SNAP_UNIT * SNAP_UNIT;
		*step = extent;
		*advice = MADV_HUGEPAGE;
		return true;
	}
	*step = (struct snap_range){huge->at, huge->at + SNAP_UNIT};
	*advice = MADV_COLLAPSE;
	huge->at += SNAP_UNIT;
	return step->hi <= extent.hi;
}

/* Handles the outcome of a step. EINVAL: this page cannot be huge, others may. */
static void record_step(struct huge *huge, int sys)
{
	switch (sys) {
	case EAGAIN:
	case EBUSY:
		huge->busy = true;
		break;
	case ENOMEM: /* no huge pages are available, or the memory is gone */
		huge->rounds = HUGE_ROUNDS_MAX;
		huge->extent = huge->extents_n;
		break;
	default:
		break;
	}
}

/* Pauses after a step, under lock, so that training, which waits for a step if it needs memory, has
 * most of the time. */
static void pause_step(struct huge *huge, int64_t took_ns)
{
	int64_t pause_ns = HUGE_PAUSE * took_ns;
	int64_t most_ns = times_ns(TIME_HUGE_PAUSE);
	int64_t until_ns = clock_mono_ns() + (pause_ns < most_ns ? pause_ns : most_ns);
	struct timespec until = {until_ns / NS_PER_S, until_ns % NS_PER_S};

	while (!huge->closing && clock_mono_ns() < until_ns) {
		pthread_cond_timedwait(&huge->changed, &huge->lock, &until);
	}
}

static void *run_huge(void *user)
{
	struct huge *huge = user;
	struct snap_range step;
	uint64_t generation;
	int64_t began_ns;
	int advice;

	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), getpriority(PRIO_PROCESS, 0) + HUGE_NICE);
	pthread_mutex_lock(&huge->lock);
	while (!huge->closing) {
		int sys = 0;

		if (!huge->allowed || !is_due(huge)) {
			pthread_cond_wait(&huge->changed, &huge->lock);
			continue;
		}
		if (!next_step(huge, &step, &advice)) {
			end_extent(huge);
			pthread_cond_broadcast(&huge->changed);
			continue;
		}
		generation = huge->generation;
		began_ns = clock_mono_ns();
		pthread_mutex_unlock(&huge->lock);
		if (FAULT_SYS("huge.madvise",
			    madvise((void *)step.lo, step.hi - step.lo, advice)) != 0) {
			sys = errno;
		}
		pthread_mutex_lock(&huge->lock);
		if (generation == huge->generation) {
			record_step(huge, sys);
		}
		pthread_cond_broadcast(&huge->changed);
		pause_step(huge, clock_mono_ns() - began_ns);
	}
	pthread_mutex_unlock(&huge->lock);
	return NULL;
}

int huge_open(struct huge **huge, struct pawl_err *err)
{
	struct huge *h = FAULT_MEM("huge.open", calloc(1, sizeof(*h)));
	int rv;

	if (h == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for the huge page thread");
	}
	pthread_mutex_init(&h->lock, NULL);
	clock_cond_init(&h->changed);
	rv = snap_thread_start(&h->thread, "pawl-huge", run_huge, h, err);
	if (rv != 0) {
		pthread_cond_destroy(&h->changed);
		pthread_mutex_destroy(&h->lock);
		free(h);
		return rv;
	}
	*huge = h;
	return 0;
}

void huge_close(struct huge *huge)
{
	if (huge == NULL) {
		return;
	}
	pthread_mutex_lock(&huge->lock);
	huge->closing = true;
	pthread_cond_broadcast(&huge->changed);
	pthread_mutex_unlock(&huge->lock);
	pthread_join(huge->thread, NULL);
	pthread_cond_destroy(&huge->changed);
	pthread_mutex_destroy(&huge->lock);
	free(huge->extents);
	free(huge);
}

static bool is_same(const struct huge *huge, const struct snap_range *extents, size_t n)
{
	return n == huge->extents_n && n > 0 &&
		memcmp(huge->extents, extents, n * sizeof(*extents)) == 0;
}

void huge_set(struct huge *huge, const struct snap_range *extents, size_t n)
{
	struct snap_range *copy;

	pthread_mutex_lock(&huge->lock);
	if (is_same(huge, extents, n)) {
		goto unlock;
	}
	copy = FAULT_MEM("huge.set", malloc((n + 1) * sizeof(*copy)));
	free(huge->extents);
	huge->extents = copy;
	huge->extents_n = copy == NULL ? 0 : n;
	if (copy != NULL && n > 0) {
		memcpy(copy, extents, n * sizeof(*copy));
	}
	huge->extent = huge->extents_n;
	huge->rounds = 0;
	huge->seen = false;
	huge->fastest_ns = 0;
	huge->generation++;
unlock:
	pthread_mutex_unlock(&huge->lock);
}

void huge_protected(struct huge *huge, int64_t took_ns)
{
	pthread_mutex_lock(&huge->lock);
	if (huge->rounds > 0 && !is_due(huge)) {
		if (huge->fastest_ns == 0 || took_ns < huge->fastest_ns) {
			huge->fastest_ns = took_ns;
		}
		if (took_ns > HUGE_SLOW_NS && took_ns > HUGE_SLOW_FACTOR * huge->fastest_ns) {
			start_round(huge);
		}
	} else if (huge->rounds == 0 && huge->seen) {
		start_round(huge);
	}
	huge->seen = true;
	pthread_mutex_unlock(&huge->lock);
}

void huge_allow(struct huge *huge, bool allowed)
{
	pthread_mutex_lock(&huge->lock);
	huge->allowed = allowed;
	pthread_cond_broadcast(&huge->changed);
	pthread_mutex_unlock(&huge->lock);
}
