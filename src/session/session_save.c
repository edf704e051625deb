/*
 * Inside a worker: saving.
 *
 * Happy path of a save: lay the partitions out (kept while nothing changes) -> request a slot ->
 * list the pieces -> start the snapshot -> return. When the last piece is copied, the snapshot
 * engine's done callback sends STAGED to the agent, with a checksum for each piece. Once the
 * structure is known, a save allocates nothing. Failure: an error before the snapshot becomes the
 * save's status, not an error of the call, unless the caller must act (ranks disagree, bad
 * argument).
 */
#include "session/session.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "ckpt/format/pieces.h"
#include "ckpt/snap/cuda.h"
#include "ckpt/tags.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART_NAME_BYTES 180 /* longest name of a partition: leaves room for "-rank<r>" and ".new" */

/* ---- structure ---- */

static void free_part(struct session_part *part)
{
	free(part->record->storage_bytes);
	free(part->record->tensors);
	free(part->record->sums);
	free(part->record->chunks);
	free(part->spans);
	zip_plan_deinit(&part->zip);
}

void session_free_parts(struct pawl_ckpt *ckpt)
{
	for (uint32_t p = 0; p < ckpt->layout.parts_n; p++) {
		free_part(&ckpt->layout.parts[p]);
	}
	free(ckpt->layout.parts);
	free(ckpt->layout.records);
	ckpt->layout.parts = NULL;
	ckpt->layout.records = NULL;
	ckpt->layout.parts_n = 0;
}

void session_save_deinit(struct pawl_ckpt *ckpt)
{
	session_slot_deinit(ckpt);
	session_free_parts(ckpt);
	ckpt_pieces_deinit(&ckpt->layout.pieces);
	free(ckpt->layout.record_pieces);
}

static int check_part(const struct pawl_ckpt_part *in, struct pawl_err *err)
{
	if (!ckpt_name_valid(in->name) || strlen(in->name) > PART_NAME_BYTES) {
		return pawl_err_set(err, PAWL_EINVAL,
			"partition name '%.64s': must have 1 to %d bytes, lie in at most %u "
			"folders, "
			"and not be ., .., .pawl, complete.txt or why.txt",
			in->name, PART_NAME_BYTES, CKPT_FOLDERS_MAX);
	}
	if (in->raw && in->pickle_bytes > 0) {
		return pawl_err_set(err, PAWL_EINVAL, "%s: a raw file has no pickle", in->name);
	}
	for (uint32_t s = 0; s < in->spans_n; s++) {
		if (in->spans[s].device > CUDA_DEVICES_MAX) {
			return pawl_err_set(err, PAWL_EINVAL, "%s: device %llu: at most %d",
				in->name, (unsigned long long)in->spans[s].device,
				CUDA_DEVICES_MAX);
		}
	}
	return 0;
}

static bool same_layout(const struct session_part *part, const struct pawl_ckpt_part *in)
{
	const struct record_part *record = part->record;

	if (strcmp(record->name, in->name) != 0 || record->shared != in->shared ||
		record->raw != in->raw || record->storages != in->spans_n ||
		record->pickle_bytes != in->pickle_bytes) {
		return false;
	}
	for (uint32_t s = 0; s < in->spans_n; s++) {
		if (record->storage_bytes[s] != in->spans[s].size_bytes) {
			return false;
		}
	}
	return true;
}

static int make_part(const struct pawl_ckpt *ckpt, struct session_part *part,
	const struct pawl_ckpt_part *in, struct pawl_err *err)
{
	struct record_part *record = part->record;
	uint32_t n = in->spans_n;
	int rv;

	snprintf(record->name, sizeof(record->name), "%s", in->name);
	record->shared = in->shared && ckpt->options.world > 1;
	record->raw = in->raw;
	record->exact = ckpt->options.named;
	record->pickle_bytes = in->pickle_bytes;
	record->storages = n;
	record->storage_bytes = calloc(n + 1, sizeof(*record->storage_bytes));
	record->sums = calloc(n + 1, sizeof(*record->sums));
	part->spans = calloc(n + 1, sizeof(*part->spans));
	part->spans_n = n + 1;
	if (!record->storage_bytes || !record->sums || !part->spans) {
		return pawl_err_set(err, PAWL_ENOMEM, "%s: no memory for %u storages", in->name, n);
	}
	for (uint32_t s = 0; s < n; s++) {
		record->storage_bytes[s] = in->spans[s].size_bytes;
	}
	rv = in->raw ? zip_plan_init_raw(&part->zip, record->storage_bytes, n, err)
		     : zip_plan_init(&part->zip, record->storage_bytes, n, in->pickle_bytes, err);
	if (rv != 0) {
		return pawl_err_prefix(err, rv, "%s", in->name);
	}
	record->size_bytes = part->zip.size_bytes;
	return 0;
}

