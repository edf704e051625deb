/* See memberships.h. */
#include "daemon/memberships.h"

#include "base/err.h"
#include "base/fault.h"
#include "base/units.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS    1024u
#define NUMBER_MAX 17u /* bytes of a number in hexadecimal digits, terminator included */
/* A launcher that has not reported for so long shows nothing. Each reports at least every
 * TIME_RELAY_ALONE. */
#define SILENT_NS (90 * NS_PER_S)

/* What a launcher shows. */
struct shown {
	uint32_t launcher;
	char alive[MEMBERSHIPS_ALIVE_MAX];
	int64_t seen_ns; /* time of its last report */
	struct shown *next;
};

struct shared_membership {
	char key[MEMBERSHIPS_KEY_MAX];
	uint64_t instance; /* differs from that of any earlier membership */
	uint64_t version;  /* 0: nothing was reported yet */
	char *text;        /* owned; NULL: there is no file */
	bool written;      /* text was changed since this scheduler began */
	/* Not in the file: which membership of the scheduler text was taken from, and which version
	 * of that. */
	uint64_t restated_by, restated;
	int64_t asked_ns; /* time of the last report of any launcher */
	struct shown *shown;
	struct shared_membership *next;
};

struct memberships {
	uint64_t instance; /* number for the next membership */
	uint32_t n;
	struct shared_membership *buckets[BUCKETS];
};

/* ---- reports ---- */

static bool read_hex(const json_t *value, uint64_t *number)
{
	const char *text = json_string_value(value);
	int end = 0;

	return text != NULL && strlen(text) < NUMBER_MAX &&
		sscanf(text, "%" SCNx64 "%n", number, &end) == 1 && text[end] == '\0';
}

/* Reads an optional text of fewer bytes than cap, without control characters but line ends. */
static bool read_text(const json_t *value, size_t cap_bytes, const char **text)
{
	*text = json_string_value(value);
	if (value == NULL || json_is_null(value)) {
		return true;
	}
	if (*text == NULL || strlen(*text) >= cap_bytes ||
		strlen(*text) != json_string_length(value)) {
		return false;
	}
	for (const char *at = *text; *at != '\0'; at++) {
		if ((unsigned char)*at < ' ' && *at != '\n') {
			return false;
		}
	}
	return true;
}

static bool read_all(struct launcher_report *report, const json_t *all)
{
	const json_t *launcher = json_object_get(all, "launcher");
	const json_t *version = json_object_get(all, "version");
	const json_t *instance = json_object_get(all, "instance");

	if (!json_is_integer(launcher) || json_integer_value(launcher) < 0 ||
		json_integer_value(launcher) >= MEMBERSHIPS_LAUNCHERS_MAX) {
		return false;
	}
	if (version != NULL && (!json_is_integer(version) || json_integer_value(version) < 0)) {
		return false;
	}
	report->launcher = (uint32_t)json_integer_value(launcher);
	report->version = (uint64_t)json_integer_value(version);
	report->fresh = json_is_true(json_object_get(all, "fresh"));
	report->restates = json_is_true(json_object_get(all, "restates"));
	return (instance == NULL || read_hex(instance, &report->instance)) &&
		read_text(json_object_get(all, "membership"), MEMBERSHIPS_TEXT_MAX,
			&report->text) &&
		read_text(json_object_get(all, "alive"), MEMBERSHIPS_ALIVE_MAX, &report->alive);
}

int launcher_report_read(struct launcher_report *report, const void *bytes, size_t len_bytes,
	struct pawl_err *err)
{
	json_t *all = json_loadb(bytes, len_bytes, JSON_REJECT_DUPLICATES, NULL);

	*report = (struct launcher_report){.json = all};
	if (!read_all(report, all)) {
		launcher_report_deinit(report);
		return pawl_err_set(err, PAWL_EINVAL,
			"needs JSON with launcher, a number below %u, and may have instance, "
			"version, fresh, membership (%u bytes at most), restates and alive (%u)",
			MEMBERSHIPS_LAUNCHERS_MAX, MEMBERSHIPS_TEXT_MAX - 1,
			MEMBERSHIPS_ALIVE_MAX - 1);
	}
	return 0;
}

