/*
 * Receives replicas: see held.h for the contract, held_impl.h for the locks.
 *
 * A replica is promised with its size, for which there must be room; then come the records, which
 * list the pieces, and the bytes, which are verified piece by piece as they come. It is listed at
 * its end only, so nobody ever sees a part that is not whole. Whoever begins to send a part anew,
 * or drops its save, cancels what is under way at once, whatever its thread waits for.
 */
#include "agent/peer/held_impl.h"

#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/pages.h"
#include "ckpt/format/pieces.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

/* Complete replicas of one first rank that stay when another one is about to come. */
#define STAY_MAX 1u

/* ---- what goes before another comes ---- */

bool held_is_older(const struct peer_part *info, const struct peer_part *comes,
	const struct peer_save *global)
{
	if (global->run == 0) {
		return false;
	}
	return info->save.run == global->run ? info->save.number < global->number
					     : global->run == comes->save.run;
}

bool held_goes_before(const struct peer_part *part, const struct peer_part *other,
	const struct peer_part *comes)
{
	const struct peer_save *save = &part->save;
	bool same_run = save->run == comes->save.run;

	if (same_run != (other->save.run == comes->save.run)) {
		return same_run;
	}
	if (save->run != other->save.run) {
		return part->step > other->step;
	}
	return same_run ? save->number < other->save.number : save->number > other->save.number;
}

/* Whether a part is a replica of the same ranks, or theirs. */
static bool is_of_same_ranks(const struct held_part *part, uint64_t root,
	const struct peer_part *info)
{
	return part->root == root && part->info.first_rank == info->first_rank &&
		part->info.parity.k == 0;
}

/* Finds the replica to drop if more than STAY_MAX, other than of the save that comes, are complete.
 * None of them is older than global, and global itself is not dropped. */
static struct held_part **find_surplus(struct held *held, uint64_t root,
	const struct peer_part *comes, const struct peer_save *global)
{
	struct held_part **best = NULL;
	uint32_t n = 0;

	for (struct held_part **at = &held->parts; *at != NULL; at = &(*at)->next) {
		const struct peer_save *save = &(*at)->info.save;

		if ((*at)->own || !is_of_same_ranks(*at, root, comes) ||
			peer_save_is(save, &comes->save)) {
			continue;
		}
		n++;
		if (!peer_save_is(save, global) &&
			(best == NULL || held_goes_before(&(*at)->info, &(*best)->info, comes))) {
			best = at;
		}
	}
	return n > STAY_MAX ? best : NULL;
}

static void make_room(struct held *held, uint64_t root, const struct peer_part *comes,
	const struct peer_save *global)
{
	struct held_part *dead = NULL;
	struct held_part **surplus;

	pthread_mutex_lock(&held->lock);
	for (struct held_part **at = &held->parts; *at != NULL;) {
		if (is_of_same_ranks(*at, root, comes) &&
			held_is_older(&(*at)->info, comes, global)) {
			held_unlist(at, &dead);
		} else {
			at = &(*at)->next;
		}
	}
	for (struct held_in **at = &held->receiving; *at != NULL;) {
		if (is_of_same_ranks((*at)->part, root, comes)) {
			held_in_cancel(at);
		} else {
			at = &(*at)->next;
		}
	}
	while ((surplus = find_surplus(held, root, comes, global)) != NULL) {
		held_unlist(surplus, &dead);
	}
	pthread_mutex_unlock(&held->lock);
	held_free_all(dead);
}

/* ---- open ---- */

