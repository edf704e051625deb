/* See kubeconfig.h. The files become trees; a context names a cluster and a user, and each of these
 * is an entry of a list. */
#include "engine/k8s/kubeconfig.h"

#include "base/err.h"
#include "sched/jobfile/remarks.h"
#include "sched/jobfile/tree.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_TEXT_MAX 4096u

/* The files, while they are read. */
struct reading {
	const struct kubeconfig_file *files;
	const struct tree_node *roots[KUBECONFIG_FILES_MAX]; /* NULL: the file is empty */
	size_t n;
	struct kubeconfig *config;
	struct pawl_err *err;
};

/* An entry of a list, and the file that has it. */
struct entry {
	const struct tree_node *node; /* mapping below the entry's name; NULL: there is none */
	size_t file;
	const char *kind; /* "cluster", for errors */
	const char *name;
};

/* ---- trees ---- */

static bool is_key(const struct tree_item *item, const char *name)
{
	return item->key != NULL && strcmp(item->key->text, name) == 0;
}

/* Returns the value of a key; NULL: there is none, or it is null. */
static const struct tree_node *find(const struct tree_node *map, const char *name)
{
	if (map == NULL || map->kind != TREE_MAP) {
		return NULL;
	}
	for (const struct tree_item *item = map->items; item != NULL; item = item->next) {
		if (is_key(item, name)) {
			return item->value->kind == TREE_NULL ? NULL : item->value;
		}
	}
	return NULL;
}

static bool is_scalar(const struct tree_node *node)
{
	return node->kind != TREE_LIST && node->kind != TREE_MAP;
}

/* Sets *text to the text of a key, if there is one that is not empty. */
static int get_text(const struct reading *reading, const struct entry *entry, const char *name,
	const char **text)
{
	const struct tree_node *node = find(entry->node, name);

	if (node == NULL || (is_scalar(node) && node->len_bytes == 0)) {
		return 0;
	}
	if (!is_scalar(node) || strlen(node->text) != node->len_bytes) {
		return pawl_err_set(reading->err, PAWL_EINVAL, "%s:%u: %s %s: %s must be a text",
			reading->files[entry->file].path, node->line, entry->kind, entry->name,
			name);
	}
	*text = node->text;
	return 0;
}

static int get_bool(const struct reading *reading, const struct entry *entry, const char *name,
	bool *value)
{
	const struct tree_node *node = find(entry->node, name);

	if (node == NULL) {
		return 0;
	}
	if (strcmp(node->kind == TREE_BOOL ? node->text : "", "true") == 0) {
		*value = true;
	} else if (node->kind != TREE_BOOL || strcmp(node->text, "false") != 0) {
		return pawl_err_set(reading->err, PAWL_EINVAL,
			"%s:%u: %s %s: %s must be true or false", reading->files[entry->file].path,
			node->line, entry->kind, entry->name, name);
	}
	return 0;
}

static int no_memory(const struct reading *reading)
{
	return pawl_err_set(reading->err, PAWL_ENOMEM, "no memory for a kubeconfig");
}

/* Makes a path of a file's absolute, or relative to what that is relative to. */
static int resolve(const struct reading *reading, size_t file, const char **path)
{
	const char *from = reading->files[file].path;
	const char *slash = strrchr(from, '/');
	char text[PATH_TEXT_MAX];
	int n;

	if (*path == NULL || **path == '/' || slash == NULL) {
		return 0;
	}
	n = snprintf(text, sizeof(text), "%.*s/%s", (int)(slash - from), from, *path);
	if (n >= (int)sizeof(text)) {
		return pawl_err_set(reading->err, PAWL_EINVAL, "%s: a path is too long", from);
	}
	*path = sched_arena_copy_text(&reading->config->arena, text, (size_t)n);
	return *path != NULL ? 0 : no_memory(reading);
}

static int get_path(const struct reading *reading, const struct entry *entry, const char *name,
	const char **path)
{
	int rv = get_text(reading, entry, name, path);

	return rv == 0 ? resolve(reading, entry->file, path) : rv;
}

