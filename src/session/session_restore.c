/*
 * Inside a worker (and for tools): reads a checkpoint back, from the memory tier, where each rank's
 * share lies in its arena, or from the store: as much of a partition as is needed, into memory of
 * this process or in place in the page cache. The arenas may be copies of other hosts' memory, of
 * which bytes come as they are asked for (session_peers.c). In each case every byte is verified
 * before the caller sees any of it, and the caller's memory is not written to.
 */
#include "session/session_source.h"

#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/parallel.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_MIN (2u << 20) /* destinations from this size on are worth huge pages */

void pawl_restore_close(struct pawl_restore *restore)
{
	if (!restore) {
		return;
	}
	for (uint32_t p = 0; restore->parts && p < restore->info.parts_n; p++) {
		zip_plan_deinit(&restore->parts[p].zip);
		free(restore->parts[p].have);
		part_image_close(restore->parts[p].image);
	}
	free(restore->parts);
	free(restore->tensors);
	if (restore->peers) {
		source_drop_peers(restore);
	}
	for (uint32_t r = 0; restore->ranks && r < restore->info.world; r++) {
		record_deinit(&restore->ranks[r].record);
		arena_unmap(restore->ranks[r].arena, restore->ranks[r].size_bytes);
	}
	free(restore->ranks);
	session_restore_refuse(restore, "it closed the restore without a vote");
	if (restore->ckpt && restore->info.memory) {
		struct wire_out out = {0};

		session_send(restore->ckpt, &out, PROTO_RESTORED, NULL, NULL);
		wire_out_deinit(&out);
	}
	reader_close(restore->reader);
	tags_root_close(restore->root);
	manifest_deinit(&restore->manifest);
	free(restore);
}

/* ---- from the store ---- */

static int list_store(struct pawl_restore *restore, struct pawl_err *err)
{
	const struct manifest *manifest = &restore->manifest;

	memcpy(restore->tag, manifest->tag, sizeof(restore->tag));
	restore->info = (struct pawl_restore_info){.tag = restore->tag,
		.step = manifest->step,
		.world = manifest->world,
		.parts_n = manifest->parts_n};
	restore->parts = calloc(manifest->parts_n ? manifest->parts_n : 1, sizeof(*restore->parts));
	if (!restore->parts) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u partitions",
			manifest->parts_n);
	}
	for (uint32_t p = 0; p < manifest->parts_n; p++) {
		const struct manifest_part *part = &manifest->parts[p];

		restore->parts[p].manifest = part;
		restore->parts[p].info = (struct pawl_restore_part){.name = part->name,
			.file = part->file,
			.raw = part->raw,
			.rank = part->rank == MANIFEST_ALL_RANKS ? -1 : (int64_t)part->rank,
			.size_bytes = part->size_bytes,
			.tensors = part->tensors,
			.tensors_bytes = part->tensors_bytes};
	}
	return 0;
}

/* Opens a tag of the store (NULL: the newest complete one). Quarantines nothing, since tools use
 * it, too. */
static int open_store(struct pawl_restore *restore, const char *root, const char *tag,
	struct pawl_err *err)
{
	const struct tags_search any = {NULL, NULL, NULL};
	int rv = tags_root_open(root, NULL, false, &restore->root, err);

	if (rv == 0) {
		rv = reader_open(&restore->reader, tags_root_store(restore->root), err);
	}
	if (rv == 0 && tag) {
		rv = tag_open(restore->root, tag, &restore->manifest, err);
	} else if (rv == 0) {
		rv = tags_newest(restore->root, &any, &restore->manifest, err);
	}
	if (rv == 0) {
		rv = list_store(restore, err);
	}
	return rv;
}

int session_restore_new(struct pawl_restore **restore, struct pawl_ckpt *ckpt, struct pawl_err *err)
{
	*restore = calloc(1, sizeof(**restore));
	if (!*restore) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to restore");
	}
	(*restore)->ckpt = ckpt;
	return 0;
}