/* Replaces the tensor table only if it has changed. */
static int keep_tensors(struct record_part *record, const struct pawl_ckpt_part *in,
	struct pawl_err *err)
{
	uint8_t *copy;

	if (record->tensors_bytes == in->tensors_bytes &&
		(in->tensors_bytes == 0 ||
			memcmp(record->tensors, in->tensors, in->tensors_bytes) == 0)) {
		return 0;
	}
	copy = malloc(in->tensors_bytes + 1);
	if (!copy) {
		return pawl_err_set(err, PAWL_ENOMEM, "%s: no memory for its tensor table",
			in->name);
	}
	memcpy(copy, in->tensors, in->tensors_bytes);
	free(record->tensors);
	record->tensors = copy;
	record->tensors_bytes = in->tensors_bytes;
	return 0;
}

static void set_spans(struct session_part *part, const struct pawl_ckpt_part *in)
{
	for (uint32_t s = 0; s < in->spans_n; s++) {
		part->spans[s] = (struct ckpt_span){(const void *)(uintptr_t)in->spans[s].addr,
			in->spans[s].size_bytes, in->spans[s].groups, (int)in->spans[s].device};
	}
	part->spans[in->spans_n] = (struct ckpt_span){in->pickle, in->pickle_bytes, 0, 0};
}

static int alloc_parts(struct pawl_ckpt *ckpt, uint32_t n, struct pawl_err *err)
{
	ckpt->layout.parts = calloc(n ? n : 1, sizeof(*ckpt->layout.parts));
	ckpt->layout.records = calloc(n ? n : 1, sizeof(*ckpt->layout.records));
	if (!ckpt->layout.parts || !ckpt->layout.records) {
		pawl_err_set(err, PAWL_ENOMEM, "no memory for %u partitions", n);
		return PAWL_ENOMEM;
	}
	for (uint32_t p = 0; p < n; p++) {
		ckpt->layout.parts[p].record = &ckpt->layout.records[p];
	}
	ckpt->layout.parts_n = n;
	return 0;
}

/* Lays the partitions out, or keeps the layout of the previous save. */
static int lay_out(struct pawl_ckpt *ckpt, const struct pawl_ckpt_part *in, uint32_t n,
	struct pawl_err *err)
{
	bool same = ckpt->layout.parts_n == n;
	int rv = 0;

	for (uint32_t p = 0; p < n && rv == 0; p++) {
		rv = check_part(&in[p], err);
		same = same && same_layout(&ckpt->layout.parts[p], &in[p]);
	}
	if (rv == 0 && !same) {
		session_free_parts(ckpt);
		rv = alloc_parts(ckpt, n, err);
		for (uint32_t p = 0; p < n && rv == 0; p++) {
			rv = make_part(ckpt, &ckpt->layout.parts[p], &in[p], err);
		}
	}
	for (uint32_t p = 0; p < n && rv == 0; p++) {
		rv = keep_tensors(ckpt->layout.parts[p].record, &in[p], err);
		set_spans(&ckpt->layout.parts[p], &in[p]);
	}
	if (rv != 0) {
		session_free_parts(ckpt); /* the layout may be incomplete */
	}
	return rv;
}