/* Decodes base64, in which lines may end. OpenSSL takes a '-' for the end of all. */
static int decode(const struct reading *reading, const struct entry *entry, const char *name,
	const char *base64, struct kubeconfig_pem *pem)
{
	size_t len_bytes = strlen(base64);
	unsigned char *bytes = sched_arena_alloc(&reading->config->arena, len_bytes + 1);
	EVP_ENCODE_CTX *ctx = EVP_ENCODE_CTX_new();
	int n = 0, last = 0;
	bool fine = ctx != NULL && bytes != NULL;

	if (!fine) {
		EVP_ENCODE_CTX_free(ctx);
		return no_memory(reading);
	}
	EVP_DecodeInit(ctx);
	fine = memchr(base64, '-', len_bytes) == NULL &&
		EVP_DecodeUpdate(ctx, bytes, &n, (const unsigned char *)base64, (int)len_bytes) >=
			0 &&
		EVP_DecodeFinal(ctx, bytes + n, &last) == 1;
	EVP_ENCODE_CTX_free(ctx);
	if (!fine || n + last == 0) {
		return pawl_err_set(reading->err, PAWL_EINVAL, "%s: %s %s: %s is not base64",
			reading->files[entry->file].path, entry->kind, entry->name, name);
	}
	bytes[n + last] = '\0';
	pem->text = (const char *)bytes;
	pem->text_bytes = (size_t)n + (size_t)last;
	return 0;
}

/* Reads a certificate or key: NAME is a file, and NAME-data its text. */
static int get_pem(const struct reading *reading, const struct entry *entry, const char *name,
	struct kubeconfig_pem *pem)
{
	char data[64];
	const char *base64 = NULL;
	int rv = get_path(reading, entry, name, &pem->file);

	snprintf(data, sizeof(data), "%s-data", name);
	rv = rv == 0 ? get_text(reading, entry, data, &base64) : rv;
	return rv == 0 && base64 != NULL ? decode(reading, entry, data, base64, pem) : rv;
}

/* ---- entries ---- */

/* Finds the first entry of a name in a list of all files. list: "clusters", whose entries have
 * "name" and what kind names. */
static void find_entry(const struct reading *reading, const char *list, const char *kind,
	const char *name, struct entry *entry)
{
	*entry = (struct entry){.kind = kind, .name = name};
	for (size_t i = 0; i < reading->n; i++) {
		const struct tree_node *entries = find(reading->roots[i], list);

		if (entries == NULL || entries->kind != TREE_LIST) {
			continue;
		}
		for (const struct tree_item *item = entries->items; item != NULL;
			item = item->next) {
			const struct tree_node *named = find(item->value, "name");

			if (named != NULL && is_scalar(named) && strcmp(named->text, name) == 0) {
				entry->node = find(item->value, kind);
				entry->file = i;
				return;
			}
		}
	}
}

static int parse_files(struct reading *reading)
{
	for (size_t i = 0; i < reading->n; i++) {
		const struct kubeconfig_file *file = &reading->files[i];
		struct remarks remarks = {.n = 0};
		int rv = tree_parse(&reading->roots[i], file->bytes, file->len_bytes,
			&reading->config->arena, &remarks, reading->err);

		if (rv == PAWL_EINVAL && remarks.n > 0) {
			rv = pawl_err_set(reading->err, rv, "line %u: %s", remarks.at[0].line,
				remarks.at[0].text);
		}
		if (rv != 0) {
			return pawl_err_prefix(reading->err, rv, "%s", file->path);
		}
	}
	return 0;
}

/* Finds the current context, unless one was named. */
static int choose_context(const struct reading *reading, const char *context)
{
	for (size_t i = 0; i < reading->n && context == NULL; i++) {
		const struct tree_node *current = find(reading->roots[i], "current-context");

		if (current != NULL && is_scalar(current) && current->len_bytes > 0) {
			context = current->text;
		}
	}
	if (context == NULL) {
		return pawl_err_set(reading->err, PAWL_ENOENT,
			"%s: there is no current-context: name one, or run `kubectl config "
			"use-context`",
			reading->files[0].path);
	}
	reading->config->context =
		sched_arena_copy_text(&reading->config->arena, context, strlen(context));
	return reading->config->context != NULL ? 0 : no_memory(reading);
}

