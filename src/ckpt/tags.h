/*
 * The tags of a root: listing, publishing, putting aside, deleting. Works through a store, so the
 * crash simulator can stop it anywhere.
 *
 *   <root>/<tag>/<file>…            partitions, valid torch zips
 *   <root>/<tag>/.pawl/manifest     see manifest.h
 *   <root>/<tag>/complete.txt       exactly "OK"
 *   <root>/.pawl.<tag>.new/…             being written (or, after an exchange, being deleted)
 *   <root>/.pawl.<tag>.old/…             the old one while a new one takes its place in two renames
 *   <root>/.pawl.<tag>.del/…             let go by retention, being deleted
 *   <root>/.bad/<tag>.<n>/…         put aside, with why.txt; at most TAGS_BAD_MAX are kept
 *   <root>/latest                   if there: somebody's own, names a tag that must stay
 *   <root>/.pins                    pinned tags, one a line: "5" for global_step5, else "=tag"
 *
 * A directory is a tag if it has any name without a dot in front and .pawl in it; others are not
 * ours, and left alone. A link to a directory is one, too, and files of a tag may be links to plain
 * files. Anything else may stand under any of these names: it is never waited for, and makes a tag
 * broken, no more.
 *
 * Publishing: all of .pawl.<tag>.new made durable in the order data, manifest, complete.txt; then
 * one rename (an exchange when the tag exists) and a sync of the root. So no reader ever sees half
 * a tag under its name, and a step saved again replaces the old one in one instant.
 */
#ifndef CKPT_TAGS_H
#define CKPT_TAGS_H

#include "ckpt/manifest.h"

struct pawl_err;
struct store;

#define TAGS_MAX     100000u /* tags of one root */
#define TAGS_BAD_MAX 3u
#define TAG_PREFIX   "global_step" /* of tags that are called by their step */

enum tag_state {
	TAG_COMPLETE, /* complete.txt is OK, manifest valid, every file there with its size; payload
			 not read */
	TAG_BROKEN,   /* anything else under a tag's name */
	TAG_UNOPENED, /* not looked at: no list that is returned has any */
};

struct tag_info {
	char tag[CKPT_TAG_MAX];
	uint64_t step;        /* of training: what tags are ordered by */
	enum tag_state state; /* as checked, see above */
	bool pinned;          /* never deleted by retention */
	uint64_t size_bytes;  /* of all files in the manifest; 0 if broken */
	int64_t created_ns;   /* from the manifest; 0 if it was not read */
	uint32_t world;       /* ranks that saved */
	uint32_t files;       /* in the manifest */
	char why[160];        /* what is broken */
};

void tag_of_step(char *buf, size_t cap_bytes, uint64_t step);
/* Where a tag is being built, see tag_begin. */
void tag_new_dir(char *buf, size_t cap_bytes, const char *tag);
/* true and the step if name is a tag that is called by its step ("global_step" and digits, no
 * leading zero but for 0) */
bool tag_parse(const char *name, uint64_t *step);
/* Whether a tag may be called so: 1 to CKPT_TAG_MAX - 1 bytes, no '/', no '.' in front, no control
 * characters. */
bool tag_valid(const char *name);

/* Asked before each tag that is opened, where there may be many: true has the call end with
 * PAWL_ECANCELED. */
struct tags_stop {
	bool (*asked)(void *user);
	void *user; /* the caller's */
};

/* All tags, each opened and checked, ascending by step and then by age; the caller frees *tags. */
int tags_list(struct store *store, const struct tags_stop *stop, struct tag_info **tags, size_t *n,
	struct pawl_err *err);

/* A tag by its name. */
struct tag_step {
	char tag[CKPT_TAG_MAX];
	uint64_t step;      /* of training */
	int64_t created_ns; /* from the manifest; 0 if it was not, or cannot be, read */
	bool named;         /* called by its step. Nothing but its name was looked at, if no other
			       tag has its step: it may be a directory that is not ours */
};

/* Tags in the order of tags_list, from their names alone: only the manifests of those that are not
 * called by their step are read, and of those that share a step with one. */
int tags_steps(struct store *store, const struct tags_stop *stop, struct tag_step **tags, size_t *n,
	struct pawl_err *err);
/* The last of these that is a tag, whole or not. PAWL_ENOENT: there is none. */
int tags_highest(struct store *store, const struct tags_stop *stop, struct tag_step *tag,
	struct pawl_err *err);