int pawl_restore_open_tag(const char *root, const char *tag, struct pawl_restore **out,
	struct pawl_err *err)
{
	struct pawl_restore *restore;
	int rv = session_restore_new(&restore, NULL, err);

	if (rv != 0) {
		return rv;
	}
	rv = open_store(restore, root, tag, err);
	if (rv != 0) {
		pawl_restore_close(restore);
		return pawl_err_prefix(err, rv, "%s", root);
	}
	*out = restore;
	return 0;
}

int pawl_restore_open(const char *root, bool has_step, uint64_t step, struct pawl_restore **out,
	struct pawl_err *err)
{
	char tag[CKPT_TAG_MAX];
	struct tags_root *opened;
	int rv = 0;

	if (has_step) {
		rv = tags_root_open(root, NULL, false, &opened, err);
		if (rv == 0) {
			rv = tag_find_step(opened, step, tag, err);
			tags_root_close(opened);
		}
	}
	if (rv != 0) {
		return pawl_err_prefix(err, rv, "%s", root);
	}
	return pawl_restore_open_tag(root, has_step ? tag : NULL, out, err);
}

/* A partition's image, for the reader of zips. */
struct zip_source {
	struct part_image *image; /* the partition's */
	bool failed;              /* could not be read: the error names the file already */
};

/* zip_read_fn: reads what the image does not have yet. */
static int read_image(void *user, uint64_t off, void *buf, size_t len_bytes, struct pawl_err *err)
{
	struct zip_source *source = user;
	int rv = part_image_read(source->image, off, len_bytes, err);

	source->failed = rv != 0;
	if (rv == 0) {
		memcpy(buf, part_image_at(source->image, off), len_bytes);
	}
	return rv;
}

typedef int read_plan_fn(struct zip_plan *plan, zip_read_fn *read, void *user, uint64_t size_bytes,
	struct pawl_err *err);

/* Takes the layout from the file, by one of zip_plan_read and zip_plan_read_tail. */
static int read_zip(const struct pawl_restore *restore, struct source_part *part,
	read_plan_fn *read_plan, struct pawl_err *err)
{
	struct zip_source source = {.image = part->image};
	struct zip_plan zip;
	int rv = read_plan(&zip, read_image, &source, part->info.size_bytes, err);

	if (rv == 0) {
		zip_plan_deinit(&part->zip);
		part->zip = zip;
	} else if (!source.failed) {
		rv = pawl_err_prefix(err, rv, "%s/%s", restore->manifest.tag, part->manifest->file);
	}
	return rv;
}

static int list_from_store(struct pawl_restore *restore, struct source_part *part,
	struct pawl_err *err)
{
	const struct zip_entry *pickle;
	int rv = 0;

	if (part->info.raw) {
		zip_plan_deinit(&part->zip);
		rv = zip_plan_init_raw(&part->zip, &part->info.size_bytes, 1, err);
	}
	if (rv == 0 && !part->image) {
		rv = part_image_open(&part->image, restore->reader, &restore->manifest,
			part->manifest, err);
		if (rv == 0) { /* other ranks may read it, too */
			part_image_share(part->image, true);
		}
	}
	if (rv == 0 && !part->info.raw) {
		rv = read_zip(restore, part, zip_plan_read_tail, err);
	}
	if (rv == 0) {
		pickle = zip_plan_pickle(&part->zip);
		rv = part_image_read(part->image, pickle->data_off, pickle->size_bytes, err);
	}
	return rv;
}

/* Returns whether laid has everything where zip lists it. */
static bool same_layout(const struct zip_plan *laid, const struct zip_plan *zip)
{
	if (laid->size_bytes != zip->size_bytes ||
		zip_plan_pickle(laid)->data_off != zip_plan_pickle(zip)->data_off) {
		return false;
	}
	for (uint32_t i = 0; i < zip->storages; i++) {
		if (laid->entries[i].header_off != zip->entries[i].header_off) {
			return false;
		}
	}
	return true;
}

