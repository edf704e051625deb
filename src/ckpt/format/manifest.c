/*
 * Manifests: see manifest.h for the contract, docs/format.md for the bytes.
 *
 * A fixed header (magic, version, length, checksum) precedes the body that the checksum covers. The
 * header's other fields need no checksum: any other magic is refused, any other length or checksum
 * does not match the body, and the checksum includes the version where it could be mistaken for
 * another one.
 */
#include "ckpt/format/manifest.h"

#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/wire.h"
#include "ckpt/format/block.h"
#include "ckpt/format/pieces.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MANIFEST_MAGIC "PAWLMANI"
#define MAGIC_BYTES    8u
/* 1 had no kinds, 2 shared no bytes between saves, 3 had no folders, 4 had no folders */
#define MANIFEST_VERSION 5u
#define HEADER_BYTES     24u     /* magic, version, length of the body, checksum of the body */
#define PART_BYTES_MIN   28u     /* encoded size of a part with empty names and lists */
#define FOLDER_BYTES_MIN 4u      /* encoded size of an empty path */
#define PART_LISTS       4u      /* lists of a part, each taken from the block */
#define FOLDER_ID        "save-" /* begins the name of a save's folder; letters of its id follow */
#define ID_LETTERS       "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-"

_Static_assert(sizeof(struct manifest_place) == 4 + 4, "a place takes as much memory as input");
_Static_assert(sizeof(struct manifest_part) % BLOCK_ALIGN == 0 &&
		sizeof(struct manifest_folder) % BLOCK_ALIGN == 0,
	"the parts and the folders waste nothing of a block");
_Static_assert(sizeof(((struct manifest_part *)NULL)->file) >=
		CKPT_NAME_MAX - 1 + sizeof("-rank4294967295"),
	"a file's name has room for a partition's name and a rank");

/* Kinds of files; the values are also the bytes on disk. */
enum { KIND_ZIP, KIND_RAW, KINDS };

/* ---- encode ---- */

/* Returns the oldest version that can express the manifest, so that earlier releases can read
 * it. */
static uint32_t version_of(const struct manifest *manifest)
{
	uint32_t version = 2;

	if (manifest->folders_n > 0) {
		return 5;
	}
	for (uint32_t i = 0; i < manifest->parts_n; i++) {
		const struct manifest_part *part = &manifest->parts[i];

		if (part->name[0] == '.' || strchr(part->name, '/')) {
			return 4;
		}
		if (part->sums || part->sources_n > 0) {
			version = 3;
		}
	}
	return version;
}

static uint32_t sum_body(uint32_t version, const uint8_t *body, size_t len_bytes)
{
	uint8_t byte = (uint8_t)version;

	return crc32c(version > 2 ? crc32c(0, &byte, 1) : 0, body, len_bytes);
}

/* Encodes what the part shares with other saves, and what later saves need to share with it. */
static void put_sharing(struct wire_out *out, const struct manifest_part *part)
{
	wire_put_u32(out, part->depth);
	wire_put_u8(out, part->sums != NULL);
	for (uint32_t i = 0; part->sums && i < part->chunks_n; i++) {
		wire_put_u32(out, part->sums[i]);
	}
	wire_put_u32(out, part->sources_n);
	for (uint32_t i = 0; i < part->sources_n; i++) {
		wire_put_u64(out, part->sources[i]);
	}
	for (uint32_t i = 0; part->sources_n > 0 && i < part->chunks_n; i++) {
		wire_put_u32(out, part->places[i].source);
		wire_put_u32(out, part->places[i].chunk);
	}
}

/* Encodes the places of a part's files. */
static void put_files(struct wire_out *out, const struct manifest_part *part)
{
	for (uint32_t i = 0; i < manifest_files_n(part); i++) {
		wire_put_u32(out, part->at[i].folder);
		wire_put_u8(out, part->at[i].own_name);
	}
}