/* How to look for the newest tag that is whole. */
struct tags_search {
	const struct tags_stop *stop; /* NULL: never */
	/* NULL, or told of each tag that was passed by, from the newest down: damaged (why->code
	 * is PAWL_ECORRUPT), or tag_is_closed(why). It may put that tag aside. */
	void (*met)(void *user, const char *tag, const struct pawl_err *why);
	void *user; /* the caller's, for met */
};

/* From the newest down to the first that is whole: none behind it is opened. PAWL_ENOENT: there is
 * no tag; PAWL_ECORRUPT: only damaged ones, err being the newest's; PAWL_EIO: one may not be read
 * and no older one is whole; or the storage fails. */
int tags_newest(struct store *store, const struct tags_search *search, struct manifest *manifest,
	struct pawl_err *err);
/* Whether an error says that the tag may not be read by us, whole or not. */
bool tag_is_closed(const struct pawl_err *why);
/* Reads and checks complete.txt, manifest and file sizes. PAWL_ENOENT if there is no such tag,
 * PAWL_ECORRUPT if it is broken. */
int tag_open(struct store *store, const char *tag, struct manifest *manifest, struct pawl_err *err);
/* The same, but complete.txt is not asked for: what a tag without it holds. */
int tag_open_unsealed(struct store *store, const char *tag, struct manifest *manifest,
	struct pawl_err *err);
/* Says, durably, that a tag is complete. Called by the one owner of the root, who has verified
 * every byte of it. */
int tag_seal(struct store *store, const char *tag, struct pawl_err *err);
/* PAWL_ECORRUPT if .pins cannot be read as such: then every tag counts as pinned. */
int tags_check_pins(struct store *store, struct pawl_err *err);

/* A hidden name that a crash left behind, and what tags_recover does about it. */
struct tag_leftover {
	char name[CKPT_TAG_MAX + 32]; /* in the root */
	char tag[CKPT_TAG_MAX];       /* that it belongs to */
	bool put_back;                /* it is renamed to tag; else removed */
};
/* All of them, in no order; the caller frees *left. */
int tags_leftovers(struct store *store, struct tag_leftover **left, size_t *n,
	struct pawl_err *err);
/* At start, by the one owner of the root: removes .pawl.<tag>.new left by a crash (finishing an
 * interrupted replacement first). */
int tags_recover(struct store *store, struct pawl_err *err);

/* Makes an empty .pawl.<tag>.new (removing a leftover); its name goes to dir. */
int tag_begin(struct store *store, const char *tag, char *dir, size_t dir_cap_bytes,
	struct pawl_err *err);
/* Manifest, complete.txt, rename, each durable before the next. The partitions must be written and
 * synced. See above. */
int tag_publish(struct store *store, const char *tag, const struct manifest *manifest,
	struct pawl_err *err);
/* What others put into the tag's directory, whose manifest is ours, will be in the one being built
 * too, for the sync that publishing begins with. */
int tag_adopt(struct store *store, const char *tag, const struct manifest *ours,
	struct pawl_err *err);
void tag_abandon(struct store *store, const char *tag); /* removes .pawl.<tag>.new, best effort */

/* Moves a bad tag to .bad with why.txt. Also right when the tag has vanished. */
int tag_put_aside(struct store *store, const char *tag, const char *why, struct pawl_err *err);
/* Deletes a tag, pinned or not: first renamed away, then removed. Also right when it is not
 * there. */
int tag_remove(struct store *store, const char *tag, struct pawl_err *err);
/* Deletes those of n tags that keep does not mark: all are renamed away, durably, then removed. */
int tags_drop(struct store *store, const struct tag_info *tags, size_t n, const bool *keep,
	struct pawl_err *err);
/* Marks in keep what the rule (retain.h) keeps of all tags of a root, and what its file "latest"
 * names. Tags that are TAG_UNOPENED are opened where that makes a difference. */
struct retain_rule;
int tags_plan_retain(struct store *store, const struct retain_rule *rule, struct tag_info *tags,
	size_t n, bool *keep, struct pawl_err *err);
/* Deletes what the rule lets go; opens no tag that stays whatever it holds. Called only after a
 * newer tag is durable. */
int tags_retain(struct store *store, const struct retain_rule *rule, struct pawl_err *err);
int tag_pin(struct store *store, const char *tag, bool pinned, struct pawl_err *err);
/* The newest tag of a step: "global_step<step>" if there is one, else another that says so.
 * PAWL_ENOENT. */
int tag_find_step(struct store *store, uint64_t step, char tag[CKPT_TAG_MAX], struct pawl_err *err);

#endif
