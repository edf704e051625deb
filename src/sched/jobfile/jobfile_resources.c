/*
 * The section resources: what each node, or each replica, needs. See jobfile_impl.h.
 *
 * A key outside of any_of holds for each mapping in any_of that does not have the key itself. Each
 * type of accelerators makes one more choice.
 */
#include "sched/jobfile/jobfile_impl.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define TYPES_MAX   16u /* types of accelerators in one place, at most */
#define TYPE_MAX    64u /* bytes of the name of a type, terminator included */
#define TYPE_CHARS  "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
#define ACCELERATOR "a type and how many, as A100:4"

#define TOP "the file itself"
#define ORDERED                                                                                    \
	"ordered: treated as any_of: the scheduler chooses what uses its nodes best, in any order"
#define TIER  "a class of cloud disks; Pawl knows only best, the fastest measured local path"
#define CLOUD "Pawl finds and rents no machines: the scheduler has its nodes already"
#define MACHINE                                                                                    \
	"a cloud's name of a machine, and Pawl rents none: give accelerators, cpus and memory "    \
	"instead"
#define IMAGE                                                                                      \
	"Pawl starts no machines or containers: a job uses what its node has, and setup installs " \
	"the rest"
#define PORTS    "Pawl opens no firewall; a job may listen on any port that its user may use"
#define RECOVERY "Pawl starts a job that lost its nodes on other nodes"

struct accelerator {
	const char *type; /* type, as written */
	uint32_t n;       /* accelerators of the type, at least 1 */
};

/* The values of one mapping, with those that it inherits from the outer mapping. */
struct needs {
	struct sched_choice each;            /* everything but accelerators */
	struct accelerator types[TYPES_MAX]; /* types of which any one will do */
	uint32_t types_n;                    /* number of types; 0: none is needed */
	bool inner;                          /* the mapping is in any_of */
	const struct tree_node *any_of;      /* value of any_of or ordered; NULL: not there */
};

/* ---- accelerators ---- */

/* Whether text is a size of memory, as "80GB" or "80GB+". SkyPilot knows which types have so
 * much. */
static bool is_memory(const char *text, size_t len)
{
	size_t digits = strspn(text, "0123456789");

	len -= len > 0 && text[len - 1] == '+';
	return digits > 0 && len == digits + 2 && strchr("GgMmTt", text[digits]) &&
		strchr("Bb", text[digits + 1]);
}

/* Whether a word between colons is a size of memory: "nvidia:80GB+:2". */
static bool names_memory(const char *text, size_t len)
{
	for (size_t at = 0, word; at < len; at += word + 1) {
		word = strcspn(text + at, ": ");
		word = word < len - at ? word : len - at;
		if (is_memory(text + at, word)) {
			return true;
		}
	}
	return false;
}

enum count { COUNT_WHOLE, COUNT_PART, COUNT_NONE };

/* Reads a count: "4", "4.0"; "0.5" is a part. */
static enum count read_count(const char *text, size_t len, uint64_t *n)
{
	size_t i = 0;
	bool part = false;

	for (*n = 0; i < len && text[i] >= '0' && text[i] <= '9'; i++) {
		*n = *n > SPEC_ACCELERATORS_MAX ? *n : *n * 10 + (uint64_t)(text[i] - '0');
	}
	if (i == 0 || (text[0] == '0' && i > 1)) {
		return COUNT_NONE;
	}
	if (i + 1 < len && text[i] == '.') {
		for (i++; i < len && text[i] >= '0' && text[i] <= '9'; i++) {
			part = part || text[i] != '0';
		}
	}
	if (i < len) {
		return COUNT_NONE;
	}
	return part                                      ? COUNT_PART
		: *n >= 1 && *n <= SPEC_ACCELERATORS_MAX ? COUNT_WHOLE
							 : COUNT_NONE;
}

static void bad_accelerator(struct jobfile *f, const struct tree_node *at)
{
	jobfile_bad_value(f, "accelerators", at, ACCELERATOR ",");
}