static void put_part(struct wire_out *out, uint32_t version, const struct manifest_part *part)
{
	wire_put_str(out, part->name);
	wire_put_str(out, part->file);
	wire_put_u32(out, part->rank);
	wire_put_u8(out, part->raw ? KIND_RAW : KIND_ZIP);
	wire_put_u64(out, part->size_bytes);
	wire_put_u32(out, part->chunks_n);
	for (uint32_t i = 0; i < part->chunks_n; i++) {
		wire_put_u32(out, part->chunks[i]);
	}
	if (version > 2) {
		put_sharing(out, part);
	}
	if (version > 4) {
		put_files(out, part);
	}
	wire_put_blob(out, part->tensors, part->tensors_bytes);
}

void manifest_encode(const struct manifest *manifest, struct wire_out *out)
{
	size_t header = out->len_bytes;
	size_t body = header + HEADER_BYTES;
	uint32_t version = version_of(manifest);

	wire_put_raw(out, MANIFEST_MAGIC, MAGIC_BYTES);
	wire_put_u32(out, version);
	wire_put_u64(out, 0); /* length, patched below: its upper half stays 0 */
	wire_put_u32(out, 0); /* checksum, patched below */
	wire_put_u64(out, manifest->step);
	wire_put_str(out, manifest->tag);
	wire_put_str(out, manifest->job);
	wire_put_u32(out, manifest->attempt);
	wire_put_u32(out, manifest->world);
	wire_put_u64(out, (uint64_t)manifest->created_ns);
	wire_put_u32(out, manifest->parts_n);
	if (version > 4) {
		wire_put_u32(out, manifest->folders_n);
	}
	for (uint32_t i = 0; i < manifest->folders_n; i++) {
		wire_put_str(out, manifest->folders[i].dir);
	}
	for (uint32_t i = 0; i < manifest->parts_n; i++) {
		put_part(out, version, &manifest->parts[i]);
	}
	if (!out->failed) {
		wire_patch_u32(out, header + 12, (uint32_t)(out->len_bytes - body));
		wire_patch_u32(out, header + 20,
			sum_body(version, out->bytes + body, out->len_bytes - body));
	}
}

/* ---- constraints ---- */

/* Checks that each chunk of a linked part lies in a source that is long enough. */
static int check_places(const struct manifest_part *part, struct pawl_err *err)
{
	if (part->sources_n > MANIFEST_SOURCES || (part->raw && part->sources_n > 0)) {
		return pawl_err_set(err, PAWL_EINVAL, "file %s cannot have %u sources", part->file,
			part->sources_n);
	}
	for (uint32_t i = 0; part->sources_n > 0 && i < part->chunks_n; i++) {
		const struct manifest_place *place = &part->places[i];
		uint64_t off = (uint64_t)i * CKPT_CHUNK;
		uint64_t left = part->size_bytes - off;
		uint64_t end = (uint64_t)place->chunk * CKPT_CHUNK +
			(left < CKPT_CHUNK ? left : CKPT_CHUNK);

		if (place->source >= part->sources_n || part->sources[place->source] < end) {
			return pawl_err_set(err, PAWL_EINVAL, "file %s: chunk %u is in no source",
				part->file, i);
		}
	}
	return 0;
}

/* Checks that each file of a part is in a folder of the manifest, no two are the same one, and a
 * file that is not linked has the part's name. */
static int check_files(const struct manifest *m, const struct manifest_part *part,
	struct pawl_err *err)
{
	for (uint32_t i = 0; m->folders_n > 0 && i < manifest_files_n(part); i++) {
		const struct manifest_file *file = &part->at[i];
		bool valid = file->folder < m->folders_n && (file->own_name || part->sources_n > 0);

		for (uint32_t k = 0; k < i; k++) {
			valid = valid &&
				(file->folder != part->at[k].folder ||
					file->own_name != part->at[k].own_name);
		}
		if (!valid) {
			return pawl_err_set(err, PAWL_EINVAL,
				"file %s: its source %u cannot be in folder %u", part->file, i,
				file->folder);
		}
	}
	return 0;
}

