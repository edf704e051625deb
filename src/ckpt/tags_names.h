/* The names in a root and lists of them, for the files of tags and roots alone: see tags.h. */
#ifndef CKPT_TAGS_NAMES_H
#define CKPT_TAGS_NAMES_H

#include "ckpt/tags.h"
#include "store/store.h"

#include <stdbool.h>

#define TAG_NAME_MAX (CKPT_TAG_MAX + 32u) /* bytes of a hidden or numbered name */
#define TAG_PATH_MAX (2u * TAG_NAME_MAX)  /* bytes of a path in such a directory */

struct tag_name {
	char name[TAG_NAME_MAX];
	/* The step of a tag that is named after it, else 0; or the number of a quarantined tag. */
	uint64_t number;
};

/* The names in a folder that are wanted, ascending by number. */
struct tag_names {
	struct tag_name *at;  /* owned by the caller of the listing, which frees it */
	size_t n;             /* number of names */
	size_t cap;           /* names allocated */
	enum store_kind kind; /* what has a name that is listed */
	bool (*wanted)(struct tag_name *name); /* whether to list a name; fills number */
	int rv;                                /* why the listing stopped, or 0 */
};

/* Parses digits up to end: no sign, no leading zero, no overflow. */
bool tags_parse_number(const char *at, const char *end, uint64_t *number);
/* Checks that tag is a valid name of a tag. PAWL_EINVAL. */
int tags_check_name(const char *tag, struct pawl_err *err);
/* Sets *is_tag: whether what has a valid tag name is a tag. If we may not read it, it counts as a
 * tag only if it is named after a step. */
int tags_is_tag(struct tags_root *root, const char *name, bool *is_tag, struct pawl_err *err);
/* Returns the number by which to order a tag that has its step neither in its name nor in a
 * readable manifest: the number at the end of its name. */
uint64_t tags_trailing_number(const char *tag);
/* Compares tags, for qsort: by step, then by age. */
int tags_compare(uint64_t step, int64_t created_ns, uint64_t other_step, int64_t other_created_ns);
/* Lists all names of tags, as tags_steps does, with their pins and nothing else. The caller frees
 * *tags. */
int tags_unopened(struct tags_root *root, const struct tags_stop *stop, struct tag_info **tags,
	size_t *n, struct pawl_err *err);
/* Opens and checks info->tag, and fills the rest of info with the result. */
void tags_inspect(struct tags_root *root, struct tag_info *info);
/* Reads the manifest of a tag, and checks that it is this tag's. tag_open checks the rest. */
int tags_read_manifest(struct tags_root *root, const char *tag, struct manifest *manifest,
	struct pawl_err *err);
/* Returns 0, or PAWL_ECANCELED if stop (NULL: never) asks for it. */
int tags_check_stop(const struct tags_stop *stop, struct pawl_err *err);
/* Makes a failure PAWL_ECORRUPT if a required file is missing, or is no plain file or too long: the
 * tag is then broken. Other failures stay as they are. */
int tags_as_broken(int rv, const char *tag, const char *what, struct pawl_err *err);

/* The wanted kinds of names: tags; names that end in ".<number>". */
bool tags_want_tag(struct tag_name *name);
bool tags_want_numbered(struct tag_name *name);
/* Lists the names of this kind in a folder of the store, "" for the root, that wanted accepts. The
 * caller frees names->at. */
int tags_list_names(struct store *store, const char *dir, enum store_kind kind,
	bool (*wanted)(struct tag_name *name), struct tag_names *names, struct pawl_err *err);

/* Sets *has: whether a file or directory exists at path. */
int tags_has_path(struct store *store, const char *path, bool *has, struct pawl_err *err);

#endif
