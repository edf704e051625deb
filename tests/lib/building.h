/*
 * Tags built part by part, in a root of any kind, with content made from numbers: one for each MiB
 * of a file, so that a test says which chunks change. For tests of drafts; whole tags are in
 * sample.h.
 */
#ifndef TEST_BUILDING_H
#define TEST_BUILDING_H

#include "ckpt/format/manifest.h"
#include "ckpt/root.h"

#define BUILDING_PARTS_MAX 8u
#define BUILDING_CHUNKS    2u /* chunks of a file; the last is short */

/* A tag being built. */
struct building {
	struct tags_root *root;   /* the caller's */
	struct tag_draft draft;   /* zeroed if it could not be begun */
	struct manifest manifest; /* parts so far; folders are owned */
	struct manifest_part parts[BUILDING_PARTS_MAX];
	uint32_t *owned[3 * BUILDING_PARTS_MAX]; /* checksums and places of the parts written */
	uint32_t owned_n;                        /* number of these */
};

/* Begins a tag of a step. id: of a draft that several hosts share; NULL: of this one alone. */
int building_begin(struct building *building, struct tags_root *root, const char *tag,
	uint64_t step, const char *id, struct pawl_err *err);
/* Writes a part with this content. base, opened: the manifest of a tag whose part of this name is
 * updated; NULL: all is written. */
int building_write(struct building *building, const char *name,
	const uint32_t content[BUILDING_CHUNKS], const struct manifest *base, struct pawl_err *err);
/* Keeps those parts of an earlier tag, opened, that the draft does not have. */
int building_keep(struct building *building, const struct manifest *from, struct pawl_err *err);
int building_publish(struct building *building, struct pawl_err *err);
/* Frees memory; the draft stays as it is. */
void building_deinit(struct building *building);

/* Returns 0 if the tag has a part of this name with this content; PAWL_EMISMATCH if it has another
 * content; other errors if it cannot be read. */
int building_check(struct tags_root *root, const char *tag, const char *name,
	const uint32_t content[BUILDING_CHUNKS], struct pawl_err *err);

#endif
