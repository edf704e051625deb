/* Common to all stores: checks of arguments, and functions built from a store's operations: see
 * store.h. */
#include "store/dirs.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/file.h"

#include <stdio.h>
#include <string.h>

_Static_assert(STORE_NAME_MAX <= STORE_PATH_MAX, "a name is a path");

static bool is_dots(const char *name, size_t len_bytes)
{
	return (len_bytes == 1 || len_bytes == 2) && strncmp(name, "..", len_bytes) == 0;
}

/* Checks a path; paths come from manifests and from users, so they are not asserted. */
static int check_path(const char *path, struct pawl_err *err)
{
	const char *name = path;
	size_t depth = 0;

	if (strlen(path) >= STORE_PATH_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "path of %zu bytes: at most %u", strlen(path),
			STORE_PATH_MAX - 1);
	}
	for (;;) {
		size_t len_bytes = strcspn(name, "/");

		if (len_bytes == 0 || is_dots(name, len_bytes)) {
			return pawl_err_set(err, PAWL_EINVAL,
				"path \"%s\": must be relative, without empty names, . or ..",
				path);
		}
		if (len_bytes >= STORE_NAME_MAX || ++depth > STORE_NEST_MAX) {
			return pawl_err_set(err, PAWL_ELIMIT,
				"path %s: names of at most %u bytes, at most %u of them", path,
				STORE_NAME_MAX - 1, STORE_NEST_MAX);
		}
		if (name[len_bytes] == '\0') {
			return 0;
		}
		name += len_bytes + 1;
	}
}

static int check_dir_path(const char *path, struct pawl_err *err)
{
	return path[0] == '\0' ? 0 : check_path(path, err);
}

bool store_is_flat(const struct store *store)
{
	return store->dirs == NULL;
}

/* Refuses what only directories can do. */
static int refuse_flat(const struct store *store, const char *what, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_ENOTSUP, "a store of kind %s cannot %s", store->ops->name,
		what);
}

void store_close(struct store *store)
{
	if (store != NULL) {
		store->ops->close(store);
	}
}

int store_mkdir(struct store *store, const char *path, struct pawl_err *err)
{
	int rv = check_path(path, err);

	return rv != 0 || store_is_flat(store) ? rv : store->dirs->mkdir(store, path, err);
}

int store_mkdirs(struct store *store, const char *path, struct pawl_err *err)
{
	char folder[STORE_PATH_MAX];
	int rv = check_path(path, err);
	size_t len = file_next_folder(path, 0); /* the first directory exists */

	while (rv == 0 && !store_is_flat(store) && (len = file_next_folder(path, len)) > 0) {
		snprintf(folder, sizeof(folder), "%.*s", (int)len, path);
		rv = store_mkdir(store, folder, err);
	}
	return rv;
}

int store_create(struct store *store, const char *path, uint64_t size_bytes,
	struct store_file **file, struct pawl_err *err)
{
	int rv = check_path(path, err);

	return rv != 0 ? rv : store->ops->create(store, path, size_bytes, file, err);
}

int store_open(struct store *store, const char *path, struct store_file **file,
	uint64_t *size_bytes, struct pawl_err *err)
{
	uint64_t size = 0;
	int rv = check_path(path, err);

	rv = rv != 0 ? rv : store->ops->open(store, path, file, &size, err);
	if (rv == 0 && size_bytes != NULL) {
		*size_bytes = size;
	}
	return rv;
}

static int map(struct store *store, struct store_file *file, bool unread, const uint8_t **bytes,
	struct pawl_err *err)
{
	if (store_is_flat(store) || store->dirs->map == NULL) {
		return refuse_flat(store, "map files", err);
	}
	return store->dirs->map(store, file, unread, bytes, err);
}

int store_map(struct store *store, struct store_file *file, const uint8_t **bytes,
	struct pawl_err *err)
{
	return map(store, file, false, bytes, err);
}

int store_map_unread(struct store *store, struct store_file *file, const uint8_t **bytes,
	struct pawl_err *err)
{
	return map(store, file, true, bytes, err);
}

void store_prefetch(struct store *store, struct store_file *file, uint64_t off_bytes,
	uint64_t len_bytes)
{
	ASSERT(off_bytes % STORE_ALIGN == 0);
	store->dirs->prefetch(file, off_bytes, len_bytes);
}

int store_fill(struct store *store, struct store_file *file, uint64_t off_bytes, uint64_t len_bytes,
	struct pawl_err *err)
{
	return store->dirs->fill(file, off_bytes, len_bytes, err);
}