static void report_fraction(struct jobfile *f, const struct tree_node *at)
{
	char shown[REMARK_SHOW_MAX];

	jobfile_add_error(f, at,
		"accelerators: %s: parts of an accelerator are not supported yet: give 1 to %u "
		"whole ones",
		remark_show(shown, at->text, at->len_bytes), SPEC_ACCELERATORS_MAX);
}

/* Reads "A100:4", or "A100" for one; reports errors. count_given: the count if it is given beside
 * the type, else 0. */
static bool take_type(struct jobfile *f, const struct tree_node *at, const char *text, size_t len,
	uint64_t count_given, struct accelerator *into)
{
	size_t name = strspn(text, TYPE_CHARS);
	enum count count = COUNT_WHOLE;
	uint64_t n = count_given > 0 ? count_given : 1;
	char shown[REMARK_SHOW_MAX];

	if (names_memory(text, len)) {
		jobfile_add_error(f, at,
			"accelerators: %s: requests by memory are not supported yet: name the "
			"types that will do, as [A100-80GB, H100]",
			remark_show(shown, text, len));
		return false;
	}
	if (name < len && text[name] == ':' && count_given == 0) {
		count = read_count(text + name + 1, len - name - 1, &n);
	} else if (name < len) {
		count = COUNT_NONE;
	}
	if (name == 0 || name >= TYPE_MAX || count == COUNT_NONE) {
		bad_accelerator(f, at);
		return false;
	}
	if (count == COUNT_PART) {
		report_fraction(f, at);
		return false;
	}
	into->type = sched_arena_copy_text(f->arena, text, name);
	into->n = (uint32_t)n;
	return true;
}

static struct accelerator *next_type(struct jobfile *f, const struct tree_node *at,
	struct needs *needs)
{
	if (needs->types_n == TYPES_MAX) {
		jobfile_add_error(f, at, "accelerators: more than %u types", TYPES_MAX);
		return NULL;
	}
	return &needs->types[needs->types_n++];
}

/* Reads one type, or several with spaces between them, as in a list without its dashes. */
static void take_types(struct jobfile *f, const struct tree_node *at, struct needs *needs)
{
	const char *text = at->kind == TREE_TEXT ? jobfile_scalar(at) : NULL;

	if (!text || *text == '\0') {
		bad_accelerator(f, at);
		return;
	}
	for (size_t len; *text != '\0'; text += len + strspn(text + len, " ")) {
		struct accelerator *to = next_type(f, at, needs);

		len = strcspn(text, " ");
		if (!to || !take_type(f, at, text, len, 0, to)) {
			return;
		}
	}
}

/* Reads {A100: 4}, or {A100:4}. */
static void take_pair(struct jobfile *f, const struct tree_item *item, struct needs *needs)
{
	const struct tree_node *value = item->value;
	const char *text = item->key->kind == TREE_TEXT ? jobfile_scalar(item->key) : NULL;
	struct accelerator *to = next_type(f, item->key, needs);
	enum count count = COUNT_WHOLE;
	char needed[64];
	uint64_t n = 0;

	if (!to) {
		return;
	}
	if (value->kind != TREE_NULL) {
		count = value->kind == TREE_NUMBER ? read_count(value->text, value->len_bytes, &n)
						   : COUNT_NONE;
	}
	if (count == COUNT_PART) {
		report_fraction(f, value);
	} else if (count == COUNT_NONE) {
		snprintf(needed, sizeof(needed), "a whole number from 1 to %u",
			SPEC_ACCELERATORS_MAX);
		jobfile_bad_value(f, "accelerators", value, needed);
	} else if (!text) {
		bad_accelerator(f, item->key);
	} else {
		take_type(f, item->key, text, strlen(text), n, to);
	}
}