/* Finds where the storages lie. In our own files that follows from their sizes; in others it reads
 * their headers. */
static int place_in_store(struct pawl_restore *restore, struct source_part *part,
	struct pawl_err *err)
{
	const struct zip_plan *zip = &part->zip;
	uint64_t *sizes;
	struct zip_plan laid = {0};
	int rv;

	if (part->info.raw) {
		return 0;
	}
	sizes = FAULT_MEM("restore.place", calloc(zip->storages + 1u, sizeof(*sizes)));
	if (sizes == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to locate %u storages",
			zip->storages);
	}
	for (uint32_t i = 0; i < zip->storages; i++) {
		sizes[i] = zip->entries[i].size_bytes;
	}
	rv = zip_plan_init(&laid, sizes, zip->storages, zip_plan_pickle(zip)->size_bytes, err);
	free(sizes);
	if (rv == 0 && same_layout(&laid, zip)) {
		zip_plan_deinit(&part->zip);
		part->zip = laid;
		return 0;
	}
	zip_plan_deinit(&laid);
	return rv == 0 ? read_zip(restore, part, zip_plan_read, err) : rv;
}

static int read_from_store(struct pawl_restore *restore, struct source_part *part,
	struct pawl_err *err)
{
	int rv;

	ASSERT(part->image != NULL); /* list_from_store has opened it */
	part_image_share(part->image, false);
	rv = part_image_read(part->image, 0, part->info.size_bytes, err);
	return rv == 0 && !part->info.raw ? read_zip(restore, part, zip_plan_read, err) : rv;
}

/* ---- from memory ---- */

static const struct record_part *part_of(const struct pawl_restore *restore,
	const struct source_part *part, uint32_t rank)
{
	const struct record *record = &restore->ranks[rank].record;

	if (part->info.rank >= 0 || rank == part->owner) {
		return rank == part->owner ? &record->parts[part->index] : NULL;
	}
	for (uint32_t p = 0; p < record->parts_n; p++) {
		if (record->parts[p].shared &&
			strcmp(record->parts[p].name, part->info.name) == 0) {
			return &record->parts[p];
		}
	}
	return NULL;
}

/* Returns whether the list takes the part from this rank: a shared one from rank 0, others from
 * their own rank. */
static bool is_listed_by(const struct record_part *part, uint32_t rank)
{
	return !part->shared || rank == 0;
}

static int list_memory(struct pawl_restore *restore, struct pawl_err *err)
{
	uint32_t n = 0;

	for (uint32_t r = 0; r < restore->info.world; r++) {
		for (uint32_t p = 0; p < restore->ranks[r].record.parts_n; p++) {
			n += is_listed_by(&restore->ranks[r].record.parts[p], r);
		}
	}
	restore->parts = calloc(n ? n : 1, sizeof(*restore->parts));
	if (!restore->parts) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u partitions", n);
	}
	for (uint32_t r = 0; r < restore->info.world; r++) {
		for (uint32_t p = 0; p < restore->ranks[r].record.parts_n; p++) {
			const struct record_part *part = &restore->ranks[r].record.parts[p];

			if (!is_listed_by(part, r)) {
				continue;
			}
			restore->parts[restore->info.parts_n++] =
				(struct source_part){.info = {.name = part->name,
							     .file = part->name,
							     .rank = part->shared ? -1 : (int64_t)r,
							     .raw = part->raw,
							     .size_bytes = part->size_bytes,
							     .tensors = part->tensors,
							     .tensors_bytes = part->tensors_bytes},
					.owner = r,
					.index = p};
		}
	}
	return 0;
}

static int take_memory(struct pawl_restore *restore, const struct link_reply *reply,
	struct pawl_err *err)
{
	struct frame_from_memory offer;
	uint32_t fd = 0;
	int rv = link_reply_get(reply, PROTO_FROM_MEMORY, &offer, sizeof(offer), err);

