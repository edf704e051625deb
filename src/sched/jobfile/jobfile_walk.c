/* Keys of mappings: known, refused and mistyped ones, and reports about them: see
 * jobfile_impl.h. */
#include "sched/jobfile/jobfile_impl.h"

#include "base/assert.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define KEY_COMPARE_MAX 32u /* bytes of a key that is compared with others, at most */

void jobfile_add_error(struct jobfile *f, const struct tree_node *at, const char *fmt, ...)
{
	char text[REMARK_TEXT_MAX];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	remarks_add(f->remarks, at->line, at->column, "%s", text);
}

void jobfile_add_note(struct jobfile *f, const struct tree_node *at, const char *fmt, ...)
{
	struct remarks *to = f->given->strict ? f->remarks : f->notes;
	char text[REMARK_TEXT_MAX];
	va_list args;

	if (!to) {
		return;
	}
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	remarks_add(to, at->line, at->column, "%s", text);
}

void jobfile_add_ignored(struct jobfile *f, const char *key, const struct tree_node *at,
	const char *why)
{
	for (uint32_t i = 0; i < f->ignored_n; i++) {
		if (strcmp(f->ignored[i], key) == 0) {
			return;
		}
	}
	ASSERT(f->ignored_n < JOBFILE_IGNORED_MAX);
	f->ignored[f->ignored_n++] = key;
	jobfile_add_note(f, at, "%s: without effect here: %s", key, why);
}

void jobfile_bad_value(struct jobfile *f, const char *key, const struct tree_node *value,
	const char *needed)
{
	static const char *const kinds[] = {"nothing", "a boolean", "a number", "a string",
		"a list", "a mapping"};

	_Static_assert(sizeof(kinds) / sizeof(*kinds) == TREE_MAP + 1, "one for each kind");
	char shown[REMARK_SHOW_MAX];

	if (value->kind == TREE_NULL || value->kind >= TREE_LIST) {
		jobfile_add_error(f, value, "%s: %s is given; %s is needed", key,
			kinds[value->kind], needed);
	} else if (f->hidden) {
		jobfile_add_error(f, value, "%s: it is %s; %s is needed", key, kinds[value->kind],
			needed);
	} else {
		const char *quote = value->kind == TREE_TEXT ? "\"" : "";

		remark_show(shown, value->text, value->len_bytes);
		jobfile_add_error(f, value, "%s: %s%s%s is %s; %s is needed", key, quote, shown,
			quote, kinds[value->kind], needed);
	}
}

/* ---- similar words ---- */

static uint32_t least_of(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Returns the least number of changes of a character that turn one word into the other, whatever
 * their case. UINT32_MAX: a word is too long. */
static uint32_t word_distance(const char *a, const char *b)
{
	uint32_t before[KEY_COMPARE_MAX + 1];
	uint32_t now[KEY_COMPARE_MAX + 1];
	size_t a_len = strlen(a);
	size_t b_len = strlen(b);

	if (a_len > KEY_COMPARE_MAX || b_len > KEY_COMPARE_MAX) {
		return UINT32_MAX;
	}
	for (uint32_t j = 0; j <= b_len; j++) {
		before[j] = j;
	}
	for (uint32_t i = 1; i <= a_len; i++) {
		now[0] = i;
		for (uint32_t j = 1; j <= b_len; j++) {
			uint32_t swap = before[j - 1] +
				(tolower((unsigned char)a[i - 1]) !=
					tolower((unsigned char)b[j - 1]));

			now[j] = least_of(swap, 1 + least_of(before[j], now[j - 1]));
		}
		memcpy(before, now, sizeof(before));
	}
	return before[b_len];
}

/* Returns the key that was probably meant; NULL: none is similar. */
static const char *find_near(const struct jobfile_key *keys, const char *word)
{
	uint32_t most = 1 + (uint32_t)strlen(word) / 4;
	const char *near = NULL;

	for (; keys->name; keys++) {
		uint32_t distance = word_distance(word, keys->name);

		if (distance < most || (distance == most && !near)) {
			most = distance;
			near = keys->name;
		}
	}
	return near;
}

static const struct jobfile_key *find_key(const struct jobfile_key *keys, const char *word)
{
	while (keys && keys->name && strcmp(keys->name, word) != 0) {
		keys++;
	}
	return keys && keys->name ? keys : NULL;
}

/* Returns Pawl's key for a word that other tools use; NULL: none. */
static const char *find_other_name(const struct jobfile_key *keys, const char *word)
{
	static const char *const names[][2] = {{"working_dir", "workdir"}, {"environment", "envs"},
		{"env_vars", "envs"}, {"nodes", "num_nodes"}, {"nnodes", "num_nodes"},
		{"storage_mounts", "file_mounts"}, {"command", "run"}, {"script", "run"},
		{"timeout", "time_limit"}};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (strcmp(word, names[i][0]) == 0 && find_key(keys, names[i][1])) {
			return names[i][1];
		}
	}
	return NULL;
}

/* ---- a mapping ---- */

/* Lists the names of supported keys, in a line. */
static const char *list_keys(char *buf, size_t cap_bytes, const struct jobfile_key *keys)
{
	size_t len = 0;

	buf[0] = '\0';
	for (; keys->name && len < cap_bytes; keys++) {
		if (keys->read) {
			len += (size_t)snprintf(buf + len, cap_bytes - len, "%s%s",
				len > 0 ? ", " : "", keys->name);
		}
	}
	return buf;
}

static void report_unknown_key(struct jobfile *f, const struct tree_node *key,
	const struct jobfile_key *keys, const struct jobfile_key *elsewhere, const char *where)
{
	const char *other = find_other_name(keys, key->text);
	const char *near = other ? other : find_near(keys, key->text);
	char all[REMARK_TEXT_MAX / 2];
	char shown[REMARK_SHOW_MAX];

	remark_show(shown, key->text, key->len_bytes);
	if (find_key(elsewhere, key->text)) {
		jobfile_add_error(f, key, "%s is a key of %s, and not allowed here", shown, where);
	} else if (near) {
		jobfile_add_error(f, key, "unknown key %s: did you mean %s?", shown, near);
	} else {
		jobfile_add_error(f, key, "unknown key %s; the known keys are %s", shown,
			list_keys(all, sizeof(all), keys));
	}
}

static void take_item(struct jobfile *f, const struct jobfile_key *key,
	const struct tree_item *item, void *into)
{
	if (key->read) {
		key->read(f, key->name, item->value, into);
	} else if (key->ignored) {
		jobfile_add_ignored(f, key->name, item->key, key->why);
	} else {
		jobfile_add_error(f, item->key, "%s: %s", key->name, key->why);
	}
}

void jobfile_walk(struct jobfile *f, const struct tree_node *map, const struct jobfile_key *keys,
	const struct jobfile_key *elsewhere, const char *where, void *into)
{
	for (const struct tree_item *item = map->items; item; item = item->next) {
		const char *word = item->key->kind == TREE_NULL ? "" : jobfile_scalar(item->key);
		const struct jobfile_key *key = find_key(keys, word ? word : "");

		if (!key) {
			report_unknown_key(f, item->key, keys, elsewhere, where);
		} else if (item->value->kind != TREE_NULL) { /* a null value counts as missing */
			take_item(f, key, item, into);
		}
	}
}
