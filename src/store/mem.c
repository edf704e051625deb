/*
 * The store in memory: paths, counted operations and the trace around mem_disk: see mem.h.
 *
 * A transfer takes effect when it is reaped, so that a sync covers exactly what was reaped before
 * it, and transfers are reaped newest first, which exposes a caller that relies on more than
 * store.h promises.
 */
#include "store/mem.h"

#include "base/assert.h"
#include "base/err.h"
#include "store/dirs.h"
#include "store/mem_disk.h"
#include "store/mem_power.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEM_FILE_MAX (1u << 30) /* bytes; a larger file fails with "no space left" */

struct mem_store {
	struct mem_power power; /* first: what callers hold */
	struct mem_disk disk;   /* the simulated disk */
	bool clones;            /* files can share bytes */
};

struct store_file {
	struct mem_node *node;     /* the disk's */
	char path[STORE_PATH_MAX]; /* path at open, for messages and the trace */
};

static struct mem_store *mem_of(struct store *store)
{
	ASSERT(store->ops == &mem_ops);
	return (struct mem_store *)store;
}

static const struct mem_store *mem_of_const(const struct store *store)
{
	ASSERT(store->ops == &mem_ops);
	return (const struct mem_store *)store;
}

/* Reports an error as a file system would. */
static int fail_sys(struct pawl_err *err, int sys, const char *verb, const char *path)
{
	errno = sys;
	return pawl_err_sys(err, "%s %s", verb, path);
}

/* ---- paths ---- */

/* Returns the node that path names ("": the root); NULL if there is none. */
static struct mem_node *find_node(const struct mem_store *m, const char *path)
{
	struct mem_node *node = m->disk.root;

	while (*path != '\0' && node != NULL) {
		char name[STORE_NAME_MAX];
		size_t len_bytes = strcspn(path, "/");

		snprintf(name, sizeof(name), "%.*s", (int)len_bytes, path);
		node = node->kind == STORE_DIR ? mem_dir_get(node, name) : NULL;
		path += len_bytes + (path[len_bytes] == '/');
	}
	return node;
}

/* Returns the directory that holds path's last name, and that name; NULL if there is none. */
static struct mem_node *find_parent(const struct mem_store *m, const char *path, const char **name)
{
	const char *slash = strrchr(path, '/');
	char parent[STORE_PATH_MAX] = "";
	struct mem_node *node;

	if (slash != NULL) {
		snprintf(parent, sizeof(parent), "%.*s", (int)(slash - path), path);
	}
	*name = slash != NULL ? slash + 1 : path;
	node = find_node(m, parent);
	return node != NULL && node->kind == STORE_DIR ? node : NULL;
}

static int mem_mkdir(struct store *store, const char *path, struct pawl_err *err)
{
	struct mem_store *m = mem_of(store);
	const char *name;
	struct mem_node *parent = find_parent(m, path, &name);
	struct mem_node *node = find_node(m, path);
	int rv;

	if (parent == NULL) {
		return fail_sys(err, ENOENT, "make directory", path);
	}
	if (node != NULL && node->kind != STORE_DIR) {
		return fail_sys(err, EEXIST, "make directory", path);
	}
	rv = mem_power_begin(&m->power, err, "mkdir %s", path);
	if (rv == 0 && node == NULL) {
		mem_dir_set(parent, m->power.ops, name, mem_node_new(&m->disk, STORE_DIR));
	}
	return rv;
}

/* Finds the file at path, made if it does not exist and emptied if asked: one operation if that
 * changes anything. */
static int make_file(struct mem_store *m, const char *path, bool truncate, uint64_t size_bytes,
	struct mem_node **file, struct pawl_err *err)
{
	const char *name;
	struct mem_node *parent = find_parent(m, path, &name);
	struct mem_node *node = find_node(m, path);
	int rv = 0;

	if (parent == NULL || (node != NULL && node->kind == STORE_DIR)) {
		return fail_sys(err, parent == NULL ? ENOENT : EISDIR, "create", path);
	}
	if (size_bytes > MEM_FILE_MAX) {
		return fail_sys(err, ENOSPC, "create", path);
	}
	if (node == NULL || truncate) {
		rv = mem_power_begin(&m->power, err, "create %s", path);
	}
	if (rv != 0) {
		return rv;
	}
	if (node == NULL) {
		node = mem_node_new(&m->disk, STORE_FILE);
		mem_dir_set(parent, m->power.ops, name, node);
	} else if (truncate) {
		mem_file_resize(node, 0);
	}
	if (size_bytes > 0) {
		mem_file_resize(node, size_bytes);
	}
	*file = node;
	return 0;
}