static int read_cluster(const struct reading *reading, const char *name)
{
	struct kubeconfig *config = reading->config;
	struct entry entry;
	int rv;

	find_entry(reading, "clusters", "cluster", name, &entry);
	if (entry.node == NULL) {
		return pawl_err_set(reading->err, PAWL_ENOENT,
			"context %s: there is no cluster %s in %s", config->context, name,
			reading->files[0].path);
	}
	rv = get_text(reading, &entry, "server", &config->server);
	rv = rv == 0 ? get_text(reading, &entry, "tls-server-name", &config->tls_name) : rv;
	rv = rv == 0 ? get_text(reading, &entry, "proxy-url", &config->proxy) : rv;
	rv = rv == 0 ? get_bool(reading, &entry, "insecure-skip-tls-verify", &config->insecure)
		     : rv;
	rv = rv == 0 ? get_pem(reading, &entry, "certificate-authority", &config->authority) : rv;
	if (rv == 0 && config->server == NULL) {
		rv = pawl_err_set(reading->err, PAWL_EINVAL, "%s: cluster %s has no server",
			reading->files[entry.file].path, name);
	}
	return rv;
}

/* ---- users ---- */

static int read_args(const struct reading *reading, const struct entry *entry,
	struct kubeconfig_exec *exec)
{
	const struct tree_node *list = find(entry->node, "args");

	if (list == NULL) {
		return 0;
	}
	for (const struct tree_item *item = list->kind == TREE_LIST ? list->items : NULL;
		item != NULL; item = item->next) {
		if (!is_scalar(item->value) || exec->args_n == KUBECONFIG_ARGS_MAX) {
			exec->args_n = 0;
			break;
		}
		exec->args[exec->args_n++] = item->value->text;
	}
	return exec->args_n == list->items_n && list->kind == TREE_LIST
		? 0
		: pawl_err_set(reading->err, PAWL_EINVAL,
			  "%s:%u: user %s: exec: args must be a list of %u texts at most",
			  reading->files[entry->file].path, list->line, entry->name,
			  KUBECONFIG_ARGS_MAX);
}

static int read_env(const struct reading *reading, const struct entry *entry,
	struct kubeconfig_exec *exec)
{
	const struct tree_node *list = find(entry->node, "env");

	if (list == NULL) {
		return 0;
	}
	for (const struct tree_item *item = list->kind == TREE_LIST ? list->items : NULL;
		item != NULL; item = item->next) {
		const struct tree_node *name = find(item->value, "name");
		const struct tree_node *value = find(item->value, "value");

		if (name == NULL || !is_scalar(name) || (value != NULL && !is_scalar(value)) ||
			exec->env_n == KUBECONFIG_ARGS_MAX) {
			exec->env_n = 0;
			break;
		}
		exec->env[exec->env_n++] =
			(struct kubeconfig_variable){name->text, value != NULL ? value->text : ""};
	}
	return exec->env_n == list->items_n && list->kind == TREE_LIST
		? 0
		: pawl_err_set(reading->err, PAWL_EINVAL,
			  "%s:%u: user %s: exec: env must be a list of %u at most, each with name "
			  "and value",
			  reading->files[entry->file].path, list->line, entry->name,
			  KUBECONFIG_ARGS_MAX);
}

static int read_exec(const struct reading *reading, const struct entry *user)
{
	struct kubeconfig_exec *exec = &reading->config->exec;
	struct entry entry = {find(user->node, "exec"), user->file, "user", user->name};
	int rv;

	if (entry.node == NULL) {
		return 0;
	}
	rv = get_text(reading, &entry, "command", &exec->command);
	rv = rv == 0 ? get_text(reading, &entry, "apiVersion", &exec->api_version) : rv;
	rv = rv == 0 ? get_text(reading, &entry, "installHint", &exec->hint) : rv;
	rv = rv == 0 ? get_bool(reading, &entry, "provideClusterInfo", &exec->wants_cluster) : rv;
	rv = rv == 0 ? read_args(reading, &entry, exec) : rv;
	rv = rv == 0 ? read_env(reading, &entry, exec) : rv;
	if (rv == 0 && (exec->command == NULL || exec->api_version == NULL)) {
		rv = pawl_err_set(reading->err, PAWL_EINVAL,
			"%s: user %s: exec needs command and apiVersion",
			reading->files[entry.file].path, entry.name);
	}
	/* A name is found in PATH; what has a slash is a path. */
	return rv == 0 && strchr(exec->command, '/') != NULL
		? resolve(reading, entry.file, &exec->command)
		: rv;
}

