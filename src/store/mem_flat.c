/*
 * The flat store in memory: objects by path, written whole: see mem.h.
 *
 * An upload is a buffer of its own until it is completed, so that nobody sees half an object, and a
 * crash only drops buffers.
 */
#include "base/assert.h"
#include "base/err.h"
#include "store/mem_power.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OBJECT_MAX (1u << 30) /* bytes; a larger object fails with "no space left" */

/* An object, or an upload that is to become one. */
struct object {
	struct object *next; /* the next object, ascending by path */
	uint8_t *bytes;      /* owned */
	size_t len_bytes;
	uint64_t version; /* never that of another object or version: the etag */
	char path[STORE_PATH_MAX];
};

struct flat_store {
	struct mem_power power; /* first: what callers hold */
	struct object *objects; /* owned, ascending by path */
	uint64_t versions;      /* version given last */
};

struct store_file {
	struct object *upload; /* owned until it is completed; NULL: only for reading */
	uint64_t version;      /* version of the object that is read; 0: the upload failed */
	char path[STORE_PATH_MAX];
};

static struct flat_store *flat_of(struct store *store)
{
	ASSERT(store->ops == &mem_flat_ops);
	return (struct flat_store *)store;
}

static void *must_alloc(size_t len_bytes)
{
	void *p = calloc(1, len_bytes);

	ASSERT(p != NULL);
	return p;
}

static int fail_sys(struct pawl_err *err, int sys, const char *verb, const char *path)
{
	errno = sys;
	return pawl_err_sys(err, "%s %s", verb, path);
}

/* ---- objects ---- */

static struct object *object_new(const char *path, const void *bytes, size_t len_bytes)
{
	struct object *object = must_alloc(sizeof(*object));

	snprintf(object->path, sizeof(object->path), "%s", path);
	object->bytes = must_alloc(len_bytes + 1);
	object->len_bytes = len_bytes;
	if (len_bytes > 0 && bytes != NULL) {
		memcpy(object->bytes, bytes, len_bytes);
	}
	return object;
}

static void object_free(struct object *object)
{
	if (object != NULL) {
		free(object->bytes);
		free(object);
	}
}

static void object_resize(struct object *object, size_t len_bytes)
{
	object->bytes = realloc(object->bytes, len_bytes + 1);
	ASSERT(object->bytes != NULL);
	if (len_bytes > object->len_bytes) {
		memset(object->bytes + object->len_bytes, 0, len_bytes - object->len_bytes);
	}
	object->len_bytes = len_bytes;
}

/* Returns where the object of this path is linked, or would be. */
static struct object **find_link(struct flat_store *f, const char *path)
{
	struct object **at = &f->objects;

	while (*at != NULL && strcmp((*at)->path, path) < 0) {
		at = &(*at)->next;
	}
	return at;
}

static struct object *find_object(struct flat_store *f, const char *path)
{
	struct object *object = *find_link(f, path);

	return object != NULL && strcmp(object->path, path) == 0 ? object : NULL;
}

/* Returns whether path lies in directory dir ("": any does). */
static bool is_below(const char *path, const char *dir)
{
	size_t len_bytes = strlen(dir);

	return len_bytes == 0 || (strncmp(path, dir, len_bytes) == 0 && path[len_bytes] == '/');
}

static bool is_dir(struct flat_store *f, const char *path)
{
	for (const struct object *o = f->objects; o != NULL; o = o->next) {
		if (is_below(o->path, path)) {
			return true;
		}
	}
	return path[0] == '\0';
}

/* Returns whether an object could have this path: no directory has it, and no object is a directory
 * of it. */
static bool is_free(struct flat_store *f, const char *path)
{
	bool is_free = !is_dir(f, path);

	for (const struct object *o = f->objects; o != NULL; o = o->next) {
		is_free = is_free && !is_below(path, o->path);
	}
	return is_free;
}

/* Puts an object in place, and takes it. One operation. */
static int put_object(struct flat_store *f, const char *verb, struct object *object,
	struct pawl_err *err)
{
	struct object **at;
	int rv;