uint32_t store_depth(const struct store *store)
{
	return store->ops->depth > 0 ? store->ops->depth : STORE_DEPTH;
}

int store_submit(struct store *store, struct store_io *io, struct pawl_err *err)
{
	io->why = NULL;
	ASSERT(io->len_bytes > 0 && io->len_bytes % STORE_ALIGN == 0);
	ASSERT(io->off_bytes % STORE_ALIGN == 0);
	ASSERT((uintptr_t)io->buf % STORE_ALIGN == 0);
	return store->ops->submit(store, io, err);
}

struct store_io *store_reap(struct store *store, int timeout_ms)
{
	return store->ops->reap(store, timeout_ms);
}

const char *store_io_why(const struct store_io *io)
{
	if (io->why != NULL) {
		return io->why;
	}
	return io->sys != 0 ? strerror(io->sys) : pawl_err_name(io->rv);
}

int store_resize(struct store *store, struct store_file *file, uint64_t size_bytes,
	struct pawl_err *err)
{
	return store->ops->resize(store, file, size_bytes, err);
}

int store_clone(struct store *store, const struct store_range *to, const struct store_range *from,
	uint64_t len_bytes, struct pawl_err *err)
{
	if (store_is_flat(store) || store->dirs->clone == NULL) {
		return refuse_flat(store, "clone bytes", err);
	}
	ASSERT(len_bytes > 0); /* 0 would mean the rest of the file to Linux */
	ASSERT(to->off_bytes % STORE_ALIGN == 0 && from->off_bytes % STORE_ALIGN == 0);
	return store->dirs->clone(store, to, from, len_bytes, err);
}

int store_sync(struct store *store, struct store_file *file, struct pawl_err *err)
{
	return store->ops->sync(store, file, err);
}

void store_close_file(struct store *store, struct store_file *file)
{
	if (file != NULL) {
		store->ops->close_file(store, file);
	}
}

int store_sync_dir(struct store *store, const char *path, struct pawl_err *err)
{
	int rv = check_dir_path(path, err);

	return rv != 0 || store_is_flat(store) ? rv : store->dirs->sync_dir(store, path, err);
}

int store_write_small(struct store *store, const char *path, const void *bytes, size_t len_bytes,
	struct pawl_err *err)
{
	int rv = check_path(path, err);

	return rv != 0 ? rv : store->ops->write_small(store, path, bytes, len_bytes, err);
}

int store_read_small(struct store *store, const char *path, void **bytes, size_t *len_bytes,
	size_t max_bytes, struct pawl_err *err)
{
	int rv = check_path(path, err);

	return rv != 0 ? rv : store->ops->read_small(store, path, bytes, len_bytes, max_bytes, err);
}

int store_append_small(struct store *store, const char *path, const void *bytes, size_t len_bytes,
	bool sync, struct pawl_err *err)
{
	int rv = check_path(path, err);

	if (rv == 0 && store_is_flat(store)) {
		return refuse_flat(store, "append to files", err);
	}
	return rv != 0 ? rv : store->dirs->append_small(store, path, bytes, len_bytes, sync, err);
}

int store_stat(struct store *store, const char *path, enum store_kind *kind, uint64_t *size_bytes,
	struct pawl_err *err)
{
	enum store_kind what = STORE_FILE;
	uint64_t size = 0;
	int rv = check_dir_path(path, err);

	rv = rv != 0 ? rv : store->ops->stat(store, path, &what, &size, err);
	if (rv == 0 && kind != NULL) {
		*kind = what;
	}
	if (rv == 0 && size_bytes != NULL) {
		*size_bytes = size;
	}
	return rv;
}

int store_list(struct store *store, const char *path, store_list_fn *each, void *user,
	struct pawl_err *err)
{
	int rv = check_dir_path(path, err);

	return rv != 0 ? rv : store->ops->list(store, path, each, user, err);
}

/* store_list_fn */
static int stop_listing(void *user, const char *name, enum store_kind kind)
{
	return 1;
}

int store_refresh_dir(struct store *store, const char *path, struct pawl_err *err)
{
	return store_is_flat(store) ? 0 : store_list(store, path, stop_listing, NULL, err);
}

int store_rename(struct store *store, const char *from, const char *to, enum store_rename how,
	struct pawl_err *err)
{
	int rv = check_path(from, err);

	rv = rv != 0 ? rv : check_path(to, err);
	if (rv == 0 && store_is_flat(store)) {
		return refuse_flat(store, "rename", err);
	}
	return rv != 0 ? rv : store->dirs->rename(store, from, to, how, err);
}

