/*
 * Inside a worker (and for tools): restores the parts of a checkpoint that a rank needs, where
 * these are not its own whole partitions.
 *
 * Happy path: pawl_restore_reshard finds the rows of a tensor in the tables of all ranks that saved
 * it, and lists the copies that fill the wanted box from their shards (ckpt/format/reshard.h) ->
 * pawl_restore_read_needed reads the chunks in which these bytes lie, and no others ->
 * pawl_restore_copy.
 *
 * Chunks are read through the page cache, so a chunk that two ranks of a node need is read from the
 * disk once. Each rank verifies its own copy, which nobody else can write to.
 */
#include "session/session_source.h"

#include "base/err.h"
#include "base/fault.h"
#include "ckpt/format/pieces.h"
#include "ckpt/format/reshard.h"

#include <stdlib.h>
#include <string.h>

#define COPIES_MIN 64u /* copies allocated at first; the list doubles from then on */

/* ---- reading what copies need ---- */

static int check_copy(const struct pawl_restore *restore, const struct pawl_restore_copy *copy,
	size_t i, struct pawl_err *err)
{
	const struct source_part *part = &restore->parts[copy->part];
	uint64_t size;

	if (copy->storage < part->zip.storages) {
		size = part->zip.entries[copy->storage].size_bytes;
		if (copy->off_bytes <= size && copy->len_bytes <= size - copy->off_bytes) {
			return 0;
		}
	}
	return pawl_err_set(err, PAWL_EINVAL, "copy %zu: not within a storage", i);
}

/* Marks the chunks of one partition that copies need. */
static int mark_chunks(struct pawl_restore *restore, uint32_t index,
	const struct pawl_restore_copy *copies, size_t n, bool *needed, struct pawl_err *err)
{
	const struct source_part *part = &restore->parts[index];
	int rv = 0;

	for (size_t i = 0; i < n && rv == 0; i++) {
		uint64_t off;

		if (copies[i].part != index) {
			continue;
		}
		rv = check_copy(restore, &copies[i], i, err);
		if (rv != 0 || copies[i].len_bytes == 0) {
			continue;
		}
		off = part->zip.entries[copies[i].storage].data_off + copies[i].off_bytes;
		for (uint64_t chunk = off / CKPT_CHUNK;
			chunk <= (off + copies[i].len_bytes - 1) / CKPT_CHUNK; chunk++) {
			needed[chunk] = true;
		}
	}
	return rv;
}

/* Verifies the needed chunks of a partition in memory, one run of chunks at a time. */
static int check_chunks(struct pawl_restore *restore, const struct source_part *part,
	const bool *needed, uint64_t chunks, struct pawl_err *err)
{
	uint64_t chunk = 0;
	int rv = 0;

	while (chunk < chunks && rv == 0) {
		uint64_t lo = chunk;

		while (chunk < chunks && needed[chunk]) {
			chunk++;
		}
		if (lo < chunk) {
			rv = source_check_memory(restore, part, lo * CKPT_CHUNK, chunk * CKPT_CHUNK,
				err);
		}
		chunk++;
	}
	return rv;
}

static int read_needed_part(struct pawl_restore *restore, uint32_t index,
	const struct pawl_restore_copy *copies, size_t n, struct pawl_err *err)
{
	struct source_part *part = &restore->parts[index];
	uint64_t chunks = ckpt_chunks(part->info.size_bytes);
	bool *needed;
	int rv = source_advance(restore, index, SOURCE_PLACED, err);

	if (rv != 0) {
		return rv;
	}
	needed = FAULT_MEM("restore.need", calloc(chunks + 1, sizeof(*needed)));
	if (part->have == NULL) {
		part->have = FAULT_MEM("restore.need", calloc(chunks + 1, sizeof(*part->have)));
	}
	if (needed == NULL || part->have == NULL) {
		free(needed);
		return pawl_err_set(err, PAWL_ENOMEM, "%s: no memory", part->info.file);
	}
	rv = mark_chunks(restore, index, copies, n, needed, err);
	if (rv == 0 && part->state < SOURCE_READ && restore->info.memory) {
		rv = check_chunks(restore, part, needed, chunks, err);
	} else if (rv == 0 && part->state < SOURCE_READ) {
		part_image_share(part->image, true);
		rv = part_image_read_chunks(part->image, needed, err);
	}
	for (uint64_t chunk = 0; chunk < chunks && rv == 0; chunk++) {
		part->have[chunk] = part->have[chunk] || needed[chunk];
	}
	free(needed);
	return rv;
}