	if (!is_free(f, object->path)) {
		rv = pawl_err_set(err, PAWL_EIO,
			"%s %s: objects lie below this name, or it lies below one", verb,
			object->path);
	} else {
		rv = mem_power_begin(&f->power, err, "%s %s", verb, object->path);
	}
	if (rv != 0) {
		object_free(object);
		return rv;
	}
	object->version = ++f->versions;
	at = find_link(f, object->path);
	if (*at != NULL && strcmp((*at)->path, object->path) == 0) {
		struct object *old = *at;

		*at = old->next;
		object_free(old);
	}
	object->next = *at;
	*at = object;
	return 0;
}

/* Finds an object for reading. */
static int get_object(struct flat_store *f, const char *path, struct object **object,
	struct pawl_err *err)
{
	int rv = mem_power_check(&f->power, path, err);

	if (rv != 0) {
		return rv;
	}
	*object = find_object(f, path);
	if (*object != NULL) {
		return 0;
	}
	return is_dir(f, path) ? pawl_err_set(err, PAWL_EINVAL, "open %s: not a file", path)
			       : fail_sys(err, ENOENT, "open", path);
}

/* ---- files and transfers ---- */

static struct store_file *file_new(const char *path, struct object *upload)
{
	struct store_file *file = must_alloc(sizeof(*file));

	snprintf(file->path, sizeof(file->path), "%s", path);
	file->upload = upload;
	return file;
}

static int flat_create(struct store *store, const char *path, uint64_t size_bytes,
	struct store_file **file, struct pawl_err *err)
{
	struct flat_store *f = flat_of(store);
	int rv = mem_power_check(&f->power, path, err);

	if (rv == 0 && size_bytes > OBJECT_MAX) {
		rv = fail_sys(err, ENOSPC, "create", path);
	}
	if (rv == 0) {
		*file = file_new(path, object_new(path, NULL, size_bytes));
	}
	return rv;
}

static int flat_open(struct store *store, const char *path, struct store_file **file,
	uint64_t *size_bytes, struct pawl_err *err)
{
	struct object *object;
	int rv = get_object(flat_of(store), path, &object, err);

	if (rv == 0) {
		*file = file_new(path, NULL);
		(*file)->version = object->version;
		*size_bytes = object->len_bytes;
	}
	return rv;
}

static void flat_close_file(struct store *store, struct store_file *file)
{
	object_free(file->upload);
	free(file);
}

static int write_now(struct flat_store *f, const struct store_io *io)
{
	struct object *upload = io->file->upload;
	size_t end = io->off_bytes + io->len_bytes;
	int rv;

	ASSERT(upload != NULL); /* store.h: only files that were created are written */
	if (io->off_bytes > OBJECT_MAX - io->len_bytes) {
		return PAWL_ENOSPC;
	}
	rv = mem_power_begin(&f->power, NULL, "write %s %llu+%zu", io->file->path,
		(unsigned long long)io->off_bytes, io->len_bytes);
	if (rv != 0) {
		return rv;
	}
	if (end > upload->len_bytes) {
		object_resize(upload, end);
	}
	memcpy(upload->bytes + io->off_bytes, io->buf, io->len_bytes);
	return 0;
}

static int read_now(struct flat_store *f, const struct store_io *io)
{
	const struct object *object =
		io->file->upload != NULL ? io->file->upload : find_object(f, io->file->path);
	size_t left;

	if (f->power.dead) {
		return PAWL_EIO;
	}
	if (object == NULL || (io->file->upload == NULL && object->version != io->file->version)) {
		return PAWL_ECORRUPT; /* removed or replaced since it was opened */
	}
	left = io->off_bytes < object->len_bytes ? object->len_bytes - io->off_bytes : 0;
	if (left < io->len_bytes && (left == 0 || io->len_bytes - left >= STORE_ALIGN)) {
		return PAWL_ECORRUPT;
	}
	memcpy(io->buf, object->bytes + io->off_bytes, left < io->len_bytes ? left : io->len_bytes);
	return 0;
}

static struct store_io *flat_reap(struct store *store, int timeout_ms)
{
	struct flat_store *f = flat_of(store);
	struct store_io *io = mem_power_next(&f->power);

	if (io != NULL) {
		io->rv = io->write ? write_now(f, io) : read_now(f, io);
	}
	return io;
}