int session_append_part(struct pawl_ckpt *ckpt, const struct pawl_ckpt_part *in,
	uint64_t used_bytes, struct pawl_err *err)
{
	uint32_t n = ckpt->layout.parts_n;
	struct record_part *records;
	struct session_part *parts;
	struct record_part *record;
	int rv = check_part(in, err);

	ASSERT(ckpt->build.open);
	for (uint32_t p = 0; p < n && rv == 0; p++) {
		if (strcmp(ckpt->layout.records[p].name, in->name) == 0) {
			rv = pawl_err_set(err, PAWL_EEXIST, "%s is in this save already", in->name);
		}
	}
	if (rv == 0 && n >= CKPT_PARTS_MAX) {
		rv = pawl_err_set(err, PAWL_ELIMIT, "more than %u partitions", CKPT_PARTS_MAX);
	}
	if (rv != 0) {
		return rv;
	}
	records = realloc(ckpt->layout.records, (n + 1) * sizeof(*records));
	ckpt->layout.records = records ? records : ckpt->layout.records;
	parts = realloc(ckpt->layout.parts, (n + 1) * sizeof(*parts));
	ckpt->layout.parts = parts ? parts : ckpt->layout.parts;
	for (uint32_t p = 0; p < n; p++) {
		ckpt->layout.parts[p].record = &ckpt->layout.records[p];
	}
	if (!records || !parts) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u partitions", n + 1);
	}
	record = &records[n];
	memset(record, 0, sizeof(*record));
	memset(&parts[n], 0, sizeof(parts[n]));
	parts[n].record = record;
	ckpt->layout.parts_n = n + 1;
	rv = make_part(ckpt, &parts[n], in, err);
	if (rv == 0) {
		rv = keep_tensors(record, in, err);
	}
	if (rv == 0) {
		set_spans(&parts[n], in);
		record->hi = record->size_bytes;
		record->arena_off = used_bytes;
	}
	return rv;
}

/*
 * Sets the share of a file that this rank stages. Rank 0 alone stages the pickle, since ranks may
 * pickle the same values to different bytes. Its share therefore includes the chunk in which the
 * pickle begins. If ranks span hosts, the host of rank 0 stages the whole file.
 */
static void share_part(const struct pawl_ckpt *ckpt, const struct session_part *part)
{
	struct record_part *record = part->record;
	uint64_t tail = zip_plan_pickle(&part->zip)->data_off / CKPT_CHUNK * CKPT_CHUNK;

	record->lo = 0;
	record->hi = record->size_bytes;
	if (!record->shared) {
		return;
	}
	if (ckpt->options.host_first > 0) {
		record->hi = 0;
		return;
	}
	ckpt_share(record->size_bytes, ckpt->options.rank, ckpt->options.host_ranks, &record->lo,
		&record->hi);
	if (ckpt->options.rank == 0) {
		record->lo = record->lo < tail ? record->lo : tail;
	} else {
		record->hi = record->hi < tail ? record->hi : tail;
		record->lo = record->lo < record->hi ? record->lo : record->hi;
	}
	ASSERT(record->lo <= record->hi && record->hi <= record->size_bytes);
}

/* Lays the shares out in the arena. Returns how many bytes they need. */
static uint64_t share_out(struct pawl_ckpt *ckpt)
{
	uint64_t off = 0;

	for (uint32_t p = 0; p < ckpt->layout.parts_n; p++) {
		struct record_part *record = ckpt->layout.parts[p].record;

		share_part(ckpt, &ckpt->layout.parts[p]);
		record->chunks_n = 0;
		record->arena_off = off;
		off += (record->hi - record->lo + CKPT_PAGE - 1) / CKPT_PAGE * CKPT_PAGE;
	}
	return off;
}

/* ---- pieces ---- */

/* Makes record_pieces as large as the list of pieces. */
static int grow_record_pieces(struct pawl_ckpt *ckpt, struct pawl_err *err)
{
	struct record_piece *pieces;

	if (ckpt->layout.record_pieces_cap < ckpt->layout.pieces.cap) {
		pieces = realloc(ckpt->layout.record_pieces,
			ckpt->layout.pieces.cap * sizeof(*pieces));
		if (!pieces) {
			return pawl_err_set(err, PAWL_ENOMEM, "no memory for %zu pieces",
				ckpt->layout.pieces.cap);
		}
		ckpt->layout.record_pieces = pieces;
		ckpt->layout.record_pieces_cap = ckpt->layout.pieces.cap;
	}
	return 0;
}

