/* What this host holds of saves: the list of complete parts, and what is read from them. See
 * held.h; held_in.c receives replicas. */
#include "agent/peer/held_impl.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- parts ---- */

static bool is_possible(const struct peer_part *info)
{
	return info->save.run != 0 && info->ranks >= 1 && info->ranks <= HELD_RANKS_MAX &&
		info->ranks <= info->world && info->first_rank <= info->world - info->ranks &&
		peer_parity_is_valid(&info->parity, info->first_rank);
}

int held_part_make(struct held_part **out, struct held *held, uint64_t root,
	const struct peer_part *info, bool own, struct pawl_err *err)
{
	struct held_part *part;

	if (!is_possible(info)) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"%s: a part of %u ranks from rank %u of %u cannot be", info->tag,
			info->ranks, info->first_rank, info->world);
	}
	part = FAULT_MEM("held.part", calloc(1, sizeof(*part)));
	if (part == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "%s: no memory to hold a part", info->tag);
	}
	*part = (struct held_part){.held = held,
		.root = root,
		.info = *info,
		.own = own,
		.refs = 1};
	part->ranks = FAULT_MEM("held.ranks", calloc(info->ranks, sizeof(*part->ranks)));
	part->records = FAULT_MEM("held.records", calloc(info->ranks, sizeof(void *)));
	if (part->ranks == NULL || part->records == NULL) {
		held_part_free(part);
		return pawl_err_set(err, PAWL_ENOMEM, "%s: no memory to hold %u ranks", info->tag,
			info->ranks);
	}
	for (uint32_t i = 0; i < info->ranks; i++) {
		part->records[i] = &part->ranks[i].record;
	}
	*out = part;
	return 0;
}

void held_part_free(struct held_part *part)
{
	if (part == NULL) {
		return;
	}
	for (uint32_t i = 0; part->ranks != NULL && i < part->info.ranks; i++) {
		arena_deinit(&part->ranks[i].held.arena);
		wire_out_deinit(&part->ranks[i].held.blob);
		record_deinit(&part->ranks[i].record);
	}
	held_memory_give(part->held, &part->memory);
	if (part->sum != NULL) {
		held_sum_release(part->sum);
	}
	image_deinit(&part->image);
	free(part->records);
	free(part->ranks);
	free(part);
}

/* Returns what is wrong with a record as that of a rank of the part, or NULL. */
static const char *find_fault(const struct held_part *part, uint32_t index)
{
	const struct held_entry *entry = &part->ranks[index];
	const struct record *record = &entry->record;

	if (record->rank != part->info.first_rank + index) {
		return "it is that of another rank";
	}
	if (record->world != part->info.world) {
		return "it is of another number of ranks";
	}
	if (record->step != part->info.step) {
		return "it is of another step";
	}
	for (uint32_t p = 0; p < record->parts_n; p++) {
		const struct record_part *at = &record->parts[p];

		if (at->pieces_n > 0 &&
			(at->arena_off > entry->arena_bytes ||
				at->hi - at->lo > entry->arena_bytes - at->arena_off)) {
			return "a partition passes the end of its arena";
		}
	}
	return NULL;
}

int held_entry_decode(struct held_part *part, uint32_t index, struct pawl_err *err)
{
	struct held_entry *entry = &part->ranks[index];
	const struct wire_out *blob = &entry->held.blob;
	const char *wrong;
	int rv;

	if (blob->len_bytes == 0) {
		return 0;
	}
	rv = record_decode(&entry->record, blob->bytes, blob->len_bytes, err);
	if (rv != 0) {
		return pawl_err_prefix(err, rv, "%s: rank %u", part->info.tag,
			part->info.first_rank + index);
	}
	wrong = find_fault(part, index);
	if (wrong != NULL) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"%s: the record of rank %u is not its own: %s", part->info.tag,
			part->info.first_rank + index, wrong);
	}
	return 0;
}

