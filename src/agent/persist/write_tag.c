/* Makes a tag of what the ranks staged: see write_tag.h. */
#include "agent/persist/write_tag.h"

#include "agent/persist/agree_save.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/crc.h"
#include "base/err.h"
#include "ckpt/format/pieces.h"
#include "ckpt/format/tensors.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "ckpt/write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A file to write: where its bytes are. */
struct file_image {
	const struct persist_save *save;
	const char *name; /* name of the partition */
	bool shared;      /* ranks hold shares; else only rank holds it */
	uint32_t rank;    /* owner */
	uint32_t part;    /* index in the owner's record */
};

/* Returns the part whose share holds byte off, and in *rank the rank that has it; NULL if no share
 * does. */
static const struct record_part *share_at(const struct file_image *image, uint64_t off,
	uint32_t *rank)
{
	const struct persist_save *save = image->save;

	if (!image->shared) {
		*rank = image->rank;
		return &save->ranks[image->rank].record->parts[image->part];
	}
	for (uint32_t r = 0; r < save->world; r++) {
		const struct record_part *part =
			record_find_shared(save->ranks[r].record, image->name);

		if (part && off >= part->lo && off < part->hi) {
			*rank = r;
			return part;
		}
	}
	return NULL;
}

/* Returns the index of the first piece that ends behind off. */
static uint32_t first_piece(const struct record_part *part, uint64_t off)
{
	uint32_t lo = 0;
	uint32_t hi = part->pieces_n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (part->pieces[mid].file_off + part->pieces[mid].len_bytes <= off) {
			lo = mid + 1;
		} else {
			hi = mid;
		}
	}
	return lo;
}

/* write_source: finds a chunk in a rank's arena. Shares are cut at chunks, so no chunk spans two
 * arenas. Checks that the bytes are those that were staged. */
static int chunk_from_arena(void *user, uint64_t off, size_t len_bytes, uint8_t *bounce,
	uint8_t **bytes, struct pawl_err *err)
{
	const struct file_image *image = user;
	uint32_t rank = 0;
	const struct record_part *part = share_at(image, off, &rank);
	uint8_t *base;

	if (!part) {
		return pawl_err_set(err, PAWL_EMISMATCH, "%s: no rank staged byte %llu",
			image->name, (unsigned long long)off);
	}
	base = image->save->ranks[rank].arena + part->arena_off - part->lo;
	for (uint32_t i = first_piece(part, off); i < part->pieces_n; i++) {
		const struct record_piece *piece = &part->pieces[i];

		if (piece->file_off >= off + len_bytes) {
			break;
		}
		if (crc32c(0, base + piece->file_off, piece->len_bytes) != piece->crc) {
			return pawl_err_set(err, PAWL_ECORRUPT,
				"%s: bytes %llu..%llu changed in rank %u's arena since they were "
				"staged",
				image->name, (unsigned long long)piece->file_off,
				(unsigned long long)(piece->file_off + piece->len_bytes - 1),
				image->save->first_rank + rank);
		}
	}
	*bytes = base + off;
	return 0;
}

/* The files of a tag being written. */
struct tag_build {
	struct tags_root *root;
	struct writer *writer;
	const struct persist_save *save;
	const struct write_tag_options *options;
	const struct tag_draft *draft; /* what the files go into */
	struct tag_draft own;          /* the draft, if it is begun here */
	struct manifest manifest; /* manifest of the files, and of what the tag held, once added */
	struct manifest base;     /* manifest of options->base; no parts: there is none */
	uint32_t *chunks;         /* memory of all checksums */
	uint32_t *sums;           /* as many second checksums, or NULL */
	struct manifest_place *places; /* as many places, or NULL */
	uint32_t files_n;              /* number of files for which there is memory */
	uint64_t chunks_n;             /* number of chunks for which there is memory */
};

/* Returns the part that a file may share bytes with, or NULL. */
static const struct manifest_part *find_base(const struct tag_build *build,
	const struct manifest_part *out)
{
	const struct manifest_part *base =
		out->sums ? manifest_find_file(&build->base, out->file) : NULL;

	return base && base->sums && base->raw == out->raw &&
			base->depth + 1 < build->options->full_every
		? base
		: NULL;
}

