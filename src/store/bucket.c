/*
 * A store in a bucket: opening, small objects, names, the table of functions. bucket_write.c and
 * bucket_read.c move the bytes of files. See store.h for the contracts, object/object.h for what is
 * tried again.
 *
 * Every path is the key of one object, below the prefix of the store's address. A folder is there
 * while a key begins with its name and '/'.
 */
#include "store/bucket.h"

#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/times.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define CONNECTIONS   8u /* requests in flight, at most */
#define PROBE_DIR     ".pawl/probe"
#define PUT_BYTES_MAX (5ull << 30) /* bytes of one request: S3's limit */

_Static_assert(STORE_PATH_MAX <= OBJECT_KEY_MAX, "a path can be a key");

static struct bucket *bucket_of(struct store *store)
{
	return (struct bucket *)store;
}

int bucket_key(const struct bucket *bucket, const char *path, bool folder, char key[OBJECT_KEY_MAX],
	struct pawl_err *err)
{
	const char *prefix = bucket->url.prefix;
	bool both = prefix[0] != '\0' && path[0] != '\0';
	bool named = prefix[0] != '\0' || path[0] != '\0';
	int len_bytes = snprintf(key, OBJECT_KEY_MAX, "%s%s%s%s", prefix, both ? "/" : "", path,
		folder && named ? "/" : "");

	if ((size_t)len_bytes >= OBJECT_KEY_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "%s: its key has %d bytes, at most %u", path,
			len_bytes, OBJECT_KEY_MAX - 1);
	}
	return 0;
}

/* ---- transfers ---- */

void bucket_end_io(struct store_file *file, struct store_io *io, int rv)
{
	struct bucket *bucket = file->bucket;

	io->rv = rv;
	io->sys = 0;
	io->why = rv != 0 && file->err.msg[0] != '\0' ? file->err.msg : NULL;
	io->next = NULL;
	*bucket->done_end = io;
	bucket->done_end = &io->next;
}

static int submit(struct store *store, struct store_io *io, struct pawl_err *err)
{
	struct bucket *bucket = bucket_of(store);

	ASSERT(bucket->in_flight < BUCKET_DEPTH);
	bucket->in_flight++;
	if (io->write) {
		bucket_write(io->file, io);
	} else {
		bucket_read(io->file, io);
	}
	object_pump(bucket->client);
	return 0;
}

/* Handles the end of an operation that moves bytes of a file. */
static void end_op(struct object_op *op)
{
	if (op->verb == OBJECT_PART) {
		bucket_part_ended(op->user);
	} else {
		ASSERT(op->verb == OBJECT_GET);
		bucket_run_ended(op->user);
	}
}

bool bucket_step(struct bucket *bucket, int timeout_ms)
{
	struct object_op *op;

	bucket_send_run(bucket);
	op = object_reap(bucket->client, timeout_ms);
	if (op != NULL) {
		end_op(op);
	}
	return op != NULL;
}

static struct store_io *reap(struct store *store, int timeout_ms)
{
	struct bucket *bucket = bucket_of(store);
	struct store_io *io;

	while (bucket->done == NULL && bucket->in_flight > 0) {
		if (bucket_step(bucket, timeout_ms)) {
			continue;
		}
		if (object_is_busy(bucket->client)) {
			return NULL; /* none ended in time */
		}
		if (!bucket_bounce_all(bucket)) {
			ASSERT(bucket->done != NULL);
		}
	}
	io = bucket->done;
	if (io != NULL) {
		bucket->done = io->next;
		bucket->done_end = bucket->done != NULL ? bucket->done_end : &bucket->done;
		bucket->in_flight--;
		io->next = NULL;
	}
	return io;
}

/* ---- small objects ---- */

/* The bytes of a small object. */
struct small {
	const uint8_t *bytes;
};

static size_t read_bytes(void *user, uint64_t off, void *bytes, size_t size)
{
	const struct small *small = user;

	memcpy(bytes, small->bytes + off, size);
	return size;
}