static uint64_t add_capped(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Returns the bytes that all replicas and sums take when what is under way is complete. With
 * held.lock. */
static uint64_t count_promised(const struct held *held)
{
	uint64_t promised = 0;

	for (const struct held_part *at = held->parts; at != NULL; at = at->next) {
		promised =
			add_capped(promised, at->own || at->sum != NULL ? 0 : at->image.size_bytes);
	}
	for (const struct held_in *at = held->receiving; at != NULL; at = at->next) {
		promised = add_capped(promised, at->sum != NULL ? 0 : at->image_bytes);
	}
	for (const struct held_sum *at = held->sums; at != NULL; at = at->next) {
		promised = add_capped(promised, at->size_bytes);
	}
	return promised;
}

/* Cancels an earlier transfer of the same data row of a sum: its host sends the part again. With
 * held.lock. */
static void cancel_same(struct held *held, const struct held_in *in)
{
	for (struct held_in **at = &held->receiving; *at != NULL;) {
		if ((*at)->sum == in->sum &&
			(*at)->part->info.parity.index == in->part->info.parity.index) {
			held_in_cancel(at);
		} else {
			at = &(*at)->next;
		}
	}
}

/* Lists what is about to come, if promised bytes stay within the budget. A part for a sum that is
 * listed joins it; *surplus is the sum that was made for it then. With held.lock. */
static void list_in(struct held_in *in, struct held_sum **surplus)
{
	struct held *held = in->held;

	if (in->sum != NULL) {
		struct held_sum *same = held_sum_find(held, in->part);

		*surplus = same != NULL ? in->sum : NULL;
		if (same == NULL) {
			in->sum->next = held->sums;
			held->sums = in->sum;
		} else {
			in->sum = same;
			cancel_same(held, in);
		}
		in->sum->refs++;
		if (!in->sum->complete && in->image_bytes > in->sum->size_bytes) {
			in->sum->size_bytes = in->image_bytes;
		}
	}
	in->next = held->receiving;
	held->receiving = in;
}

/* Returns the bytes by which what is promised grows. With held.lock. */
static uint64_t count_more(const struct held_in *in)
{
	const struct held_sum *same = in->sum != NULL ? held_sum_find(in->held, in->part) : NULL;
	uint64_t has_bytes = same != NULL ? same->size_bytes : 0;

	return in->image_bytes > has_bytes ? in->image_bytes - has_bytes : 0;
}

/* Lists what is about to come if all replicas and sums together stay within their budget;
 * *left_bytes: what is left of that. */
static int reserve(struct held_in *in, const struct peer_save *global, uint64_t *left_bytes,
	struct pawl_err *err)
{
	struct held *held = in->held;
	struct tier_limits limits = {.asked = 0};
	struct held_sum *surplus = NULL;
	struct held_part *dead = NULL;
	uint64_t promised;
	uint64_t used;
	uint64_t budget;
	int rv = 0;

	tier_limits_read(&limits);
	used = held_used_bytes(held) + held_memory_spare(held);
	limits.available = add_capped(limits.available, used);
	limits.cgroup = add_capped(limits.cgroup, used);
	budget = tier_budget(&limits);
	pthread_mutex_lock(&held->lock);
	if (in->sum != NULL) {
		rv = held_sum_make_room(held, in->part, global, &dead, err);
	}
	promised = add_capped(count_promised(held), count_more(in));
	if (rv == 0 && promised <= budget) {
		list_in(in, &surplus);
	}
	pthread_mutex_unlock(&held->lock);
	held_free_all(dead);
	if (surplus != NULL) {
		held_sum_release(surplus);
	}
	if (rv == 0 && promised > budget) {
		return pawl_err_set(err, PAWL_ENOMEM,
			"%s: a %s of %" PRIu64 " MiB does not fit: replicas would have %" PRIu64
			" MiB, and may have %" PRIu64
			" MiB, half of the memory available; keep fewer, or none (replicas=0)",
			in->part->info.tag, in->sum != NULL ? "sum" : "replica",
			add_capped(in->image_bytes, MIB - 1) / MIB,
			add_capped(promised, MIB - 1) / MIB, budget / MIB);
	}
	*left_bytes = budget - promised;
	return rv;
}

static int make_memory(struct held_in *in, struct pawl_err *err)
{
	struct held_part *part = in->part;
	int rv;

	if (in->image_bytes == 0) {
		return 0;
	}
	if (in->sum != NULL) {
		return held_sum_map(in->sum, in->image_bytes, err);
	}
	rv = held_memory_take(in->held, in->image_bytes, &part->memory, err);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "%s", part->info.tag);
}

