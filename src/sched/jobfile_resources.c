/*
 * The section resources: what each node, or each replica, is to have. See jobfile_impl.h.
 *
 * What it says outside of any_of holds for each mapping in any_of that does not say it anew; each
 * type of accelerators makes one choice more.
 */
#include "sched/jobfile_impl.h"

#include <stdio.h>
#include <string.h>

#define TYPES_MAX   16u /* of accelerators in one place */
#define TYPE_MAX    64u /* bytes of a name of one, terminator included */
#define WORD_CHARS  "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
#define ACCELERATOR "a type and how many, as A100:4"

#define TOP "the file itself"
#define ORDERED                                                                                    \
	"not yet: the scheduler takes what makes most of its nodes: write any_of, for any of them"
#define TIER                                                                                       \
	"disk_tier: %s is a class of a cloud's disks; here there is best, the fastest measured "   \
	"local path: write that, or leave it out"
#define MACHINE                                                                                    \
	"a cloud's name for a machine, and Pawl rents none: say what it has by accelerators, "     \
	"cpus and memory"
#define IMAGE                                                                                      \
	"Pawl starts no machines or containers: make the environment in setup, and leave it out"
#define PORTS "Pawl opens no firewall: leave it out; a job may listen where its user may"
#define RECOVERY                                                                                   \
	"a job that loses its nodes gets others by itself: leave it out; retries says how often "  \
	"one that fails is started again"
#define CLOUD "Pawl finds and rents no machines: leave it out; the scheduler has its nodes already"

struct accelerator {
	const char *type; /* as it is written */
	uint32_t n;       /* of it, at least 1 */
};

/* What one mapping says, with what it has of the one around it. */
struct wants {
	struct sched_choice each;            /* but for accelerators */
	struct accelerator types[TYPES_MAX]; /* any of them */
	uint32_t types_n;                    /* of them; 0: it needs none */
	bool inner;                          /* it stands in any_of */
	const struct tree_node *any_of;      /* NULL: not there */
};

/* ---- accelerators ---- */

/* "A100:4", or "A100" for one; n: said beside it, or 0. Returns false if it is none. */
static bool take_type(struct jobfile *f, const char *text, size_t len, uint64_t n,
	struct accelerator *into)
{
	size_t name = strspn(text, WORD_CHARS);

	if (name == 0 || name >= TYPE_MAX || (name < len && (text[name] != ':' || n > 0))) {
		return false;
	}
	for (size_t i = name + 1; i < len; i++) {
		bool digit = text[i] >= (i == name + 1 ? '1' : '0') && text[i] <= '9';

		if (!digit || n > SPEC_ACCELERATORS_MAX) {
			return false;
		}
		n = n * 10 + (uint64_t)(text[i] - '0');
	}
	into->type = pool_text(f->pool, text, name);
	into->n = name == len && n == 0 ? 1 : (uint32_t)n;
	return n <= SPEC_ACCELERATORS_MAX && into->n > 0;
}

static struct accelerator *next_type(struct jobfile *f, const struct tree_node *at,
	struct wants *wants)
{
	if (wants->types_n == TYPES_MAX) {
		jobfile_say(f, at, "accelerators: more than %u types", TYPES_MAX);
		return NULL;
	}
	return &wants->types[wants->types_n++];
}

/* One, or several with spaces between them: so a list is read whose dashes were forgotten. */
static void take_types(struct jobfile *f, const struct tree_node *at, struct wants *wants)
{
	const char *text = at->kind == TREE_TEXT ? jobfile_word(at) : NULL;

	for (size_t len; text && *text != '\0'; text += len + strspn(text + len, " ")) {
		struct accelerator *to = next_type(f, at, wants);

		len = strcspn(text, " ");
		if (!to) {
			return;
		}
		if (!take_type(f, text, len, 0, to)) {
			text = NULL;
			break;
		}
	}
	if (!text || at->len_bytes == 0) {
		jobfile_want(f, "accelerators", at, ACCELERATOR ",");
	}
}

/* {A100: 4}, or {A100:4} */
static void take_pair(struct jobfile *f, const struct tree_item *item, struct wants *wants)
{
	const char *text = jobfile_word(item->key);
	struct accelerator *to = next_type(f, item->key, wants);
	int64_t n = 0;

	if (!to ||
		(item->value->kind != TREE_NULL &&
			!jobfile_int(f, "accelerators", item->value, 1, SPEC_ACCELERATORS_MAX,
				&n))) {
		return;
	}
	if (item->key->kind != TREE_TEXT || !text ||
		!take_type(f, text, strlen(text), (uint64_t)n, to)) {
		jobfile_want(f, "accelerators", item->key, ACCELERATOR ",");
	}
}

static void read_accelerators(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	struct wants *wants = into;

	wants->types_n = 0;
	if (value->kind == TREE_TEXT) {
		take_types(f, value, wants);
		return;
	}
	if (value->kind < TREE_LIST || value->items_n == 0) {
		jobfile_want(f, key, value, ACCELERATOR ", or a list of them,");
		return;
	}
	for (const struct tree_item *item = value->items; item; item = item->next) {
		if (value->kind == TREE_MAP) {
			take_pair(f, item, wants);
		} else {
			take_types(f, item->value, wants);
		}
	}
}

