/* Tags: opening, listing, pins. See tags.h for the contract. A tag is complete if complete.txt is
 * OK (in a root of directories), the manifest is intact and that of this tag, and every file has
 * its size. Each of the three alone rejects a half-written tag. */
#include "base/err.h"
#include "base/fault.h"
#include "base/wire.h"
#include "ckpt/read.h"
#include "ckpt/root_impl.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PINS_FILE      ".pins"
#define PINS_MAX_BYTES (TAGS_MAX * CKPT_TAG_MAX) /* size of .pins, at most */

int tags_as_broken(int rv, const char *tag, const char *what, struct pawl_err *err)
{
	if (rv == PAWL_ENOENT) {
		return pawl_err_set(err, PAWL_ECORRUPT, "%s: %s is missing", tag, what);
	}
	if (rv == PAWL_EINVAL || rv == PAWL_ELIMIT) {
		return pawl_err_prefix(err, PAWL_ECORRUPT, "%s", tag);
	}
	return rv;
}

/* Checks that a manifest is that of a tag of this root. */
static int check_is_of(struct tags_root *root, const char *tag, const struct manifest *manifest,
	struct pawl_err *err)
{
	uint64_t step;

	if (strcmp(manifest->tag, tag) != 0 || (tag_parse(tag, &step) && manifest->step != step)) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"%s: contains the manifest of %s, step %" PRIu64, tag, manifest->tag,
			manifest->step);
	}
	if ((manifest->folders_n > 0) != store_is_flat(root->store)) {
		return pawl_err_set(err, PAWL_ECORRUPT, "%s: contains the manifest of a root of %s",
			tag, manifest->folders_n > 0 ? "objects" : "directories");
	}
	return 0;
}

/* Reads and decodes a manifest. One that is wrong is read again, as read.h has it. */
static int read_decoded(struct tags_root *root, const char *tag, struct manifest *manifest,
	struct pawl_err *err)
{
	void *bytes;
	size_t len_bytes;
	unsigned reads = 0;
	int rv;

	do {
		rv = root->ops->read_manifest(root, tag, &bytes, &len_bytes, err);
		if (rv != 0) {
			return rv;
		}
		rv = manifest_decode(manifest, bytes, len_bytes, err);
		free(bytes);
		reads++;
	} while (rv != 0 && rv != PAWL_ENOMEM && reads < CKPT_READS_MAX);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "%s", tag);
}

int tags_read_manifest(struct tags_root *root, const char *tag, struct manifest *manifest,
	struct pawl_err *err)
{
	struct manifest m;
	int rv = read_decoded(root, tag, &m, err);

	if (rv != 0) {
		return rv;
	}
	rv = check_is_of(root, tag, &m, err);
	if (rv != 0) {
		manifest_deinit(&m);
		return rv;
	}
	*manifest = m;
	return 0;
}

/* Checks one of the files of a part. */
static int check_file(struct store *store, const struct manifest *manifest,
	const struct manifest_part *part, uint32_t i, struct pawl_err *err)
{
	char path[STORE_PATH_MAX];
	enum store_kind kind;
	uint64_t size_bytes;
	int rv;

	manifest_path(path, sizeof(path), manifest, part, i);
	rv = store_stat(store, path, &kind, &size_bytes, err);
	if (rv != 0) {
		return tags_as_broken(rv, manifest->tag, part->file, err);
	}
	if (kind != STORE_FILE) {
		return pawl_err_set(err, PAWL_ECORRUPT, "%s: not a file", path);
	}
	if (size_bytes != manifest_file_bytes(part, i)) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"%s: %" PRIu64 " bytes long, but %" PRIu64 " were written", path,
			size_bytes, manifest_file_bytes(part, i));
	}
	return 0;
}

static int check_files(struct store *store, const struct manifest *manifest, struct pawl_err *err)
{
	int rv = 0;

	for (uint32_t p = 0; p < manifest->parts_n; p++) {
		const struct manifest_part *part = &manifest->parts[p];

		for (uint32_t i = 0; i < manifest_files_n(part) && rv == 0; i++) {
			rv = check_file(store, manifest, part, i, err);
		}
	}
	return rv;
}

/* Opens a tag. sealed: complete.txt is required. */
static int open_tag(struct tags_root *root, const char *tag, bool sealed, struct manifest *manifest,
	struct pawl_err *err)
{
	struct manifest m;
	int rv;

