/*
 * Chooses what to restore from memory: see recover.h.
 *
 * Entries are sorted by save and ranks. A save is whole if its ranges of ranks follow each other
 * without a gap from rank 0 to the last; equal ranges are one part on several hosts. A save with
 * ranges that overlap otherwise is left out. A part that is in sums only counts if enough parts and
 * sums of its group are held.
 */
#include "agent/peer/recover.h"

#include <stdlib.h>
#include <string.h>

static int compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

/* One part of a save, and where it is held. */
struct found_part {
	const struct recover_held *first; /* entries for the part, as it is before those in sums */
	uint32_t n;                       /* number of entries */
	bool as_it_is;                    /* somebody holds the part itself */
	const struct peer_parity *parity; /* place in the group; NULL: in no sum */
};

/* A save, sorted. */
struct found_save {
	const struct recover_held *held;
	uint32_t held_n;
	struct found_part parts[PEER_PARTS_MAX];
	uint32_t parts_n;
};

/* Orders by save and ranks; what is in sums, by their rows, behind what is not; then by host, the
 * part's own host first. */
static int compare_held(const void *a, const void *b)
{
	const struct recover_held *x = a;
	const struct recover_held *y = b;
	int order = compare(x->part.save.run, y->part.save.run);

	order = order != 0 ? order : compare(x->part.save.number, y->part.save.number);
	order = order != 0 ? order : compare(x->part.first_rank, y->part.first_rank);
	order = order != 0 ? order : compare(x->part.ranks, y->part.ranks);
	order = order != 0 ? order : compare(x->part.parity.k != 0, y->part.parity.k != 0);
	order = order != 0 ? order : compare(x->part.parity.row, y->part.parity.row);
	order = order != 0 ? order
			   : compare(x->host != x->part.first_rank, y->host != y->part.first_rank);
	return order != 0 ? order : compare(x->host, y->host);
}

/* Whether a part counts, so far as it alone can tell. */
static bool is_possible(const struct recover_held *held, uint32_t world)
{
	const struct peer_part *part = &held->part;

	return part->save.run != 0 && part->world == world && part->ranks >= 1 &&
		part->ranks <= world && part->first_rank <= world - part->ranks &&
		peer_parity_is_valid(&part->parity, part->first_rank);
}

static bool is_same_ranks(const struct peer_part *a, const struct peer_part *b)
{
	return a->first_rank == b->first_rank && a->ranks == b->ranks;
}

/* ---- groups of sums ---- */

/* Whether a host that lists a part as in a sum lists all parts of that sum. */
static bool is_listed_whole(const struct found_save *save, const struct recover_held *in_sum)
{
	const struct peer_parity *sum = &in_sum->part.parity;
	uint64_t seen = 0; /* bit set of indices */

	for (uint32_t i = 0; i < save->held_n; i++) {
		const struct peer_parity *other = &save->held[i].part.parity;

		if (other->k != 0 && other->group == sum->group && other->row == sum->row &&
			save->held[i].host == in_sum->host) {
			seen |= 1ull << other->index;
		}
	}
	return seen == (1ull << sum->k) - 1;
}

/* Returns the next entry, from this one on, by which a part is in a sum of another row than `row`
 * that counts. NULL: there is none. */
static const struct recover_held *next_sum(const struct found_save *save,
	const struct found_part *part, const struct recover_held *from, uint32_t row)
{
	for (; from < part->first + part->n; from++) {
		if (from->part.parity.k != 0 && from->part.parity.row != row &&
			is_listed_whole(save, from)) {
			return from;
		}
	}
	return NULL;
}

/* Whether a part that nobody holds as it is can be rebuilt: k rows of its group are there. */
static bool can_rebuild(const struct found_save *save, const struct found_part *part)
{
	const struct recover_held *sum = next_sum(save, part, part->first, UINT32_MAX);
	uint32_t rows = 0;

	for (uint32_t i = 0; i < save->parts_n; i++) {
		const struct found_part *other = &save->parts[i];

		rows += other->as_it_is && other->parity != NULL &&
			other->parity->group == part->parity->group;
	}
	for (; sum != NULL; sum = next_sum(save, part, sum, sum->part.parity.row)) {
		rows++;
	}
	return rows >= part->parity->k;
}

/* Whether two parts can be of the same save, as far as their groups go. */
static bool agree(const struct peer_parity *a, const struct peer_parity *b)
{
	return a == NULL || b == NULL || a->group != b->group ||
		(a->k == b->k && a->m == b->m && a->index != b->index);
}