void launcher_report_deinit(struct launcher_report *report)
{
	json_decref(report->json);
	*report = (struct launcher_report){.json = NULL};
}

/* ---- memberships ---- */

struct memberships *memberships_open(uint64_t instance)
{
	struct memberships *memberships = FAULT_MEM("memberships", calloc(1, sizeof(*memberships)));

	if (memberships != NULL) {
		memberships->instance = instance;
	}
	return memberships;
}

static void forget_shown(struct shared_membership *membership)
{
	while (membership->shown != NULL) {
		struct shown *shown = membership->shown;

		membership->shown = shown->next;
		free(shown);
	}
}

static void free_membership(struct shared_membership *membership)
{
	forget_shown(membership);
	free(membership->text);
	free(membership);
}

void memberships_forget(struct memberships *memberships, int64_t since_ns)
{
	for (uint32_t i = 0; i < BUCKETS; i++) {
		struct shared_membership **at = &memberships->buckets[i];

		while (*at != NULL) {
			struct shared_membership *membership = *at;

			if (membership->asked_ns >= since_ns) {
				at = &membership->next;
				continue;
			}
			*at = membership->next;
			memberships->n--;
			free_membership(membership);
		}
	}
}

void memberships_close(struct memberships *memberships)
{
	if (memberships != NULL) {
		memberships_forget(memberships, INT64_MAX);
		free(memberships);
	}
}

/* Returns the place of a membership in its list; NULL stands there if there is none. */
static struct shared_membership **find(struct memberships *memberships, const char *key)
{
	uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
	struct shared_membership **at;

	for (const char *c = key; *c != '\0'; c++) {
		hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
	}
	at = &memberships->buckets[hash % BUCKETS];
	while (*at != NULL && strcmp((*at)->key, key) != 0) {
		at = &(*at)->next;
	}
	return at;
}

static int find_or_make(struct memberships *memberships, const char *key,
	struct shared_membership **out, struct pawl_err *err)
{
	struct shared_membership **at = find(memberships, key);

	if (*at == NULL && memberships->n == MEMBERSHIPS_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "%u jobs have a membership here already",
			MEMBERSHIPS_MAX);
	}
	if (*at == NULL) {
		*at = FAULT_MEM("memberships", calloc(1, sizeof(**at)));
		if (*at == NULL) {
			return pawl_err_set(err, PAWL_ENOMEM, "no memory for a membership");
		}
		snprintf((*at)->key, sizeof((*at)->key), "%s", key);
		(*at)->instance = memberships->instance++;
		memberships->n++;
	}
	*out = *at;
	return 0;
}

/* Takes a text as the membership file. Returns false if there is no memory. */
static bool set_text(struct shared_membership *membership, const char *text, bool *changed)
{
	const char *now = membership->text != NULL ? membership->text : "";
	char *copy = NULL;

	if (strcmp(text, now) == 0) {
		return true;
	}
	if (text[0] != '\0') {
		copy = FAULT_MEM("memberships", strdup(text));
		if (copy == NULL) {
			return false;
		}
	}
	free(membership->text);
	membership->text = copy;
	*changed = true;
	return true;
}

/* Returns what a launcher shows without the heartbeat, which is the first word. */
static const char *skip_heartbeat(const char *alive)
{
	return alive + strcspn(alive, " ");
}

/* Takes what a launcher shows; "": it is forgotten. A heartbeat alone is no news. Returns false if
 * there is no memory. */