void held_unlist(struct held_part **at, struct held_part **dead)
{
	struct held_part *part = *at;

	ASSERT(part->refs > 0);
	*at = part->next;
	part->next = NULL;
	if (--part->refs == 0) {
		part->next = *dead;
		*dead = part;
	}
}

void held_free_all(struct held_part *dead)
{
	while (dead != NULL) {
		struct held_part *next = dead->next;

		held_part_free(dead);
		dead = next;
	}
}

/* ---- the list ---- */

int held_open(struct held **out, struct pawl_err *err)
{
	struct held *held = FAULT_MEM("held.open", calloc(1, sizeof(*held)));

	if (held == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to hold saves of other hosts");
	}
	pthread_mutex_init(&held->lock, NULL);
	pthread_mutex_init(&held->spare_lock, NULL);
	*out = held;
	return 0;
}

void held_close(struct held *held)
{
	struct held_part *dead = NULL;

	if (held == NULL) {
		return;
	}
	ASSERT(held->receiving == NULL);
	for (struct held_sum *sum = held->sums; sum != NULL; sum = sum->next) {
		held_sum_drop(sum, &dead);
	}
	while (held->parts != NULL) {
		ASSERT(held->parts->refs == 1);
		held_unlist(&held->parts, &dead);
	}
	held_free_all(dead);
	ASSERT(held->sums == NULL);
	held_trim(held, 0);
	pthread_mutex_destroy(&held->spare_lock);
	pthread_mutex_destroy(&held->lock);
	free(held);
}

void held_list_part(struct held_part *part, struct held_part **dead)
{
	struct held *held = part->held;

	for (struct held_part **at = &held->parts; *at != NULL;) {
		if ((*at)->own <= part->own && (*at)->sum == NULL && (*at)->root == part->root &&
			(*at)->info.first_rank == part->info.first_rank &&
			peer_save_is(&(*at)->info.save, &part->info.save)) {
			held_unlist(at, dead);
		} else {
			at = &(*at)->next;
		}
	}
	part->next = held->parts;
	held->parts = part;
}

static void drop_ranks(struct held_rank *ranks, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		arena_deinit(&ranks[i].arena);
		wire_out_deinit(&ranks[i].blob);
	}
}

int held_add(struct held *held, uint64_t root, const struct peer_part *part,
	struct held_rank *ranks, struct pawl_err *err)
{
	struct held_part *dead = NULL;
	struct held_part *made;
	int rv = held_part_make(&made, held, root, part, true, err);

	if (rv != 0) {
		drop_ranks(ranks, part->ranks);
		return rv;
	}
	for (uint32_t i = 0; i < part->ranks; i++) {
		made->ranks[i].held = ranks[i];
		made->ranks[i].arena_bytes = ranks[i].arena.size_bytes;
		ranks[i] = (struct held_rank){0};
	}
	for (uint32_t i = 0; i < part->ranks && rv == 0; i++) {
		rv = held_entry_decode(made, i, err);
	}
	rv = rv != 0 ? rv : image_init(&made->image, made->records, part->ranks, err);
	if (rv != 0) {
		held_part_free(made);
		return rv;
	}
	pthread_mutex_lock(&held->lock);
	held_list_part(made, &dead);
	pthread_mutex_unlock(&held->lock);
	held_free_all(dead);
	return 0;
}

uint32_t held_list(struct held *held, uint64_t root, struct peer_part *parts, uint32_t cap)
{
	uint32_t n = 0;

	pthread_mutex_lock(&held->lock);
	for (const struct held_part *at = held->parts; at != NULL && n < cap; at = at->next) {
		if (at->root == root) {
			parts[n++] = at->info;
		}
	}
	pthread_mutex_unlock(&held->lock);
	return n;
}

struct held_part *held_find(struct held *held, uint64_t root, const struct peer_save *save,
	uint32_t rank)
{
	struct held_part *found = NULL;

	pthread_mutex_lock(&held->lock);
	for (struct held_part *at = held->parts; at != NULL; at = at->next) {
		if (at->root == root && at->sum == NULL && rank >= at->info.first_rank &&
			rank - at->info.first_rank < at->info.ranks &&
			peer_save_is(&at->info.save, save) && (found == NULL || at->own)) {
			found = at;
		}
	}
	if (found != NULL) {
		found->refs++;
	}
	pthread_mutex_unlock(&held->lock);
	return found;
}