/* Puts an object whole. match as in struct object_op; etag may be NULL. */
static int put(struct bucket *bucket, const char *path, const struct small *small, size_t len_bytes,
	const char *match, char *etag, struct pawl_err *err)
{
	char key[OBJECT_KEY_MAX];
	struct object_op op = {.verb = OBJECT_PUT,
		.key = key,
		.match = match,
		.body_bytes = len_bytes,
		.read = read_bytes,
		.crc = crc32c(0, small->bytes, len_bytes),
		.user = (void *)small};
	int rv = bucket_key(bucket, path, false, key, err);

	if (rv == 0 && len_bytes > PUT_BYTES_MAX) {
		rv = pawl_err_set(err, PAWL_ELIMIT, "put %s: at most 5 GiB", key);
	}
	rv = rv == 0 ? object_do(bucket->client, &op, err) : rv;
	if (rv == 0 && etag != NULL) {
		memcpy(etag, op.etag, STORE_ETAG_MAX);
	}
	return rv;
}

static int write_small(struct store *store, const char *path, const void *bytes, size_t len_bytes,
	struct pawl_err *err)
{
	struct small small = {bytes};

	return put(bucket_of(store), path, &small, len_bytes, NULL, NULL, err);
}

static int read_etag(struct store *store, const char *path, void **bytes, size_t *len_bytes,
	size_t max_bytes, char *etag, struct pawl_err *err)
{
	struct bucket *bucket = bucket_of(store);
	char key[OBJECT_KEY_MAX];
	struct object_op op = {.verb = OBJECT_GET,
		.key = key,
		.text_max = max_bytes > 0 ? max_bytes : 1};
	int rv = bucket_key(bucket, path, false, key, err);

	rv = rv == 0 ? object_do(bucket->client, &op, err) : rv;
	if (rv != 0) {
		return rv;
	}
	if (op.text_bytes > max_bytes) {
		free(op.text);
		return pawl_err_set(err, PAWL_ELIMIT, "read %s: more than %zu bytes", path,
			max_bytes);
	}
	if (op.text == NULL) {
		op.text = FAULT_MEM("bucket.read", calloc(1, 1));
	}
	if (op.text == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to read %s", path);
	}
	*bytes = op.text;
	*len_bytes = op.text_bytes;
	if (etag != NULL) {
		memcpy(etag, op.etag, STORE_ETAG_MAX);
	}
	return 0;
}

static int read_small(struct store *store, const char *path, void **bytes, size_t *len_bytes,
	size_t max_bytes, struct pawl_err *err)
{
	return read_etag(store, path, bytes, len_bytes, max_bytes, NULL, err);
}

/* ---- conditional PUTs ---- */

/* Puts the probe under a condition that does not hold. Returns 0 if the server refuses it. */
static int probe_condition(struct bucket *bucket, const char *path, const char *match,
	struct pawl_err *err)
{
	struct small small = {(const uint8_t *)"probe"};
	int rv = put(bucket, path, &small, 5, match, NULL, err);

	if (rv == PAWL_EEXIST || rv == PAWL_EMISMATCH) {
		return 0;
	}
	return rv != 0
		? rv
		: pawl_err_set(err, PAWL_ENOTSUP,
			  "bucket %s: its server ignores If-%s, so that two jobs could publish "
			  "the same tag: use a server that does not, or add ?single_writer=1 to "
			  "the "
			  "address if only one job ever uses this root",
			  bucket->url.bucket, match[0] != '\0' ? "Match" : "None-Match");
}