	if (rv != 0) {
		return rv;
	}
	restore->info.step = offer.step;
	snprintf(restore->tag, sizeof(restore->tag), "%s", offer.tag);
	restore->info.tag = restore->tag;
	restore->info.world = offer.shares_n;
	restore->info.memory = true;
	restore->ranks = calloc(restore->info.world, sizeof(*restore->ranks));
	if (!restore->ranks) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to restore");
	}
	for (uint32_t r = 0; r < restore->info.world; r++) {
		const struct frame_blob *record = &offer.shares[r].record;
		struct source_rank *rank = &restore->ranks[r];

		if (record->len_bytes == 0) {
			continue; /* the rank has no part in this save */
		}
		if (fd >= reply->fds_n) {
			return pawl_err_set(err, PAWL_ECORRUPT,
				"malformed offer to restore from memory");
		}
		rank->size_bytes = offer.shares[r].size_bytes;
		rv = record_decode(&rank->record, record->bytes, record->len_bytes, err);
		if (rv != 0) {
			return rv;
		}
		rank->arena = arena_map_fd(reply->fds[fd++], rank->size_bytes);
		if (!rank->arena) {
			rank->size_bytes = 0;
			return pawl_err_sys(err, "map rank %u's arena", r);
		}
	}
	return 0;
}

/* Pieces of one rank's share being checked, by several threads. */
struct check {
	const struct record_piece *pieces; /* the pieces, as they were staged */
	const uint8_t *base;               /* where byte 0 of the file would be */
};

static bool is_damaged(void *user, size_t i)
{
	const struct check *check = user;
	const struct record_piece *piece = &check->pieces[i];

	return crc32c(0, check->base + piece->file_off, piece->len_bytes) != piece->crc;
}

static int piece_error(const struct pawl_restore *restore, const struct source_part *part,
	uint32_t r, const struct record_piece *piece, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_ECORRUPT,
		"%s of step %llu in memory: bytes %llu..%llu are not what rank %u staged",
		part->info.name, (unsigned long long)restore->info.step,
		(unsigned long long)piece->file_off,
		(unsigned long long)(piece->file_off + piece->len_bytes - 1), r);
}

/* Checks each piece of a rank's share that has bytes from lo to before hi of the file against the
 * checksum that the rank computed when it staged the piece. The pieces of other hosts are fetched
 * first. */
static int check_share(struct pawl_restore *restore, const struct source_part *part, uint32_t r,
	const struct record_part *share, uint64_t lo, uint64_t hi, struct pawl_err *err)
{
	const struct source_rank *rank = &restore->ranks[r];
	const struct record_piece *piece = share->pieces;
	const struct record_piece *end = piece + share->pieces_n;
	struct check check = {.base = rank->arena + share->arena_off - share->lo};
	int rv;

	if (share->arena_off + (share->hi - share->lo) > rank->size_bytes) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"%s: rank %u's share passes the end of its arena", part->info.name, r);
	}
	rv = restore->peers ? source_fetch(restore, r, share, lo, hi, err) : 0;
	if (rv != 0) {
		return rv;
	}
	while (piece < end && piece->file_off + piece->len_bytes <= lo) {
		piece++;
	}
	while (piece < end && end[-1].file_off >= hi) {
		end--;
	}
	check.pieces = piece;
	piece += parallel_find((size_t)(end - piece), is_damaged, &check);
	return piece == end ? 0 : piece_error(restore, part, r, piece, err);
}

int source_check_memory(struct pawl_restore *restore, const struct source_part *part, uint64_t lo,
	uint64_t hi, struct pawl_err *err)
{
	int rv = 0;

	for (uint32_t r = 0; r < restore->info.world && rv == 0; r++) {
		const struct record_part *share = part_of(restore, part, r);

		if (share && share->lo < share->hi) {
			rv = check_share(restore, part, r, share, lo, hi, err);
		}
	}
	return rv;
}