struct held_part *held_find_sum(struct held *held, uint64_t root, const struct peer_save *save,
	const struct peer_parity *parity, uint32_t first_rank)
{
	struct held_part *found = NULL;

	pthread_mutex_lock(&held->lock);
	for (struct held_part *at = held->parts; at != NULL && found == NULL; at = at->next) {
		if (at->root == root && at->sum != NULL && at->info.first_rank == first_rank &&
			at->info.parity.group == parity->group &&
			at->info.parity.row == parity->row && peer_save_is(&at->info.save, save)) {
			found = at;
			found->refs++;
		}
	}
	pthread_mutex_unlock(&held->lock);
	return found;
}

void held_release(struct held_part *part)
{
	struct held *held = part != NULL ? part->held : NULL;
	bool last;

	if (part == NULL) {
		return;
	}
	pthread_mutex_lock(&held->lock);
	ASSERT(part->refs > 0);
	last = --part->refs == 0;
	pthread_mutex_unlock(&held->lock);
	if (last) {
		held_part_free(part);
	}
}

/* ---- drop ---- */

/* Says which parts of a root are to be dropped: the first rule that is set. */
struct which {
	uint64_t root;                /* number of the root */
	bool all;                     /* all parts */
	const struct peer_save *keep; /* not this save, nor what the same run made since */
	const struct peer_save *save; /* this save */
	uint64_t step;                /* lower steps */
};

/* Whether a part is to be dropped. A complete one of another run than keep's is of a run that is
 * over. One that is still coming may be the first of a run that begins, and stays. */
static bool is_unwanted(const struct which *which, const struct peer_part *info, bool own,
	bool complete)
{
	const struct peer_save *keep = which->keep;

	if (which->all) {
		return true;
	}
	if (keep == NULL) {
		return which->save != NULL ? peer_save_is(&info->save, which->save)
					   : info->step < which->step;
	}
	if (info->save.run != keep->run) {
		return complete;
	}
	return own ? info->save.number != keep->number : info->save.number < keep->number;
}

static void drop(struct held *held, const struct which *which)
{
	struct held_part *dead = NULL;

	pthread_mutex_lock(&held->lock);
	for (struct held_sum *sum = held->sums; sum != NULL; sum = sum->next) {
		if (sum->root == which->root && !sum->dropped &&
			is_unwanted(which, &sum->info, false, sum->complete)) {
			held_sum_drop(sum, &dead);
		}
	}
	for (struct held_part **at = &held->parts; *at != NULL;) {
		if ((*at)->root == which->root && (*at)->sum == NULL &&
			is_unwanted(which, &(*at)->info, (*at)->own, true)) {
			held_unlist(at, &dead);
		} else {
			at = &(*at)->next;
		}
	}
	for (struct held_in **at = &held->receiving; *at != NULL;) {
		const struct held_part *part = (*at)->part;

		if (part->root == which->root && (*at)->sum == NULL &&
			is_unwanted(which, &part->info, false, false)) {
			held_in_cancel(at);
		} else {
			at = &(*at)->next;
		}
	}
	pthread_mutex_unlock(&held->lock);
	held_free_all(dead);
}

void held_drop_others(struct held *held, uint64_t root, const struct peer_save *keep)
{
	if (keep == NULL || keep->run != 0) {
		drop(held, &(struct which){.root = root, .all = keep == NULL, .keep = keep});
	}
}

void held_drop(struct held *held, uint64_t root, const struct peer_save *save)
{
	drop(held, &(struct which){.root = root, .save = save});
}

void held_drop_below(struct held *held, uint64_t root, uint64_t step)
{
	drop(held, &(struct which){.root = root, .step = step});
}