/* ---- files and transfers ---- */

static void new_file(struct mem_node *node, const char *path, struct store_file **file)
{
	struct store_file *f = malloc(sizeof(*f));

	ASSERT(f != NULL);
	f->node = node;
	snprintf(f->path, sizeof(f->path), "%s", path);
	*file = f;
}

static int mem_create(struct store *store, const char *path, uint64_t size_bytes,
	struct store_file **file, struct pawl_err *err)
{
	struct mem_node *node;
	int rv = make_file(mem_of(store), path, true, size_bytes, &node, err);

	if (rv == 0) {
		new_file(node, path, file);
	}
	return rv;
}

/* Finds the file at path, for reading. */
static int find_file(struct mem_store *m, const char *path, struct mem_node **file,
	struct pawl_err *err)
{
	struct mem_node *node = find_node(m, path);
	int rv = mem_power_check(&m->power, path, err);

	if (rv != 0) {
		return rv;
	}
	if (node == NULL) {
		return fail_sys(err, ENOENT, "open", path);
	}
	if (node->kind != STORE_FILE) {
		return pawl_err_set(err, PAWL_EINVAL, "open %s: not a file", path);
	}
	*file = node;
	return 0;
}

static int mem_open(struct store *store, const char *path, struct store_file **file,
	uint64_t *size_bytes, struct pawl_err *err)
{
	struct mem_node *node;
	int rv = find_file(mem_of(store), path, &node, err);

	if (rv == 0) {
		new_file(node, path, file);
		*size_bytes = node->now.len_bytes;
	}
	return rv;
}

static void mem_close_file(struct store *store, struct store_file *file)
{
	free(file);
}

static int write_now(struct mem_store *m, const struct store_io *io)
{
	int rv;

	if (io->off_bytes > MEM_FILE_MAX - io->len_bytes) {
		return PAWL_ENOSPC;
	}
	rv = mem_power_begin(&m->power, NULL, "write %s %llu+%zu", io->file->path,
		(unsigned long long)io->off_bytes, io->len_bytes);
	if (rv == 0) {
		mem_file_write(io->file->node, io->off_bytes, io->buf, io->len_bytes);
	}
	return rv;
}

static int read_now(struct mem_store *m, const struct store_io *io)
{
	const struct mem_bytes *bytes = &io->file->node->now;
	size_t left;

	if (m->power.dead) {
		return PAWL_EIO;
	}
	left = io->off_bytes < bytes->len_bytes ? bytes->len_bytes - io->off_bytes : 0;
	if (left < io->len_bytes && (left == 0 || io->len_bytes - left >= STORE_ALIGN)) {
		return PAWL_ECORRUPT;
	}
	memcpy(io->buf, bytes->at + io->off_bytes, left < io->len_bytes ? left : io->len_bytes);
	return 0;
}

static struct store_io *mem_reap(struct store *store, int timeout_ms)
{
	struct mem_store *m = mem_of(store);
	struct store_io *io = mem_power_next(&m->power);

	if (io == NULL) {
		return NULL;
	}
	io->rv = io->write ? write_now(m, io) : read_now(m, io);
	return io;
}

static int mem_resize(struct store *store, struct store_file *file, uint64_t size_bytes,
	struct pawl_err *err)
{
	int rv = mem_power_begin(&mem_of(store)->power, err, "resize %s %llu", file->path,
		(unsigned long long)size_bytes);

	if (rv == 0) {
		mem_file_resize(file->node, size_bytes);
	}
	return rv;
}