/* Writes one partition from the arenas and fills its checksums. */
static int write_part(struct tag_build *build, const struct file_image *image,
	struct manifest_part *out, struct pawl_err *err)
{
	const struct manifest_part *base = find_base(build, out);
	const struct record_part *part =
		&image->save->ranks[image->rank].record->parts[image->part];
	struct write_source source = {chunk_from_arena, (void *)image};
	struct zip_plan plan = {0};
	int rv = part->raw ? zip_plan_init_raw(&plan, part->storage_bytes, part->storages, err)
			   : zip_plan_init(&plan, part->storage_bytes, part->storages,
				     part->pickle_bytes, err);

	if (rv != 0) {
		return rv;
	}
	if (plan.size_bytes != part->size_bytes) {
		rv = pawl_err_set(err, PAWL_EMISMATCH, "%s: rank %u laid it out differently",
			part->name, image->save->first_rank + image->rank);
	} else if (base) {
		const struct write_base shared = {&build->base, base, &build->manifest};

		rv = writer_update(build->writer, build->draft->dir, out, &plan, &source, &shared,
			err);
	} else {
		rv = writer_write(build->writer, build->draft->dir, out, &plan, &source, err);
	}
	zip_plan_deinit(&plan);
	return rv;
}

/* Fills the manifest's entry of a rank's part; chunks point into one block laid out by the
 * caller. */
static void fill_entry(struct manifest_part *out, const struct record_part *part, uint32_t rank,
	uint32_t world, uint32_t *chunks)
{
	snprintf(out->name, sizeof(out->name), "%s", part->name);
	manifest_file_name(out->file, sizeof(out->file), part->name, part->shared || part->exact,
		rank, world);
	out->raw = part->raw;
	out->rank = part->shared ? MANIFEST_ALL_RANKS : rank;
	out->size_bytes = part->size_bytes;
	out->chunks_n = ckpt_chunks(part->size_bytes);
	out->chunks = chunks;
	out->at[0] = (struct manifest_file){.own_name = true};
	out->tensors = part->tensors;
	out->tensors_bytes = part->tensors_bytes;
	if (part->chunks_n > 0 && part->chunks_n == out->chunks_n) {
		memcpy(chunks, part->chunks, part->chunks_n * sizeof(*chunks));
	}
}

/* Whether rank's part makes a file: a shared partition's file is rank 0's; every other rank has
 * only a share of it. */
static bool makes_file(const struct persist_save *save, const struct record_part *part,
	uint32_t rank)
{
	return !part->shared || save->first_rank + rank == 0;
}

/* Counts the files and chunks that the save makes. */
static void count_files(const struct persist_save *save, uint32_t *files, uint64_t *chunks)
{
	*files = 0;
	*chunks = 0;
	for (uint32_t r = 0; r < save->world; r++) {
		const struct record *record = save->ranks[r].record;

		for (uint32_t p = 0; p < record->parts_n; p++) {
			*files += makes_file(save, &record->parts[p], r);
			*chunks += makes_file(save, &record->parts[p], r)
				? ckpt_chunks(record->parts[p].size_bytes)
				: 0;
		}
	}
}

/* Writes all files. */
static int write_files(struct tag_build *build, struct pawl_err *err)
{
	const struct persist_save *save = build->save;
	struct manifest *manifest = &build->manifest;
	size_t chunk = 0;

	for (uint32_t r = 0; r < save->world; r++) {
		const struct record *record = save->ranks[r].record;

		for (uint32_t p = 0; p < record->parts_n; p++) {
			const struct record_part *part = &record->parts[p];
			struct file_image image = {save, part->name, part->shared, r, p};
			struct manifest_part *out = &manifest->parts[manifest->parts_n];
			int rv = 0;

			if (!makes_file(save, part, r)) {
				continue;
			}
			ASSERT(manifest->parts_n < build->files_n &&
				chunk + ckpt_chunks(part->size_bytes) <= build->chunks_n);
			fill_entry(out, part, save->first_rank + r,
				save->world + save->remote_ranks, build->chunks + chunk);
			manifest->parts_n++;
			if (part->chunks_n == 0) { /* otherwise the rank has written it */
				out->sums = build->sums ? build->sums + chunk : NULL;
				out->places = build->places ? build->places + chunk : NULL;
				rv = write_part(build, &image, out, err);
			}
			chunk += out->chunks_n;
			if (rv != 0) {
				return pawl_err_prefix(err, rv, "write %s", out->file);
			}
		}
	}
	ASSERT(manifest->parts_n == build->files_n);
	manifest_sort(manifest);
	return 0;
}

