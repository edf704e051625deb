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

/* Returns from without nfs:// for HOST:/PATH and nfs://HOST/PATH; NULL: from is neither. */
static const char *find_server(const char *from)
{
	const char *host = strncmp(from, "nfs://", 6) == 0 ? from + 6 : from;
	const char *path = strchr(host, '/');

	if (host != from) {
		return path && path > host && !memchr(host, ':', (size_t)(path - host)) ? host
											: NULL;
	}
	return path && path > host + 1 && path[-1] == ':' && path[1] != '/' ? host : NULL;
}

/* Turns "nas/data" into "nas:/data"; keeps "nas:/data". */
static const char *write_server(struct jobfile *f, const char *server)
{
	size_t host = strcspn(server, "/");
	size_t len = strlen(server);
	char *text = sched_arena_alloc(f->arena, len + 2);
	bool colon;

	ASSERT(host > 0 && host < len); /* as find_server found it */
	colon = server[host - 1] == ':';
	if (text) {
		snprintf(text, len + 2, "%.*s%s%s", (int)host, server, colon ? "" : ":",
			server + host);
	}
	return text;
}

/* Returns the path without slashes at the end, except that of / and ~/ and HOST:/; NULL: no memory,
 * or no path. */
static const char *trim(struct jobfile *f, const char *path)
{
	size_t len = path ? strlen(path) : 0;

	while (len > 1 && path[len - 1] == '/' && !strchr("~:", path[len - 2])) {
		len--;
	}
	return path ? sched_arena_copy_text(f->arena, path, len) : NULL;
}

static bool is_taken(const struct sched_spec *spec, const char *at)
{
	for (uint32_t i = 0; i < spec->mounts_n; i++) {
		if (strcmp(spec->mounts[i].at, at) == 0) {
			return true;
		}
	}
	return false;
}

#define SHARED                                                                                     \
	"not supported yet: Pawl mounts no %s; give a directory that the nodes share, as %s: "     \
	"/shared/DIR"

static const struct tree_node *find_value(const struct tree_node *map, const char *name)
{
	for (const struct tree_item *item = map->items; item; item = item->next) {
		const char *word = jobfile_scalar(item->key);

		if (word && strcmp(word, name) == 0) {
			return item->value;
		}
	}
	return NULL;
}

/* Reports a mapping (name, source, store, mode), which SkyPilot takes for a bucket or a volume; the
 * directory that would fill it can be mounted instead. key: the mount point, for a message. */
static void refuse_storage(struct jobfile *f, const struct tree_item *item, const char *key)
{
	const struct tree_node *source = find_value(item->value, "source");
	const struct tree_node *store = find_value(item->value, "store");
	const char *from = source ? jobfile_scalar(source) : NULL;
	const char *kind = store ? jobfile_scalar(store) : NULL;
	char shown[REMARK_SHOW_MAX];

	if (kind && strcasecmp(kind, "volume") == 0) {
		jobfile_add_error(f, item->key, "file_mounts: %s is a volume: " SHARED, key,
			"volumes", key);
	} else if (from && !strstr(from, "://")) {
		jobfile_add_error(f, item->key,
			"file_mounts: %s is a bucket that is filled from a directory: not "
			"supported yet: Pawl mounts no buckets; give the directory itself, as "
			"%s: %s",
			key, key, remark_show(shown, from, strlen(from)));
	} else {
		jobfile_add_error(f, item->key,
			"file_mounts: %s is a bucket (name, source, store, mode): " SHARED, key,
			"buckets", key);
	}
}

/* Reports a URL, which cannot be mounted. scheme: number of bytes before ://. */
static void refuse_url(struct jobfile *f, const struct tree_node *at, const char *url,
	size_t scheme, const char *key)
{
	bool web = (scheme == 4 && strncasecmp(url, "http", 4) == 0) ||
		(scheme == 5 && strncasecmp(url, "https", 5) == 0);

	if (web && !strstr(url, ".blob.core.windows.net/")) {
		jobfile_add_error(f, at,
			"file_mounts: %.*s:// is not supported yet: Pawl fetches nothing; fetch it "
			"in setup, or give a file that the nodes share",
			(int)scheme, url);
	} else {
		jobfile_add_error(f, at, "file_mounts: %.*s:// is " SHARED,
			(int)(scheme < 16 ? scheme : 16), url, "buckets", key);
	}
}

static void take_mount(struct jobfile *f, const struct tree_item *item, struct sched_mount *mounts)
{
	struct sched_mount *mount = &mounts[f->spec->mounts_n];
	char shown[REMARK_SHOW_MAX];
	const char *key = remark_show(shown, item->key->text, item->key->len_bytes);
	const char *word = jobfile_scalar(item->key);
	const char *scheme;

	if (item->value->kind == TREE_MAP) {
		refuse_storage(f, item, key);
		return;
	}
	if (!jobfile_text(f, key, item->value, SPEC_PATH_MAX, &mount->from)) {
		return;
	}
	mount->at = word ? trim(f, jobfile_expand(f, key, item->key, word)) : NULL;
	mount->from = trim(f, jobfile_expand(f, key, item->value, mount->from));
	if (!mount->at || !mount->from) {
		return;
	}
	scheme = mount->from + strcspn(mount->from, ":/");
	mount->nfs = find_server(mount->from) != NULL;
	if (strncmp(scheme, "://", 3) == 0 && !mount->nfs) {
		refuse_url(f, item->value, mount->from, (size_t)(scheme - mount->from), key);
	} else if (mount->at[0] != '/' && strncmp(mount->at, "~/", 2) != 0) {
		jobfile_add_error(f, item->key,
			"file_mounts: %s: a path that begins with / or ~/ is needed", key);
	} else if (is_taken(f->spec, mount->at)) {
		jobfile_add_error(f, item->key, "file_mounts: %s is given twice: keep one", key);
	} else {
		mount->from = mount->nfs ? write_server(f, find_server(mount->from)) : mount->from;
		f->spec->mounts_n++;
	}
}

void jobfile_mounts(struct jobfile *f, const struct tree_node *map)
{
	struct sched_mount *mounts;

	if (map->kind != TREE_MAP) {
		jobfile_bad_value(f, "file_mounts", map,
			"a mapping of the job's paths to local ones");
		return;
	}
	mounts = sched_arena_alloc(f->arena, (map->items_n + 1) * sizeof(*mounts));
	f->spec->mounts = mounts;
	for (const struct tree_item *item = map->items; item && mounts; item = item->next) {
		take_mount(f, item, mounts);
	}
	ASSERT(f->spec->mounts_n <= map->items_n);
}