	rv = tags_check_name(tag, err);
	if (rv == 0) {
		rv = root->ops->check_place(root, tag, sealed, err);
	}
	if (rv == 0) {
		rv = tags_read_manifest(root, tag, &m, err);
	}
	if (rv != 0) {
		return rv;
	}
	rv = check_files(root->store, &m, err);
	if (rv != 0) {
		manifest_deinit(&m);
		return rv;
	}
	*manifest = m;
	return 0;
}

int tag_open(struct tags_root *root, const char *tag, struct manifest *manifest,
	struct pawl_err *err)
{
	return open_tag(root, tag, true, manifest, err);
}

int tag_open_unsealed(struct tags_root *root, const char *tag, struct manifest *manifest,
	struct pawl_err *err)
{
	return open_tag(root, tag, false, manifest, err);
}

int tag_has_name(struct tags_root *root, const char *tag, bool *has, struct pawl_err *err)
{
	int rv = tags_check_name(tag, err);

	return rv == 0 ? root->ops->has_name(root, tag, has, err) : rv;
}

/* ---- pins ---- */

/* Tags that retention must keep. */
struct pins {
	char (*tags)[CKPT_TAG_MAX]; /* owned */
	size_t n;                   /* number of tags */
};

/* Parses a line: the step, for a tag that is named after it; else '=' and the tag. */
static bool parse_pin(char tag[CKPT_TAG_MAX], const char *at, size_t len_bytes)
{
	uint64_t step;

	if (tags_parse_number(at, at + len_bytes, &step)) {
		tag_of_step(tag, CKPT_TAG_MAX, step);
		return true;
	}
	if (len_bytes < 2 || len_bytes > CKPT_TAG_MAX || *at != '=') {
		return false;
	}
	memcpy(tag, at + 1, len_bytes - 1);
	tag[len_bytes - 1] = '\0';
	return tag_valid(tag);
}

static int parse_pins(struct pins *pins, const char *text, size_t len_bytes, struct pawl_err *err)
{
	const char *at = text;
	const char *end = len_bytes ? text + len_bytes : text; /* without a file text is NULL */

	while (at < end) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));

		if (newline == NULL ||
			!parse_pin(pins->tags[pins->n], at, (size_t)(newline - at))) {
			return pawl_err_set(err, PAWL_ECORRUPT,
				PINS_FILE ": malformed: it must list one tag a line");
		}
		pins->n++;
		at = newline + 1;
	}
	return 0;
}

static size_t count_lines(const char *text, size_t len_bytes)
{
	size_t n = 0;

	for (size_t i = 0; i < len_bytes; i++) {
		n += text[i] == '\n';
	}
	return n;
}

/* Reads the pins; without a file there are none. The caller frees pins->tags, which has room for
 * one more. */
static int read_pins(struct store *store, struct pins *pins, struct pawl_err *err)
{
	void *text = NULL;
	size_t len_bytes = 0;
	int rv;

	*pins = (struct pins){.n = 0};
	rv = store_read_small(store, PINS_FILE, &text, &len_bytes, PINS_MAX_BYTES, err);
	if (rv != 0 && rv != PAWL_ENOENT) {
		return rv;
	}
	pins->tags = FAULT_MEM("tags.pins",
		calloc(count_lines(text, len_bytes) + 1, sizeof(*pins->tags)));
	if (pins->tags == NULL) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory to read " PINS_FILE);
	} else {
		rv = parse_pins(pins, text, len_bytes, err);
	}
	free(text);
	if (rv != 0) {
		free(pins->tags);
		*pins = (struct pins){.n = 0};
	}
	return rv;
}

int tags_check_pins(struct tags_root *root, struct pawl_err *err)
{
	struct pins pins;
	int rv = read_pins(root->store, &pins, err);

	free(pins.tags);
	return rv;
}

static int compare_tags(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* Sorts the pins, for is_pinned. */
static void sort_pins(struct pins *pins)
{
	if (pins->n > 0) {
		qsort(pins->tags, pins->n, sizeof(*pins->tags), compare_tags);
	}
}

static bool is_pinned(const struct pins *pins, const char *tag)
{
	return pins->n > 0 &&
		bsearch(tag, pins->tags, pins->n, sizeof(*pins->tags), compare_tags) != NULL;
}

static int write_pins(struct store *store, const struct pins *pins, struct pawl_err *err)
{
	struct wire_out out = {0};
	int rv;

	for (size_t i = 0; i < pins->n; i++) {
		char line[CKPT_TAG_MAX + 24];
		uint64_t step;
		int n = tag_parse(pins->tags[i], &step)
			? snprintf(line, sizeof(line), "%" PRIu64 "\n", step)
			: snprintf(line, sizeof(line), "=%s\n", pins->tags[i]);

		wire_put_raw(&out, line, (size_t)n);
	}
	if (out.failed) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory to write " PINS_FILE);
	} else {
		rv = store_publish(store, PINS_FILE, out.bytes, out.len_bytes, err);
	}
	wire_out_deinit(&out);
	return rv;
}