static int check_part(const struct manifest *m, uint32_t i, struct pawl_err *err)
{
	const struct manifest_part *part = &m->parts[i];
	bool shared = part->rank == MANIFEST_ALL_RANKS;
	char file[sizeof(part->file)];
	int rv;

	manifest_file_name(file, sizeof(file), part->name, shared, part->rank, m->world);
	if (!ckpt_name_valid(part->name) || (!shared && part->rank >= m->world) ||
		(strcmp(file, part->file) != 0 && strcmp(part->name, part->file) != 0)) {
		return pawl_err_set(err, PAWL_EINVAL, "file %s cannot hold partition %s",
			part->file, part->name);
	}
	if (i > 0 && strcmp(m->parts[i - 1].file, part->file) >= 0) {
		return pawl_err_set(err, PAWL_EINVAL, "file %s is listed twice or out of order",
			part->file);
	}
	if (!ckpt_size_valid(part->raw, part->size_bytes) ||
		part->chunks_n != ckpt_chunks(part->size_bytes)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"file %s: %" PRIu64 " bytes cannot have %u checksums", part->file,
			part->size_bytes, part->chunks_n);
	}
	rv = check_places(part, err);
	return rv == 0 ? check_files(m, part, err) : rv;
}

/* Checks that no part is also a folder of another part. */
static int check_folders(const struct manifest *m, const struct manifest_part *part,
	struct pawl_err *err)
{
	char folder[sizeof(part->file)];

	for (const char *at = strchr(part->file, '/'); at; at = strchr(at + 1, '/')) {
		snprintf(folder, sizeof(folder), "%.*s", (int)(at - part->file), part->file);
		if (manifest_find_file(m, folder)) {
			return pawl_err_set(err, PAWL_EINVAL, "%s is a file, and a folder of %s",
				folder, part->file);
		}
	}
	return 0;
}

/* Returns whether a path can be that of a save's folder: a tag, then "save-" and an id. */
static bool is_save_folder(const char *dir)
{
	size_t tag_bytes = strcspn(dir, "/");
	const char *id;

	if (tag_bytes == 0 || tag_bytes >= CKPT_TAG_MAX || dir[0] == '.' ||
		strncmp(dir + tag_bytes, "/" FOLDER_ID, 1 + strlen(FOLDER_ID)) != 0) {
		return false;
	}
	for (size_t i = 0; i < tag_bytes; i++) {
		if ((unsigned char)dir[i] < ' ' || dir[i] == 0x7f) {
			return false;
		}
	}
	id = dir + tag_bytes + 1 + strlen(FOLDER_ID);
	return id[0] != '\0' && id[strspn(id, ID_LETTERS)] == '\0';
}

static int check_save_folders(const struct manifest *m, struct pawl_err *err)
{
	if (m->folders_n > MANIFEST_FOLDERS_MAX) {
		return pawl_err_set(err, PAWL_EINVAL, "files in %u folders, at most %u",
			m->folders_n, MANIFEST_FOLDERS_MAX);
	}
	for (uint32_t i = 0; i < m->folders_n; i++) {
		if (!is_save_folder(m->folders[i].dir)) {
			return pawl_err_set(err, PAWL_EINVAL, "%s is no folder of a save",
				m->folders[i].dir);
		}
		if (manifest_find_folder(m, m->folders[i].dir) != i) {
			return pawl_err_set(err, PAWL_EINVAL, "folder %s is listed twice",
				m->folders[i].dir);
		}
	}
	return 0;
}