/* ---- the other keys ---- */

static void read_cpus(struct jobfile *f, const char *key, const struct tree_node *value, void *into)
{
	jobfile_cpus(f, key, value, &((struct wants *)into)->each.cpus_milli);
}

static void read_memory(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	jobfile_size(f, key, value, &((struct wants *)into)->each.memory_bytes);
}

static void read_disk_size(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	jobfile_size(f, key, value, &((struct wants *)into)->each.disk_bytes);
}

static void read_disk_tier(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	static const char *const clouds[] = {"low", "medium", "high", "ultra"};
	struct wants *wants = into;
	const char *tier;

	if (!jobfile_text(f, key, value, TYPE_MAX, &tier)) {
		return;
	}
	for (size_t i = 0; i < sizeof(clouds) / sizeof(*clouds); i++) {
		if (strcmp(tier, clouds[i]) == 0) {
			jobfile_say(f, value, TIER, tier);
			return;
		}
	}
	wants->each.disk_best = strcmp(tier, "best") == 0;
	if (!wants->each.disk_best) {
		jobfile_want(f, key, value, "best");
	}
}

static void read_use_spot(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	f->use_spot = value;
	jobfile_bool(f, key, value, &((struct wants *)into)->each.spot);
}

static void read_any_of(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	struct wants *wants = into;

	if (wants->inner) {
		jobfile_say(f, value, "%s: inside of another: write one list", key);
	} else if (value->kind != TREE_LIST || value->items_n == 0) {
		jobfile_want(f, key, value, "a list of mappings, as resources is one,");
	} else {
		wants->any_of = value;
	}
}

const struct jobfile_key jobfile_resource_keys[] = {
	{"accelerators", read_accelerators, NULL},
	{"cpus", read_cpus, NULL},
	{"memory", read_memory, NULL},
	{"use_spot", read_use_spot, NULL},
	{"disk_size", read_disk_size, NULL},
	{"disk_tier", read_disk_tier, NULL},
	{"any_of", read_any_of, NULL},
	{"ordered", NULL, ORDERED},
	{"infra", NULL, CLOUD},
	{"cloud", NULL, CLOUD},
	{"region", NULL, CLOUD},
	{"zone", NULL, CLOUD},
	{"instance_type", NULL, MACHINE},
	{"max_hourly_cost", NULL, CLOUD},
	{"image_id", NULL, IMAGE},
	{"accelerator_args", NULL, "TPUs are a cloud's, and not ours: leave it out"},
	{"ports", NULL, PORTS},
	{"labels", NULL, "they name a cloud's machines, of which Pawl makes none: leave it out"},
	{"autostop", NULL, "Pawl stops no machines: leave it out; time_limit ends a job"},
	{"network_tier", NULL, "a job has what network its nodes have: leave it out"},
	{"ephemeral_storage", NULL, "Pawl makes no volumes: say disk_size, which must be free"},
	{"job_recovery", NULL, RECOVERY},
	{"spot_recovery", NULL, RECOVERY},
	{NULL},
};

/* ---- choices ---- */

static bool add_choice(struct jobfile *f, const struct tree_node *at,
	const struct sched_choice *choice)
{
	struct sched_spec *spec = f->spec;

	if (spec->choices_n == SPEC_CHOICES_MAX) {
		jobfile_say(f, at, "resources: more than %u choices, of all types of accelerators",
			SPEC_CHOICES_MAX);
		return false;
	}
	f->choices[spec->choices_n++] = *choice;
	return true;
}

static void add_choices(struct jobfile *f, const struct tree_node *at, const struct wants *wants)
{
	struct sched_choice choice = wants->each;

	if (wants->types_n == 0) {
		add_choice(f, at, &choice);
	}
	for (uint32_t i = 0; i < wants->types_n; i++) {
		choice.accelerator = wants->types[i].type;
		choice.accelerators = wants->types[i].n;
		if (!add_choice(f, at, &choice)) {
			return;
		}
	}
}

void jobfile_resources(struct jobfile *f, const struct tree_node *map)
{
	struct wants outer = {.inner = false};

	f->choices = pool_take(f->pool, SPEC_CHOICES_MAX * sizeof(*f->choices));
	f->spec->choices = f->choices;
	if (!f->choices) {
		return;
	}
	if (map && map->kind == TREE_MAP) {
		jobfile_walk(f, map, jobfile_resource_keys, jobfile_top_keys, TOP, &outer);
	} else if (map) {
		jobfile_want(f, "resources", map, "a mapping");
	}
	if (!outer.any_of) {
		add_choices(f, map, &outer);
		return;
	}
	for (const struct tree_item *item = outer.any_of->items; item; item = item->next) {
		struct wants inner = outer;

		inner.inner = true;
		if (item->value->kind == TREE_MAP) {
			jobfile_walk(f, item->value, jobfile_resource_keys, jobfile_top_keys, TOP,
				&inner);
			add_choices(f, item->value, &inner);
		} else {
			jobfile_want(f, "any_of", item->value, "a mapping, as resources is one,");
		}
	}
}