/* On a summing save the rest of a shared file is read too, only for its checksums. */
int session_list_part(struct pawl_ckpt *ckpt, uint32_t p, uint8_t *arena, struct pawl_err *err)
{
	struct session_part *part = &ckpt->layout.parts[p];
	const struct record_part *record = part->record;
	struct ckpt_pieces *pieces = &ckpt->layout.pieces;
	bool sum = ckpt->current.summing && record->shared;
	int rv = 0;

	ASSERT(p < ckpt->layout.parts_n);
	part->piece_lo = pieces->n;
	if (sum && record->lo > 0) {
		rv = ckpt_pieces_add(pieces, &part->zip, part->spans, p, 0, record->lo, NULL, err);
	}
	if (rv == 0 && record->lo < record->hi) {
		rv = ckpt_pieces_add(pieces, &part->zip, part->spans, p, record->lo, record->hi,
			arena + record->arena_off, err);
	}
	if (rv == 0 && sum && record->hi < record->size_bytes) {
		rv = ckpt_pieces_add(pieces, &part->zip, part->spans, p, record->hi,
			record->size_bytes, NULL, err);
	}
	part->piece_hi = pieces->n;
	return rv == 0 ? grow_record_pieces(ckpt, err) : rv;
}

static int list_pieces(struct pawl_ckpt *ckpt, uint8_t *arena, struct pawl_err *err)
{
	int rv = 0;

	ckpt->layout.pieces.n = 0;
	for (uint32_t p = 0; p < ckpt->layout.parts_n && rv == 0; p++) {
		rv = session_list_part(ckpt, p, arena, err);
	}
	return rv;
}

/* ---- copied ---- */

/* Asks the caller whether spans on devices have changed, since the kernel does not watch
 * devices. */
static void check_unchanged(struct pawl_ckpt *ckpt, uint64_t id)
{
	const struct pawl_ckpt_options *options = &ckpt->options;
	int part = -1;
	int storage = -1;

	if (ckpt->current.proof == SNAP_FENCED && options->unchanged &&
		!options->unchanged(options->user, id, &part, &storage)) {
		pawl_ckpt_withdraw(ckpt, id, part, storage);
	}
}

/* snap_done_fn */
static void copied(void *user, int rv, size_t piece)
{
	struct pawl_ckpt *ckpt = user;
	const struct ckpt_piece *at = rv == 0 ? NULL : &ckpt->layout.pieces.at[piece];
	char why[CKPT_NAME_MAX + 128];
	bool withdrawn;
	uint64_t id;

	ASSERT(rv == 0 || piece < ckpt->layout.pieces.n);
	pthread_mutex_lock(&ckpt->state);
	id = ckpt->saves.copying_id;
	pthread_mutex_unlock(&ckpt->state);
	ASSERT(id != 0); /* stage has set it before the first copy */
	if (rv == 0) {
		check_unchanged(ckpt, id);
	}
	pthread_mutex_lock(&ckpt->state);
	withdrawn = ckpt->saves.withdrawn;
	ckpt->saves.statuses[id % PAWL_CKPT_STATUS_KEPT].status.stage_ns =
		(uint64_t)(clock_mono_ns() - ckpt->current.begun_ns);
	pthread_mutex_unlock(&ckpt->state);
	if (rv == 0 && !withdrawn) {
		session_send_staged(ckpt, id);
	} else if (rv != 0) {
		snprintf(why, sizeof(why), "storage %u of %s %s (rank %u)", at->storage,
			ckpt->layout.records[at->part].name,
			rv == PAWL_ECHANGED ? "changed while it was copied"
					    : "could not be copied from its CUDA device",
			ckpt->options.rank);
		session_set_failed(ckpt, id, rv, why, (int)at->part, (int)at->storage);
		session_send_fail(ckpt, &ckpt->staged.frame, id, rv, why);
	}
	pthread_mutex_lock(&ckpt->state);
	ckpt->saves.copying_id = 0;
	pthread_cond_broadcast(&ckpt->changed);
	pthread_mutex_unlock(&ckpt->state);
}

/* ---- saving ---- */

void session_record_stall(struct pawl_ckpt *ckpt, uint64_t id)
{
	struct session_status *entry = &ckpt->saves.statuses[id % PAWL_CKPT_STATUS_KEPT];

	pthread_mutex_lock(&ckpt->state);
	entry->status.stall_ns = (uint64_t)(clock_mono_ns() - ckpt->current.begun_ns);
	entry->status.proof = snap_public_proof(ckpt->current.proof);
	pthread_mutex_unlock(&ckpt->state);
}