int pawl_restore_read_needed(struct pawl_restore *restore, const struct pawl_restore_copy *copies,
	size_t n, struct pawl_err *err)
{
	bool *used = FAULT_MEM("restore.need", calloc(restore->info.parts_n + 1u, sizeof(*used)));
	int rv = 0;

	if (used == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to restore");
	}
	for (size_t i = 0; i < n && rv == 0; i++) {
		if (copies[i].part >= restore->info.parts_n) {
			rv = pawl_err_set(err, PAWL_EINVAL, "copy %zu: no such partition", i);
		} else {
			used[copies[i].part] = true;
		}
	}
	for (uint32_t p = 0; p < restore->info.parts_n && rv == 0; p++) {
		rv = used[p] ? read_needed_part(restore, p, copies, n, err) : 0;
	}
	free(used);
	return rv;
}

/* ---- tensors by name ---- */

static int compare_names(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
	size_t both = a_bytes < b_bytes ? a_bytes : b_bytes;
	int order = memcmp(a, b, both);

	return order != 0 ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static int compare_tensors(const void *a, const void *b)
{
	const struct source_tensor *x = a;
	const struct source_tensor *y = b;
	int order = compare_names(x->name, x->name_bytes, y->name, y->name_bytes);

	return order != 0 ? order : (x->part > y->part) - (x->part < y->part);
}

/* Visits all rows of all tables. at: one entry for each row; NULL to count them. PAWL_ECORRUPT for
 * a damaged table. */
static int visit_tables(const struct pawl_restore *restore, struct source_tensor *at, size_t *n,
	struct pawl_err *err)
{
	struct pawl_tensor row;
	int rv = 0;

	*n = 0;
	for (uint32_t p = 0; p < restore->info.parts_n && rv == 0; p++) {
		const struct pawl_restore_part *part = &restore->parts[p].info;
		size_t off = 0;
		size_t before = 0;

		while ((rv = pawl_tensor_decode(part->tensors, part->tensors_bytes, &off, &row,
				err)) > 0) {
			if (at != NULL) {
				/* a row begins with the name: its length, its bytes */
				at[*n] = (struct source_tensor){(const char *)part->tensors +
						before + sizeof(uint32_t),
					(uint32_t)strlen(row.name), p, before};
			}
			++*n;
			before = off;
		}
	}
	return rv;
}

static int index_tensors(struct pawl_restore *restore, struct pawl_err *err)
{
	struct source_tensor *at;
	size_t n;
	int rv;

	if (restore->tensors != NULL) {
		return 0;
	}
	rv = visit_tables(restore, NULL, &n, err);
	if (rv != 0) {
		return rv;
	}
	at = FAULT_MEM("restore.index", calloc(n + 1, sizeof(*at)));
	if (at == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to index %zu tensors", n);
	}
	visit_tables(restore, at, &n, NULL);
	qsort(at, n, sizeof(*at), compare_tensors);
	restore->tensors = at;
	restore->tensors_n = n;
	return 0;
}

/* Returns the index of the first row of this name, or of where it would be. */
static size_t find_tensor(const struct pawl_restore *restore, const char *name)
{
	size_t name_bytes = strlen(name);
	size_t lo = 0;
	size_t hi = restore->tensors_n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct source_tensor *tensor = &restore->tensors[mid];

		if (compare_names(tensor->name, tensor->name_bytes, name, name_bytes) < 0) {
			lo = mid + 1;
		} else {
			hi = mid;
		}
	}
	return lo;
}