/* ---- adding to a tag ---- */

/* Keeps the parts of the old tag that are not saved anew. Reallocates the parts of the manifest;
 * what they point to in base stays base's. */
static int keep_old_parts(struct tag_build *build, const struct manifest *base,
	struct pawl_err *err)
{
	struct manifest *manifest = &build->manifest;
	struct manifest saved; /* the parts so far, in order */
	struct manifest_part *parts = realloc(manifest->parts,
		((size_t)manifest->parts_n + base->parts_n + 1) * sizeof(*manifest->parts));
	int rv = 0;

	if (!parts) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a manifest of %u files",
			manifest->parts_n + base->parts_n);
	}
	manifest->parts = parts;
	saved = *manifest;
	for (uint32_t i = 0; i < base->parts_n && rv == 0; i++) {
		const struct manifest_part *old = &base->parts[i];
		const struct manifest_part *fresh = manifest_find_file(&saved, old->file);

		if (fresh && fresh->rank != old->rank) {
			return pawl_err_set(err, PAWL_EMISMATCH,
				"%s: ranks %u and %u both saved a partition of this name; what "
				"differs by rank needs names that do",
				old->file, old->rank, fresh->rank);
		}
		if (fresh) {
			continue;
		}
		rv = tag_keep_part(build->root, build->draft, manifest, base, old,
			&parts[manifest->parts_n], err);
		manifest->parts_n += rv == 0;
	}
	manifest->world = base->world > manifest->world ? base->world : manifest->world;
	manifest_sort(manifest);
	return rv;
}

/* Publishes what was written; if the save adds to the tag, with what the tag had before. */
static int publish(struct tag_build *build, struct pawl_err *err)
{
	struct tags_root *root = build->root;
	int64_t since_ns = build->save->since_ns;
	struct manifest base = {0};
	int rv = since_ns < INT64_MAX ? tag_open(root, build->manifest.tag, &base, err)
				      : PAWL_ENOENT;

	if (rv == 0 && base.created_ns >= since_ns) {
		rv = keep_old_parts(build, &base, err);
		rv = rv == 0 ? tag_adopt(root, build->draft, &base, err) : rv;
	} else if (rv == 0 || rv == PAWL_ENOENT || rv == PAWL_ECORRUPT) {
		rv = 0; /* new, of an earlier run, or damaged: the tag is replaced */
	}
	if (rv == 0) {
		rv = tag_publish(root, build->draft, &build->manifest, err);
	}
	manifest_deinit(&base);
	return rv;
}

/* Begins the draft of the tag, unless the ranks have written into one. */
static int begin(struct tag_build *build, struct pawl_err *err)
{
	const struct write_tag_options *options = build->options;
	int rv = 0;

	if (options->agree) {
		rv = agree_save_begin(options->agree, options->round, options->tag, err);
	} else if (!options->draft) {
		rv = tag_begin(build->root, options->tag, &build->own, err);
	}
	return rv == 0 ? tag_draft_manifest(build->root, build->draft, &build->manifest, err) : rv;
}

/* Opens the tag to share equal chunks with. If it was removed or damaged, all is written. */
static void open_base(struct tag_build *build)
{
	const struct write_tag_options *options = build->options;

	if (!build->sums || options->draft || options->base[0] == '\0' ||
		tag_open(build->root, options->base, &build->base, NULL) != 0) {
		build->base = (struct manifest){0};
	} else if (manifest_add_folders(&build->manifest, &build->base, NULL) != 0) {
		manifest_deinit(&build->base);
		build->base = (struct manifest){0};
	}
}