static int list_from_memory(struct pawl_restore *restore, struct source_part *part,
	struct pawl_err *err)
{
	const struct record_part *first = part_of(restore, part, part->owner);
	const struct zip_entry *pickle;
	int rv;

	zip_plan_deinit(&part->zip);
	rv = part->info.raw ? zip_plan_init_raw(&part->zip, &part->info.size_bytes, 1, err)
			    : zip_plan_init(&part->zip, first->storage_bytes, first->storages,
				      first->pickle_bytes, err);
	if (rv != 0) {
		return rv;
	}
	pickle = zip_plan_pickle(&part->zip);
	return source_check_memory(restore, part, pickle->data_off,
		pickle->data_off + pickle->size_bytes, err);
}

static int read_from_memory(struct pawl_restore *restore, struct source_part *part,
	struct pawl_err *err)
{
	return source_check_memory(restore, part, 0, part->info.size_bytes, err);
}

/* Returns the bytes of the file at off: at most *len_bytes of them, contiguous; NULL if no rank
 * holds them. */
static const uint8_t *bytes_at(const struct pawl_restore *restore, const struct source_part *part,
	uint64_t off, uint64_t *len_bytes)
{
	if (part->image) {
		return part_image_at(part->image, off);
	}
	for (uint32_t r = 0; r < restore->info.world; r++) {
		const struct record_part *share = part_of(restore, part, r);

		if (share && off >= share->lo && off < share->hi) {
			*len_bytes = *len_bytes < share->hi - off ? *len_bytes : share->hi - off;
			return restore->ranks[r].arena + share->arena_off + (off - share->lo);
		}
	}
	return NULL;
}

/* ---- offers and votes ---- */

int session_restore_accept(struct pawl_restore *restore, struct pawl_ckpt *ckpt, bool to_all,
	struct pawl_err *err)
{
	struct frame_tag offer;
	int rv;

	restore->vote_pending = to_all && ckpt->reply.type != PROTO_FROM_NOTHING;
	if (ckpt->reply.type == PROTO_FROM_MEMORY || ckpt->reply.type == PROTO_FROM_PEERS) {
		rv = ckpt->reply.type == PROTO_FROM_MEMORY
			? take_memory(restore, &ckpt->reply, err)
			: source_take_peers(restore, &ckpt->reply, err);
		return rv == 0 ? list_memory(restore, err) : rv;
	}
	if (ckpt->reply.type == PROTO_FROM_STORE) {
		rv = link_reply_get(&ckpt->reply, PROTO_FROM_STORE, &offer, sizeof(offer), err);
		return rv == 0 ? open_store(restore, ckpt->options.root, offer.tag, err) : rv;
	}
	return pawl_err_set(err, PAWL_ENOENT, "%s has no such complete checkpoint",
		ckpt->options.root);
}

void session_restore_refuse(struct pawl_restore *restore, const char *why)
{
	struct frame_vote vote = {.verdict = PAWL_VERDICT_REFUSED};
	struct wire_out out = {0};

	if (!restore->vote_pending) {
		return;
	}
	restore->vote_pending = false;
	snprintf(vote.why, sizeof(vote.why), "%s", why);
	session_send(restore->ckpt, &out, PROTO_VOTE, &vote, NULL);
	wire_out_deinit(&out);
}

void pawl_restore_mark_damaged(struct pawl_restore *restore, const char *why)
{
	struct frame_damaged damaged = {.memory = restore->info.memory};
	struct wire_out out = {0};

	if (!restore->ckpt) {
		return;
	}
	snprintf(damaged.tag, sizeof(damaged.tag), "%s", restore->tag);
	snprintf(damaged.why, sizeof(damaged.why), "%s", why);
	session_send(restore->ckpt, &out, PROTO_DAMAGED, &damaged, NULL);
	wire_out_deinit(&out);
}

