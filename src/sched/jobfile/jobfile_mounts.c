/*
 * The section file_mounts: what a job finds at paths that it names. See jobfile_impl.h.
 *
 * A path or a directory of a file server becomes a link. A bucket is mirrored (MOUNT_CACHED) or
 * fetched (COPY, or an address alone); SkyPilot's mode MOUNT, which streams, is refused.
 */
#include "sched/jobfile/jobfile_impl.h"

#include "base/assert.h"
#include "pawl/err.h"
#include "store/object/object_url.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

/* ---- buckets ---- */

#define ADDRESS                                                                                    \
	"an address such as s3://BUCKET/PATH, gs://BUCKET/PATH or azure://ACCOUNT/CONTAINER/PATH"
#define CACHE_MAX ((double)SPEC_GIB_MAX * (1u << 30)) /* bytes */
#define TUNING    "Pawl chooses by itself how it reads and uploads"

/* A mapping of SkyPilot that names a bucket; NULL: the key is not there. */
struct storage {
	const struct tree_node *name;
	const struct tree_node *source;
	const struct tree_node *store;
	const struct tree_node *mode;
	const struct tree_node *persistent;
	uint64_t local_max_bytes; /* config.mount_cached.vfs_cache_max_size; 0: not given */
	bool read_only;           /* config.mount_cached.read_only */
};

static void read_name(struct jobfile *f, const char *key, const struct tree_node *value, void *into)
{
	((struct storage *)into)->name = value;
}

static void read_source(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	((struct storage *)into)->source = value;
}

static void read_store(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	((struct storage *)into)->store = value;
}

static void read_mode(struct jobfile *f, const char *key, const struct tree_node *value, void *into)
{
	((struct storage *)into)->mode = value;
}

static void read_persistent(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	((struct storage *)into)->persistent = value;
}

/* Reads a size as rclone has it ("10G", "512M"), or as the rest of a job file has it. */
static void read_cache_size(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	static const char units[] = "KMGT";
	struct storage *storage = into;
	const char *text = jobfile_scalar(value);
	size_t digits = text ? strspn(text, "0123456789.") : 0;
	const char *unit = text && digits > 0 && strlen(text) == digits + 1
		? strchr(units, toupper((unsigned char)text[digits]))
		: NULL;
	double bytes;

	if (unit == NULL) {
		jobfile_size(f, key, value, &storage->local_max_bytes);
		return;
	}
	bytes = strtod(text, NULL) * (double)(1ull << (10 * (unit - units + 1)));
	if (!(bytes >= 1 && bytes <= CACHE_MAX)) {
		jobfile_bad_value(f, key, value, "a size up to 1 PB");
		return;
	}
	storage->local_max_bytes = (uint64_t)bytes;
}

static void read_read_only(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	jobfile_bool(f, key, value, &((struct storage *)into)->read_only);
}

static const struct jobfile_key cached_keys[] = {
	{"vfs_cache_max_size", read_cache_size, NULL, false},
	{"read_only", read_read_only, NULL, false},
	{"transfers", NULL, TUNING, true},
	{"buffer_size", NULL, TUNING, true},
	{"vfs_cache_max_age", NULL, TUNING, true},
	{"vfs_read_ahead", NULL, TUNING, true},
	{"vfs_read_chunk_size", NULL, TUNING, true},
	{"vfs_read_chunk_streams", NULL, TUNING, true},
	{"vfs_write_back", NULL, TUNING, true},
	{"multi_thread_streams", NULL, TUNING, true},
	{"fast_list", NULL, TUNING, true},
	{"sequential_upload", NULL, "Pawl always uploads in order", true},
	{NULL},
};

static void read_cached(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	if (value->kind != TREE_MAP) {
		jobfile_bad_value(f, key, value, "a mapping of settings");
		return;
	}
	jobfile_walk(f, value, cached_keys, NULL, NULL, into);
}

static const struct jobfile_key config_keys[] = {
	{"mount_cached", read_cached, NULL, false},
	{"mount", NULL, "it tunes mounts of mode MOUNT", true},
	{NULL},
};

static void read_config(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into)
{
	if (value->kind != TREE_MAP) {
		jobfile_bad_value(f, key, value, "a mapping of settings");
		return;
	}
	jobfile_walk(f, value, config_keys, NULL, NULL, into);
}

static const struct jobfile_key storage_keys[] = {
	{"name", read_name, NULL, false},
	{"source", read_source, NULL, false},
	{"store", read_store, NULL, false},
	{"mode", read_mode, NULL, false},
	{"persistent", read_persistent, NULL, false},
	{"config", read_config, NULL, false},
	{"type", NULL, TUNING, true},
	{NULL},
};

/* Returns the scheme of a store of SkyPilot; NULL, and reports it, if its buckets need an
 * address. */
