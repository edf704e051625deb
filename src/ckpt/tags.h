/*
 * The tags of a root: listing, opening, pins, quarantine, removal. root.h opens a root, which has
 * one of two kinds, and builds tags in it. Works through a store, so that the crash simulator can
 * stop it anywhere. docs/format.md has both layouts.
 *
 * A root of directories (root_posix.c):
 *
 *   <root>/<tag>/<file>…            partitions, valid torch zips
 *   <root>/<tag>/.pawl/manifest     see manifest.h
 *   <root>/<tag>/complete.txt       exactly "OK"
 *   <root>/.pawl.<tag>.new/…        being written (or, after an exchange, being deleted)
 *   <root>/.pawl.<tag>.old/…        the old one while a new one takes its place in two renames
 *   <root>/.pawl.<tag>.del/…        no longer kept by retention, being deleted
 *   <root>/.bad/<tag>.<n>/…         quarantined, with why.txt; at most TAGS_BAD_MAX are kept
 *
 * A root of objects (root_object.c):
 *
 *   <root>/<tag>/save-<id>/<file>…  partitions; never overwritten
 *   <root>/.pawl/tags/<tag>         the manifest; the tag exists exactly if this object does
 *   <root>/.pawl/bad/<tag>.<n>      quarantined manifest; its reason is in <tag>.<n>.why
 *
 * Both kinds:
 *
 *   <root>/latest                   optional, by other programs: names a tag to keep
 *   <root>/.pins                    pinned tags, one a line: "5" for global_step5, else "=tag"
 *
 * A directory is a tag if its name has no leading dot and it contains .pawl; other directories are
 * not ours, and are left alone. A link to a directory is a tag, too, and files of a tag may be
 * links to plain files. If anything else, such as a FIFO, has one of these names, nothing waits for
 * it, and it only makes a tag broken.
 */
#ifndef CKPT_TAGS_H
#define CKPT_TAGS_H

#include "ckpt/format/manifest.h"

struct pawl_err;
struct tags_root;

#define TAGS_MAX     100000u /* tags of one root */
#define TAGS_BAD_MAX 3u
#define TAG_PREFIX   "global_step" /* begins the name of a tag that is named after its step */

enum tag_state {
	/* complete.txt (directories) is OK, the manifest valid, every file there with its size; the
	 * payload was not read. */
	TAG_COMPLETE,
	TAG_BROKEN,   /* anything else under a tag's name */
	TAG_UNOPENED, /* not opened; internal, not in tags_list */
};

struct tag_info {
	char tag[CKPT_TAG_MAX];
	uint64_t step;        /* training step, by which tags are ordered */
	enum tag_state state; /* whether the tag was complete when it was opened */
	bool pinned;          /* never deleted by retention */
	uint64_t size_bytes;  /* size of all files in the manifest; 0 if broken */
	int64_t created_ns;   /* from the manifest; 0 if not read */
	uint32_t world;       /* ranks that saved */
	uint32_t files;       /* files in the manifest */
	char why[160];        /* why the tag is broken; "" if it is complete */
};

void tag_of_step(char *buf, size_t cap_bytes, uint64_t step);
/* Gets the step from the name of a tag that is named after it ("global_step" and digits, no leading
 * zero except in 0). Returns false for any other name. */
bool tag_parse(const char *name, uint64_t *step);
/* Returns whether a tag may have this name: 1 to CKPT_TAG_MAX - 1 bytes, no '/', no leading '.', no
 * control characters. */
bool tag_valid(const char *name);

/* Stops calls that may open many tags: asked is called before each tag, and if it returns true the
 * call ends with PAWL_ECANCELED. */
struct tags_stop {
	bool (*asked)(void *user);
	void *user; /* for the caller's use */
};

/* Lists all tags, each opened and checked, ascending by step and then by age. The caller frees
 * *tags. */
int tags_list(struct tags_root *root, const struct tags_stop *stop, struct tag_info **tags,
	size_t *n, struct pawl_err *err);

/* A tag and its step, mostly known from the name alone. */
struct tag_step {
	char tag[CKPT_TAG_MAX];
	uint64_t step;      /* training step */
	int64_t created_ns; /* from the manifest; 0 if it was not read, or cannot be read */
	/* Named after its step. If no other tag has the same step, only the name was read, and the
	 * directory may not be a tag of ours. */
	bool named;
};

/* Lists tags in the order of tags_list, from their names alone: reads only the manifests of tags
 * that are not named after their step, and of those that share a step with another tag. */
int tags_steps(struct tags_root *root, const struct tags_stop *stop, struct tag_step **tags,
	size_t *n, struct pawl_err *err);
/* Finds the last tag in that order, complete or not. PAWL_ENOENT: there is none. */
int tags_highest(struct tags_root *root, const struct tags_stop *stop, struct tag_step *tag,
	struct pawl_err *err);