int pawl_restore_vote(struct pawl_restore *restore, enum pawl_verdict verdict, const char *why,
	int timeout_ms, enum pawl_verdict *all, struct pawl_err *err)
{
	struct pawl_ckpt *ckpt = restore->ckpt;
	struct frame_vote vote = {.verdict = (uint8_t)verdict};
	struct frame_verdict agreed;
	int rv;

	if (!ckpt) {
		*all = verdict;
		return 0;
	}
	snprintf(vote.why, sizeof(vote.why), "%s", why);
	pthread_mutex_lock(&ckpt->saving);
	restore->vote_pending = false;
	rv = ckpt->link ? link_call(ckpt->link, &ckpt->frame, PROTO_VOTE, &vote, timeout_ms,
				  &ckpt->reply, err)
			: pawl_err_set(err, PAWL_EPEER, "the agent is gone");
	if (rv == 0) {
		rv = link_reply_get(&ckpt->reply, PROTO_VERDICT, &agreed, sizeof(agreed), err);
		if (rv == 0 && agreed.verdict > PAWL_VERDICT_REFUSED) {
			rv = pawl_err_set(err, PAWL_ECORRUPT, "malformed verdict");
		}
		*all = rv == 0 ? (enum pawl_verdict)agreed.verdict : PAWL_VERDICT_REFUSED;
		if (rv == 0 && *all == PAWL_VERDICT_REFUSED) {
			rv = pawl_err_set(err, PAWL_EMISMATCH, "restore refused by %s", agreed.why);
		} else if (*all == PAWL_VERDICT_GO) {
			session_reset_numbers(ckpt, agreed.rounds);
		}
	} else {
		rv = pawl_err_prefix(err, rv,
			rv == PAWL_ETIMEDOUT ? "restore: not all ranks have taken part"
					     : "restore");
	}
	pthread_mutex_unlock(&ckpt->saving);
	return rv;
}

/* ---- reading ---- */

void pawl_restore_info(const struct pawl_restore *restore, struct pawl_restore_info *info)
{
	*info = restore->info;
}

void pawl_restore_part(const struct pawl_restore *restore, uint32_t part,
	struct pawl_restore_part *out)
{
	*out = restore->parts[part].info;
}

int source_advance(struct pawl_restore *restore, uint32_t index, enum source_state state,
	struct pawl_err *err)
{
	bool memory = restore->info.memory;
	struct source_part *part;
	int rv = 0;

	if (index >= restore->info.parts_n) {
		return pawl_err_set(err, PAWL_EINVAL, "partition %u of %u", index,
			restore->info.parts_n);
	}
	part = &restore->parts[index];
	if (part->state < SOURCE_LISTED) {
		rv = memory ? list_from_memory(restore, part, err)
			    : list_from_store(restore, part, err);
		part->state = rv == 0 ? SOURCE_LISTED : SOURCE_UNREAD;
	}
	if (rv == 0 && part->state < SOURCE_PLACED && state == SOURCE_PLACED) {
		rv = memory ? 0 : place_in_store(restore, part, err);
		part->state = rv == 0 ? SOURCE_PLACED : SOURCE_LISTED;
	}
	if (rv == 0 && part->state < state) {
		rv = memory ? read_from_memory(restore, part, err)
			    : read_from_store(restore, part, err);
		part->state = rv == 0 ? SOURCE_READ : SOURCE_LISTED;
	}
	return rv;
}

int pawl_restore_pickle(struct pawl_restore *restore, uint32_t index, const void **pickle,
	uint64_t *size_bytes, struct pawl_err *err)
{
	int rv = source_advance(restore, index, SOURCE_LISTED, err);
	const struct zip_entry *entry;
	const uint8_t *at;
	uint64_t len;

	if (rv != 0) {
		return rv;
	}
	entry = zip_plan_pickle(&restore->parts[index].zip);
	len = entry->size_bytes;
	at = bytes_at(restore, &restore->parts[index], entry->data_off, &len);
	if (!at || len != entry->size_bytes) {
		return pawl_err_set(err, PAWL_ECORRUPT, "%s: no rank's share holds data.pkl whole",
			restore->parts[index].info.name);
	}
	*pickle = at;
	*size_bytes = len;
	return 0;
}