int tag_pin(struct tags_root *root, const char *tag, bool pinned, struct pawl_err *err)
{
	struct pins pins;
	bool exists;
	size_t n = 0;
	int rv;

	rv = tag_has_name(root, tag, &exists, err);
	if (rv == 0 && pinned && !exists) {
		rv = pawl_err_set(err, PAWL_ENOENT, "pin %s: there is no such tag", tag);
	}
	if (rv == 0) {
		rv = read_pins(root->store, &pins, err);
	}
	if (rv != 0) {
		return rv;
	}
	for (size_t i = 0; i < pins.n; i++) {
		if (strcmp(pins.tags[i], tag) != 0) {
			memmove(pins.tags[n++], pins.tags[i], CKPT_TAG_MAX);
		}
	}
	if (pinned) { /* read_pins has left room for one more */
		snprintf(pins.tags[n++], CKPT_TAG_MAX, "%s", tag);
	}
	pins.n = n;
	rv = write_pins(root->store, &pins, err);
	free(pins.tags);
	return rv;
}

/* ---- listing ---- */

void tags_inspect(struct tags_root *root, struct tag_info *info)
{
	struct manifest m;
	struct pawl_err err;
	int rv = tag_open(root, info->tag, &m, &err);

	info->state = rv == 0 ? TAG_COMPLETE : TAG_BROKEN;
	if (rv != 0) {
		snprintf(info->why, sizeof(info->why), "%.*s", (int)sizeof(info->why) - 1, err.msg);
		return;
	}
	info->step = m.step;
	info->size_bytes = manifest_bytes(&m);
	info->created_ns = m.created_ns;
	info->world = m.world;
	info->files = m.parts_n;
	manifest_deinit(&m);
}

int tags_unopened(struct tags_root *root, const struct tags_stop *stop, struct tag_info **tags,
	size_t *n, struct pawl_err *err)
{
	struct tag_step *steps;
	struct tag_info *infos;
	struct pins pins;
	bool pins_known;
	int rv = tags_steps(root, stop, &steps, n, err);

	if (rv != 0) {
		return rv;
	}
	infos = FAULT_MEM("tags.list", calloc(*n + 1, sizeof(*infos)));
	if (infos == NULL) {
		free(steps);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to list %zu tags", *n);
	}
	pins_known = read_pins(root->store, &pins, NULL) == 0;
	sort_pins(&pins);
	for (size_t i = 0; i < *n; i++) {
		memcpy(infos[i].tag, steps[i].tag, sizeof(infos[i].tag));
		infos[i].step = steps[i].step;
		infos[i].state = TAG_UNOPENED;
		infos[i].pinned = !pins_known || is_pinned(&pins, infos[i].tag);
	}
	free(pins.tags);
	free(steps);
	*tags = infos;
	return 0;
}

static int compare_infos(const void *a, const void *b)
{
	const struct tag_info *x = a;
	const struct tag_info *y = b;

	return tags_compare(x->step, x->created_ns, y->step, y->created_ns);
}

int tags_list(struct tags_root *root, const struct tags_stop *stop, struct tag_info **tags,
	size_t *n, struct pawl_err *err)
{
	struct tag_info *infos;
	size_t found = 0;
	size_t all;
	int rv = tags_unopened(root, stop, &infos, &all, err);

	if (rv != 0) {
		return rv;
	}
	for (size_t i = 0; i < all && rv == 0; i++) {
		bool is_tag = false;

		rv = tags_check_stop(stop, err);
		rv = rv == 0 ? tags_is_tag(root, infos[i].tag, &is_tag, err) : rv;
		if (rv == 0 && is_tag) {
			infos[found] = infos[i];
			tags_inspect(root, &infos[found]);
			if (infos[found].state == TAG_BROKEN) { /* or removed meanwhile */
				rv = tags_is_tag(root, infos[i].tag, &is_tag, err);
			}
			found += is_tag;
		}
	}
	if (rv != 0) {
		free(infos);
		return rv;
	}
	qsort(infos, found, sizeof(*infos), compare_infos);
	*tags = infos;
	*n = found;
	return 0;
}
