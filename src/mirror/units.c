/* Tells which directories are units, and when they are whole: see units.h. */
#include "mirror/units.h"

#include "base/text.h"
#include "ckpt/tags.h"

#include <ctype.h>
#include <fnmatch.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRAINER_MARK "trainer_state.json"
#define DCP_MARK     ".metadata"

/* ---- names ---- */

const char *unit_base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

size_t unit_group_bytes(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? (size_t)(slash - path) : 0;
}

bool unit_same_group(const char *path, const char *other)
{
	size_t len = unit_group_bytes(path);

	return len == unit_group_bytes(other) && strncmp(path, other, len) == 0;
}

/* Returns the length of the digits at the end of a name. */
static size_t digits_at_end(const char *name)
{
	size_t len = strlen(name);
	size_t n = 0;

	while (n < len && isdigit((unsigned char)name[len - 1 - n])) {
		n++;
	}
	return n;
}

bool unit_step(const char *path, uint64_t *step)
{
	const char *base = unit_base(path);
	size_t digits = digits_at_end(base);
	const char *at = base + strlen(base) - digits;
	uint64_t value = 0;

	if (digits == 0) {
		return false;
	}
	for (; *at != '\0'; at++) {
		if (value > (INT64_MAX - 9) / 10) {
			return false;
		}
		value = value * 10 + (uint64_t)(*at - '0');
	}
	*step = value;
	return true;
}

/* Names of units: one of these words, then a separator if it has to have one, then something. */
static const struct {
	const char *word; /* begin of the name */
	bool digits;      /* digits follow, and nothing else */
} names[] = {
	{"checkpoint-", true},
	{"checkpoint_", true},
	{"ckpt-", true},
	{"ckpt_", true},
	{"global_step", true},
	{"step-", true},
	{"step_", true},
	{"epoch-", true},
	{"epoch_", true},
	{"epoch=", false},
	{"step=", false},
	{"iter_", true},
};

static bool is_known_name(const char *base)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		size_t len = strlen(names[i].word);

		if (strncmp(base, names[i].word, len) == 0 && base[len] != '\0' &&
			(!names[i].digits || digits_at_end(base + len) == strlen(base + len))) {
			return true;
		}
	}
	return false;
}

bool unit_named(const char *path, const struct unit_globs *globs)
{
	const char *base = unit_base(path);

	for (uint32_t i = 0; i < globs->n; i++) {
		const char *glob = globs->at[i];

		if (fnmatch(glob, strchr(glob, '/') != NULL ? path : base, FNM_PERIOD) == 0) {
			return true;
		}
	}
	return is_known_name(base);
}

bool unit_has_mark(const char *file)
{
	size_t len = strlen(file);
	static const char shard[] = ".distcp";

	return strcmp(file, DCP_MARK) == 0 ||
		(len > strlen(shard) && strcmp(file + len - strlen(shard), shard) == 0);
}

bool unit_tag(const char *path, char tag[CKPT_TAG_MAX])
{
	size_t n = 0;

	for (const char *at = path; *at != '\0'; at++) {
		bool code = *at == '/' || *at == '%';

		if (n + (code ? 3 : 1) >= CKPT_TAG_MAX) {
			return false;
		}
		if (code) {
			memcpy(tag + n, *at == '/' ? "%2F" : "%25", 3);
			n += 3;
		} else {
			tag[n++] = *at;
		}
	}
	tag[n] = '\0';
	return tag_valid(tag);
}

bool unit_path(const char *tag, char path[CKPT_TAG_MAX])
{
	char again[CKPT_TAG_MAX];
	size_t n = 0;

	for (const char *at = tag; *at != '\0'; at++) {
		if (n + 1 >= CKPT_TAG_MAX) {
			return false;
		}
		if (strncmp(at, "%2F", 3) == 0 || strncmp(at, "%25", 3) == 0) {
			path[n++] = at[2] == 'F' ? '/' : '%';
			at += 2;
		} else {
			path[n++] = *at;
		}
	}
	path[n] = '\0';
	return ckpt_name_valid(path) && unit_tag(path, again) && strcmp(again, tag) == 0;
}

const char *unit_bad_file(const char *file)
{
	for (const char *at = file; *at != '\0';) {
		size_t len = text_printable(at);

		if (len == 0) {
			return "its name is not UTF-8, or has control characters";
		}
		at += len;
	}
	if (strncmp(file, ".pawl/", 6) == 0) {
		return "it is Pawl's own: give pawl.Checkpointer the bucket's address";
	}
	return ckpt_name_valid(file)
		? NULL
		: "a tag can have no file of that name (too long, too deep, or "
		  "one of Pawl's own names)";
}

/* ---- kinds ---- */

static bool has_file(const char *const *files, size_t n, const char *file)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(files[i], file) == 0) {
			return true;
		}
	}
	return false;
}

/* Returns whether a file lies in a Trainer's checkpoint, and in no other program's. */
static bool is_trainers(const char *file)
{
	static const char rng[] = "rng_state";

	return strcmp(file, TRAINER_MARK) == 0 || strcmp(file, "training_args.bin") == 0 ||
		strcmp(file, "optimizer.pt") == 0 || strcmp(file, "scheduler.pt") == 0 ||
		strncmp(file, rng, strlen(rng)) == 0;
}