int pawl_restore_read(struct pawl_restore *restore, uint32_t index, struct pawl_err *err)
{
	return source_advance(restore, index, SOURCE_READ, err);
}

uint32_t pawl_restore_storages(const struct pawl_restore *restore, uint32_t part)
{
	return restore->parts[part].state >= SOURCE_LISTED ? restore->parts[part].zip.storages : 0;
}

uint64_t pawl_restore_storage_bytes(const struct pawl_restore *restore, uint32_t part,
	uint32_t storage)
{
	return restore->parts[part].zip.entries[storage].size_bytes;
}

/* Returns whether the chunks of a copy, which is within its storage, are verified. */
static bool has_chunks(const struct source_part *part, const struct pawl_restore_copy *copy)
{
	uint64_t off = part->zip.entries[copy->storage].data_off + copy->off_bytes;
	uint64_t end = (off + copy->len_bytes + CKPT_CHUNK - 1) / CKPT_CHUNK;

	for (uint64_t chunk = off / CKPT_CHUNK; copy->len_bytes > 0 && chunk < end; chunk++) {
		if (part->have == NULL || !part->have[chunk]) {
			return false;
		}
	}
	return true;
}

static bool is_within(const struct pawl_restore *restore, const struct pawl_restore_copy *copy)
{
	const struct source_part *part;
	uint64_t size;

	if (copy->part >= restore->info.parts_n ||
		restore->parts[copy->part].state < SOURCE_PLACED) {
		return false;
	}
	part = &restore->parts[copy->part];
	if (copy->storage >= part->zip.storages) {
		return false;
	}
	size = part->zip.entries[copy->storage].size_bytes;
	return copy->off_bytes <= size && copy->len_bytes <= size - copy->off_bytes &&
		(part->state == SOURCE_READ || has_chunks(part, copy));
}

/* Advises huge pages, with which fresh memory is cheaper to fill. Only a hint. */
static void advise_huge(uint64_t dst, uint64_t len_bytes)
{
	uint64_t lo = (dst + HUGE_MIN - 1) / HUGE_MIN * HUGE_MIN;
	uint64_t hi = (dst + len_bytes) / HUGE_MIN * HUGE_MIN;

	if (lo < hi) {
		madvise((void *)(uintptr_t)lo, hi - lo, MADV_HUGEPAGE);
	}
}

static void copy_out(const struct pawl_restore *restore, const struct pawl_restore_copy *copy)
{
	const struct source_part *part = &restore->parts[copy->part];
	uint64_t off = part->zip.entries[copy->storage].data_off + copy->off_bytes;
	uint64_t dst = copy->dst;
	uint64_t left = copy->len_bytes;

	advise_huge(dst, left);
	while (left > 0) {
		uint64_t len = left;
		const uint8_t *at = bytes_at(restore, part, off, &len);

		if (!at) {
			return; /* impossible: the agent checked that the shares cover the file */
		}
		memcpy((void *)(uintptr_t)dst, at, len);
		dst += len;
		off += len;
		left -= len;
	}
}

/* Copies being made, by several threads. */
struct copying {
	const struct pawl_restore *restore;
	const struct pawl_restore_copy *copies;
};

static void copy_one(void *user, size_t i)
{
	const struct copying *copying = user;

	copy_out(copying->restore, &copying->copies[i]);
}

int pawl_restore_copy(const struct pawl_restore *restore, const struct pawl_restore_copy *copies,
	size_t n, struct pawl_err *err)
{
	for (size_t i = 0; i < n; i++) {
		if (!is_within(restore, &copies[i])) {
			return pawl_err_set(err, PAWL_EINVAL,
				"copy %zu: not within a storage that was read", i);
		}
	}
	parallel_for(n, copy_one, &(struct copying){restore, copies});
	return 0;
}