/* Finds out whether the server keeps conditions: many ignore them, and say so to nobody. */
static int probe_conditions(struct bucket *bucket, struct pawl_err *err)
{
	struct small small = {(const uint8_t *)"probe"};
	char path[64];
	uint64_t number;
	int rv;

	if (bucket->url.single_writer) {
		return 0;
	}
	if (FAULT_SYS("bucket.random", getrandom(&number, sizeof(number), 0)) !=
		(ssize_t)sizeof(number)) {
		return pawl_err_sys(err, "get a random number");
	}
	snprintf(path, sizeof(path), PROBE_DIR "-%016" PRIx64, number);
	rv = put(bucket, path, &small, 5, "", NULL, err);
	rv = rv == 0 || rv == PAWL_EEXIST ? probe_condition(bucket, path, "", err) : rv;
	rv = rv == 0 ? probe_condition(bucket, path, "\"00000000000000000000000000000000\"", err)
		     : rv;
	bucket->store.ops->remove(&bucket->store, path, NULL);
	return rv;
}

/* Returns whether a server refused the right etag because of its quotes. */
static bool is_quoting(struct bucket *bucket, const char *path, const char *match)
{
	char key[OBJECT_KEY_MAX];
	struct object_op op = {.verb = OBJECT_HEAD, .key = key};

	return bucket_key(bucket, path, false, key, NULL) == 0 &&
		object_do(bucket->client, &op, NULL) == 0 && strcmp(op.etag, match) == 0;
}

static int put_if(struct store *store, const char *path, const void *bytes, size_t len_bytes,
	const char *match, char *etag, struct pawl_err *err)
{
	struct bucket *bucket = bucket_of(store);
	struct small small = {bytes};
	int rv;

	if (!bucket->conditional) {
		rv = probe_conditions(bucket, err);
		if (rv != 0) {
			return rv;
		}
		bucket->conditional = true;
	}
	rv = put(bucket, path, &small, len_bytes, match, etag, err);
	if (rv == PAWL_EMISMATCH && is_quoting(bucket, path, match)) {
		object_use_bare_etags(bucket->client);
		rv = put(bucket, path, &small, len_bytes, match, etag, err);
	}
	return rv;
}

/* ---- names ---- */

/* A listing of one folder. */
struct listing {
	size_t skip; /* bytes of a key before the name */
	store_list_fn *each;
	void *user;
	bool any;     /* a name was reported */
	bool stopped; /* each has ended the listing */
	char last[STORE_NAME_MAX];
};

/* Reports a name. Keys that no path can be, such as one with an empty name in it, are left out. */
static int list_found(void *user, const struct object_found *found)
{
	struct listing *listing = user;
	char name[STORE_NAME_MAX];
	const char *rest = found->key + listing->skip;
	size_t len_bytes;

	if (strlen(found->key) <= listing->skip) {
		return 0; /* the marker of the folder itself */
	}
	len_bytes = strcspn(rest, "/");
	if (len_bytes == 0 || len_bytes >= sizeof(name) || (!found->folder && rest[len_bytes])) {
		return 0;
	}
	listing->any = true;
	snprintf(name, sizeof(name), "%.*s", (int)len_bytes, rest);
	if (strcmp(name, listing->last) == 0) {
		return 0;
	}
	memcpy(listing->last, name, sizeof(name));
	listing->stopped =
		listing->each(listing->user, name, found->folder ? STORE_DIR : STORE_FILE) != 0;
	return listing->stopped;
}

/* Lists all pages of what begins with a key. */
static int list_pages(struct bucket *bucket, struct object_op *op, const bool *stopped,
	struct pawl_err *err)
{
	char token[OBJECT_TOKEN_MAX] = "";
	int rv;

	do {
		memcpy(token, op->next_token, sizeof(token));
		op->token = token[0] != '\0' ? token : NULL;
		rv = object_do(bucket->client, op, err);
	} while (rv == 0 && !*stopped && op->next_token[0] != '\0');
	return rv;
}

/* Fits found of struct object_op: sets the bool at user if this is an object, not the marker of a
 * folder. */
static int find_object(void *user, const struct object_found *found)
{
	bool *any = user;
	size_t len_bytes = strlen(found->key);

	*any = *any || (len_bytes > 0 && found->key[len_bytes - 1] != '/');
	return *any;
}

/* Sets *any: whether an object lies below the folder. Servers that have directories underneath list
 * empty ones as folders, so this looks for keys alone. */