static bool set_alive(struct shared_membership *membership, uint32_t launcher, const char *alive,
	int64_t now_ns, bool *changed)
{
	struct shown **at = &membership->shown;
	struct shown *shown;

	while (*at != NULL && (*at)->launcher != launcher) {
		at = &(*at)->next;
	}
	shown = *at;
	if (alive[0] == '\0' && shown != NULL) {
		*at = shown->next;
		free(shown);
		*changed = true;
	}
	if (alive[0] == '\0') {
		return true;
	}
	if (shown == NULL) {
		shown = FAULT_MEM("memberships", calloc(1, sizeof(*shown)));
		if (shown == NULL) {
			return false;
		}
		shown->launcher = launcher;
		*at = shown;
		*changed = true;
	}
	*changed = *changed || strcmp(skip_heartbeat(shown->alive), skip_heartbeat(alive)) != 0;
	snprintf(shown->alive, sizeof(shown->alive), "%s", alive);
	shown->seen_ns = now_ns;
	return true;
}

/* Takes the text of a report. A text that is reported again counts if none was written since this
 * scheduler began, and none that is newer was reported again. */
static bool take_text(struct shared_membership *membership, const struct launcher_report *report,
	bool *changed)
{
	if (!report->restates) {
		membership->written = true;
		return set_text(membership, report->text, changed);
	}
	if (report->instance == membership->instance || membership->written ||
		report->instance < membership->restated_by ||
		(report->instance == membership->restated_by &&
			report->version <= membership->restated)) {
		return true;
	}
	membership->restated_by = report->instance;
	membership->restated = report->version;
	return set_text(membership, report->text, changed);
}

int memberships_take(struct memberships *memberships, const char *key,
	const struct launcher_report *report, int64_t now_ns, bool *changed, struct pawl_err *err)
{
	struct shared_membership *membership = NULL;
	int rv = find_or_make(memberships, key, &membership, err);
	bool fits = true;

	*changed = false;
	if (rv != 0) {
		return rv;
	}
	membership->asked_ns = now_ns;
	if (report->fresh) {
		forget_shown(membership);
		membership->written = true;
		fits = set_text(membership, "", changed);
		*changed = true;
	}
	if (fits && report->text != NULL) {
		fits = take_text(membership, report, changed);
	}
	if (fits && report->alive != NULL) {
		fits = set_alive(membership, report->launcher, report->alive, now_ns, changed);
	}
	membership->version += *changed;
	return fits ? 0 : pawl_err_set(err, PAWL_ENOMEM, "no memory for a membership");
}

/* Returns a membership, or NULL. */
static const struct shared_membership *look_up(const struct memberships *memberships,
	const char *key)
{
	return *find((struct memberships *)memberships, key);
}

bool memberships_has_news(const struct memberships *memberships, const char *key, uint64_t instance,
	uint64_t version)
{
	const struct shared_membership *membership = look_up(memberships, key);

	return membership == NULL || instance != membership->instance ||
		version != membership->version;
}

char *memberships_answer(const struct memberships *memberships, const char *key, uint32_t launcher,
	int64_t now_ns)
{
	const struct shared_membership *membership = look_up(memberships, key);
	json_t *alive = json_object();
	char number[NUMBER_MAX];
	json_t *all;
	char *text;

	for (const struct shown *s = membership != NULL ? membership->shown : NULL; s != NULL;
		s = s->next) {
		if (s->launcher != launcher && now_ns - s->seen_ns < SILENT_NS) {
			snprintf(number, sizeof(number), "%" PRIu32, s->launcher);
			json_object_set_new(alive, number, json_string(s->alive));
		}
	}
	snprintf(number, sizeof(number), "%" PRIx64,
		membership != NULL ? membership->instance : memberships->instance);
	all = json_pack("{s:s, s:I, s:s, s:o}", "instance", number, "version",
		(json_int_t)(membership != NULL ? membership->version : 0), "membership",
		membership != NULL && membership->text != NULL ? membership->text : "", "alive",
		alive);
	text = all != NULL ? FAULT_MEM("memberships", json_dumps(all, JSON_COMPACT)) : NULL;
	json_decref(all);
	return text;
}