static void read_accelerators(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	struct needs *needs = into;

	needs->types_n = 0;
	if (value->kind == TREE_TEXT) {
		take_types(f, value, needs);
		return;
	}
	if (value->kind < TREE_LIST || value->items_n == 0) {
		jobfile_bad_value(f, key, value, ACCELERATOR ", or a list of them,");
		return;
	}
	for (const struct tree_item *item = value->items; item; item = item->next) {
		if (value->kind == TREE_MAP) {
			take_pair(f, item, needs);
		} else {
			take_types(f, item->value, needs);
		}
	}
}

/* ---- the other keys ---- */

static void read_cpus(struct jobfile *f, const char *key, const struct tree_node *value, void *into)
{
	jobfile_cpus(f, key, value, &((struct needs *)into)->each.cpus_milli);
}

static void read_memory(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	jobfile_size(f, key, value, &((struct needs *)into)->each.memory_bytes);
}

static void read_disk_size(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	jobfile_size(f, key, value, &((struct needs *)into)->each.disk_bytes);
}

static void read_disk_tier(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	static const char *const clouds[] = {"low", "medium", "high", "ultra"};
	struct needs *needs = into;
	const char *tier;

	if (!jobfile_text(f, key, value, TYPE_MAX, &tier)) {
		return;
	}
	for (size_t i = 0; i < sizeof(clouds) / sizeof(*clouds); i++) {
		if (strcasecmp(tier, clouds[i]) == 0) {
			needs->each.disk_best = false;
			jobfile_add_ignored(f, key, value, TIER);
			return;
		}
	}
	needs->each.disk_best = strcasecmp(tier, "best") == 0;
	if (!needs->each.disk_best) {
		jobfile_bad_value(f, key, value, "best");
	}
}

static void read_use_spot(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	f->use_spot = value;
	jobfile_bool(f, key, value, &((struct needs *)into)->each.spot);
}

static void read_any_of(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	struct needs *needs = into;

	if (needs->inner) {
		jobfile_add_error(f, value, "%s: inside of another: write one list", key);
	} else if (value->kind != TREE_LIST || value->items_n == 0) {
		jobfile_bad_value(f, key, value, "a list of mappings with keys of resources,");
	} else if (needs->any_of) {
		jobfile_add_error(f, value, "%s: there are two lists, any_of and ordered: keep one",
			key);
	} else {
		needs->any_of = value;
	}
}

static void read_ordered(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	read_any_of(f, key, value, into);
	jobfile_add_note(f, value, ORDERED);
}

/* ---- recovery after a failure ---- */

static const struct jobfile_key recovery_keys[] = {
	{"max_restarts_on_errors", jobfile_read_retries, NULL, false},
	{"strategy", NULL, RECOVERY, true},
	{"recover_on_exit_codes", NULL, "retries counts each failure, whatever its code", true},
	{NULL},
};

static void read_recovery(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	if (value->kind == TREE_MAP) {
		jobfile_walk(f, value, recovery_keys, jobfile_resource_keys, "resources", into);
	} else {
		jobfile_add_ignored(f, key, value, RECOVERY);
	}
}