static int look_below(struct bucket *bucket, const char *path, bool *any, struct pawl_err *err)
{
	char key[OBJECT_KEY_MAX];
	struct object_op op = {.verb = OBJECT_LIST,
		.key = key,
		.found = find_object,
		.keys_max = 2,
		.user = any};
	int rv = bucket_key(bucket, path, true, key, err);

	*any = false;
	return rv == 0 ? list_pages(bucket, &op, any, err) : rv; /* a page may be empty */
}

static int stat_path(struct store *store, const char *path, enum store_kind *kind,
	uint64_t *size_bytes, struct pawl_err *err)
{
	struct bucket *bucket = bucket_of(store);
	char key[OBJECT_KEY_MAX];
	struct object_op op = {.verb = OBJECT_HEAD, .key = key};
	bool any = path[0] == '\0';
	int rv = any ? PAWL_ENOENT : bucket_key(bucket, path, false, key, err);

	rv = rv == 0 ? object_do(bucket->client, &op, err) : rv;
	if (rv == 0) {
		*kind = STORE_FILE;
		*size_bytes = op.size_bytes;
		return 0;
	}
	if (rv == PAWL_ENOENT && !any) {
		int looked = look_below(bucket, path, &any, err);

		rv = looked != 0 ? looked : rv;
	}
	if (rv == PAWL_ENOENT && any) {
		*kind = STORE_DIR;
		*size_bytes = 0;
		return 0;
	}
	return rv == PAWL_ENOENT ? pawl_err_set(err, rv, "stat %s: not found", path) : rv;
}

static int list(struct store *store, const char *path, store_list_fn *each, void *user,
	struct pawl_err *err)
{
	struct bucket *bucket = bucket_of(store);
	char key[OBJECT_KEY_MAX];
	struct listing listing = {.each = each, .user = user};
	struct object_op op = {.verb = OBJECT_LIST,
		.key = key,
		.found = list_found,
		.folders = true,
		.user = &listing};
	enum store_kind kind = STORE_FILE;
	uint64_t size_bytes;
	int rv = bucket_key(bucket, path, true, key, err);

	listing.skip = strlen(key);
	rv = rv == 0 ? list_pages(bucket, &op, &listing.stopped, err) : rv;
	if (rv != 0 || listing.any || path[0] == '\0') {
		return rv;
	}
	rv = stat_path(store, path, &kind, &size_bytes, err);
	return rv == 0 && kind == STORE_FILE
		? pawl_err_set(err, PAWL_EIO, "list %s: not a directory", path)
		: rv;
}

/* ---- removing ---- */

/* Keys that are to be removed, of one page. */
struct removal {
	char (*keys)[OBJECT_KEY_MAX]; /* owned */
	uint32_t n;
	size_t skip; /* bytes of a key that all have */
};

#define REMOVE_KEYS 256u /* on a page; all of a page are removed at the same time */

/* Fits found of struct object_op. */
static int add_key(void *user, const struct object_found *found)
{
	struct removal *removal = user;

	if (removal->n < REMOVE_KEYS && strlen(found->key) < OBJECT_KEY_MAX &&
		strlen(found->key) >= removal->skip) {
		snprintf(removal->keys[removal->n++], OBJECT_KEY_MAX, "%s", found->key);
	}
	return 0;
}

/* Removes keys, all at the same time. */
static int remove_keys(struct bucket *bucket, const struct removal *removal, struct pawl_err *err)
{
	struct object_op *ops = FAULT_MEM("bucket.remove", calloc(removal->n + 1u, sizeof(*ops)));
	uint32_t ended = 0;
	int rv = 0;

	if (ops == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to remove %u objects", removal->n);
	}
	for (uint32_t i = 0; i < removal->n; i++) {
		ops[i].verb = OBJECT_REMOVE;
		ops[i].key = removal->keys[i];
		object_submit(bucket->client, &ops[i]);
	}
	while (ended < removal->n) {
		struct object_op *op = object_reap(bucket->client, -1);

		if (op->verb != OBJECT_REMOVE) {
			end_op(op); /* a file is being moved */
			continue;
		}
		ended++;
		if (op->rv != 0 && rv == 0) {
			rv = op->rv;
			if (err != NULL) {
				*err = op->err;
			}
		}
	}
	free(ops);
	return rv;
}

