/*
 * Chooses what to restore from memory: see recover.h.
 *
 * Sorted by save and ranks, the parts of a save are consecutive, and it is whole if they are a row
 * of equal or adjacent ranges from rank 0 to the last: a part that overlaps others does not count,
 * nor do those, so some rank would be missing.
 */
#include "agent/peer/recover.h"

#include <stdlib.h>
#include <string.h>

static int compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

/* Orders by save, ranks and host, the part's own host first. */
static int compare_held(const void *a, const void *b)
{
	const struct recover_held *x = a;
	const struct recover_held *y = b;
	int order = compare(x->part.save.run, y->part.save.run);

	order = order != 0 ? order : compare(x->part.save.number, y->part.save.number);
	order = order != 0 ? order : compare(x->part.first_rank, y->part.first_rank);
	order = order != 0 ? order : compare(x->part.ranks, y->part.ranks);
	order = order != 0 ? order
			   : compare(x->host != x->part.first_rank, y->host != y->part.first_rank);
	return order != 0 ? order : compare(x->host, y->host);
}

/* Whether a part counts, so far as it alone can tell. */
static bool is_possible(const struct recover_held *held, uint32_t world)
{
	const struct peer_part *part = &held->part;

	return part->save.run != 0 && part->world == world && part->ranks >= 1 &&
		part->ranks <= world && part->first_rank <= world - part->ranks;
}

static bool is_same_ranks(const struct peer_part *a, const struct peer_part *b)
{
	return a->first_rank == b->first_rank && a->ranks == b->ranks;
}

/* Returns the number of different parts among n of one save, if together they are all ranks and
 * agree on what they are; else 0. */
static uint32_t count_parts(const struct recover_held *held, uint32_t n, uint32_t world)
{
	const struct peer_part *before = NULL;
	uint32_t next = 0; /* lowest rank that no part has yet */
	uint32_t parts = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct peer_part *part = &held[i].part;

		if (part->step != held->part.step || strcmp(part->tag, held->part.tag) != 0) {
			return 0;
		}
		if (before != NULL && is_same_ranks(before, part)) {
			continue;
		}
		if (part->first_rank != next) {
			return 0;
		}
		next = part->first_rank + part->ranks;
		before = part;
		parts++;
	}
	return next == world ? parts : 0;
}

/* Whether a save is to be preferred to the plan's. */
static bool is_better(const struct peer_part *part, const struct recover_plan *plan)
{
	int order = compare(part->step, plan->step);

	order = order != 0 ? order : compare(part->save.number, plan->save.number);
	order = order != 0 ? order : compare(part->save.run, plan->save.run);
	return !plan->found || order > 0;
}

/* Plans to restore the save of these n parts, of which so many are different. */
static void fill(struct recover_plan *plan, const struct recover_held *held, uint32_t n,
	uint32_t parts)
{
	uint32_t most = PEER_PARTS_MAX / parts; /* hosts for a part */
	uint32_t hosts = 0;                     /* hosts listed for the part */

	plan->found = true;
	plan->save = held->part.save;
	plan->step = held->part.step;
	memcpy(plan->tag, held->part.tag, sizeof(plan->tag));
	plan->sources_n = 0;
	for (uint32_t i = 0; i < n; i++) {
		bool same = i > 0 && is_same_ranks(&held[i - 1].part, &held[i].part);

		hosts = same ? hosts : 0;
		if (hosts < most && !(same && held[i - 1].host == held[i].host)) {
			plan->sources[plan->sources_n++] =
				(struct recover_source){.host = held[i].host,
					.first_rank = held[i].part.first_rank,
					.ranks = held[i].part.ranks};
			hosts++;
		}
	}
}

void recover_choose(struct recover_held *held, uint32_t held_n, uint32_t world, bool has_step,
	uint64_t step, struct recover_plan *plan)
{
	uint32_t n = 0; /* parts that are possible, at the front */
	uint32_t end;

	memset(plan, 0, sizeof(*plan));
	for (uint32_t i = 0; i < held_n; i++) {
		if (is_possible(&held[i], world)) {
			struct recover_held swap = held[n];

			held[n++] = held[i];
			held[i] = swap;
		}
	}
	qsort(held, n, sizeof(*held), compare_held);
	for (uint32_t i = 0; i < n; i = end) {
		const struct recover_held *first = &held[i];
		uint32_t parts;

		end = i;
		while (end < n && peer_save_is(&held[end].part.save, &first->part.save)) {
			end++;
		}
		parts = count_parts(first, end - i, world);
		if (parts > 0 && parts <= PEER_PARTS_MAX &&
			(!has_step || first->part.step == step) && is_better(&first->part, plan)) {
			fill(plan, first, end - i, parts);
		}
	}
}