/* ---- resharding ---- */

/* A saved shard of the wanted tensor. */
struct shard {
	uint32_t part;      /* index of its partition */
	uint32_t storage;   /* index of the storage in the partition */
	uint64_t off_bytes; /* offset in the storage */
};

/* A tensor being put together from its shards. */
struct resharding {
	const struct pawl_restore_box *box; /* the wanted box */
	struct shard *shards;               /* owned: shards that have some of the box */
	struct reshard_box *boxes;          /* owned: the box of each shard */
	uint32_t shards_n;                  /* number of entries in shards and boxes */
	struct pawl_restore_copy **copies;  /* the caller's list */
	size_t *n;                          /* number of entries in *copies */
	struct pawl_err *err;               /* the caller's */
};

/* reshard_run_fn: appends a copy. The list's capacity is the next power of two. */
static int append_copy(void *user, const struct reshard_run *run)
{
	struct resharding *r = user;
	const struct shard *shard = &r->shards[run->source];
	size_t n = *r->n;

	if (n == 0 || (n >= COPIES_MIN && (n & (n - 1)) == 0)) {
		size_t cap = n == 0 ? COPIES_MIN : 2 * n;
		void *at = FAULT_MEM("restore.reshard",
			realloc(*r->copies, cap * sizeof(**r->copies)));

		if (at == NULL) {
			return pawl_err_set(r->err, PAWL_ENOMEM, "no memory for %zu copies", cap);
		}
		*r->copies = at;
	}
	(*r->copies)[n] = (struct pawl_restore_copy){.part = shard->part,
		.storage = shard->storage,
		.off_bytes = shard->off_bytes + run->src_off,
		.dst = r->box->dst + run->dst_off,
		.len_bytes = run->len_bytes};
	++*r->n;
	return 0;
}

/* Computes the bytes of a box. Returns false if there are too many for an address. */
static bool box_bytes(const uint64_t *shape, uint32_t ndim, uint32_t item_bytes, uint64_t *bytes)
{
	*bytes = item_bytes;
	for (uint32_t d = 0; d < ndim; d++) {
		if (shape[d] == 0) {
			*bytes = 0;
			return true;
		}
	}
	for (uint32_t d = 0; d < ndim; d++) {
		if (__builtin_mul_overflow(*bytes, shape[d], bytes)) {
			return false;
		}
	}
	return true;
}

/* Returns whether a box and a shard have an element in common. */
static bool overlaps(const struct pawl_restore_box *box, const struct pawl_tensor *row)
{
	for (uint32_t d = 0; d < box->ndim; d++) {
		uint64_t start = row->sharded ? row->start[d] : 0;

		if (row->shape[d] == 0 || box->shape[d] == 0 ||
			start >= box->start[d] + box->shape[d] ||
			box->start[d] >= start + row->shape[d]) {
			return false;
		}
	}
	return true;
}

/* Adds a row of the tensor to the shards, if it overlaps the box. */
static int add_shard(struct pawl_restore *restore, struct resharding *r, uint32_t index,
	const struct pawl_tensor *row, struct pawl_err *err)
{
	const struct pawl_restore_box *box = r->box;
	const struct source_part *part = &restore->parts[index];
	const uint64_t *global = row->sharded ? row->global : row->shape;
	struct reshard_box *saved = &r->boxes[r->shards_n];
	uint64_t bytes, size;
	int rv;

	if (row->ndim != box->ndim || strcmp(row->dtype, box->dtype) != 0 ||
		memcmp(global, box->global, row->ndim * sizeof(*global)) != 0) {
		return pawl_err_set(err, PAWL_EMISMATCH,
			"%s: %s: saved with another shape or dtype", part->info.file, row->name);
	}
	if (!overlaps(box, row)) {
		return 0;
	}
	rv = source_advance(restore, index, SOURCE_LISTED, err);
	if (rv != 0) {
		return rv;
	}
	size = row->storage < part->zip.storages ? part->zip.entries[row->storage].size_bytes : 0;
	if (!box_bytes(row->shape, row->ndim, box->item_bytes, &bytes) ||
		row->offset_bytes > size || bytes > size - row->offset_bytes) {
		return pawl_err_set(err, PAWL_ECORRUPT, "%s/%s: %s passes the end of its storage",
			restore->info.tag, part->info.file, row->name);
	}
	memset(saved, 0, sizeof(*saved));
	memcpy(saved->shape, row->shape, row->ndim * sizeof(*row->shape));
	if (row->sharded) {
		memcpy(saved->start, row->start, row->ndim * sizeof(*row->start));
	}
	r->shards[r->shards_n++] = (struct shard){index, row->storage, row->offset_bytes};
	return 0;
}

