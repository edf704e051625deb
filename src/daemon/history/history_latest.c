/* The latest rows of the history: see history_latest.h. Two sorted arrays of pointers. */
#include "daemon/history/history_latest.h"

#include <stdlib.h>
#include <string.h>

/* Finds where a node is, or would be. */
static uint32_t find_node_index(const struct history_latest *k, const char *name, bool *found)
{
	uint32_t low = 0;
	uint32_t high = k->nodes_n;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (strcmp(k->nodes[mid]->name, name) < 0) {
			low = mid + 1;
		} else {
			high = mid;
		}
	}
	*found = low < k->nodes_n && strcmp(k->nodes[low]->name, name) == 0;
	return low;
}

static uint32_t find_job_index(const struct history_latest *k, uint64_t id, bool *found)
{
	uint32_t low = 0;
	uint32_t high = k->jobs_n;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (k->jobs[mid]->id < id) {
			low = mid + 1;
		} else {
			high = mid;
		}
	}
	*found = low < k->jobs_n && k->jobs[low]->id == id;
	return low;
}

/* Returns the array with room for one more pointer; NULL: no memory, and the array is as it was. */
static void *grow(void *items, uint32_t n, uint32_t *max)
{
	void *more = n < *max ? items : realloc(items, (2 * (size_t)*max + 64) * sizeof(void *));

	*max = more && n >= *max ? 2 * *max + 64 : *max;
	return more;
}

static void move(void *to, const void *from, uint32_t pointers)
{
	memmove(to, from, pointers * sizeof(void *));
}

const struct history_node *history_latest_node(const struct history_latest *k, const char *name)
{
	bool found;
	uint32_t at = find_node_index(k, name, &found);

	return found ? k->nodes[at] : NULL;
}

const struct history_job *history_latest_job(const struct history_latest *k, uint64_t id)
{
	bool found;
	uint32_t at = find_job_index(k, id, &found);

	return found ? k->jobs[at] : NULL;
}

static void drop_job(struct history_job *job)
{
	free(job->entries);
	free(job);
}

static void forget_node(struct history_latest *k, uint32_t at)
{
	free(k->nodes[at]);
	k->nodes_n--;
	move(&k->nodes[at], &k->nodes[at + 1], k->nodes_n - at);
}

static void forget_job(struct history_latest *k, uint32_t at)
{
	drop_job(k->jobs[at]);
	k->jobs_n--;
	move(&k->jobs[at], &k->jobs[at + 1], k->jobs_n - at);
}

bool history_latest_put_node(struct history_latest *k, const struct history_node *node)
{
	bool found;
	uint32_t at = find_node_index(k, node->name, &found);

	if (node->slots == 0) {
		if (found) {
			forget_node(k, at);
		}
		return true;
	}
	if (!found) {
		struct history_node *made = malloc(sizeof(*made));
		void *more = made ? grow(k->nodes, k->nodes_n, &k->nodes_max) : NULL;

		if (!more) {
			free(made);
			return false;
		}
		k->nodes = more;
		move(&k->nodes[at + 1], &k->nodes[at], k->nodes_n - at);
		k->nodes[at] = made;
		k->nodes_n++;
	}
	*k->nodes[at] = *node;
	return true;
}

bool history_latest_put_job(struct history_latest *k, struct history_job *job)
{
	bool found;
	uint32_t at = find_job_index(k, job->id, &found);

	if (job->over) {
		if (found) {
			forget_job(k, at);
		}
		free(job->entries);
		return true;
	}
	if (!found) {
		struct history_job *made = calloc(1, sizeof(*made));
		void *more = made ? grow(k->jobs, k->jobs_n, &k->jobs_max) : NULL;

		if (!more) {
			free(made);
			free(job->entries);
			return false;
		}
		k->jobs = more;
		move(&k->jobs[at + 1], &k->jobs[at], k->jobs_n - at);
		k->jobs[at] = made;
		k->jobs_n++;
	}
	free(k->jobs[at]->entries);
	*k->jobs[at] = *job;
	return true;
}

void history_latest_clear(struct history_latest *k)
{
	for (uint32_t i = 0; i < k->nodes_n; i++) {
		free(k->nodes[i]);
	}
	for (uint32_t i = 0; i < k->jobs_n; i++) {
		drop_job(k->jobs[i]);
	}
	k->nodes_n = 0;
	k->jobs_n = 0;
}

void history_latest_deinit(struct history_latest *k)
{
	history_latest_clear(k);
	free(k->nodes);
	free(k->jobs);
	*k = (struct history_latest){0};
}