/* Refuses what a user needs and this client has not. */
static int refuse(const struct reading *reading, const struct entry *entry)
{
	static const struct {
		const char *key;
		const char *why;
	} rows[] = {
		{"auth-provider",
			"Kubernetes 1.26 gave it up: use exec, with the plugin of your "
			"cloud (gke-gcloud-auth-plugin, kubelogin)"},
		{"as", "impersonation is not supported"},
		{"as-uid", "impersonation is not supported"},
		{"as-groups", "impersonation is not supported"},
		{"as-user-extra", "impersonation is not supported"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (find(entry->node, rows[i].key) != NULL) {
			return pawl_err_set(reading->err, PAWL_ENOTSUP, "%s: user %s: %s: %s",
				reading->files[entry->file].path, entry->name, rows[i].key,
				rows[i].why);
		}
	}
	return 0;
}

static int read_user(const struct reading *reading, const char *name)
{
	struct kubeconfig *config = reading->config;
	struct entry entry;
	int rv;

	find_entry(reading, "users", "user", name, &entry);
	if (entry.node == NULL) {
		return pawl_err_set(reading->err, PAWL_ENOENT,
			"context %s: there is no user %s in %s", config->context, name,
			reading->files[0].path);
	}
	rv = refuse(reading, &entry);
	rv = rv == 0 ? get_pem(reading, &entry, "client-certificate", &config->certificate) : rv;
	rv = rv == 0 ? get_pem(reading, &entry, "client-key", &config->key) : rv;
	rv = rv == 0 ? get_text(reading, &entry, "token", &config->token) : rv;
	rv = rv == 0 ? get_path(reading, &entry, "tokenFile", &config->token_file) : rv;
	rv = rv == 0 ? get_text(reading, &entry, "username", &config->user) : rv;
	rv = rv == 0 ? get_text(reading, &entry, "password", &config->password) : rv;
	return rv == 0 ? read_exec(reading, &entry) : rv;
}

/* ---- all ---- */

int kubeconfig_read(const struct kubeconfig_file *files, size_t files_n, const char *context,
	struct kubeconfig *config, struct pawl_err *err)
{
	struct reading reading = {.files = files, .n = files_n, .config = config, .err = err};
	struct entry entry;
	const char *cluster = NULL;
	const char *user = NULL;
	int rv;

	*config = (struct kubeconfig){.context = NULL};
	if (files_n == 0 || files_n > KUBECONFIG_FILES_MAX) {
		return pawl_err_set(err, PAWL_EINVAL, "%zu kubeconfigs: 1 to %u are possible",
			files_n, KUBECONFIG_FILES_MAX);
	}
	rv = parse_files(&reading);
	rv = rv == 0 ? choose_context(&reading, context) : rv;
	if (rv != 0) {
		return rv;
	}
	find_entry(&reading, "contexts", "context", config->context, &entry);
	if (entry.node == NULL) {
		return pawl_err_set(err, PAWL_ENOENT, "there is no context %s in %s",
			config->context, files[0].path);
	}
	rv = get_text(&reading, &entry, "namespace", &config->name_space);
	rv = rv == 0 ? get_text(&reading, &entry, "cluster", &cluster) : rv;
	rv = rv == 0 ? get_text(&reading, &entry, "user", &user) : rv;
	if (rv == 0 && cluster == NULL) {
		rv = pawl_err_set(err, PAWL_EINVAL, "%s: context %s names no cluster",
			files[entry.file].path, config->context);
	}
	rv = rv == 0 ? read_cluster(&reading, cluster) : rv;
	return rv == 0 && user != NULL ? read_user(&reading, user) : rv;
}

void kubeconfig_deinit(struct kubeconfig *config)
{
	sched_arena_deinit(&config->arena);
	*config = (struct kubeconfig){.context = NULL};
}
