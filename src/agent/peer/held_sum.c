/*
 * Sums over the parts of several hosts (parity.h): see held.h for the contract, held_impl.h for the
 * locks.
 *
 * Up to k connections add their parts to a sum at the same time. A piece is added when all of it
 * has come and its checksum is right. What was added stays, since only the same bytes could take it
 * out again: if a part does not end, its host sends it anew, from the beginning, and what is in the
 * sum already is verified and passed over. Nobody sees the sum before all k parts have ended.
 */
#include "agent/peer/held_impl.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/pages.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Complete sums of a group's row that stay when another one is about to come. */
#define STAY_MAX 1u

/* ---- life ---- */

int held_sum_make(struct held_sum **out, struct held *held, const struct held_part *part,
	struct pawl_err *err)
{
	struct held_sum *sum = FAULT_MEM("held.sum", calloc(1, sizeof(*sum)));
	int rv;

	if (sum == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "%s: no memory to hold a sum",
			part->info.tag);
	}
	rv = parity_init(&sum->code, part->info.parity.k, part->info.parity.m, err);
	if (rv != 0) {
		free(sum);
		return rv;
	}
	sum->held = held;
	sum->root = part->root;
	sum->info = part->info;
	pthread_mutex_init(&sum->lock, NULL);
	*out = sum;
	return 0;
}

static void drop_memory(struct held_sum *sum)
{
	pages_unmap(sum->map, sum->mapped_bytes);
	sum->map = NULL;
	sum->present_bytes = 0;
}

static void free_sum(struct held_sum *sum)
{
	drop_memory(sum);
	parity_deinit(&sum->code);
	pthread_mutex_destroy(&sum->lock);
	free(sum);
}

void held_sum_release(struct held_sum *sum)
{
	struct held *held = sum->held;
	bool last;

	pthread_mutex_lock(&held->lock);
	last = sum->refs <= 1;
	sum->refs -= sum->refs > 0;
	for (struct held_sum **at = &held->sums; last && *at != NULL; at = &(*at)->next) {
		if (*at == sum) {
			*at = sum->next;
			break;
		}
	}
	pthread_mutex_unlock(&held->lock);
	if (last) {
		free_sum(sum);
	}
}

/* ---- all in this section with held.lock ---- */

static bool is_of_row(const struct held_sum *sum, const struct held_part *part)
{
	return sum->root == part->root && sum->info.parity.group == part->info.parity.group &&
		sum->info.parity.row == part->info.parity.row;
}

struct held_sum *held_sum_find(const struct held *held, const struct held_part *part)
{
	for (struct held_sum *sum = held->sums; sum != NULL; sum = sum->next) {
		if (!sum->dropped && is_of_row(sum, part) &&
			peer_save_is(&sum->info.save, &part->info.save)) {
			return sum;
		}
	}
	return NULL;
}

void held_sum_drop(struct held_sum *sum, struct held_part **dead)
{
	struct held *held = sum->held;

	sum->dropped = true;
	for (struct held_in **at = &held->receiving; *at != NULL;) {
		if ((*at)->sum == sum) {
			held_in_cancel(at);
		} else {
			at = &(*at)->next;
		}
	}
	for (struct held_part **at = &held->parts; *at != NULL;) {
		if ((*at)->sum == sum) {
			held_unlist(at, dead);
		} else {
			at = &(*at)->next;
		}
	}
	for (uint32_t i = 0; i < PARITY_DATA_MAX; i++) {
		if (sum->ended[i] != NULL) {
			held_unlist(&sum->ended[i], dead);
		}
	}
	if (!sum->complete) { /* nobody adds to it any more, nor can read it */
		drop_memory(sum);
		sum->size_bytes = 0;
	}
}

/* Drops the sums of a row that are of no more use when another save's comes: complete ones as with
 * replicas. Of those that are not, the ones that the same run began before were given up; of other
 * runs the newest stays, since what comes may be late itself. */
static void drop_outdated(struct held *held, const struct held_part *comes,
	const struct peer_save *global, struct held_part **dead)
{
	bool stays = false; /* one of another run, not complete */

	for (struct held_sum *sum = held->sums; sum != NULL; sum = sum->next) {
		bool same_run = sum->info.save.run == comes->info.save.run;

		if (sum->dropped || !is_of_row(sum, comes)) {
			continue;
		}
		if (held_is_older(&sum->info, &comes->info, global) ||
			(!sum->complete && (same_run || stays))) {
			held_sum_drop(sum, dead);
		} else {
			stays = stays || !sum->complete;
		}
	}
}

/* Finds the complete sum to drop if more than STAY_MAX would stay. NULL: there is none. */
static struct held_sum *find_surplus(const struct held *held, const struct held_part *comes,
	const struct peer_save *global)
{
	struct held_sum *best = NULL;
	uint32_t n = 0;

	for (struct held_sum *sum = held->sums; sum != NULL; sum = sum->next) {
		if (sum->dropped || !sum->complete || !is_of_row(sum, comes)) {
			continue;
		}
		n++;
		if (!peer_save_is(&sum->info.save, global) &&
			(best == NULL || held_goes_before(&sum->info, &best->info, &comes->info))) {
			best = sum;
		}
	}
	return n > STAY_MAX ? best : NULL;
}