static const char *find_scheme(struct jobfile *f, const struct tree_node *store)
{
	const char *name = store ? jobfile_scalar(store) : "s3";
	char shown[REMARK_SHOW_MAX];

	if (name && strcasecmp(name, "s3") == 0) {
		return "s3";
	}
	if (name && (strcasecmp(name, "gcs") == 0 || strcasecmp(name, "gs") == 0)) {
		return "gs";
	}
	remark_show(shown, name ? name : "?", strlen(name ? name : "?"));
	jobfile_add_error(f, store,
		"store: %s: the name of a bucket is not enough there: give source: " ADDRESS
		"; another service that speaks the API of S3 by s3://BUCKET?endpoint=https://HOST",
		shown);
	return NULL;
}

/* Turns https://ACCOUNT.blob.core.windows.net/CONTAINER/PATH into azure://ACCOUNT/CONTAINER/PATH.
 * Returns the address itself if it is no such. */
static const char *write_azure(struct jobfile *f, const char *from)
{
	static const char host[] = ".blob.core.windows.net/";
	const char *account = strncasecmp(from, "https://", 8) == 0 ? from + 8 : NULL;
	const char *dot = account ? strstr(account, host) : NULL;
	size_t len = strlen(from);
	char *text;

	if (dot == NULL || dot == account) {
		return from;
	}
	text = sched_arena_alloc(f->arena, len + 1);
	if (text) {
		snprintf(text, len + 1, "azure://%.*s/%s", (int)(dot - account), account,
			dot + sizeof(host) - 1);
	}
	return text;
}

/* Returns the address, checked; NULL: it is wrong, and was reported. */
static const char *check_address(struct jobfile *f, const struct tree_node *at, const char *from)
{
	struct object_url url;
	struct pawl_err err;

	from = from ? write_azure(f, from) : NULL;
	if (from == NULL) {
		return NULL;
	}
	if (!object_url_is(from)) {
		jobfile_add_error(f, at, "file_mounts: %.*s:// is not known: give " ADDRESS,
			(int)strcspn(from, ":") < 16 ? (int)strcspn(from, ":") : 16, from);
		return NULL;
	}
	if (object_url_parse(from, &url, &err) != 0) {
		jobfile_add_error(f, at, "file_mounts: %s", err.msg);
		return NULL;
	}
	return from;
}

/* Returns the address of a bucket that a mapping names; NULL: it is wrong, and was reported. */
static const char *read_address(struct jobfile *f, const struct tree_item *item,
	const struct storage *storage, const char *key)
{
	const struct tree_node *named = storage->source ? storage->source : storage->name;
	const char *text = NULL;
	const char *scheme;
	char *address;
	size_t len;

	if (named == NULL) {
		jobfile_add_error(f, item->key,
			"file_mounts: %s names no bucket: give name: BUCKET, or source: " ADDRESS,
			key);
		return NULL;
	}
	if (!jobfile_text(f, storage->source ? "source" : "name", named, SPEC_PATH_MAX, &text)) {
		return NULL;
	}
	text = jobfile_expand(f, key, named, text);
	if (text == NULL || strstr(text, "://")) {
		return text ? check_address(f, named, text) : NULL;
	}
	if (storage->source) {
		jobfile_add_error(f, named,
			"file_mounts: %s: a bucket that is filled from a directory is not "
			"supported "
			"yet: put the files there first (aws s3 sync), and leave source out",
			key);
		return NULL;
	}
	scheme = find_scheme(f, storage->store);
	if (scheme == NULL) {
		return NULL;
	}
	if (!storage->store) {
		jobfile_add_note(f, named, "no store is given: %s is taken for a bucket of S3",
			key);
	}
	len = strlen(text) + 8;
	address = sched_arena_alloc(f->arena, len);
	if (address) {
		snprintf(address, len, "%s://%s", scheme, text);
	}
	return check_address(f, named, address);
}

/* Finds what a mode means. Returns false, and reports it, if Pawl does not have it. */
static bool find_mode(struct jobfile *f, const struct tree_item *item,
	const struct storage *storage, const char *key, enum sched_mount_kind *kind)
{
	const char *mode = storage->mode ? jobfile_scalar(storage->mode) : "MOUNT";
	const struct tree_node *at = storage->mode ? storage->mode : item->key;

	if (mode && strcasecmp(mode, "MOUNT_CACHED") == 0) {
		*kind = storage->read_only ? SCHED_MOUNT_FETCH : SCHED_MOUNT_MIRROR;
		return true;
	}
	if (mode && strcasecmp(mode, "COPY") == 0) {
		*kind = SCHED_MOUNT_FETCH;
		return true;
	}
	if (mode && strcasecmp(mode, "MOUNT") == 0) {
		jobfile_add_error(f, at,
			"file_mounts: %s streams each file to and from the bucket, which is not "
			"supported; write mode: MOUNT_CACHED for what the job writes to %s, or "
			"COPY for what it reads there",
			storage->mode ? "mode MOUNT" : "no mode means MOUNT, and that", key);
		return false;
	}
	jobfile_bad_value(f, "mode", at, "MOUNT_CACHED or COPY");
	return false;
}