uint64_t held_used_bytes(struct held *held)
{
	uint64_t used = 0;

	pthread_mutex_lock(&held->lock);
	for (const struct held_part *at = held->parts; at != NULL; at = at->next) {
		for (uint32_t i = 0; at->own && i < at->info.ranks; i++) {
			used += arena_used_bytes(&at->ranks[i].held.arena);
		}
		used += at->own || at->sum != NULL ? 0 : at->image.size_bytes;
	}
	for (struct held_in *at = held->receiving; at != NULL; at = at->next) {
		used += at->sum != NULL ? 0 : at->received;
	}
	for (struct held_sum *at = held->sums; at != NULL; at = at->next) {
		used += at->present_bytes;
	}
	pthread_mutex_unlock(&held->lock);
	return used;
}

/* ---- read a part ---- */

const struct peer_part *held_part_info(const struct held_part *part)
{
	return &part->info;
}

const struct image *held_part_image(const struct held_part *part)
{
	return &part->image;
}

uint64_t held_part_size(const struct held_part *part)
{
	return part->sum != NULL ? part->sum->size_bytes : part->image.size_bytes;
}

/* Returns the entry of a rank, which the part must have. */
static const struct held_entry *entry_of(const struct held_part *part, uint32_t rank)
{
	ASSERT(rank >= part->info.first_rank && rank - part->info.first_rank < part->info.ranks);
	return &part->ranks[rank - part->info.first_rank];
}

void held_part_record(const struct held_part *part, uint32_t rank, const uint8_t **blob,
	uint32_t *blob_bytes, uint64_t *arena_bytes)
{
	const struct held_entry *entry = entry_of(part, rank);

	*blob = entry->held.blob.bytes;
	*blob_bytes = (uint32_t)entry->held.blob.len_bytes;
	*arena_bytes = entry->arena_bytes;
}

static int read_arena(const struct held_part *part, int fd, uint64_t off, uint8_t *bytes,
	size_t len_bytes, struct pawl_err *err)
{
	while (len_bytes > 0) {
		ssize_t n = FAULT_SYS("held.read", pread(fd, bytes, len_bytes, (off_t)off));

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0) {
			return pawl_err_sys(err, "%s: read what is held in memory", part->info.tag);
		}
		if (n == 0) {
			return pawl_err_set(err, PAWL_EIO,
				"%s: the memory that holds it ends at byte %" PRIu64,
				part->info.tag, off);
		}
		bytes += n;
		off += (uint64_t)n;
		len_bytes -= (size_t)n;
	}
	return 0;
}

/* Reads from the arenas, piece by piece. */
static int gather(const struct held_part *part, uint64_t off, uint8_t *bytes, size_t len_bytes,
	struct pawl_err *err)
{
	struct image_at at;
	struct image_piece piece;
	int rv = 0;

	if (len_bytes == 0) {
		return 0;
	}
	image_find(&part->image, off, &at);
	while (rv == 0 && len_bytes > 0 && image_next(&part->image, &at, &piece)) {
		uint64_t skip = off - piece.off;
		size_t n = piece.len_bytes - skip < len_bytes ? (size_t)(piece.len_bytes - skip)
							      : len_bytes;

		rv = read_arena(part, part->ranks[piece.rank].held.arena.fd, piece.arena_off + skip,
			bytes, n, err);
		bytes += n;
		off += n;
		len_bytes -= n;
	}
	return rv;
}

int held_part_read(const struct held_part *part, uint64_t off, void *bytes, size_t len_bytes,
	struct pawl_err *err)
{
	uint64_t size = held_part_size(part);
	const uint8_t *map = part->sum != NULL ? part->sum->map : part->memory.map;

	if (off > size || len_bytes > size - off) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%s: bytes %" PRIu64 " to %" PRIu64 " of an image of %" PRIu64,
			part->info.tag, off, off + len_bytes, size);
	}
	if (part->own) {
		return gather(part, off, bytes, len_bytes, err);
	}
	if (len_bytes > 0) {
		memcpy(bytes, map + off, len_bytes);
	}
	return 0;
}