static int flat_resize(struct store *store, struct store_file *file, uint64_t size_bytes,
	struct pawl_err *err)
{
	struct flat_store *f = flat_of(store);
	int rv = mem_power_check(&f->power, file->path, err);

	ASSERT(file->upload != NULL); /* store.h: only files that were created are resized */
	if (rv == 0) {
		object_resize(file->upload, size_bytes);
	}
	return rv;
}

/* Completes an upload. The file stays open, for reading. */
static int flat_sync(struct store *store, struct store_file *file, struct pawl_err *err)
{
	struct flat_store *f = flat_of(store);
	struct object *upload = file->upload;
	int rv;

	if (upload == NULL && file->version == 0) {
		return pawl_err_set(err, PAWL_EIO, "complete %s: the upload failed before",
			file->path);
	}
	if (upload == NULL) {
		return mem_power_check(&f->power, file->path, err);
	}
	file->upload = NULL;
	rv = put_object(f, "complete", upload, err);
	file->version = rv == 0 ? f->versions : 0;
	return rv;
}

/* ---- small files ---- */

static int flat_write_small(struct store *store, const char *path, const void *bytes,
	size_t len_bytes, struct pawl_err *err)
{
	if (len_bytes > OBJECT_MAX) {
		return fail_sys(err, ENOSPC, "write", path);
	}
	return put_object(flat_of(store), "put", object_new(path, bytes, len_bytes), err);
}

static void write_etag(const struct object *object, char *etag)
{
	snprintf(etag, STORE_ETAG_MAX, "\"%llu\"", (unsigned long long)object->version);
}

static int flat_put_if(struct store *store, const char *path, const void *bytes, size_t len_bytes,
	const char *match, char *etag, struct pawl_err *err)
{
	struct flat_store *f = flat_of(store);
	const struct object *old = find_object(f, path);
	char found[STORE_ETAG_MAX] = "";
	int rv = mem_power_check(&f->power, path, err);

	if (rv != 0) {
		return rv;
	}
	if (old != NULL) {
		write_etag(old, found);
	}
	if (strcmp(found, match) != 0) {
		return match[0] == '\0'
			? pawl_err_set(err, PAWL_EEXIST, "put %s: the object exists", path)
			: pawl_err_set(err, PAWL_EMISMATCH, "put %s: the object was changed", path);
	}
	rv = flat_write_small(store, path, bytes, len_bytes, err);
	if (rv == 0) {
		write_etag(find_object(f, path), etag);
	}
	return rv;
}

static int read_object(struct flat_store *f, const char *path, void **bytes, size_t *len_bytes,
	size_t max_bytes, char *etag, struct pawl_err *err)
{
	struct object *object;
	int rv = get_object(f, path, &object, err);

	if (rv != 0) {
		return rv;
	}
	if (object->len_bytes > max_bytes) {
		return pawl_err_set(err, PAWL_ELIMIT, "read %s: %zu bytes, at most %zu", path,
			object->len_bytes, max_bytes);
	}
	*bytes = must_alloc(object->len_bytes + 1);
	memcpy(*bytes, object->bytes, object->len_bytes);
	*len_bytes = object->len_bytes;
	if (etag != NULL) {
		write_etag(object, etag);
	}
	return 0;
}

static int flat_read_small(struct store *store, const char *path, void **bytes, size_t *len_bytes,
	size_t max_bytes, struct pawl_err *err)
{
	return read_object(flat_of(store), path, bytes, len_bytes, max_bytes, NULL, err);
}

static int flat_read_etag(struct store *store, const char *path, void **bytes, size_t *len_bytes,
	size_t max_bytes, char *etag, struct pawl_err *err)
{
	return read_object(flat_of(store), path, bytes, len_bytes, max_bytes, etag, err);
}

/* ---- names ---- */

static int flat_stat(struct store *store, const char *path, enum store_kind *kind,
	uint64_t *size_bytes, struct pawl_err *err)
{
	struct flat_store *f = flat_of(store);
	const struct object *object = find_object(f, path);
	int rv = mem_power_check(&f->power, path, err);

	if (rv == 0 && object == NULL && !is_dir(f, path)) {
		rv = fail_sys(err, ENOENT, "stat", path);
	}
	if (rv == 0) {
		*kind = object != NULL ? STORE_FILE : STORE_DIR;
		*size_bytes = object != NULL ? object->len_bytes : 0;
	}
	return rv;
}