/* Removes all that lies below a folder, a page at a time. */
static int remove_below(struct bucket *bucket, const char *path, struct pawl_err *err)
{
	char key[OBJECT_KEY_MAX];
	char token[OBJECT_TOKEN_MAX];
	struct removal removal = {.n = 0};
	struct object_op op = {.verb = OBJECT_LIST,
		.key = key,
		.found = add_key,
		.keys_max = REMOVE_KEYS,
		.user = &removal};
	int rv = bucket_key(bucket, path, true, key, err);

	removal.skip = strlen(key);
	removal.keys = FAULT_MEM("bucket.remove", malloc(REMOVE_KEYS * sizeof(*removal.keys)));
	if (removal.keys == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to remove %s", path);
	}
	do {
		removal.n = 0;
		memcpy(token, op.next_token, sizeof(token));
		op.token = token[0] != '\0' ? token : NULL;
		rv = rv == 0 ? object_do(bucket->client, &op, err) : rv;
		rv = rv == 0 ? remove_keys(bucket, &removal, err) : rv;
	} while (rv == 0 && op.next_token[0] != '\0');
	free(removal.keys);
	return rv;
}

static int remove_path(struct store *store, const char *path, struct pawl_err *err)
{
	struct bucket *bucket = bucket_of(store);
	char key[OBJECT_KEY_MAX];
	struct object_op op = {.verb = OBJECT_REMOVE, .key = key};
	int rv = bucket_key(bucket, path, false, key, err);

	rv = rv == 0 ? object_do(bucket->client, &op, err) : rv;
	return rv == 0 ? remove_below(bucket, path, err) : rv;
}

/* ---- uploads that nobody completes ---- */

/* Uploads of one page that are to be dropped. */
struct sweep {
	struct object_op *ops; /* owned */
	char (*keys)[OBJECT_KEY_MAX];
	char (*ids)[OBJECT_UPLOAD_MAX];
	uint32_t n;
};

#define SWEEP_MAX    64u  /* uploads that are dropped before the next look */
#define SWEEP_ROUNDS 256u /* looks, at most: a service may list what it has dropped */

/* Fits found of struct object_op. */
static int add_upload(void *user, const struct object_found *found)
{
	struct sweep *sweep = user;

	if (strlen(found->key) >= OBJECT_KEY_MAX) {
		return 0;
	}
	snprintf(sweep->keys[sweep->n], OBJECT_KEY_MAX, "%s", found->key);
	snprintf(sweep->ids[sweep->n], OBJECT_UPLOAD_MAX, "%s", found->upload);
	sweep->n++;
	return sweep->n == SWEEP_MAX;
}

static int drop_uploads(struct bucket *bucket, struct sweep *sweep, struct pawl_err *err)
{
	int rv = 0;

	for (uint32_t i = 0; i < sweep->n && rv == 0; i++) {
		struct object_op op = {.verb = OBJECT_ABORT,
			.key = sweep->keys[i],
			.upload = sweep->ids[i]};

		rv = object_do(bucket->client, &op, err);
	}
	return rv;
}

/* Lists a page of uploads. A server that cannot list them, or does not let this user, is no
 * obstacle: a rule of the bucket can drop uploads, too. */
static int list_uploads(struct bucket *bucket, struct object_op *op, struct pawl_err *err)
{
	int rv = object_do(bucket->client, op, err);

	if (rv != 0 && op->code[0] != '\0') {
		log_line(LOG_WARNING,
			"%s: if an upload was cut off, its parts stay: let a lifecycle rule drop "
			"incomplete uploads",
			op->err.msg);
		return 0;
	}
	return rv;
}