const struct jobfile_key jobfile_resource_keys[] = {
	{"accelerators", read_accelerators, NULL, false},
	{"gpus", read_accelerators, NULL, false}, /* SkyPilot's other name for accelerators */
	{"cpus", read_cpus, NULL, false},
	{"memory", read_memory, NULL, false},
	{"use_spot", read_use_spot, NULL, false},
	{"disk_size", read_disk_size, NULL, false},
	{"disk_tier", read_disk_tier, NULL, false},
	{"any_of", read_any_of, NULL, false},
	{"ordered", read_ordered, NULL, false},
	{"priority", jobfile_read_priority, NULL, false},
	{"job_recovery", read_recovery, NULL, false},
	{"spot_recovery", read_recovery, NULL, false},
	{"infra", NULL, CLOUD, true},
	{"cloud", NULL, CLOUD, true},
	{"region", NULL, CLOUD, true},
	{"zone", NULL, CLOUD, true},
	{"instance_type", NULL, MACHINE, true},
	{"max_hourly_cost", NULL, CLOUD, true},
	{"image_id", NULL, IMAGE, true},
	{"accelerator_args", NULL, "it is for TPUs of a cloud, which Pawl does not have", true},
	{"ports", NULL, PORTS, true},
	{"labels", NULL, "they name cloud machines, and Pawl makes none", true},
	{"autostop", NULL, "Pawl stops no machines; time_limit ends a job", true},
	{"network_tier", NULL, "a job uses the network of its nodes", true},
	{"local_disk", NULL, MACHINE, true},
	{"ephemeral_storage", NULL,
		"Pawl makes no volumes: disk_size gives the space that must be free", true},
	{"priority_class", NULL, "it belongs to Kubernetes: give priority, a number", true},
	{"volumes", NULL,
		"not supported yet: Pawl makes no volumes; mount a directory that the nodes share "
		"by file_mounts, as /data: /shared/DIR",
		false},
	{NULL},
};

/* ---- choices ---- */

bool jobfile_same_choice(const struct sched_choice *a, const struct sched_choice *b)
{
	return a->accelerators == b->accelerators &&
		(a->accelerators == 0 || strcmp(a->accelerator, b->accelerator) == 0) &&
		a->cpus_milli == b->cpus_milli && a->memory_bytes == b->memory_bytes &&
		a->disk_bytes == b->disk_bytes && a->disk_best == b->disk_best;
}

/* Adds a choice, unless it is there: choices that differ only in ignored keys are one. */
static bool add_choice(struct jobfile *f, const struct tree_node *at,
	const struct sched_choice *choice)
{
	struct sched_spec *spec = f->spec;

	if (choice->accelerators > 0 && !choice->accelerator) {
		return false; /* memory is short, as arena.failed shows */
	}
	for (uint32_t i = 0; i < spec->choices_n; i++) {
		if (f->choices[i].spot == choice->spot &&
			jobfile_same_choice(&f->choices[i], choice)) {
			return true;
		}
	}
	if (spec->choices_n == SPEC_CHOICES_MAX) {
		jobfile_add_error(f, at,
			"resources: more than %u choices, of all types of accelerators",
			SPEC_CHOICES_MAX);
		return false;
	}
	f->choices[spec->choices_n++] = *choice;
	return true;
}

static void add_choices(struct jobfile *f, const struct tree_node *at, const struct needs *needs)
{
	struct sched_choice choice = needs->each;

	if (needs->types_n == 0) {
		add_choice(f, at, &choice);
	}
	for (uint32_t i = 0; i < needs->types_n; i++) {
		choice.accelerator = needs->types[i].type;
		choice.accelerators = needs->types[i].n;
		if (!add_choice(f, at, &choice)) {
			return;
		}
	}
}

void jobfile_resources(struct jobfile *f, const struct tree_node *map)
{
	struct needs outer = {.inner = false};

	f->choices = sched_arena_alloc(f->arena, SPEC_CHOICES_MAX * sizeof(*f->choices));
	f->spec->choices = f->choices;
	if (!f->choices) {
		return;
	}
	if (map && map->kind == TREE_MAP) {
		jobfile_walk(f, map, jobfile_resource_keys, jobfile_top_keys, TOP, &outer);
	} else if (map) {
		jobfile_bad_value(f, "resources", map, "a mapping");
	}
	if (!outer.any_of) {
		add_choices(f, map, &outer);
		return;
	}
	for (const struct tree_item *item = outer.any_of->items; item; item = item->next) {
		struct needs inner = outer;

		inner.inner = true;
		if (item->value->kind == TREE_MAP) {
			jobfile_walk(f, item->value, jobfile_resource_keys, jobfile_top_keys, TOP,
				&inner);
			add_choices(f, item->value, &inner);
		} else {
			jobfile_bad_value(f, "any_of", item->value,
				"a mapping with keys of resources,");
		}
	}
}