/* Lists the next name of each path below a directory. The paths of one name follow each other,
 * since objects are in order and no path is both an object and a directory. */
static int flat_list(struct store *store, const char *path, store_list_fn *each, void *user,
	struct pawl_err *err)
{
	struct flat_store *f = flat_of(store);
	size_t skip = path[0] != '\0' ? strlen(path) + 1 : 0;
	char last[STORE_NAME_MAX] = "";
	int rv = mem_power_check(&f->power, path, err);

	if (rv == 0 && !is_dir(f, path)) {
		rv = find_object(f, path) != NULL ? fail_sys(err, ENOTDIR, "list", path)
						  : fail_sys(err, ENOENT, "list", path);
	}
	for (const struct object *o = f->objects; rv == 0 && o != NULL; o = o->next) {
		char name[STORE_NAME_MAX];
		size_t len_bytes;

		if (!is_below(o->path, path)) {
			continue;
		}
		len_bytes = strcspn(o->path + skip, "/");
		snprintf(name, sizeof(name), "%.*s", (int)len_bytes, o->path + skip);
		if (strcmp(name, last) == 0) {
			continue;
		}
		memcpy(last, name, sizeof(last));
		if (each(user, name, o->path[skip + len_bytes] == '/' ? STORE_DIR : STORE_FILE) !=
			0) {
			break;
		}
	}
	return rv;
}

static int flat_remove(struct store *store, const char *path, struct pawl_err *err)
{
	struct flat_store *f = flat_of(store);
	struct object **at = &f->objects;
	int rv = mem_power_check(&f->power, path, err);

	while (rv == 0 && *at != NULL) {
		struct object *object = *at;

		if (strcmp(object->path, path) != 0 && !is_below(object->path, path)) {
			at = &object->next;
			continue;
		}
		rv = mem_power_begin(&f->power, err, "remove %s", object->path);
		if (rv == 0) {
			*at = object->next;
			object_free(object);
		}
	}
	return rv;
}

/* ---- the store ---- */

static void flat_close(struct store *store)
{
	struct flat_store *f = flat_of(store);

	while (f->objects != NULL) {
		struct object *next = f->objects->next;

		object_free(f->objects);
		f->objects = next;
	}
	mem_power_deinit(&f->power);
	free(f);
}

const struct store_ops mem_flat_ops = {
	.name = "flat mem",
	.close = flat_close,
	.create = flat_create,
	.open = flat_open,
	.submit = mem_power_submit,
	.reap = flat_reap,
	.resize = flat_resize,
	.sync = flat_sync,
	.close_file = flat_close_file,
	.write_small = flat_write_small,
	.read_small = flat_read_small,
	.stat = flat_stat,
	.list = flat_list,
	.remove = flat_remove,
	.put_if = flat_put_if,
	.read_etag = flat_read_etag,
};

int store_mem_open_flat(struct store **store, struct pawl_err *err)
{
	struct flat_store *f = must_alloc(sizeof(*f));

	f->power.store = (struct store){&mem_flat_ops, NULL};
	*store = &f->power.store;
	return 0;
}

int mem_flat_after_crash(const struct store *store, struct store **after, struct pawl_err *err)
{
	const struct flat_store *from = (const struct flat_store *)store;
	struct object **end;
	int rv = store_mem_open_flat(after, err);

	ASSERT(rv == 0 && store->ops == &mem_flat_ops);
	flat_of(*after)->versions = from->versions;
	end = &flat_of(*after)->objects;
	for (const struct object *o = from->objects; o != NULL; o = o->next) {
		*end = object_new(o->path, o->bytes, o->len_bytes);
		(*end)->version = o->version;
		end = &(*end)->next;
	}
	return rv;
}

uint8_t *mem_flat_bytes(struct store *store, const char *path, size_t *len_bytes)
{
	struct object *object = find_object(flat_of(store), path);

	*len_bytes = object != NULL ? object->len_bytes : 0;
	return object != NULL ? object->bytes : NULL;
}
