/* Equal shares: each job has its least, then each one more in turn. See equal.h. */
#include "equal.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

enum equal_wrong equal_wrong;
uint32_t equal_decisions;

static void *open_equal(uint64_t seed)
{
	return malloc(1);
}

static void close_equal(void *self)
{
	free(self);
}

/* Computes how many replicas each job has; a job that does not fit has none. */
static void share(const struct sched_view *view, uint32_t *sizes)
{
	uint32_t left = 0;
	bool more = true;

	for (uint32_t n = 0; n < view->nodes_n; n++) {
		left += view->nodes[n].slots;
	}
	for (uint32_t pass = 0; pass < 2; pass++) {
		for (uint32_t j = 0; j < view->jobs_n; j++) {
			const struct sched_job *job = &view->jobs[j];
			uint32_t need = job->pinned ? job->replicas : job->least;

			if (job->pinned == (pass == 0) && need <= left) {
				sizes[j] = need;
				left -= need;
			}
		}
	}
	while (more && left > 0) {
		more = false;
		for (uint32_t j = 0; j < view->jobs_n && left > 0; j++) {
			if (sizes[j] > 0 && sizes[j] < view->jobs[j].most &&
				!view->jobs[j].pinned) {
				sizes[j]++;
				left--;
				more = true;
			}
		}
	}
}

static void place(const struct sched_view *view, const uint32_t *sizes, uint32_t *room,
	struct sched_grant *grants)
{
	for (uint32_t j = 0; j < view->jobs_n; j++) {
		for (uint32_t r = 0; r < view->jobs[j].replicas && r < sizes[j]; r++) {
			grants[j].nodes[grants[j].replicas++] = view->jobs[j].nodes[r];
			room[view->jobs[j].nodes[r]]--;
		}
	}
	for (uint32_t j = 0; j < view->jobs_n; j++) {
		for (uint32_t n = 0; n < view->nodes_n; n++) {
			for (; room[n] > 0 && grants[j].replicas < sizes[j]; room[n]--) {
				grants[j].nodes[grants[j].replicas++] = n;
			}
		}
	}
}

static void spoil(const struct sched_view *view, struct sched_grant *grants)
{
	uint32_t last = view->jobs_n - 1;

	switch (equal_wrong) {
	case EQUAL_TOO_MANY:
		for (uint32_t r = 0; r < grants[last].replicas; r++) {
			grants[last].nodes[r] = grants[0].nodes[0];
		}
		break;
	case EQUAL_BELOW:
		grants[last].replicas = view->jobs[last].least - 1;
		break;
	case EQUAL_ABOVE:
		grants[last].nodes[view->jobs[last].most] = 0;
		grants[last].replicas = view->jobs[last].most + 1;
		break;
	case EQUAL_NOWHERE:
		grants[last].nodes[0] = view->nodes_n;
		break;
	case EQUAL_MOVES:
		for (uint32_t r = 0; view->jobs[0].pinned && r < grants[0].replicas; r++) {
			grants[0].nodes[r] = (grants[0].nodes[r] + 1) % view->nodes_n;
		}
		break;
	case EQUAL_FORGETS:
		grants[last].replicas = 0;
		break;
	default:
		break;
	}
}

static int decide(void *self, const struct sched_view *view, struct sched_grant *grants,
	struct sched_verdict *verdict, struct pawl_err *err)
{
	uint32_t *sizes = calloc(view->jobs_n, sizeof(*sizes));
	uint32_t *room = calloc(view->nodes_n + 1, sizeof(*room));

	equal_decisions++;
	if (!sizes || !room || equal_wrong == EQUAL_NO_MEMORY) {
		free(sizes);
		free(room);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a decision");
	}
	for (uint32_t n = 0; n < view->nodes_n; n++) {
		room[n] = view->nodes[n].slots;
	}
	share(view, sizes);
	place(view, sizes, room, grants);
	spoil(view, grants);
	*verdict = (struct sched_verdict){0};
	free(sizes);
	free(room);
	return 0;
}

const struct sched_policy equal_policy = {.name = "equal",
	.open = open_equal,
	.close = close_equal,
	.decide = decide};