int manifest_check(const struct manifest *manifest, struct pawl_err *err)
{
	int rv;

	if (manifest->tag[0] == '\0' || manifest->tag[0] == '.' || strchr(manifest->tag, '/')) {
		return pawl_err_set(err, PAWL_EINVAL, "%s is not a tag", manifest->tag);
	}
	if (manifest->world == 0 || manifest->parts_n > MANIFEST_PARTS_MAX) {
		return pawl_err_set(err, PAWL_EINVAL, "%u ranks and %u files, at most %u",
			manifest->world, manifest->parts_n, MANIFEST_PARTS_MAX);
	}
	rv = check_save_folders(manifest, err);
	for (uint32_t i = 0; i < manifest->parts_n && rv == 0; i++) {
		rv = check_part(manifest, i, err);
	}
	for (uint32_t i = 0; i < manifest->parts_n && rv == 0; i++) {
		rv = check_folders(manifest, &manifest->parts[i], err);
	}
	return rv;
}

/* ---- decode ---- */

/* Takes room for one item of size_bytes per chunk, if the input holds so many; else sets in->failed
 * and returns NULL. */
static void *take_list(struct wire_in *in, struct block *block, const struct manifest_part *part,
	size_t size_bytes)
{
	if (part->chunks_n > wire_in_left(in) / size_bytes) {
		in->failed = true;
		return NULL;
	}
	return block_take(block, part->chunks_n * size_bytes);
}

static uint32_t *get_sums(struct wire_in *in, struct block *block, const struct manifest_part *part)
{
	uint32_t *sums = take_list(in, block, part, sizeof(*sums));

	for (uint32_t i = 0; sums && i < part->chunks_n; i++) {
		sums[i] = wire_get_u32(in);
	}
	return sums;
}

static void get_sharing(struct wire_in *in, struct block *block, struct manifest_part *part)
{
	uint8_t has_sums;

	part->depth = wire_get_u32(in);
	has_sums = wire_get_u8(in);
	if (has_sums == 1) {
		part->sums = get_sums(in, block, part);
	}
	part->sources_n = wire_get_u32(in);
	if (has_sums > 1 || part->sources_n > MANIFEST_SOURCES) {
		in->failed = true;
		return;
	}
	for (uint32_t i = 0; i < part->sources_n; i++) {
		part->sources[i] = wire_get_u64(in);
	}
	if (part->sources_n > 0) {
		part->places = take_list(in, block, part, sizeof(*part->places));
	}
	for (uint32_t i = 0; part->places && i < part->chunks_n; i++) {
		part->places[i].source = wire_get_u32(in);
		part->places[i].chunk = wire_get_u32(in);
	}
}

static void get_files(struct wire_in *in, struct manifest_part *part)
{
	for (uint32_t i = 0; i < manifest_files_n(part); i++) {
		uint8_t own_name;

		part->at[i].folder = wire_get_u32(in);
		own_name = wire_get_u8(in);
		part->at[i].own_name = own_name == 1;
		in->failed = in->failed || own_name > 1;
	}
}

static void get_part(struct wire_in *in, uint32_t version, struct block *block,
	struct manifest_part *part)
{
	const uint8_t *tensors;
	uint8_t kind;

	wire_get_str(in, part->name, sizeof(part->name));
	wire_get_str(in, part->file, sizeof(part->file));
	part->rank = wire_get_u32(in);
	kind = version > 1 ? wire_get_u8(in) : KIND_ZIP;
	part->raw = kind == KIND_RAW;
	in->failed = in->failed || kind >= KINDS;
	part->size_bytes = wire_get_u64(in);
	part->chunks_n = wire_get_u32(in);
	part->chunks = get_sums(in, block, part);
	if (version > 2 && !in->failed) {
		get_sharing(in, block, part);
	}
	if (version > 4 && !in->failed) {
		get_files(in, part);
	}
	if (in->failed) {
		return;
	}
	tensors = wire_get_blob(in, &part->tensors_bytes);
	part->tensors = block_take(block, part->tensors_bytes);
	if (part->tensors_bytes > 0) {
		memcpy(part->tensors, tensors, part->tensors_bytes);
	}
}