int held_sum_make_room(struct held *held, const struct held_part *comes,
	const struct peer_save *global, struct held_part **dead, struct pawl_err *err)
{
	const struct peer_part *info = &comes->info;
	struct held_sum *same = held_sum_find(held, comes);
	struct held_sum *surplus;

	for (const struct held_sum *sum = held->sums; sum != NULL; sum = sum->next) {
		if (!sum->dropped && is_of_row(sum, comes) &&
			sum->info.save.run == info->save.run &&
			sum->info.save.number > info->save.number) {
			return pawl_err_set(err, PAWL_ECANCELED,
				"%s: parts of a newer save are here already", info->tag);
		}
	}
	if (same != NULL) {
		return same->info.parity.k == info->parity.k &&
				same->info.parity.m == info->parity.m
			? 0
			: pawl_err_set(err, PAWL_ECORRUPT,
				  "%s: a part for a sum of %u + %u hosts, which has %u + %u",
				  info->tag, info->parity.k, info->parity.m, same->info.parity.k,
				  same->info.parity.m);
	}
	drop_outdated(held, comes, global, dead);
	while ((surplus = find_surplus(held, comes, global)) != NULL) {
		held_sum_drop(surplus, dead);
	}
	return 0;
}

void held_sum_end(struct held_sum *sum, struct held_part *part, struct held_part **dead)
{
	struct held *held = sum->held;
	uint32_t index = part->info.parity.index;

	ASSERT(!sum->dropped && index < sum->code.k);
	if (sum->complete || sum->ended[index] != NULL) { /* sent again though it had ended */
		part->next = *dead;
		*dead = part;
		return;
	}
	part->sum = sum;
	sum->refs++;
	sum->ended[index] = part;
	if (++sum->ended_n < sum->code.k) {
		return;
	}
	sum->size_bytes = 0;
	for (uint32_t i = 0; i < sum->code.k; i++) {
		struct held_part *whole = sum->ended[i];

		sum->ended[i] = NULL;
		whole->next = held->parts;
		held->parts = whole;
		if (whole->image.size_bytes > sum->size_bytes) {
			sum->size_bytes = whole->image.size_bytes;
		}
	}
	pthread_mutex_lock(&sum->lock);
	sum->complete = true;
	pthread_mutex_unlock(&sum->lock);
}

/* ---- without held.lock ---- */

/* The caller holds the lock. */
static int map_memory(struct held_sum *sum, uint64_t size_bytes, struct pawl_err *err)
{
	uint8_t *map = FAULT_MEM("held.create",
		sum->map == NULL ? pages_map(-1, size_bytes)
				 : pages_resize(sum->map, sum->mapped_bytes, size_bytes));

	if (map == NULL) {
		return pawl_err_sys(err, "%s: create memory for a sum of %" PRIu64 " bytes",
			sum->info.tag, size_bytes);
	}
	sum->map = map;
	sum->mapped_bytes = size_bytes;
	return 0;
}

int held_sum_map(struct held_sum *sum, uint64_t size_bytes, struct pawl_err *err)
{
	int rv = 0;

	pthread_mutex_lock(&sum->lock);
	if (size_bytes > sum->mapped_bytes && !sum->complete) {
		rv = map_memory(sum, size_bytes, err);
	}
	pthread_mutex_unlock(&sum->lock);
	return rv;
}

int held_sum_begin(struct held_sum *sum, uint32_t index, uint32_t records_crc, struct pawl_err *err)
{
	struct held_row *row = &sum->rows[index];
	bool other;

	pthread_mutex_lock(&sum->lock);
	other = row->begun && row->records_crc != records_crc;
	row->begun = true;
	row->records_crc = other ? row->records_crc : records_crc;
	pthread_mutex_unlock(&sum->lock);
	return other ? pawl_err_set(err, PAWL_ECORRUPT,
			       "%s: other records came than those whose bytes are in the sum",
			       sum->info.tag)
		     : 0;
}

/* Adds bytes behind those that are in the sum. The caller holds the lock. */
static void add_bytes(struct held_sum *sum, uint32_t index, uint64_t off, const uint8_t *bytes,
	uint32_t len_bytes)
{
	ASSERT(off + len_bytes <= sum->mapped_bytes);
	while (sum->present_bytes < off + len_bytes) {
		/* The memory may have ended within a page before. */
		uint64_t from = sum->present_bytes / PAGES_HUGE * PAGES_HUGE;
		uint64_t left = sum->mapped_bytes - from;
		uint64_t n = left < PAGES_HUGE ? left : PAGES_HUGE;

		pages_populate(sum->map + from, n);
		sum->present_bytes = from + n;
	}
	parity_add_row(&sum->code, sum->info.parity.row, index, bytes, len_bytes, sum->map + off);
	sum->rows[index].added_bytes = off + len_bytes;
}

int held_sum_add(struct held_sum *sum, uint32_t index, uint64_t off, const uint8_t *bytes,
	uint32_t len_bytes, struct pawl_err *err)
{
	uint64_t added_bytes;

	pthread_mutex_lock(&sum->lock);
	added_bytes = sum->rows[index].added_bytes;
	if (added_bytes == off && !sum->complete) {
		add_bytes(sum, index, off, bytes, len_bytes);
	}
	pthread_mutex_unlock(&sum->lock);
	return added_bytes == off || added_bytes >= off + len_bytes
		? 0
		: pawl_err_set(err, PAWL_ECORRUPT,
			  "%s: bytes from %" PRIu64 " came for a sum that has those to %" PRIu64,
			  sum->info.tag, off, added_bytes);
}