static int mem_clone(struct store *store, const struct store_range *to,
	const struct store_range *from, uint64_t len_bytes, struct pawl_err *err)
{
	struct mem_store *m = mem_of(store);
	const struct mem_bytes *now = &from->file->node->now;
	int rv;

	if (!m->clones) {
		return pawl_err_set(err, PAWL_ENOTSUP, "clone %s: switched off", from->file->path);
	}
	ASSERT(from->off_bytes + len_bytes <= now->len_bytes);
	rv = mem_power_begin(&m->power, err, "clone %s %llu+%llu", to->file->path,
		(unsigned long long)to->off_bytes, (unsigned long long)len_bytes);
	if (rv == 0) {
		mem_file_write(to->file->node, to->off_bytes, now->at + from->off_bytes, len_bytes);
	}
	return rv;
}

static int mem_sync(struct store *store, struct store_file *file, struct pawl_err *err)
{
	int rv = mem_power_begin(&mem_of(store)->power, err, "sync %s", file->path);

	if (rv == 0) {
		mem_file_sync(file->node);
	}
	return rv;
}

static int mem_sync_dir(struct store *store, const char *path, struct pawl_err *err)
{
	struct mem_store *m = mem_of(store);
	struct mem_node *dir = find_node(m, path);
	int rv;

	if (dir == NULL || dir->kind != STORE_DIR) {
		return fail_sys(err, dir == NULL ? ENOENT : ENOTDIR, "sync directory", path);
	}
	rv = mem_power_begin(&m->power, err, "sync_dir %s", path);
	if (rv == 0) {
		mem_dir_sync(dir);
	}
	return rv;
}

/* ---- small files ---- */

/* Writes at an offset and, if asked, syncs: one operation each. */
static int write_at(struct mem_store *m, struct mem_node *file, const char *path,
	uint64_t off_bytes, const void *bytes, size_t len_bytes, bool sync, struct pawl_err *err)
{
	int rv;

	if (len_bytes > MEM_FILE_MAX || off_bytes > MEM_FILE_MAX - len_bytes) {
		return fail_sys(err, ENOSPC, "write", path);
	}
	rv = mem_power_begin(&m->power, err, "write %s %llu+%zu", path,
		(unsigned long long)off_bytes, len_bytes);
	if (rv != 0) {
		return rv;
	}
	mem_file_write(file, off_bytes, bytes, len_bytes);
	if (!sync) {
		return 0;
	}
	rv = mem_power_begin(&m->power, err, "sync %s", path);
	if (rv == 0) {
		mem_file_sync(file);
	}
	return rv;
}

static int mem_write_small(struct store *store, const char *path, const void *bytes,
	size_t len_bytes, struct pawl_err *err)
{
	struct mem_store *m = mem_of(store);
	struct mem_node *file;
	int rv = make_file(m, path, true, 0, &file, err);

	return rv != 0 ? rv : write_at(m, file, path, 0, bytes, len_bytes, true, err);
}

static int mem_append_small(struct store *store, const char *path, const void *bytes,
	size_t len_bytes, bool sync, struct pawl_err *err)
{
	struct mem_store *m = mem_of(store);
	struct mem_node *file;
	int rv = make_file(m, path, false, 0, &file, err);

	return rv != 0 ? rv
		       : write_at(m, file, path, file->now.len_bytes, bytes, len_bytes, sync, err);
}

static int mem_read_small(struct store *store, const char *path, void **bytes, size_t *len_bytes,
	size_t max_bytes, struct pawl_err *err)
{
	struct mem_node *file;
	char *copy;
	int rv = find_file(mem_of(store), path, &file, err);

	if (rv != 0) {
		return rv;
	}
	if (file->now.len_bytes > max_bytes) {
		return pawl_err_set(err, PAWL_ELIMIT, "read %s: %zu bytes, at most %zu", path,
			file->now.len_bytes, max_bytes);
	}
	copy = calloc(1, file->now.len_bytes + 1);
	ASSERT(copy != NULL);
	if (file->now.len_bytes > 0) {
		memcpy(copy, file->now.at, file->now.len_bytes);
	}
	*bytes = copy;
	*len_bytes = file->now.len_bytes;
	return 0;
}

/* ---- names ---- */

static int mem_stat(struct store *store, const char *path, enum store_kind *kind,
	uint64_t *size_bytes, struct pawl_err *err)
{
	struct mem_store *m = mem_of(store);
	const struct mem_node *node = find_node(m, path);
	int rv = mem_power_check(&m->power, path, err);

	if (rv != 0) {
		return rv;
	}
	if (node == NULL) {
		return fail_sys(err, ENOENT, "stat", path);
	}
	*kind = node->kind;
	*size_bytes = node->now.len_bytes;
	return 0;
}