/* Decodes a body whose checksum is right. */
static int get_body(struct manifest *m, struct wire_in *in, uint32_t version, struct pawl_err *err)
{
	struct block block;
	int rv;

	m->step = wire_get_u64(in);
	wire_get_str(in, m->tag, sizeof(m->tag));
	wire_get_str(in, m->job, sizeof(m->job));
	m->attempt = wire_get_u32(in);
	m->world = wire_get_u32(in);
	m->created_ns = (int64_t)wire_get_u64(in);
	m->parts_n = wire_get_u32(in);
	m->folders_n = version > 4 ? wire_get_u32(in) : 0;
	if (in->failed || m->parts_n > wire_in_left(in) / PART_BYTES_MIN ||
		m->parts_n > MANIFEST_PARTS_MAX || m->folders_n > MANIFEST_FOLDERS_MAX ||
		m->folders_n > wire_in_left(in) / FOLDER_BYTES_MIN ||
		(version > 4 && m->folders_n == 0)) {
		return pawl_err_set(err, PAWL_ECORRUPT, "manifest: its first fields are damaged");
	}
	/* lists take as much memory as input, apart from alignment */
	block.left_bytes = m->folders_n * sizeof(*m->folders) +
		m->parts_n * (sizeof(*m->parts) + PART_LISTS * BLOCK_ALIGN) + wire_in_left(in);
	block.at = FAULT_MEM("manifest.decode", calloc(1, block.left_bytes + 1));
	if (block.at == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "manifest: no memory for %u files",
			m->parts_n);
	}
	m->block = block.at;
	m->folders =
		m->folders_n > 0 ? block_take(&block, m->folders_n * sizeof(*m->folders)) : NULL;
	for (uint32_t i = 0; i < m->folders_n; i++) {
		wire_get_str(in, m->folders[i].dir, sizeof(m->folders[i].dir));
	}
	m->parts = block_take(&block, m->parts_n * sizeof(*m->parts));
	for (uint32_t i = 0; i < m->parts_n && !in->failed; i++) {
		get_part(in, version, &block, &m->parts[i]);
	}
	if (!wire_in_done(in)) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"manifest: its length does not match its files");
	}
	rv = manifest_check(m, err);
	if (rv != 0) {
		rv = pawl_err_prefix(err, PAWL_ECORRUPT, "manifest");
	}
	return rv;
}

int manifest_decode(struct manifest *manifest, const void *bytes, size_t len_bytes,
	struct pawl_err *err)
{
	struct manifest m = {0};
	struct wire_in in;
	const uint8_t *magic;
	uint64_t body_bytes;
	uint32_t version, sum;
	int rv;

	wire_in_init(&in, bytes, len_bytes);
	magic = wire_get_raw(&in, MAGIC_BYTES);
	version = wire_get_u32(&in);
	body_bytes = wire_get_u64(&in);
	sum = wire_get_u32(&in);
	if (in.failed || memcmp(magic, MANIFEST_MAGIC, MAGIC_BYTES) != 0) {
		return pawl_err_set(err, PAWL_ECORRUPT, "manifest: its magic number is wrong");
	}
	if (version > MANIFEST_VERSION) {
		return pawl_err_set(err, PAWL_ENOTSUP,
			"manifest: version %u, but this Pawl reads up to version %u", version,
			MANIFEST_VERSION);
	}
	if (len_bytes > MANIFEST_MAX_BYTES) {
		return pawl_err_set(err, PAWL_ECORRUPT, "manifest: it has %zu bytes, %u at most",
			len_bytes, MANIFEST_MAX_BYTES);
	}
	if (version == 0 || body_bytes != wire_in_left(&in) ||
		sum_body(version, in.at, wire_in_left(&in)) != sum) {
		return pawl_err_set(err, PAWL_ECORRUPT, "manifest: its checksum is wrong");
	}
	rv = get_body(&m, &in, version, err);
	if (rv != 0) {
		manifest_deinit(&m);
		return rv;
	}
	*manifest = m;
	return 0;
}

void manifest_deinit(struct manifest *manifest)
{
	free(manifest->block);
	memset(manifest, 0, sizeof(*manifest));
}

