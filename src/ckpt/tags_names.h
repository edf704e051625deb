/* The names in a root and lists of them, for the tags_*.c files alone: see tags.h. */
#ifndef CKPT_TAGS_NAMES_H
#define CKPT_TAGS_NAMES_H

#include "ckpt/tags.h"

#include <stdbool.h>

#define TAG_NAME_MAX      (CKPT_TAG_MAX + 32u) /* bytes of a hidden or numbered name */
#define TAG_PATH_MAX      (2u * TAG_NAME_MAX)  /* bytes of a path in such a directory */
#define TAG_BAD_DIR       ".bad"
#define TAG_HIDDEN_PREFIX ".pawl." /* begins the hidden names of a tag */
#define TAG_OK            "OK"     /* content of complete.txt */
#define TAG_OK_BYTES      2u

struct tag_name {
	char name[TAG_NAME_MAX];
	/* The step of a tag that is named after it, else 0; or the number of a quarantined tag. */
	uint64_t number;
};

/* The directories in a directory that are of the wanted kind, ascending by number. */
struct tag_names {
	struct tag_name *at; /* owned by the caller of the listing, which frees it */
	size_t n;            /* number of names */
	size_t cap;          /* names allocated */
	bool (*wanted)(struct tag_name *name); /* whether to list a name; fills number */
	int rv;                                /* why the listing stopped, or 0 */
};

/* Parses digits up to end: no sign, no leading zero, no overflow. */
bool tags_parse_number(const char *at, const char *end, uint64_t *number);
/* Checks that tag is a valid name of a tag. PAWL_EINVAL. */
int tags_check_name(const char *tag, struct pawl_err *err);
/* Sets *ours: whether a directory of this name (a tag's, or hidden) exists and contains .pawl. */
int tags_is_ours(struct store *store, const char *name, bool *ours, struct pawl_err *err);
/* Sets *is_tag: whether a directory with a valid tag name is a tag. If we may not read it, it
 * counts as a tag only if it is named after a step. */
int tags_is_tag(struct store *store, const char *name, bool *is_tag, struct pawl_err *err);
/* Returns the number by which to order a tag that has its step neither in its name nor in a
 * readable manifest: the number at the end of its name. */
uint64_t tags_trailing_number(const char *tag);
/* Compares tags, for qsort: by step, then by age. */
int tags_compare(uint64_t step, int64_t created_ns, uint64_t other_step, int64_t other_created_ns);
/* Lists all names of tags, as tags_steps does, with their pins and nothing else. The caller frees
 * *tags. */
int tags_unopened(struct store *store, const struct tags_stop *stop, struct tag_info **tags,
	size_t *n, struct pawl_err *err);
/* Opens and checks info->tag, and fills the rest of info with the result. */
void tags_inspect(struct store *store, struct tag_info *info);
/* Reads the manifest of a tag, and checks that it is this tag's. tag_open checks the rest. */
int tags_read_manifest(struct store *store, const char *tag, struct manifest *manifest,
	struct pawl_err *err);
/* Returns 0, or PAWL_ECANCELED if stop (NULL: never) asks for it. */
int tags_check_stop(const struct tags_stop *stop, struct pawl_err *err);
/* Writes a hidden name such as ".pawl.global_step5.new". */
void tags_hide_name(char name[TAG_NAME_MAX], const char *tag, const char *suffix);
/* Gets the tag from a hidden name; false if name is not one. */
bool tags_parse_hidden(const char *name, char tag[CKPT_TAG_MAX]);

/* The wanted kinds of names: tags; hidden names of tags; names that end in ".<number>". */
bool tags_want_tag(struct tag_name *name);
bool tags_want_hidden(struct tag_name *name);
bool tags_want_numbered(struct tag_name *name);
int tags_list_names(struct store *store, const char *dir, bool (*wanted)(struct tag_name *name),
	struct tag_names *names, struct pawl_err *err);

/* Sets *has: whether a file or directory exists at path. */
int tags_has_path(struct store *store, const char *path, bool *has, struct pawl_err *err);

#endif