static int mem_list(struct store *store, const char *path, store_list_fn *each, void *user,
	struct pawl_err *err)
{
	struct mem_store *m = mem_of(store);
	const struct mem_node *dir = find_node(m, path);
	int rv = mem_power_check(&m->power, path, err);

	if (rv != 0) {
		return rv;
	}
	if (dir == NULL || dir->kind != STORE_DIR) {
		return fail_sys(err, dir == NULL ? ENOENT : ENOTDIR, "list", path);
	}
	for (const struct mem_entry *e = dir->entries; e != NULL; e = e->next) {
		if (each(user, e->name, e->node->kind) != 0) {
			break;
		}
	}
	return 0;
}

/* Returns whether path lies in directory dir. */
static bool is_below(const char *path, const char *dir)
{
	size_t len_bytes = strlen(dir);

	return strncmp(path, dir, len_bytes) == 0 && path[len_bytes] == '/';
}

/* Returns 0, or the errno that rename(2) would give for these nodes (NULL: no such name). */
static int check_rename(const struct mem_node *a, const struct mem_node *b, enum store_rename how)
{
	if (a == NULL || (how == STORE_EXCHANGE && b == NULL)) {
		return ENOENT;
	}
	if (b == NULL || how == STORE_EXCHANGE) {
		return 0;
	}
	if (a->kind != b->kind) {
		return b->kind == STORE_DIR ? EISDIR : ENOTDIR;
	}
	return b->kind == STORE_DIR && b->entries != NULL ? ENOTEMPTY : 0;
}

static int mem_rename(struct store *store, const char *from, const char *to, enum store_rename how,
	struct pawl_err *err)
{
	struct mem_store *m = mem_of(store);
	const char *from_name;
	const char *to_name;
	struct mem_node *from_dir = find_parent(m, from, &from_name);
	struct mem_node *to_dir = find_parent(m, to, &to_name);
	struct mem_node *node = find_node(m, from);
	struct mem_node *old = find_node(m, to);
	int sys = from_dir == NULL || to_dir == NULL ? ENOENT : check_rename(node, old, how);
	int rv;

	if (is_below(to, from) || (how == STORE_EXCHANGE && is_below(from, to))) {
		sys = EINVAL;
	}
	if (sys != 0) {
		errno = sys;
		return pawl_err_sys(err, "rename %s to %s", from, to);
	}
	rv = mem_power_begin(&m->power, err, "%s %s %s",
		how == STORE_EXCHANGE ? "exchange" : "rename", from, to);
	if (rv == 0 && node != old) {
		mem_dir_set(from_dir, m->power.ops, from_name, how == STORE_EXCHANGE ? old : NULL);
		mem_dir_set(to_dir, m->power.ops, to_name, node);
	}
	return rv;
}

/* Links a file: both names lead to the same node, until a crash, when mem_disk.c makes two nodes of
 * it. */
static int mem_link(struct store *store, const char *from, const char *to, struct pawl_err *err)
{
	struct mem_store *m = mem_of(store);
	const char *name;
	struct mem_node *dir = find_parent(m, to, &name);
	struct mem_node *node = find_node(m, from);
	int sys = node == NULL || dir == NULL ? ENOENT : 0;
	int rv;

	if (sys == 0 && node->kind == STORE_DIR) {
		sys = EPERM;
	} else if (sys == 0 && find_node(m, to) != NULL) {
		sys = EEXIST;
	}
	if (sys != 0) {
		errno = sys;
		return pawl_err_sys(err, "link %s to %s", from, to);
	}
	rv = mem_power_begin(&m->power, err, "link %s %s", from, to);
	if (rv == 0) {
		mem_dir_set(dir, m->power.ops, name, node);
	}
	return rv;
}