uint64_t manifest_bytes(const struct manifest *manifest)
{
	uint64_t bytes = 0;

	for (uint32_t p = 0; p < manifest->parts_n; p++) {
		bytes += manifest->parts[p].size_bytes;
	}
	return bytes;
}

/* ---- files ---- */

uint32_t manifest_files_n(const struct manifest_part *part)
{
	return part->sources_n > 0 ? part->sources_n : 1;
}

uint64_t manifest_file_bytes(const struct manifest_part *part, uint32_t i)
{
	ASSERT(i < manifest_files_n(part));
	return part->sources_n > 0 ? part->sources[i] : part->size_bytes;
}

void manifest_path(char *buf, size_t cap_bytes, const struct manifest *manifest,
	const struct manifest_part *part, uint32_t i)
{
	const struct manifest_file *file = &part->at[i];

	ASSERT(i < manifest_files_n(part));
	if (manifest->folders_n == 0) {
		manifest_file_path(buf, cap_bytes, manifest->tag, part, i);
		return;
	}
	ASSERT(file->folder < manifest->folders_n);
	snprintf(buf, cap_bytes, file->own_name ? "%s/%s" : "%s/.pawl/%s.0",
		manifest->folders[file->folder].dir, part->file);
}

void manifest_file_path(char *buf, size_t cap_bytes, const char *dir,
	const struct manifest_part *part, uint32_t i)
{
	ASSERT(i < manifest_files_n(part));
	if (part->sources_n > 0) {
		snprintf(buf, cap_bytes, "%s/.pawl/%s.%u", dir, part->file, i);
	} else {
		snprintf(buf, cap_bytes, "%s/%s", dir, part->file);
	}
}

struct manifest_place manifest_place(const struct manifest_part *part, uint32_t chunk)
{
	ASSERT(chunk < part->chunks_n);
	return part->sources_n > 0 ? part->places[chunk] : (struct manifest_place){0, chunk};
}

/* ---- names ---- */

void manifest_file_name(char *buf, size_t cap_bytes, const char *name, bool shared, uint32_t rank,
	uint32_t world)
{
	if (shared || world == 1) {
		snprintf(buf, cap_bytes, "%s", name);
	} else {
		snprintf(buf, cap_bytes, "%s-rank%u", name, rank);
	}
}

static int compare_parts(const void *a, const void *b)
{
	return strcmp(((const struct manifest_part *)a)->file,
		((const struct manifest_part *)b)->file);
}

void manifest_sort(struct manifest *manifest)
{
	if (manifest->parts_n > 0) {
		qsort(manifest->parts, manifest->parts_n, sizeof(*manifest->parts), compare_parts);
	}
}

static int compare_file(const void *key, const void *part)
{
	return strcmp(key, ((const struct manifest_part *)part)->file);
}

const struct manifest_part *manifest_find_file(const struct manifest *manifest, const char *file)
{
	return manifest->parts_n > 0 ? bsearch(file, manifest->parts, manifest->parts_n,
					       sizeof(*manifest->parts), compare_file)
				     : NULL;
}

/* Finds the part in a file, if it is that partition; else NULL. */
static const struct manifest_part *find_file(const struct manifest *m, const char *file,
	const char *name)
{
	const struct manifest_part *part = manifest_find_file(m, file);

	return part != NULL && strcmp(part->name, name) == 0 ? part : NULL;
}

const struct manifest_part *manifest_find_part(const struct manifest *manifest, const char *name,
	uint32_t rank)
{
	char file[sizeof(manifest->parts->file)];
	const struct manifest_part *part;

	manifest_file_name(file, sizeof(file), name, false, rank, manifest->world);
	part = find_file(manifest, file, name);
	if (part == NULL) {
		part = find_file(manifest, name, name);
	}
	return part != NULL && (part->rank == rank || part->rank == MANIFEST_ALL_RANKS) ? part
											: NULL;
}