/* Publishes the tag, with what other hosts wrote. */
static int end(struct tag_build *build, struct write_tag_result *result, char *diverged_part,
	struct pawl_err *err)
{
	const struct write_tag_options *options = build->options;
	const struct persist_save *save = build->save;
	struct manifest *manifest = &build->manifest;
	int rv;

	result->files = manifest->parts_n;
	result->size_bytes = manifest_bytes(manifest);
	if (options->agree) {
		return agree_save_end(options->agree, options->round, manifest,
			save->ranks[0].record, &result->files, &result->size_bytes, diverged_part,
			err);
	}
	rv = publish(build, err);
	result->files = manifest->parts_n;
	result->size_bytes = manifest_bytes(manifest);
	return rv;
}

/* Allocates the manifest of all files. */
static int alloc_manifest(struct tag_build *build, struct pawl_err *err)
{
	bool shares = build->options->full_every > 1;
	uint32_t files;
	uint64_t chunks_n;

	count_files(build->save, &files, &chunks_n);
	chunks_n += chunks_n == 0;
	build->files_n = files;
	build->chunks_n = chunks_n;
	build->manifest.parts = calloc(files ? files : 1, sizeof(*build->manifest.parts));
	build->chunks = calloc(chunks_n, sizeof(*build->chunks));
	if (shares) {
		build->sums = calloc(chunks_n, sizeof(*build->sums));
		build->places = calloc(chunks_n, sizeof(*build->places));
	}
	if (!build->manifest.parts || !build->chunks ||
		(shares && (!build->sums || !build->places))) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a manifest of %u files",
			files);
	}
	return 0;
}

static void tag_build_deinit(struct tag_build *build)
{
	free(build->chunks);
	free(build->sums);
	free(build->places);
	free(build->manifest.parts);
	free(build->manifest.folders);
	manifest_deinit(&build->base);
}

int write_tag_publish(struct tags_root *root, struct writer *writer,
	const struct persist_save *save, const struct write_tag_options *options,
	struct write_tag_result *result, char *diverged_part, struct pawl_err *err)
{
	struct agree *agree = options->agree;
	struct tag_build build = {.root = root,
		.writer = writer,
		.save = save,
		.options = options,
		.manifest = {.step = save->step,
			.attempt = save->attempt,
			.world = save->world + save->remote_ranks,
			.created_ns = clock_wall_ns()}};
	struct manifest *manifest = &build.manifest;
	int rv;

	ASSERT(save->world >= 1);
	build.draft = agree ? &agree->draft : options->draft ? options->draft : &build.own;
	snprintf(manifest->tag, sizeof(manifest->tag), "%s", options->tag);
	snprintf(manifest->job, sizeof(manifest->job), "%s", options->job);
	rv = alloc_manifest(&build, err);
	rv = rv == 0 ? begin(&build, err) : rv;
	if (rv == 0) {
		open_base(&build);
		rv = write_files(&build, err);
	}
	rv = rv == 0 ? end(&build, result, diverged_part, err) : rv;
	if (rv != 0 && agree && agree->in_run) { /* otherwise no other host waits */
		agree_save_fail(agree, options->round, manifest->parts, manifest->parts_n,
			diverged_part, err, NULL);
		if (rv == PAWL_ENOENT && !agree_is_leader(agree)) {
			rv = agree_save_why(agree, options->round, diverged_part, err);
		}
	} else if (rv != 0 && !agree) {
		tag_abandon(root, build.draft);
	}
	if (rv != 0) {
		pawl_err_prefix(err, rv, "persist %s", manifest->tag);
	}
	tag_build_deinit(&build);
	return rv;
}

/* Writes the name of the first tensor in a storage, for users. */
static void name_tensor(const struct record_part *part, uint32_t storage, char *buf,
	size_t cap_bytes)
{
	struct pawl_tensor tensor;
	size_t off = 0;

	while (pawl_tensor_decode(part->tensors, part->tensors_bytes, &off, &tensor, NULL) == 1) {
		if (tensor.storage == storage) {
			snprintf(buf, cap_bytes, "%s", tensor.name);
			return;
		}
	}
	snprintf(buf, cap_bytes, "storage %u", storage);
}

