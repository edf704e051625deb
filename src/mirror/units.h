/*
 * Units: the checkpoints of programs that know nothing of Pawl, each a directory. Which directories
 * are units, which files make them, how one tells that a unit is whole, and under which name it is
 * a tag. Pure: works on names, and on the bytes of small files.
 *
 * docs/mirror.md has the table of kinds.
 */
#ifndef MIRROR_UNITS_H
#define MIRROR_UNITS_H

#include "ckpt/format/manifest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UNIT_WHY_MAX   192u /* bytes of a reason, terminator included */
#define UNIT_GLOBS_MAX 16u  /* patterns of a user, at most */

enum unit_kind {
	UNIT_NONE,      /* no unit */
	UNIT_TRAINER,   /* Hugging Face Trainer: trainer_state.json comes last */
	UNIT_DCP,       /* torch.distributed.checkpoint: .metadata comes last */
	UNIT_DEEPSPEED, /* DeepSpeed: the file "latest" beside it names it last */
	UNIT_QUIET,     /* no last file is known: nobody writes to it for a while */
	UNIT_KINDS_N
};

/* The patterns of a user for names of units. */
struct unit_globs {
	const char *at[UNIT_GLOBS_MAX]; /* patterns, as fnmatch(3) takes them; the caller's */
	uint32_t n;                     /* number of patterns */
};

/* Returns whether a directory is a unit, from its path in the mirrored directory alone. */
bool unit_named(const char *path, const struct unit_globs *globs);
/* Returns whether a directory that holds a file of this name, directly, is a unit. */
bool unit_has_mark(const char *file);
/* Returns the kind of a unit, from the names of its n files (paths in the unit). path is the unit's
 * in the mirrored directory. Never UNIT_NONE. */
enum unit_kind unit_kind_of(const char *path, const char *const *files, size_t n);
const char *unit_kind_name(enum unit_kind kind); /* "trainer" */

/* Returns whether a file of a unit is an index, which names other files: unit_missing_shard reads
 * its bytes. */
bool unit_is_index(const char *file);
/* Returns whether files that an index names (its bytes: JSON with "weight_map") are missing, and
 * names one in why. An index that cannot be read counts as missing something. */
bool unit_missing_shard(const char *index, const void *bytes, size_t len_bytes,
	const char *const *files, size_t n, char why[UNIT_WHY_MAX]);
/* Returns whether the last file of this kind is missing, and says so in why. latest: text of the
 * file "latest" beside the unit, NULL if there is none. UNIT_QUIET: false. */
bool unit_missing_mark(enum unit_kind kind, const char *path, const char *const *files, size_t n,
	const char *latest, char why[UNIT_WHY_MAX]);
/* Returns why a file of a unit cannot be a part of a tag; NULL: it can. */
const char *unit_bad_file(const char *file);
/* Gets the name of the unit that a trainer_state.json calls the best: the last name of its path.
 * false: it names none. */
bool unit_best(const void *bytes, size_t len_bytes, char best[CKPT_TAG_MAX]);
/* Returns whether text, the content of a file beside the units such as "latest", names this unit:
 * by its name, or by its number if the file's own name begins with "latest". */
bool unit_is_named_by(const char *file, const char *text, const char *unit);

/* Gets the number at the end of a unit's name; false: there is none below 2^63. */
bool unit_step(const char *path, uint64_t *step);
/* Writes the tag of a unit: its path, with "%2F" for '/' and "%25" for '%'. false: no tag can have
 * that name. */
bool unit_tag(const char *path, char tag[CKPT_TAG_MAX]);
/* Gets the path of the unit that a tag holds; false: it is no tag of a unit. */
bool unit_path(const char *tag, char path[CKPT_TAG_MAX]);
/* Returns the length of the path of the directory that a unit lies in: 0 for "checkpoint-1", 3 for
 * "run/checkpoint-1". Units in one directory form a group. */
size_t unit_group_bytes(const char *path);
bool unit_same_group(const char *path, const char *other);
const char *unit_base(const char *path); /* last name of a path, in it */

#endif