/* Collects the shards of the wanted tensor. */
static int find_shards(struct pawl_restore *restore, struct resharding *r, struct pawl_err *err)
{
	size_t first = find_tensor(restore, r->box->tensor);
	size_t end = first;
	bool named = false;
	int rv = 0;

	while (end < restore->tensors_n &&
		compare_names(restore->tensors[end].name, restore->tensors[end].name_bytes,
			r->box->tensor, strlen(r->box->tensor)) == 0) {
		end++;
	}
	r->shards = FAULT_MEM("restore.reshard", calloc(end - first + 1, sizeof(*r->shards)));
	r->boxes = FAULT_MEM("restore.reshard", calloc(end - first + 1, sizeof(*r->boxes)));
	if (r->shards == NULL || r->boxes == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %zu shards", end - first);
	}
	for (size_t i = first; i < end && rv == 0; i++) {
		const struct source_tensor *tensor = &restore->tensors[i];
		const struct pawl_restore_part *part = &restore->parts[tensor->part].info;
		struct pawl_tensor row;
		size_t off = tensor->off;

		if (strcmp(part->name, r->box->part) == 0) {
			named = true;
			pawl_tensor_decode(part->tensors, part->tensors_bytes, &off, &row, NULL);
			rv = add_shard(restore, r, tensor->part, &row, err);
		}
	}
	if (rv == 0 && !named) {
		rv = pawl_err_set(err, PAWL_EMISMATCH, "no rank saved this tensor");
	}
	return rv;
}

int pawl_restore_reshard(struct pawl_restore *restore, const struct pawl_restore_box *box,
	struct pawl_restore_copy **copies, size_t *n, struct pawl_err *err)
{
	struct resharding r = {.box = box, .copies = copies, .n = n, .err = err};
	struct reshard_box box_wanted = {0};
	size_t before = *n;
	uint64_t bytes;
	int rv;

	if (box->ndim > PAWL_TENSOR_DIMS_MAX ||
		!box_bytes(box->shape, box->ndim, box->item_bytes, &bytes)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%s: the box is too large, or has too many dimensions", box->tensor);
	}
	for (uint32_t d = 0; d < box->ndim; d++) {
		if (box->start[d] > box->global[d] ||
			box->shape[d] > box->global[d] - box->start[d]) {
			return pawl_err_set(err, PAWL_EINVAL, "%s: the box lies outside the tensor",
				box->tensor);
		}
		box_wanted.start[d] = box->start[d];
		box_wanted.shape[d] = box->shape[d];
	}
	rv = index_tensors(restore, err);
	rv = rv == 0 ? find_shards(restore, &r, err) : rv;
	if (rv == 0) {
		rv = reshard_plan(&box_wanted, r.boxes, r.shards_n, box->ndim, box->item_bytes,
			append_copy, &r, err);
	}
	free(r.shards);
	free(r.boxes);
	if (rv != 0) {
		*n = before;
		rv = rv == PAWL_EMISMATCH ? pawl_err_prefix(err, rv, "%s/%s: %s", restore->info.tag,
						    box->part, box->tensor)
					  : rv;
	}
	return rv;
}