static bool is_same_place(const struct peer_parity *a, const struct peer_parity *b)
{
	return a->group == b->group && a->k == b->k && a->m == b->m && a->index == b->index;
}

/* Whether every part is held, or can be rebuilt, and no two entries disagree on the groups. */
static bool is_whole(const struct found_save *save)
{
	for (uint32_t i = 0; i < save->parts_n; i++) {
		const struct found_part *part = &save->parts[i];

		for (uint32_t j = 0; j < i; j++) {
			if (!agree(part->parity, save->parts[j].parity)) {
				return false;
			}
		}
		for (uint32_t j = 0; j < part->n; j++) {
			const struct peer_parity *parity = &part->first[j].part.parity;

			if (parity->k != 0 && !is_same_place(parity, part->parity)) {
				return false;
			}
		}
	}
	for (uint32_t i = 0; i < save->parts_n; i++) {
		if (!save->parts[i].as_it_is && !can_rebuild(save, &save->parts[i])) {
			return false;
		}
	}
	return true;
}

/* ---- a save ---- */

static void add_entry(struct found_part *part, const struct recover_held *entry)
{
	part->first = part->n == 0 ? entry : part->first;
	part->n++;
	if (entry->part.parity.k == 0) {
		part->as_it_is = true;
	} else if (part->parity == NULL) {
		part->parity = &entry->part.parity;
	}
}

/* Finds the different parts in n entries of one save. Returns whether together they are all ranks,
 * and agree on what they are. */
static bool find_parts(struct found_save *save, const struct recover_held *held, uint32_t n,
	uint32_t world)
{
	struct found_part *last = NULL;
	uint32_t next = 0; /* lowest rank that no part has yet */

	save->held = held;
	save->held_n = n;
	save->parts_n = 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct peer_part *part = &held[i].part;

		if (part->step != held->part.step || strcmp(part->tag, held->part.tag) != 0) {
			return false;
		}
		if (last == NULL || !is_same_ranks(&last->first->part, part)) {
			if (part->first_rank != next || save->parts_n == PEER_PARTS_MAX) {
				return false;
			}
			next = part->first_rank + part->ranks;
			last = &save->parts[save->parts_n++];
			*last = (struct found_part){.n = 0};
		}
		add_entry(last, &held[i]);
	}
	return next == world && is_whole(save);
}

/* Whether a save is to be preferred to the plan's. */
static bool is_better(const struct peer_part *part, const struct recover_plan *plan)
{
	int order = compare(part->step, plan->step);

	order = order != 0 ? order : compare(part->save.number, plan->save.number);
	order = order != 0 ? order : compare(part->save.run, plan->save.run);
	return !plan->found || order > 0;
}

static void add_source(struct recover_plan *plan, const struct recover_held *held)
{
	plan->sources[plan->sources_n++] = (struct recover_source){.host = held->host,
		.first_rank = held->part.first_rank,
		.ranks = held->part.ranks,
		.parity = held->part.parity};
}

/* Adds the hosts of a part, at most so many. */
static void add_sources(struct recover_plan *plan, const struct found_save *save,
	const struct found_part *part, uint32_t most)
{
	const struct recover_held *sum = next_sum(save, part, part->first, UINT32_MAX);
	const struct recover_held *at = part->first;

	for (; at < part->first + part->n && at->part.parity.k == 0 && most > 0; at++) {
		if (at == part->first || at[-1].host != at->host) {
			add_source(plan, at);
			most--;
		}
	}
	for (; sum != NULL && most > 0; sum = next_sum(save, part, sum, sum->part.parity.row)) {
		add_source(plan, sum);
		most--;
	}
}

static void fill(struct recover_plan *plan, const struct found_save *save)
{
	const struct peer_part *part = &save->held->part;

	plan->found = true;
	plan->save = part->save;
	plan->step = part->step;
	memcpy(plan->tag, part->tag, sizeof(plan->tag));
	plan->sources_n = 0;
	for (uint32_t i = 0; i < save->parts_n; i++) {
		add_sources(plan, save, &save->parts[i], PEER_PARTS_MAX / save->parts_n);
	}
}

void recover_choose(struct recover_held *held, uint32_t held_n, uint32_t world, bool has_step,
	uint64_t step, struct recover_plan *plan)
{
	struct found_save save;
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

		end = i;
		while (end < n && peer_save_is(&held[end].part.save, &first->part.save)) {
			end++;
		}
		if ((!has_step || first->part.step == step) && is_better(&first->part, plan) &&
			find_parts(&save, first, end - i, world)) {
			fill(plan, &save);
		}
	}
}