/* Returns whether the bucket outlives the job. */
static bool check_persistent(struct jobfile *f, const struct storage *storage, const char *key)
{
	bool persistent = true;

	if (storage->persistent &&
		(!jobfile_bool(f, "persistent", storage->persistent, &persistent) || !persistent)) {
		jobfile_add_error(f, storage->persistent,
			"file_mounts: %s: persistent: false is not supported: Pawl removes no "
			"buckets",
			key);
	}
	return persistent;
}

/* Reads a mapping, which names a bucket or a volume. */
static bool take_storage(struct jobfile *f, const struct tree_item *item, const char *key,
	struct sched_mount *mount)
{
	struct storage storage = {.name = NULL};
	const char *store;

	jobfile_walk(f, item->value, storage_keys, NULL, NULL, &storage);
	store = storage.store ? jobfile_scalar(storage.store) : NULL;
	if (store && strcasecmp(store, "volume") == 0) {
		jobfile_add_error(f, item->key,
			"file_mounts: %s is a volume: not supported yet: give a directory that the "
			"nodes share, as %s: /shared/DIR",
			key, key);
		return false;
	}
	if (!find_mode(f, item, &storage, key, &mount->kind) ||
		!check_persistent(f, &storage, key)) {
		return false;
	}
	mount->from = read_address(f, item, &storage, key);
	mount->local_max_bytes = storage.local_max_bytes;
	return mount->from != NULL;
}

/* ---- mounts ---- */

/* Reads an address that stands alone: its bucket is fetched. len: length of its scheme. */
static bool take_address(struct jobfile *f, const struct tree_item *item, size_t len,
	struct sched_mount *mount)
{
	if (len >= 4 && len <= 5 && strncasecmp(mount->from, "https", len) == 0 &&
		!strstr(mount->from, ".blob.core.windows.net/")) {
		jobfile_add_error(f, item->value,
			"file_mounts: %.*s:// is not supported yet: fetch it in setup, or give a "
			"file that the nodes share",
			(int)len, mount->from);
		return false;
	}
	mount->kind = SCHED_MOUNT_FETCH;
	mount->from = check_address(f, item->value, mount->from);
	return mount->from != NULL;
}

/* Reads a source that is one text: a path, a directory of a server, or the address of a bucket. */
static bool take_text(struct jobfile *f, const struct tree_item *item, const char *key,
	struct sched_mount *mount)
{
	size_t len;

	if (!jobfile_text(f, key, item->value, SPEC_PATH_MAX, &mount->from)) {
		return false;
	}
	mount->from = jobfile_expand(f, key, item->value, mount->from);
	if (!mount->from) {
		return false;
	}
	len = strcspn(mount->from, ":/");
	if (strncmp(mount->from + len, "://", 3) == 0 && !find_server(mount->from)) {
		return take_address(f, item, len, mount);
	}
	mount->from = trim(f, mount->from);
	if (mount->from && find_server(mount->from)) {
		mount->kind = SCHED_MOUNT_NFS;
		mount->from = write_server(f, find_server(mount->from));
	}
	return mount->from != NULL;
}

/* Returns whether the job can have a bucket: one process of it writes there. */
static bool check_size(struct jobfile *f, const struct tree_item *item, const char *key,
	const struct sched_mount *mount)
{
	if (mount->kind != SCHED_MOUNT_MIRROR && mount->kind != SCHED_MOUNT_FETCH) {
		return true;
	}
	if (f->spec->elastic || f->spec->size.most > 1) {
		jobfile_add_error(f, item->key,
			"file_mounts: %s: a bucket is supported for jobs of one node only, yet: in "
			"others, save by pawl.Checkpointer(\"s3://…\")",
			key);
		return false;
	}
	return true;
}

static void take_mount(struct jobfile *f, const struct tree_item *item, struct sched_mount *mounts)
{
	struct sched_mount *mount = &mounts[f->spec->mounts_n];
	char shown[REMARK_SHOW_MAX];
	const char *key = remark_show(shown, item->key->text, item->key->len_bytes);
	const char *word = jobfile_scalar(item->key);
	bool taken = item->value->kind == TREE_MAP ? take_storage(f, item, key, mount)
						   : take_text(f, item, key, mount);

	mount->at = taken && word ? trim(f, jobfile_expand(f, key, item->key, word)) : NULL;
	if (!mount->at) {
		return;
	}
	if (mount->at[0] != '/' && strncmp(mount->at, "~/", 2) != 0) {
		jobfile_add_error(f, item->key,
			"file_mounts: %s: a path that begins with / or ~/ is needed", key);
	} else if (is_taken(f->spec, mount->at)) {
		jobfile_add_error(f, item->key, "file_mounts: %s is given twice: keep one", key);
	} else if (check_size(f, item, key, mount)) {
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