static int stage(struct pawl_ckpt *ckpt, uint64_t id, int slot, bool watch, struct pawl_err *err)
{
	int rv = list_pieces(ckpt, ckpt->memory.arenas[slot].map, err);

	if (rv != 0) {
		return rv;
	}
	pthread_mutex_lock(&ckpt->state);
	ckpt->saves.copying_id = id;
	pthread_mutex_unlock(&ckpt->state);
	rv = snap_begin(ckpt->snap, ckpt->layout.pieces.at, ckpt->layout.pieces.n, watch, copied,
		ckpt, &ckpt->current.proof, err);
	if (rv == 0) {
		session_prepare_next(ckpt, slot);
		return 0;
	}
	pthread_mutex_lock(&ckpt->state);
	ckpt->saves.copying_id = 0;
	pthread_mutex_unlock(&ckpt->state);
	return rv;
}

/* Starts the snapshot of a save that is laid out, or writes its whole stream. */
static int start_save(struct pawl_ckpt *ckpt, uint64_t id, bool watch, struct pawl_err *err)
{
	int slot;
	int rv;

	ckpt->current.proof = SNAP_COPIED; /* also of a streamed save */
	rv = session_ensure_connected(ckpt, err);
	if (rv != 0) {
		return rv;
	}
	ckpt->current.summing = ckpt->options.world > 1 && !ckpt->options.named &&
		(id - ckpt->numbers.base) % SESSION_CHECK_EVERY == 1;
	rv = session_request_slot(ckpt, id, share_out(ckpt), &slot, err);
	if (rv == PAWL_ETIMEDOUT) { /* the agent may still grant the slot when it wakes */
		session_send_fail(ckpt, &ckpt->frame, id, rv, err->msg);
	}
	if (rv != 0) {
		return rv;
	}
	rv = slot < 0 ? session_stream(ckpt, id, err) : stage(ckpt, id, slot, watch, err);
	if (rv != 0) {
		session_send_fail(ckpt, &ckpt->frame, id, rv, err->msg);
	}
	return rv;
}

/* Checks a save by tag of ranks on several hosts, whose agents must make the same saves. */
static int check_spanning(const struct pawl_ckpt *ckpt, const char *tag, uint64_t step,
	uint32_t flags, struct pawl_err *err)
{
	const char *wrong = NULL;

	if (flags & PAWL_SAVE_ALONE) {
		wrong = "only one rank saves it";
	} else if (flags & PAWL_SAVE_ADDS) {
		wrong = "it was saved before, and this save adds to it";
	} else if (step == PAWL_STEP_NONE) {
		wrong = "its name has no number and no step was given";
	}
	return wrong
		? pawl_err_set(err, PAWL_ENOTSUP,
			  "tag %.64s: %s: if ranks run on several hosts (%u of %u on this one), "
			  "every rank must save every tag once, with a step",
			  tag, wrong, ckpt->options.host_ranks, ckpt->options.world)
		: 0;
}

/* Checks what a caller may save. */
static int check_save(const struct pawl_ckpt *ckpt, const char *tag, uint64_t step, uint32_t flags,
	struct pawl_err *err)
{
	if (session_is_forked(ckpt, err)) {
		return PAWL_EPEER;
	}
	if ((tag != NULL) != ckpt->options.named) {
		return pawl_err_set(err, PAWL_EINVAL, "this session saves by %s",
			ckpt->options.named ? "tag" : "step");
	}
	if (tag && !tag_valid(tag)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"tag '%.64s': must have 1 to %u bytes, no '/', no leading '.', no control "
			"characters",
			tag, CKPT_TAG_MAX - 1);
	}
	return tag && ckpt->numbered ? check_spanning(ckpt, tag, step, flags, err) : 0;
}

/* Drops a request for a slot that is not for this save, or that an agent had which is gone. */
static void drop_other_request(struct pawl_ckpt *ckpt, uint64_t step)
{
	if (ckpt->slot_request.pending && !link_alive(ckpt->link)) {
		session_undo_request(ckpt);
	} else if (ckpt->slot_request.pending && ckpt->slot_request.step != step) {
		session_cancel_request(ckpt, "another step is saved");
	}
}