enum unit_kind unit_kind_of(const char *path, const char *const *files, size_t n)
{
	const char *base = unit_base(path);
	bool trainers = false;
	bool dcp = false;

	for (size_t i = 0; i < n; i++) {
		trainers = trainers || is_trainers(files[i]);
		dcp = dcp || unit_has_mark(files[i]);
	}
	if (trainers && strncmp(base, "checkpoint-", strlen("checkpoint-")) == 0) {
		return UNIT_TRAINER;
	}
	if (dcp) {
		return UNIT_DCP;
	}
	if (strncmp(base, "global_step", strlen("global_step")) == 0) {
		return UNIT_DEEPSPEED;
	}
	return UNIT_QUIET;
}

const char *unit_kind_name(enum unit_kind kind)
{
	static const char *const texts[UNIT_KINDS_N] = {
		[UNIT_NONE] = "none",
		[UNIT_TRAINER] = "trainer",
		[UNIT_DCP] = "dcp",
		[UNIT_DEEPSPEED] = "deepspeed",
		[UNIT_QUIET] = "quiet",
	};

	return texts[kind];
}

/* ---- whole, or not ---- */

bool unit_is_index(const char *file)
{
	static const char end[] = ".index.json";
	size_t len = strlen(file);

	return len > strlen(end) && strcmp(file + len - strlen(end), end) == 0;
}

bool unit_missing_shard(const char *index, const void *bytes, size_t len_bytes,
	const char *const *files, size_t n, char why[UNIT_WHY_MAX])
{
	json_t *document = json_loadb(bytes, len_bytes, 0, NULL);
	json_t *map = json_object_get(document, "weight_map");
	int folder = (int)(unit_base(index) - index);
	bool missing = document == NULL;
	const char *key;
	json_t *value;

	if (missing) {
		snprintf(why, UNIT_WHY_MAX, "%.100s is no JSON yet", index);
	}
	json_object_foreach(map, key, value)
	{
		const char *shard = json_string_value(value);
		char file[CKPT_NAME_MAX];

		if (missing || shard == NULL) {
			continue;
		}
		snprintf(file, sizeof(file), "%.*s%s", folder, index, shard);
		if (!has_file(files, n, file)) {
			snprintf(why, UNIT_WHY_MAX, "%.80s names %.80s, which is missing", index,
				shard);
			missing = true;
		}
	}
	json_decref(document);
	return missing;
}

/* Returns whether the text of "latest" shows that a unit was finished: it names the unit, or one
 * that came after it. */
static bool latest_passed(const char *latest, const char *path)
{
	char name[CKPT_TAG_MAX];
	uint64_t step, named;

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(latest, " \t\r\n"), latest);
	return strcmp(name, unit_base(path)) == 0 ||
		(unit_step(name, &named) && unit_step(path, &step) && named > step);
}

bool unit_missing_mark(enum unit_kind kind, const char *path, const char *const *files, size_t n,
	const char *latest, char why[UNIT_WHY_MAX])
{
	if (kind == UNIT_TRAINER && !has_file(files, n, TRAINER_MARK)) {
		snprintf(why, UNIT_WHY_MAX, "no " TRAINER_MARK " yet");
		return true;
	}
	if (kind == UNIT_DCP) {
		for (size_t i = 0; i < n; i++) {
			if (strcmp(unit_base(files[i]), DCP_MARK) == 0) {
				return false;
			}
		}
		snprintf(why, UNIT_WHY_MAX, "no " DCP_MARK " yet");
		return true;
	}
	if (kind == UNIT_DEEPSPEED && latest != NULL && !latest_passed(latest, path)) {
		snprintf(why, UNIT_WHY_MAX, "the file latest beside it does not name it yet");
		return true;
	}
	return false;
}

/* ---- what programs say about their units ---- */

bool unit_best(const void *bytes, size_t len_bytes, char best[CKPT_TAG_MAX])
{
	json_t *document = json_loadb(bytes, len_bytes, 0, NULL);
	const char *path = json_string_value(json_object_get(document, "best_model_checkpoint"));
	size_t len = path != NULL ? strlen(path) : 0;
	const char *base = path;
	bool found;

	while (len > 0 && path[len - 1] == '/') {
		len--;
	}
	for (size_t i = 0; i < len; i++) {
		base = path[i] == '/' ? path + i + 1 : base;
	}
	found = len > 0 && len - (size_t)(base - path) < CKPT_TAG_MAX;
	if (found) {
		snprintf(best, CKPT_TAG_MAX, "%.*s", (int)(len - (size_t)(base - path)), base);
	}
	json_decref(document);
	return found;
}

bool unit_is_named_by(const char *file, const char *text, const char *unit)
{
	static const char latest[] = "latest";
	char name[CKPT_TAG_MAX];
	uint64_t step;
	char *end;

	text += strspn(text, " \t\r\n");
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(text, " \t\r\n"), text);
	if (name[0] == '\0') {
		return false;
	}
	if (strcmp(name, unit_base(unit)) == 0) {
		return true;
	}
	return strncmp(unit_base(file), latest, strlen(latest)) == 0 &&
		isdigit((unsigned char)name[0]) && unit_step(unit, &step) &&
		strtoull(name, &end, 10) == step && *end == '\0';
}