static void drop_memory(struct held_in *in)
{
	if (in->part != NULL) {
		held_memory_give(in->held, &in->part->memory);
	}
}

/* Makes what a part for a sum needs. */
static int prepare_sum(struct held_in *in, struct pawl_err *err)
{
	in->buffer = FAULT_MEM("held.buffer", malloc(CKPT_CHUNK));
	if (in->buffer == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "%s: no memory to receive a part of a sum",
			in->part->info.tag);
	}
	return held_sum_make(&in->sum, in->held, in->part, err);
}

int held_in_open(struct held_in **out, struct held *held, uint64_t root,
	const struct peer_part *part, const struct peer_save *global, uint64_t image_bytes,
	struct pawl_err *err)
{
	struct held_part *made;
	struct held_in *in;
	uint64_t left_bytes = 0;
	int rv = held_part_make(&made, held, root, part, false, err);

	if (rv != 0) {
		return rv;
	}
	in = FAULT_MEM("held.in", calloc(1, sizeof(*in)));
	if (in == NULL) {
		held_part_free(made);
		return pawl_err_set(err, PAWL_ENOMEM, "%s: no memory to receive a replica",
			part->tag);
	}
	in->held = held;
	in->part = made;
	in->image_bytes = image_bytes;
	pthread_mutex_init(&in->lock, NULL);
	if (part->parity.k != 0) {
		rv = prepare_sum(in, err);
	} else {
		make_room(held, root, part, global);
	}
	rv = rv == 0 ? reserve(in, global, &left_bytes, err) : rv;
	if (rv == 0) {
		pthread_mutex_lock(&in->lock);
		rv = in->canceled ? 0 : make_memory(in, err);
		pthread_mutex_unlock(&in->lock);
		held_trim(held, left_bytes);
	}
	if (rv != 0) {
		held_in_close(in);
		return rv;
	}
	*out = in;
	return 0;
}

/* ---- receive ---- */

/* Checks, at the beginning of every call but close, that nothing was wrong before, and that the
 * replica is still wanted. */
static int check_open(struct held_in *in, struct pawl_err *err)
{
	bool canceled;

	ASSERT(in->part != NULL); /* held_in_end has not succeeded */
	if (in->failed) {
		return pawl_err_set(err, PAWL_ECORRUPT, "%s: the replica was refused before",
			in->part->info.tag);
	}
	pthread_mutex_lock(&in->lock);
	canceled = in->canceled;
	pthread_mutex_unlock(&in->lock);
	return canceled ? pawl_err_set(err, PAWL_ECANCELED,
				  "%s: the replica of rank %u's host is not wanted any more",
				  in->part->info.tag, in->part->info.first_rank)
			: 0;
}

/* Returns rv; after an error nothing more is taken. */
static int note_failure(struct held_in *in, int rv)
{
	in->failed = in->failed || (rv != 0 && rv != PAWL_ECANCELED);
	return rv;
}

/* All records are there: lists the pieces, which must be as many bytes as were promised. */
static int list_pieces(struct held_in *in, struct pawl_err *err)
{
	struct held_part *part = in->part;
	int rv = image_init(&part->image, part->records, part->info.ranks, err);

	if (rv == 0 && part->image.size_bytes != in->image_bytes) {
		rv = pawl_err_set(err, PAWL_ECORRUPT,
			"%s: the records list %" PRIu64 " bytes, and %" PRIu64 " were promised",
			part->info.tag, part->image.size_bytes, in->image_bytes);
	}
	if (rv == 0 && in->sum != NULL) {
		rv = held_sum_begin(in->sum, part->info.parity.index, in->records_crc, err);
	}
	return rv;
}

