/* Variables, and paths that may contain them: see jobfile_impl.h. */
#include "sched/jobfile/jobfile_impl.h"

#include "base/assert.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define SHOWN_MAX 32u /* bytes of a name in a message */
#define VAR_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"

bool jobfile_is_var(const char *text)
{
	static const char *const reserved[] = {"SKYPILOT_NODE_RANK", "SKYPILOT_NODE_IPS",
		"SKYPILOT_NUM_NODES", "SKYPILOT_NUM_GPUS_PER_NODE", "SKYPILOT_TASK_ID",
		"SKYPILOT_CLUSTER_INFO", "SKYPILOT_INTERNAL_JOB_ID", "SKYPILOT_SETUP_NODE_RANK",
		"SKYPILOT_SETUP_NODE_IPS", "SKYPILOT_SETUP_NUM_GPUS_PER_NODE",
		/* Variables by which a job's processes and devices are found. */
		"PAWL_SCHED_RUN", "PAWL_SCHED_KEY", "PAWL_RUN_DEVICES"};

	for (size_t i = 0; i < sizeof(reserved) / sizeof(*reserved); i++) {
		if (strcmp(text, reserved[i]) == 0) {
			return false;
		}
	}
	return text[0] != '\0' && (text[0] < '0' || text[0] > '9') &&
		text[strspn(text, VAR_CHARS)] == '\0';
}

/* ---- envs and secrets ---- */

static struct sched_var *find_var(struct jobfile *f, const char *name, size_t len)
{
	for (uint32_t i = 0; i < f->spec->vars_n; i++) {
		if (strncmp(f->vars[i].name, name, len) == 0 && f->vars[i].name[len] == '\0') {
			return &f->vars[i];
		}
	}
	return NULL;
}

static struct sched_var *add_var(struct jobfile *f, const char *name, bool secret)
{
	struct sched_var *var;

	ASSERT(f->spec->vars_n < f->vars_max);
	var = &f->vars[f->spec->vars_n++];
	*var = (struct sched_var){.name = name, .secret = secret};
	return var;
}

static bool is_given(const struct jobfile *f, const char *name)
{
	for (uint32_t i = 0; i < f->given->vars_n; i++) {
		if (strcmp(f->given->vars[i].name, name) == 0) {
			return true;
		}
	}
	return false;
}

/* Converts a boolean to Python's word for it, as SkyPilot does, whichever of YAML's words the file
 * has. */
static void take_boolean(struct jobfile *f, const struct tree_node *value, struct sched_var *var)
{
	var->value = jobfile_is_true(value) ? "True" : "False";
	if (f->hidden) {
		jobfile_add_note(f, value,
			"%s: it is a boolean: the job gets True or False, as from SkyPilot; put "
			"the word that you mean in quotes",
			var->name);
	} else {
		jobfile_add_note(f, value,
			"%s: %s is a boolean: the job gets \"%s\", as from SkyPilot; put the word "
			"that you mean in quotes",
			var->name, value->text, var->value);
	}
}

/* Stores a value unchanged. A number is the text in the file: no tool rounds it on the way. */
static void take_value(struct jobfile *f, const struct tree_item *item, struct sched_var *var)
{
	const struct tree_node *value = item->value;
	const char *word = jobfile_scalar(value);

	if (value->kind == TREE_NULL && !is_given(f, var->name)) {
		const char *option = var->secret ? "--secret" : "--env";

		jobfile_add_error(f, item->key,
			"%s has no value: give %s %s=VALUE, or %s %s to take that of your "
			"environment",
			var->name, option, var->name, option, var->name);
	} else if (value->kind == TREE_BOOL) {
		take_boolean(f, value, var);
	} else if (value->kind >= TREE_LIST || (value->kind != TREE_NULL && !word)) {
		jobfile_bad_value(f, var->name, value, "a string without zero bytes");
	} else if (word && value->len_bytes >= SPEC_VALUE_MAX) {
		jobfile_add_error(f, value, "%s: a value of %zu bytes; at most %u", var->name,
			value->len_bytes, SPEC_VALUE_MAX - 1);
	} else {
		var->value = word;
	}
}