int store_link(struct store *store, const char *from, const char *to, struct pawl_err *err)
{
	int rv = check_path(from, err);

	rv = rv != 0 ? rv : check_path(to, err);
	if (rv == 0 && store_is_flat(store)) {
		return refuse_flat(store, "link", err);
	}
	return rv != 0 ? rv : store->dirs->link(store, from, to, err);
}

int store_remove(struct store *store, const char *path, struct pawl_err *err)
{
	int rv = check_path(path, err);

	return rv != 0 ? rv : store->ops->remove(store, path, err);
}

/* ---- flat stores only ---- */

static int check_flat(const struct store *store, const char *path, struct pawl_err *err)
{
	int rv = check_path(path, err);

	if (rv == 0 && !store_is_flat(store)) {
		rv = pawl_err_set(err, PAWL_ENOTSUP, "a store of kind %s has no etags",
			store->ops->name);
	}
	return rv;
}

int store_put_if(struct store *store, const char *path, const void *bytes, size_t len_bytes,
	const char *match, char etag[STORE_ETAG_MAX], struct pawl_err *err)
{
	int rv = check_flat(store, path, err);

	return rv != 0 ? rv
		       : store->ops->put_if(store, path, bytes, len_bytes,
				 match != NULL ? match : "", etag, err);
}

int store_read_etag(struct store *store, const char *path, void **bytes, size_t *len_bytes,
	size_t max_bytes, char etag[STORE_ETAG_MAX], struct pawl_err *err)
{
	int rv = check_flat(store, path, err);

	return rv != 0 ? rv
		       : store->ops->read_etag(store, path, bytes, len_bytes, max_bytes, etag, err);
}

int store_resume(struct store *store, const char *path, uint64_t size_bytes,
	struct store_file **file, struct pawl_err *err)
{
	int rv = check_flat(store, path, err);

	if (rv != 0) {
		return rv;
	}
	return store->ops->resume != NULL ? store->ops->resume(store, path, size_bytes, file, err)
					  : store->ops->create(store, path, size_bytes, file, err);
}

int store_has(struct store *store, const char *path, uint64_t size_bytes, store_bytes_fn *read,
	void *user, bool *has, struct pawl_err *err)
{
	int rv = check_flat(store, path, err);

	*has = false;
	return rv != 0 || store->ops->has == NULL
		? rv
		: store->ops->has(store, path, size_bytes, read, user, has, err);
}

int store_sweep(struct store *store, struct pawl_err *err)
{
	return store->ops->sweep != NULL ? store->ops->sweep(store, err) : 0;
}

void store_on_stop(struct store *store, bool (*stops)(void *user), void *user)
{
	if (store->ops->on_stop != NULL) {
		store->ops->on_stop(store, stops, user);
	}
}

/* ---- publishing a small file ---- */

/* Writes the directory that holds path's last name to parent. */
static void parent_of(const char *path, char parent[STORE_PATH_MAX])
{
	const char *slash = strrchr(path, '/');
	size_t len_bytes = slash != NULL ? (size_t)(slash - path) : 0;

	memcpy(parent, path, len_bytes);
	parent[len_bytes] = '\0';
}

/* Returns whether something that is not a file has the name. The name must be ours alone, since the
 * caller removes what has it. */
static bool is_other(struct store *store, const char *path)
{
	enum store_kind kind;

	return store_stat(store, path, &kind, NULL, NULL) == 0 && kind != STORE_FILE;
}

/*
 * A crash before the rename leaves path as it was; after it path is new, and the last sync makes
 * that survive power loss. Without the first sync (write_small's) some file systems publish an
 * empty file.
 */
int store_publish(struct store *store, const char *path, const void *bytes, size_t len_bytes,
	struct pawl_err *err)
{
	char temp[STORE_PATH_MAX + sizeof(".new")];
	char parent[STORE_PATH_MAX];
	int rv = check_path(path, err);

	if (rv != 0 || store_is_flat(store)) {
		return rv != 0 ? rv : store_write_small(store, path, bytes, len_bytes, err);
	}
	parent_of(path, parent);
	snprintf(temp, sizeof(temp), "%s.new", path);
	rv = store_write_small(store, temp, bytes, len_bytes, err);
	if (rv == PAWL_EIO && is_other(store, temp) && store_remove(store, temp, err) == 0) {
		rv = store_write_small(store, temp, bytes, len_bytes, err);
	}
	if (rv == 0) {
		rv = store_rename(store, temp, path, STORE_REPLACE, err);
	}
	if (rv == 0) {
		rv = store_sync_dir(store, parent, err);
	}
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "publish %s", path);
}