/* Removes each name below path, then path itself: one operation each, as in a file system. */
static int remove_node(struct mem_store *m, const char *path, unsigned depth, struct pawl_err *err)
{
	const char *name;
	struct mem_node *parent = find_parent(m, path, &name);
	struct mem_node *node = find_node(m, path);
	int rv = 0;

	if (depth > STORE_NEST_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "remove %s: more than %u deep", path,
			STORE_NEST_MAX);
	}
	while (rv == 0 && node->entries != NULL) {
		char child[STORE_PATH_MAX + STORE_NAME_MAX];

		snprintf(child, sizeof(child), "%s/%s", path, node->entries->name);
		rv = remove_node(m, child, depth + 1, err);
	}
	if (rv == 0) {
		rv = mem_power_begin(&m->power, err, "remove %s", path);
	}
	if (rv == 0) {
		mem_dir_set(parent, m->power.ops, name, NULL);
	}
	return rv;
}

static int mem_remove(struct store *store, const char *path, struct pawl_err *err)
{
	struct mem_store *m = mem_of(store);

	if (find_node(m, path) == NULL) {
		return mem_power_check(&m->power, path, err);
	}
	return remove_node(m, path, 0, err);
}

/* ---- the store ---- */

static void mem_close(struct store *store)
{
	struct mem_store *m = mem_of(store);

	mem_disk_deinit(&m->disk);
	mem_power_deinit(&m->power);
	free(m);
}

const struct store_ops mem_ops = {
	.name = "mem",
	.close = mem_close,
	.create = mem_create,
	.open = mem_open,
	.submit = mem_power_submit,
	.reap = mem_reap,
	.resize = mem_resize,
	.sync = mem_sync,
	.close_file = mem_close_file,
	.write_small = mem_write_small,
	.read_small = mem_read_small,
	.stat = mem_stat,
	.list = mem_list,
	.remove = mem_remove,
};

static const struct store_dir_ops mem_dir_ops = {
	.mkdir = mem_mkdir,
	.sync_dir = mem_sync_dir,
	.rename = mem_rename,
	.link = mem_link,
	.append_small = mem_append_small,
	.clone = mem_clone,
};

int store_mem_open(struct store **store, struct pawl_err *err)
{
	struct mem_store *m = calloc(1, sizeof(*m));

	ASSERT(m != NULL);
	m->power.store = (struct store){&mem_ops, &mem_dir_ops};
	mem_disk_init(&m->disk);
	*store = &m->power.store;
	return 0;
}

void store_mem_clones(struct store *store, bool clones)
{
	mem_of(store)->clones = clones;
}

int store_mem_after_crash(const struct store *store, enum mem_crash how, struct rng *rng,
	struct store **after, struct pawl_err *err)
{
	int rv;

	if (store_is_flat(store)) {
		return mem_flat_after_crash(store, after, err);
	}
	rv = store_mem_open(after, err);
	if (rv == 0) {
		mem_disk_crash(&mem_of_const(store)->disk, how, rng, &mem_of(*after)->disk);
		mem_of(*after)->clones = mem_of_const(store)->clones;
	}
	return rv;
}

/* Finds the bytes of a file as they are and, in a store of directories, as of its last sync. */
static int find_bytes(struct store *store, const char *path, struct mem_bytes *now,
	struct mem_bytes *synced, struct pawl_err *err)
{
	struct mem_node *file = NULL;
	int rv = 0;

	*synced = (struct mem_bytes){0};
	if (store_is_flat(store)) {
		now->at = mem_flat_bytes(store, path, &now->len_bytes);
		return now->at != NULL ? 0 : fail_sys(err, ENOENT, "open", path);
	}
	rv = find_file(mem_of(store), path, &file, err);
	if (rv == 0) {
		*now = file->now;
		*synced = file->synced;
	}
	return rv;
}

int store_mem_flip(struct store *store, const char *path, uint64_t bit, struct pawl_err *err)
{
	struct mem_bytes now;
	struct mem_bytes synced;
	uint64_t byte = bit / 8;
	uint8_t mask = (uint8_t)(1u << (bit % 8));
	int rv = find_bytes(store, path, &now, &synced, err);

	if (rv != 0) {
		return rv;
	}
	if (byte >= now.len_bytes) {
		return pawl_err_set(err, PAWL_EINVAL, "flip bit %llu of %s: %zu bytes",
			(unsigned long long)bit, path, now.len_bytes);
	}
	now.at[byte] ^= mask;
	if (byte < synced.len_bytes) {
		synced.at[byte] ^= mask;
	}
	return 0;
}