/* Checks that a, rank first's part, and b, rank's part, are alike. */
static int check_pair(const struct record_part *a, const struct record_part *b, uint32_t first,
	uint32_t rank, struct pawl_err *err)
{
	char name[PAWL_TENSOR_NAME_MAX];

	if (a->storages != b->storages ||
		memcmp(a->storage_bytes, b->storage_bytes,
			a->storages * sizeof(*a->storage_bytes)) != 0) {
		return pawl_err_set(err, PAWL_EMISMATCH,
			"%s: ranks %u and %u hold tensors of different number or size", a->name,
			first, rank);
	}
	if (a->sums_n == 0 || a->sums_n != b->sums_n) {
		return 0;
	}
	for (uint32_t s = 0; s < a->sums_n; s++) {
		if (a->sums[s] != b->sums[s]) {
			name_tensor(a, s, name, sizeof(name));
			return pawl_err_set(err, PAWL_EMISMATCH,
				"%s: %s differs between rank %u and rank %u, which should have the "
				"same; from now on each rank saves its own",
				a->name, name, first, rank);
		}
	}
	return 0;
}

static bool has_part(const struct record *record, const char *name)
{
	for (uint32_t p = 0; p < record->parts_n; p++) {
		if (strcmp(record->parts[p].name, name) == 0) {
			return true;
		}
	}
	return false;
}

/* Returns the first rank below r that saved a partition of this name, or r. */
static uint32_t find_owner(const struct record *const *records, uint32_t r, const char *name)
{
	uint32_t owner = 0;

	while (owner < r && !has_part(records[owner], name)) {
		owner++;
	}
	return owner;
}

/* Checks the files that have exactly the names of their partitions: no two ranks may have the same
 * name. */
static int check_exact(const struct record *const *records, uint32_t world, uint32_t first,
	struct pawl_err *err)
{
	for (uint32_t r = 1; r < world; r++) {
		for (uint32_t p = 0; p < records[r]->parts_n; p++) {
			const struct record_part *part = &records[r]->parts[p];
			uint32_t owner = r;

			if (part->exact && !part->shared) {
				owner = find_owner(records, r, part->name);
			}
			if (owner < r) {
				return pawl_err_set(err, PAWL_EMISMATCH,
					"%s: ranks %u and %u both saved a partition of this name; "
					"what differs by rank needs names that do",
					part->name, first + owner, first + r);
			}
		}
	}
	return 0;
}

int write_tag_check(const struct record *const *records, uint32_t world, uint32_t first, char *part,
	struct pawl_err *err)
{
	int exact = check_exact(records, world, first, err);

	ASSERT(world >= 1);
	if (exact != 0) {
		return exact;
	}
	for (uint32_t p = 0; p < records[0]->parts_n; p++) {
		const struct record_part *lowest = &records[0]->parts[p];
		uint64_t covered = lowest->hi - lowest->lo;

		if (!lowest->shared) {
			continue;
		}
		snprintf(part, CKPT_NAME_MAX, "%s", lowest->name);
		for (uint32_t r = 1; r < world; r++) {
			const struct record_part *other =
				record_find_shared(records[r], lowest->name);
			int rv;

			if (!other) {
				return pawl_err_set(err, PAWL_EMISMATCH,
					"%s: rank %u declares it equal on all ranks, rank %u does "
					"not",
					lowest->name, first, first + r);
			}
			rv = check_pair(lowest, other, first, first + r, err);
			if (rv != 0) {
				return rv;
			}
			covered += other->hi - other->lo;
		}
		/* If the job spans hosts, only rank 0's host writes the file. */
		if (lowest->chunks_n == 0 && covered != (first == 0 ? lowest->size_bytes : 0)) {
			return pawl_err_set(err, PAWL_EMISMATCH,
				"%s: the ranks' shares do not make up the file", lowest->name);
		}
	}
	return 0;
}