/* Options of a search for the newest complete tag. */
struct tags_search {
	const struct tags_stop *stop; /* NULL: never stop */
	/* NULL, or called for each tag that is skipped, from the newest down: damaged (why->code is
	 * PAWL_ECORRUPT), or tag_access_denied(why). It may quarantine that tag. */
	void (*on_skipped)(void *user, const char *tag, const struct pawl_err *why);
	void *user; /* passed to on_skipped */
};

/* Opens tags from the newest down to the first that is complete; older ones are not opened.
 * PAWL_ENOENT: there is no tag; PAWL_ECORRUPT: all are damaged, and err is that of the newest;
 * PAWL_EIO: one may not be read and no older one is complete; or the storage fails. */
int tags_newest(struct tags_root *root, const struct tags_search *search, struct manifest *manifest,
	struct pawl_err *err);
/* Returns whether an error says that we may not read the tag, complete or not. */
bool tag_access_denied(const struct pawl_err *why);
/* Sets *has: whether something in the root has the name of this tag, whether Pawl made it or
 * not. */
int tag_has_name(struct tags_root *root, const char *tag, bool *has, struct pawl_err *err);
/* Opens a tag: reads and checks complete.txt, manifest and file sizes. PAWL_ENOENT if there is no
 * such tag, PAWL_ECORRUPT if it is broken. */
int tag_open(struct tags_root *root, const char *tag, struct manifest *manifest,
	struct pawl_err *err);
/* Opens a tag as tag_open does, but does not require complete.txt. Objects have none. */
int tag_open_unsealed(struct tags_root *root, const char *tag, struct manifest *manifest,
	struct pawl_err *err);
/* Writes complete.txt of a tag, durably. Called by the one owner of the root, which has verified
 * every byte of the tag. Objects: does nothing. */
int tag_seal(struct tags_root *root, const char *tag, struct pawl_err *err);
/* Checks that .pins can be read. PAWL_ECORRUPT if not: then every tag counts as pinned. */
int tags_check_pins(struct tags_root *root, struct pawl_err *err);

/* What a crash left behind, and what tags_recover does about it. */
struct tag_leftover {
	char name[MANIFEST_FOLDER_MAX]; /* path in the root: hidden directory, or folder of files */
	char tag[CKPT_TAG_MAX];         /* tag that it belongs to */
	bool put_back;                  /* true: it is renamed to tag; false: removed */
	bool draft;                     /* what a save was building, or is if the root is in use */
};
/* Lists all leftovers, in no order. The caller frees *left. */
int tags_leftovers(struct tags_root *root, struct tag_leftover **left, size_t *n,
	struct pawl_err *err);
/* Recovers at start, called by the one owner of the root: removes what a crash left unfinished, and
 * finishes an interrupted replacement first. Objects: while a manifest cannot be read, all
 * stays. */
int tags_recover(struct tags_root *root, struct pawl_err *err);

/* Takes a bad tag out of the list, and keeps it with the reason. Succeeds also if there is no such
 * tag. */
int tag_quarantine(struct tags_root *root, const char *tag, const char *why, struct pawl_err *err);
/* Lists the paths in the store of what tag_quarantine kept, in no order and not more than some
 * thousands; store_remove removes each. The caller frees them by tags_free_paths. */
int tags_list_bad(struct tags_root *root, char ***paths, size_t *n, struct pawl_err *err);
void tags_free_paths(char **paths, size_t n);
/* Deletes a tag, pinned or not: no reader finds it any more, then its files are removed. Succeeds
 * also if it does not exist. */
int tag_remove(struct tags_root *root, const char *tag, struct pawl_err *err);
/* Deletes those of n tags that keep does not mark: no reader finds any of them, durably, before the
 * first file is removed. */
int tags_drop(struct tags_root *root, const struct tag_info *tags, size_t n, const bool *keep,
	struct pawl_err *err);
/* Marks in keep the tags of a root that the rule (retain.h) keeps, and the one that its file
 * "latest" names. Opens tags that are TAG_UNOPENED where that makes a difference. */
struct retain_rule;
int tags_plan_retain(struct tags_root *root, const struct retain_rule *rule, struct tag_info *tags,
	size_t n, bool *keep, struct pawl_err *err);
/* Deletes the tags that the rule does not keep; opens no tag that stays in any case. Call it only
 * after a newer tag is durable. */
int tags_retain(struct tags_root *root, const struct retain_rule *rule, struct pawl_err *err);
int tag_pin(struct tags_root *root, const char *tag, bool pinned, struct pawl_err *err);
/* Finds the newest tag of a step: "global_step<step>" if it exists, else another tag of that step.
 * PAWL_ENOENT. */
int tag_find_step(struct tags_root *root, uint64_t step, char tag[CKPT_TAG_MAX],
	struct pawl_err *err);

#endif