static int sweep(struct store *store, struct pawl_err *err)
{
	struct bucket *bucket = bucket_of(store);
	char key[OBJECT_KEY_MAX];
	struct sweep sweep = {.n = 0};
	struct object_op op = {.verb = OBJECT_UPLOADS,
		.key = key,
		.found = add_upload,
		.user = &sweep};
	int rv = bucket_key(bucket, "", true, key, err);

	sweep.keys = FAULT_MEM("bucket.sweep", malloc(SWEEP_MAX * sizeof(*sweep.keys)));
	sweep.ids = FAULT_MEM("bucket.sweep", malloc(SWEEP_MAX * sizeof(*sweep.ids)));
	if (sweep.keys == NULL || sweep.ids == NULL) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory to drop old uploads");
	}
	for (uint32_t i = 0; rv == 0 && i < SWEEP_ROUNDS; i++) {
		sweep.n = 0;
		rv = list_uploads(bucket, &op, err);
		rv = rv == 0 ? drop_uploads(bucket, &sweep, err) : rv;
		if (sweep.n == 0) {
			break;
		}
	}
	free(sweep.keys);
	free(sweep.ids);
	return rv;
}

/* ---- the store ---- */

static void close_bucket(struct store *store)
{
	struct bucket *bucket = bucket_of(store);

	object_close(bucket->client);
	free(bucket);
}

static void on_stop(struct store *store, bool (*stops)(void *user), void *user)
{
	object_on_stop(bucket_of(store)->client, stops, user);
}

static const struct store_ops bucket_ops = {
	.name = "bucket",
	.depth = BUCKET_DEPTH,
	.close = close_bucket,
	.create = bucket_create,
	.resume = bucket_resume,
	.has = bucket_has,
	.open = bucket_open,
	.submit = submit,
	.reap = reap,
	.resize = bucket_resize,
	.sync = bucket_sync,
	.close_file = bucket_close_file,
	.write_small = write_small,
	.read_small = read_small,
	.stat = stat_path,
	.list = list,
	.remove = remove_path,
	.put_if = put_if,
	.read_etag = read_etag,
	.sweep = sweep,
	.on_stop = on_stop,
};

bool store_is_bucket(const char *address)
{
	return object_url_is(address);
}

int store_bucket_name(const char *address, char *name, size_t size_bytes, struct pawl_err *err)
{
	struct object_url url;
	int rv = object_url_parse(address, &url, err);

	if (rv == 0) {
		object_url_write(&url, name, size_bytes);
	}
	return rv;
}

int store_bucket_open_unasked(const char *address, struct store **store, struct pawl_err *err)
{
	struct object_options options = {.connections = CONNECTIONS,
		.patience_ns = times_ns(TIME_BUCKET_PATIENCE),
		.connect_ns = times_ns(TIME_BUCKET_CONNECT),
		.stall_ns = times_ns(TIME_BUCKET_STALL)};
	struct bucket *bucket = FAULT_MEM("bucket.open", calloc(1, sizeof(*bucket)));
	int rv;

	if (bucket == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to open a bucket");
	}
	bucket->store.ops = &bucket_ops;
	bucket->done_end = &bucket->done;
	rv = object_url_parse(address, &bucket->url, err);
	rv = rv == 0 ? object_open(&bucket->url, &options, &bucket->client, err) : rv;
	if (rv != 0) {
		close_bucket(&bucket->store);
		return rv;
	}
	*store = &bucket->store;
	return 0;
}

int store_bucket_open(const char *address, struct store **store, struct pawl_err *err)
{
	struct store *opened;
	bool any;
	int rv = store_bucket_open_unasked(address, &opened, err);

	if (rv != 0) {
		return rv;
	}
	/* A wrong bucket or key is an error here, and not of whatever comes first. */
	rv = look_below(bucket_of(opened), "", &any, err);
	if (rv != 0) {
		close_bucket(opened);
		return rv;
	}
	*store = opened;
	return 0;
}
