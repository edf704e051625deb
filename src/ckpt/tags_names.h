/* The names in a root and the lists of them, for the tags_*.c files alone: see tags.h. */
#ifndef CKPT_TAGS_NAMES_H
#define CKPT_TAGS_NAMES_H

#include "ckpt/tags.h"

#include <stdbool.h>

#define TAG_NAME_MAX (CKPT_TAG_MAX + 32u) /* a tag with a dot, suffix or number, and terminator */
#define TAG_PATH_MAX (2u * TAG_NAME_MAX)  /* of what lies in such a directory */
#define TAG_BAD_DIR  ".bad"
#define TAG_HIDDEN   ".pawl." /* in front of a tag that is not in place */
#define TAG_OK       "OK"     /* complete.txt, whole */
#define TAG_OK_BYTES 2u

struct tag_name {
	char name[TAG_NAME_MAX];
	uint64_t number; /* the step of a tag that is called by it, else 0; the number of what was
			    put aside */
};

/* The directories in a directory that are of the kind asked for, ascending by number. */
struct tag_names {
	struct tag_name *at;                   /* owned by who listed: free() it */
	size_t n;                              /* names in it */
	size_t cap;                            /* allocated */
	bool (*wanted)(struct tag_name *name); /* fills number */
	int rv;                                /* why the listing stopped, or 0 */
};

/* Digits up to end: no sign, no leading zero, no overflow. */
bool tags_parse_number(const char *at, const char *end, uint64_t *number);
/* PAWL_EINVAL for what is not a tag's name. */
int tags_check_name(const char *tag, struct pawl_err *err);
/* Whether there is a directory of this name (a tag's, or hidden) that we made: it has .pawl in
 * it. */
int tags_is_ours(struct store *store, const char *name, bool *ours, struct pawl_err *err);
/* The same of what lies in a root under a name that a tag may have. Where that cannot be looked
 * into for want of rights, only one that is called by a step counts as a tag. */
int tags_is_tag(struct store *store, const char *name, bool *is_tag, struct pawl_err *err);
/* What a tag that is not called by its step, and does not tell it, is ordered by: the number it
 * ends with. */
uint64_t tags_trailing_number(const char *tag);
/* The order of tags, for qsort: by step, then by age. */
int tags_compare(uint64_t step, int64_t created_ns, uint64_t other_step, int64_t other_created_ns);
/* All that have a tag's name, as tags_steps has them, with their pins and nothing else; the caller
 * frees *tags. */
int tags_unopened(struct store *store, const struct tags_stop *stop, struct tag_info **tags,
	size_t *n, struct pawl_err *err);
/* Opens and checks info->tag; the rest of info says what was found. */
void tags_look(struct store *store, struct tag_info *info);
/* The manifest of a tag, and that it is this tag's. As tag_open, which checks the rest. */
int tags_read_manifest(struct store *store, const char *tag, struct manifest *manifest,
	struct pawl_err *err);
/* PAWL_ECANCELED if stop (NULL: never) wants it so. */
int tags_check_stop(const struct tags_stop *stop, struct pawl_err *err);
/* ".pawl.global_step5.new" */
void tags_hide_name(char name[TAG_NAME_MAX], const char *tag, const char *suffix);
/* The tag behind such a name; false if it is none. */
bool tags_parse_hidden(const char *name, char tag[CKPT_TAG_MAX]);

/* What to list: tags; hidden names of tags; names that end in ".<number>". */
bool tags_want_tag(struct tag_name *name);
bool tags_want_hidden(struct tag_name *name);
bool tags_want_numbered(struct tag_name *name);
int tags_list_names(struct store *store, const char *dir, bool (*wanted)(struct tag_name *name),
	struct tag_names *names, struct pawl_err *err);

/* Whether there is a file or directory at path. */
int tags_has_path(struct store *store, const char *path, bool *has, struct pawl_err *err);

#endif