static int take_record(struct held_in *in, uint32_t rank, uint64_t arena_bytes, uint32_t crc,
	const void *blob, size_t blob_bytes, struct pawl_err *err)
{
	struct held_part *part = in->part;
	struct held_entry *entry = &part->ranks[in->records_n];
	int rv;

	if (in->records_n == part->info.ranks || rank != part->info.first_rank + in->records_n) {
		return pawl_err_set(err, PAWL_ECORRUPT, "%s: the record of rank %u is out of order",
			part->info.tag, rank);
	}
	if (crc32c(0, blob, blob_bytes) != crc) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"%s: the record of rank %u is not what was sent", part->info.tag, rank);
	}
	wire_put_raw(&entry->held.blob, blob, blob_bytes);
	if (entry->held.blob.failed) {
		return wire_out_error(&entry->held.blob, "the record of a replica", err);
	}
	entry->arena_bytes = arena_bytes;
	in->records_crc = crc32c(in->records_crc, blob, blob_bytes);
	rv = held_entry_decode(part, in->records_n, err);
	if (rv == 0 && ++in->records_n == part->info.ranks) {
		rv = list_pieces(in, err);
	}
	return rv;
}

int held_in_record(struct held_in *in, uint32_t rank, uint64_t arena_bytes, uint32_t crc,
	const void *blob, size_t blob_bytes, struct pawl_err *err)
{
	int rv = check_open(in, err);

	rv = rv != 0 ? rv : take_record(in, rank, arena_bytes, crc, blob, blob_bytes, err);
	return note_failure(in, rv);
}

/* Names the bytes of a partition that came damaged, the piece under way. */
static int damage_error(const struct held_in *in, const struct record_part *part,
	const struct record_piece *piece, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_ECORRUPT,
		"%s: partition %s of rank %u: bytes %" PRIu64 " to %" PRIu64 " came damaged",
		in->part->info.tag, part->name, in->part->info.first_rank + in->piece.rank,
		piece->file_off, piece->file_off + piece->len_bytes);
}

/* All of the piece under way has come: it must be what was sent, and is added to the sum. */
static int end_piece(struct held_in *in, const uint8_t *bytes, struct pawl_err *err)
{
	const struct held_part *part = in->part;
	int rv = 0;

	if (in->crc != in->piece.crc) {
		const struct record_part *damaged =
			&part->records[in->piece.rank]->parts[in->piece.part];

		return damage_error(in, damaged, &damaged->pieces[in->piece.piece], err);
	}
	pthread_mutex_lock(&in->lock);
	if (in->sum != NULL && !in->canceled) {
		rv = held_sum_add(in->sum, part->info.parity.index, in->piece.off, bytes,
			in->piece.len_bytes, err);
	}
	pthread_mutex_unlock(&in->lock);
	return rv;
}

/* Verifies the pieces that end in these bytes, which come behind those received so far. */
static int verify(struct held_in *in, const uint8_t *bytes, size_t len_bytes, struct pawl_err *err)
{
	int rv = 0;

	while (rv == 0 && len_bytes > 0) {
		const uint8_t *whole = in->buffer;
		size_t n;

		if (in->piece_bytes == in->piece.len_bytes) {
			bool found = image_next(&in->part->image, &in->at, &in->piece);

			ASSERT(found); /* the bytes are within the image */
			in->piece_bytes = 0;
			in->crc = 0;
		}
		n = in->piece.len_bytes - in->piece_bytes;
		n = n < len_bytes ? n : len_bytes;
		if (n == in->piece.len_bytes) {
			whole = bytes;
		} else if (in->sum != NULL) {
			memcpy(in->buffer + in->piece_bytes, bytes, n);
		}
		in->crc = crc32c(in->crc, bytes, n);
		in->piece_bytes += (uint32_t)n;
		bytes += n;
		len_bytes -= n;
		if (in->piece_bytes == in->piece.len_bytes) {
			rv = end_piece(in, whole, err);
		}
	}
	return rv;
}

