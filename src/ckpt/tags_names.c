/* Names of tags, and listings of folders: see tags_names.h. */
#include "ckpt/tags_names.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_FIRST 64u             /* names allocated at first; doubled when full */
#define NAMES_MAX   (4u * TAGS_MAX) /* names of one directory that are listed, at most */

void tag_of_step(char *buf, size_t cap_bytes, uint64_t step)
{
	snprintf(buf, cap_bytes, TAG_PREFIX "%" PRIu64, step);
}

bool tags_parse_number(const char *at, const char *end, uint64_t *number)
{
	uint64_t v = 0;

	ASSERT(at <= end);
	if (at == end || (*at == '0' && end - at > 1)) {
		return false;
	}
	for (; at < end; at++) {
		if (*at < '0' || *at > '9' || __builtin_mul_overflow(v, 10, &v) ||
			__builtin_add_overflow(v, (uint64_t)(*at - '0'), &v)) {
			return false;
		}
	}
	*number = v;
	return true;
}

bool tag_parse(const char *name, uint64_t *step)
{
	size_t prefix = strlen(TAG_PREFIX);

	return strncmp(name, TAG_PREFIX, prefix) == 0 &&
		tags_parse_number(name + prefix, name + strlen(name), step);
}

bool tag_valid(const char *name)
{
	size_t len_bytes = strlen(name);

	for (size_t i = 0; i < len_bytes; i++) {
		if ((unsigned char)name[i] < ' ' || name[i] == 0x7f || name[i] == '/') {
			return false;
		}
	}
	return len_bytes > 0 && len_bytes < CKPT_TAG_MAX && name[0] != '.';
}

int tags_check_name(const char *tag, struct pawl_err *err)
{
	if (tag_valid(tag)) {
		return 0;
	}
	return pawl_err_set(err, PAWL_EINVAL,
		"'%s' is not a valid tag: 1 to %u bytes, no '/', no leading '.', no control "
		"characters",
		tag, CKPT_TAG_MAX - 1);
}

/* ---- lists of names ---- */

/* Collects a name, since the store must not change during a listing. */
static int add_name(void *user, const char *text, enum store_kind kind)
{
	struct tag_names *names = user;
	struct tag_name name = {.number = 0};

	if (kind != names->kind || strlen(text) >= sizeof(name.name)) {
		return 0;
	}
	memcpy(name.name, text, strlen(text) + 1);
	if (!names->wanted(&name)) {
		return 0;
	}
	if (names->n == names->cap) {
		size_t cap = names->cap == 0 ? NAMES_FIRST : names->cap * 2;
		struct tag_name *at;

		if (names->n >= NAMES_MAX) {
			names->rv = PAWL_ELIMIT;
			return 1;
		}
		at = FAULT_MEM("tags.names", realloc(names->at, cap * sizeof(*at)));
		if (at == NULL) {
			names->rv = PAWL_ENOMEM;
			return 1;
		}
		names->at = at;
		names->cap = cap;
	}
	names->at[names->n++] = name;
	return 0;
}

static int compare_numbers(const void *a, const void *b)
{
	const struct tag_name *x = a;
	const struct tag_name *y = b;

	return (x->number > y->number) - (x->number < y->number);
}

int tags_list_names(struct store *store, const char *dir, enum store_kind kind,
	bool (*wanted)(struct tag_name *name), struct tag_names *names, struct pawl_err *err)
{
	int rv;

	*names = (struct tag_names){.kind = kind, .wanted = wanted};
	rv = store_list(store, dir, add_name, names, err);
	if (rv == 0 && names->rv != 0) {
		rv = pawl_err_set(err, names->rv, "list tags: %s",
			names->rv == PAWL_ELIMIT ? "too many" : "out of memory");
	}
	if (rv != 0) {
		free(names->at);
		names->at = NULL;
		return rv;
	}
	if (names->n > 0) {
		qsort(names->at, names->n, sizeof(*names->at), compare_numbers);
	}
	return 0;
}

bool tags_want_tag(struct tag_name *name)
{
	name->number = 0;
	return tag_parse(name->name, &name->number) || tag_valid(name->name);
}

bool tags_want_numbered(struct tag_name *name)
{
	const char *dot = strrchr(name->name, '.');

	return dot != NULL &&
		tags_parse_number(dot + 1, name->name + strlen(name->name), &name->number);
}

int tags_has_path(struct store *store, const char *path, bool *has, struct pawl_err *err)
{
	int rv = store_stat(store, path, NULL, NULL, err);

	*has = rv == 0;
	return rv == PAWL_ENOENT ? 0 : rv;
}
