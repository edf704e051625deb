/* A loop over independent pieces of work: see parallel.h. */
#include "base/parallel.h"

#include "base/assert.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

/* The work that threads share; each takes the next piece. */
struct work {
	atomic_size_t next;                 /* first piece that no thread has taken */
	size_t n;                           /* number of pieces */
	void (*each)(void *user, size_t i); /* does piece i */
	void *user;                         /* passed to each */
};

static void *take_pieces(void *user)
{
	struct work *work = user;
	size_t i;

	while ((i = atomic_fetch_add(&work->next, 1)) < work->n) {
		work->each(work->user, i);
	}
	return NULL;
}

unsigned parallel_cores(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

/* Returns how many threads to start besides the caller's, which uses a core, too. */
static unsigned count_others(void)
{
	unsigned cores = parallel_cores();

	return (cores < PARALLEL_THREADS_MAX ? cores : PARALLEL_THREADS_MAX) - 1;
}

void parallel_for(size_t n, void (*each)(void *user, size_t i), void *user)
{
	struct work work = {.n = n, .each = each, .user = user};
	pthread_t threads[PARALLEL_THREADS_MAX];
	unsigned others = n < 2 ? 0 : count_others();
	unsigned started = 0;
	sigset_t all;
	sigset_t old;

	sigfillset(&all); /* signals belong to the caller's threads */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (started < others &&
		pthread_create(&threads[started], NULL, take_pieces, &work) == 0) {
		started++;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	take_pieces(&work);
	for (unsigned i = 0; i < started; i++) {
		pthread_join(threads[i], NULL);
	}
	ASSERT(atomic_load(&work.next) >= n); /* each piece was taken */
}

/* The test to search with, and the least index found so far. */
struct finding {
	bool (*test)(void *user, size_t i); /* the caller's */
	void *user;                         /* passed to test */
	atomic_size_t least;                /* least index found; n: none yet */
};

static void find_one(void *user, size_t i)
{
	struct finding *finding = user;
	size_t least = atomic_load(&finding->least);

	if (!finding->test(finding->user, i)) {
		return;
	}
	while (i < least && !atomic_compare_exchange_weak(&finding->least, &least, i)) {
	}
}

size_t parallel_find(size_t n, bool (*test)(void *user, size_t i), void *user)
{
	struct finding finding = {.test = test, .user = user};

	atomic_init(&finding.least, n);
	parallel_for(n, find_one, &finding);
	return atomic_load(&finding.least);
}