/* Puts bytes in their place, unless the memory is gone. Pages are made present many at a time. */
static void store_bytes(struct held_in *in, uint64_t off, const void *bytes, size_t len_bytes)
{
	struct held_memory *memory = &in->part->memory;

	pthread_mutex_lock(&in->lock);
	while (!in->canceled && memory->present_bytes < off + len_bytes) {
		uint64_t left = memory->size_bytes - memory->present_bytes;
		uint64_t n = left < PAGES_HUGE ? left : PAGES_HUGE;

		pages_populate(memory->map + memory->present_bytes, n);
		memory->present_bytes += n;
	}
	if (!in->canceled) {
		memcpy(memory->map + off, bytes, len_bytes);
	}
	pthread_mutex_unlock(&in->lock);
}

static int take_bytes(struct held_in *in, uint64_t off, const void *bytes, size_t len_bytes,
	struct pawl_err *err)
{
	const struct held_part *part = in->part;
	uint64_t received = in->received;
	int rv;

	if (in->records_n < part->info.ranks) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"%s: bytes came before the record of rank %u", part->info.tag,
			part->info.first_rank + in->records_n);
	}
	if (off != received) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"%s: bytes from %" PRIu64 " came in place of those from %" PRIu64,
			part->info.tag, off, received);
	}
	if (len_bytes > in->image_bytes - received) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"%s: more came than the %" PRIu64 " bytes that were promised",
			part->info.tag, in->image_bytes);
	}
	rv = verify(in, bytes, len_bytes, err);
	if (rv == 0 && len_bytes > 0) {
		if (in->sum == NULL) {
			store_bytes(in, off, bytes, len_bytes);
		}
		in->received = received + len_bytes;
	}
	return rv;
}

int held_in_bytes(struct held_in *in, uint64_t off, const void *bytes, size_t len_bytes,
	struct pawl_err *err)
{
	int rv = check_open(in, err);

	rv = rv != 0 ? rv : take_bytes(in, off, bytes, len_bytes, err);
	return note_failure(in, rv);
}

/* ---- end ---- */

/* Takes what is under way out of the list. False: it was canceled, and is in no list. */
static bool unlist_in(struct held_in *in)
{
	for (struct held_in **at = &in->held->receiving; *at != NULL; at = &(*at)->next) {
		if (*at == in) {
			*at = in->next;
			return true;
		}
	}
	return false;
}

/* Returns false if the replica was canceled. */
static bool publish(struct held_in *in)
{
	struct held *held = in->held;
	struct held_part *dead = NULL;
	bool listed;

	pthread_mutex_lock(&held->lock);
	listed = unlist_in(in);
	if (listed && in->sum != NULL) {
		held_sum_end(in->sum, in->part, &dead);
	} else if (listed) {
		held_list_part(in->part, &dead);
	}
	in->part = listed ? NULL : in->part;
	pthread_mutex_unlock(&held->lock);
	held_free_all(dead);
	return listed;
}

int held_in_end(struct held_in *in, struct pawl_err *err)
{
	const struct peer_part *info = &in->part->info;
	int rv = check_open(in, err);

	if (rv != 0) {
		return rv;
	}
	if (in->records_n < info->ranks || in->received < in->image_bytes) {
		rv = pawl_err_set(err, PAWL_ECORRUPT,
			"%s: the replica ends after %u of %u records and %" PRIu64 " of %" PRIu64
			" bytes",
			info->tag, in->records_n, info->ranks, (uint64_t)in->received,
			in->image_bytes);
		return note_failure(in, rv);
	}
	return publish(in) ? 0 : check_open(in, err);
}

void held_in_cancel(struct held_in **at)
{
	struct held_in *in = *at;

	*at = in->next;
	pthread_mutex_lock(&in->lock);
	in->canceled = true;
	drop_memory(in);
	pthread_mutex_unlock(&in->lock);
}

void held_in_close(struct held_in *in)
{
	if (in == NULL) {
		return;
	}
	pthread_mutex_lock(&in->held->lock);
	unlist_in(in);
	pthread_mutex_unlock(&in->held->lock);
	drop_memory(in); /* nobody else can reach it any more */
	if (in->sum != NULL) {
		held_sum_release(in->sum);
	}
	held_part_free(in->part);
	free(in->buffer);
	pthread_mutex_destroy(&in->lock);
	free(in);
}