static void set_current(struct pawl_ckpt *ckpt, const char *tag, uint64_t step, uint32_t flags,
	int64_t called_ns)
{
	struct session_current *current = &ckpt->current;

	current->begun_ns = current->announced_ns != 0 ? current->announced_ns : called_ns;
	current->announced_ns = 0;
	current->step = step;
	current->flags = flags;
	if (tag) {
		snprintf(current->tag, sizeof(current->tag), "%s", tag);
	} else {
		tag_of_step(current->tag, sizeof(current->tag), step);
	}
	pthread_mutex_lock(&ckpt->state);
	ckpt->saves.withdrawn = false;
	pthread_mutex_unlock(&ckpt->state);
}

int session_lock_for_save(struct pawl_ckpt *ckpt, const char *tag, uint64_t step, uint32_t flags,
	struct pawl_err *err)
{
	int64_t called_ns = clock_mono_ns();
	int rv = check_save(ckpt, tag, step, flags, err);

	if (rv != 0) {
		return rv;
	}
	pthread_mutex_lock(&ckpt->saving);
	if (ckpt->build.open) {
		pthread_mutex_unlock(&ckpt->saving);
		return pawl_err_set(err, PAWL_EBUSY,
			"a save of %s is being put together: commit or drop it first",
			ckpt->current.tag);
	}
	snap_wait(ckpt->snap); /* the previous save's pieces and layout are about to be reused */
	session_skip_missed(ckpt);
	drop_other_request(ckpt, step);
	set_current(ckpt, tag, step, flags, called_ns);
	return 0;
}

/* Saves all partitions at once. */
static int save(struct pawl_ckpt *ckpt, const char *tag, uint64_t step, uint32_t flags,
	const struct pawl_ckpt_part *parts, uint32_t parts_n, bool watch, uint64_t *id,
	struct pawl_err *err)
{
	struct pawl_err why;
	int rv;

	if (parts_n > CKPT_PARTS_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "%u partitions: at most %u", parts_n,
			CKPT_PARTS_MAX);
	}
	rv = session_lock_for_save(ckpt, tag, step, flags, err);
	if (rv != 0) {
		return rv;
	}
	rv = lay_out(ckpt, parts, parts_n, err);
	if (rv != 0) {
		session_skip(ckpt, "its partitions could not be laid out");
		goto unlock;
	}
	*id = ckpt->slot_request.pending ? ckpt->slot_request.id : session_new_save(ckpt);
	rv = start_save(ckpt, *id, watch && ckpt->options.watch, &why);
	session_record_stall(ckpt, *id);
	if (rv != 0) {
		session_set_failed(ckpt, *id, rv, why.msg, -1, -1);
		if (rv == PAWL_EMISMATCH) {
			*err = why;
			goto unlock;
		}
		rv = 0;
	}
unlock:
	pthread_mutex_unlock(&ckpt->saving);
	return rv;
}

int pawl_ckpt_save(struct pawl_ckpt *ckpt, uint64_t step, const struct pawl_ckpt_part *parts,
	uint32_t parts_n, bool watch, uint64_t *id, struct pawl_err *err)
{
	int rv = save(ckpt, NULL, step, 0, parts, parts_n, watch, id, err);

	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "save step %llu", (unsigned long long)step);
}

int pawl_ckpt_save_tag(struct pawl_ckpt *ckpt, const char *tag, uint64_t step, uint32_t flags,
	const struct pawl_ckpt_part *parts, uint32_t parts_n, bool watch, uint64_t *id,
	struct pawl_err *err)
{
	int rv = save(ckpt, tag, step, flags, parts, parts_n, watch, id, err);

	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "save %.64s", tag);
}

void pawl_ckpt_fence(struct pawl_ckpt *ckpt, uint64_t groups)
{
	if (!session_is_forked(ckpt, NULL)) {
		snap_fence(ckpt->snap, groups);
	}
}

void pawl_ckpt_withdraw(struct pawl_ckpt *ckpt, uint64_t id, int part, int storage)
{
	struct wire_out out = {0};
	char why[64];

	if (session_is_forked(ckpt, NULL)) {
		return;
	}
	pthread_mutex_lock(&ckpt->state);
	ckpt->saves.withdrawn = ckpt->saves.withdrawn || ckpt->saves.copying_id == id;
	pthread_mutex_unlock(&ckpt->state);
	snprintf(why, sizeof(why), "storage %d of partition %d changed while it was copied",
		storage, part);
	session_set_failed(ckpt, id, PAWL_ECHANGED, why, part, storage);
	session_send_fail(ckpt, &out, id, PAWL_ECHANGED, why);
	wire_out_deinit(&out);
}