static void take_vars(struct jobfile *f, const char *section, const struct tree_node *map,
	bool secret)
{
	char shown[REMARK_SHOW_MAX];

	if (secret && map->kind == TREE_LIST) {
		jobfile_add_error(f, map,
			"secrets: a list of secrets that SkyPilot's server keeps is not supported "
			"yet: give each by --secret NAME");
		return;
	}
	if (map->kind != TREE_MAP) {
		jobfile_bad_value(f, section, map, "a mapping of names to values");
		return;
	}
	for (const struct tree_item *item = map->items; item; item = item->next) {
		const char *name = jobfile_scalar(item->key);

		if (item->key->kind != TREE_TEXT || !name || !jobfile_is_var(name)) {
			remark_show(shown, item->key->text, item->key->len_bytes);
			jobfile_add_error(f, item->key,
				"%s: \"%s\" cannot be set: a name has letters, digits and _, and "
				"is none that Pawl sets itself",
				section, shown);
		} else if (find_var(f, name, strlen(name))) {
			jobfile_add_error(f, item->key, "%s: %s is in envs, too: keep one", section,
				name);
		} else {
			take_value(f, item, add_var(f, name, secret));
		}
	}
}

void jobfile_vars(struct jobfile *f, const struct tree_node *envs, const struct tree_node *secrets)
{
	f->vars_max = (size_t)(envs ? envs->items_n : 0) + (secrets ? secrets->items_n : 0) +
		f->given->vars_n;
	f->vars = sched_arena_alloc(f->arena, f->vars_max * sizeof(*f->vars));
	if (!f->vars) {
		return;
	}
	f->spec->vars = f->vars;
	if (envs) {
		take_vars(f, "envs", envs, false);
	}
	if (secrets) {
		f->hidden = true;
		take_vars(f, "secrets", secrets, true);
		f->hidden = false;
	}
	for (uint32_t i = 0; i < f->given->vars_n; i++) {
		const struct sched_var *given = &f->given->vars[i];
		struct sched_var *var = find_var(f, given->name, strlen(given->name));

		if (!var) {
			var = add_var(f,
				sched_arena_copy_text(f->arena, given->name, strlen(given->name)),
				given->secret);
		}
		var->value = sched_arena_copy_text(f->arena, given->value, strlen(given->value));
		var->secret = var->secret || given->secret;
		if (f->arena->failed) {
			return;
		}
	}
}

/* ---- paths ---- */

/* Returns the value of the name at text, of len bytes; NULL if there is none, which is reported. */
static const char *look_up(struct jobfile *f, const char *key, const struct tree_node *at,
	const char *text, size_t len)
{
	const struct sched_var *var = find_var(f, text, len);

	if (var && !var->secret) {
		return var->value ? var->value : ""; /* a missing value was reported */
	}
	jobfile_add_error(f, at, "%s: ${%.*s} %s", key, (int)(len < SHOWN_MAX ? len : SHOWN_MAX),
		text, var ? "is a secret, and paths are not secret" : "is not in envs");
	return NULL;
}

const char *jobfile_expand(struct jobfile *f, const char *key, const struct tree_node *at,
	const char *text)
{
	char path[SPEC_PATH_MAX];
	size_t used = 0;

	while (*text != '\0') {
		bool braces = text[0] == '$' && text[1] == '{';
		size_t len = text[0] == '$' ? strspn(text + 1 + braces, VAR_CHARS) : 0;
		const char *piece = text;
		size_t piece_len = 1;

		if (braces && (len == 0 || text[2 + len] != '}')) {
			jobfile_add_error(f, at, "%s: ${ without a name and }: ${NAME} is needed",
				key);
			return NULL;
		}
		if (len > 0) {
			piece = look_up(f, key, at, text + 1 + braces, len);
			if (!piece) {
				return NULL;
			}
			piece_len = strlen(piece);
		}
		if (piece_len >= sizeof(path) - used) {
			jobfile_add_error(f, at, "%s: a path of more than %u bytes", key,
				SPEC_PATH_MAX - 1);
			return NULL;
		}
		memcpy(path + used, piece, piece_len);
		used += piece_len;
		text += len > 0 ? 1 + len + 2 * (size_t)braces : 1;
	}
	return sched_arena_copy_text(f->arena, path, used);
}
