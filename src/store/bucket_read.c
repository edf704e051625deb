/*
 * Reading an object: see bucket.h.
 *
 * Transfers that follow each other are read by one request, as soon as it has BUCKET_RUN_BYTES, or
 * the caller waits. All requests of a file ask for the etag that it had when it was opened, so that
 * bytes of two objects never mix.
 */
#include "store/bucket.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <stdlib.h>
#include <string.h>

int bucket_open(struct store *store, const char *path, struct store_file **file,
	uint64_t *size_bytes, struct pawl_err *err)
{
	struct bucket *bucket = (struct bucket *)store;
	char key[OBJECT_KEY_MAX];
	struct object_op op = {.verb = OBJECT_HEAD, .key = key};
	struct store_file *made;
	int rv = bucket_key(bucket, path, false, key, err);

	rv = rv == 0 ? object_do(bucket->client, &op, err) : rv;
	if (rv == PAWL_ENOENT) {
		enum store_kind kind = STORE_FILE;

		if (store->ops->stat(store, path, &kind, size_bytes, NULL) == 0 &&
			kind == STORE_DIR) {
			rv = pawl_err_set(err, PAWL_EINVAL, "open %s: not a file", path);
		}
	}
	if (rv != 0) {
		return rv;
	}
	made = FAULT_MEM("bucket.open", calloc(1, sizeof(*made)));
	if (made != NULL) {
		made->key = FAULT_MEM("bucket.open", strdup(key));
	}
	if (made == NULL || made->key == NULL) {
		free(made);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to read %s", path);
	}
	made->bucket = bucket;
	made->size_bytes = op.size_bytes;
	memcpy(made->etag, op.etag, sizeof(made->etag));
	*size_bytes = op.size_bytes;
	*file = made;
	return 0;
}

/* Puts bytes of the run where they belong. */
static bool write_run(void *user, uint64_t off, const void *bytes, size_t len_bytes)
{
	struct bucket_run *run = user;
	size_t n = 0;

	if (off == 0) {
		run->at = run->ios;
		run->at_bytes = 0;
	}
	while (n < len_bytes) {
		uint64_t in = off + n - run->at_bytes;
		size_t left;

		if (run->at == NULL) {
			return false;
		}
		if (in >= run->at->len_bytes) {
			run->at_bytes += run->at->len_bytes;
			run->at = run->at->next;
			continue;
		}
		left = run->at->len_bytes - (size_t)in;
		left = left < len_bytes - n ? left : len_bytes - n;
		memcpy((uint8_t *)run->at->buf + in, (const uint8_t *)bytes + n, left);
		n += left;
	}
	return true;
}

void bucket_send_run(struct bucket *bucket)
{
	struct bucket_run *run = bucket->run;
	uint64_t left;

	if (run == NULL) {
		return;
	}
	bucket->run = NULL;
	left = run->file->size_bytes - run->off_bytes;
	run->op = (struct object_op){.verb = OBJECT_GET,
		.key = run->file->key,
		.match = run->file->etag,
		.off_bytes = run->off_bytes,
		.len_bytes = run->len_bytes < left ? run->len_bytes : left,
		.write = write_run,
		.user = run};
	object_submit(bucket->client, &run->op);
}

void bucket_run_ended(struct bucket_run *run)
{
	struct store_io *io = run->ios;
	int rv = run->op.rv == PAWL_ENOENT ? PAWL_ECORRUPT : run->op.rv; /* removed since */

	if (rv == 0 && run->op.got_bytes != run->op.len_bytes) {
		rv = pawl_err_set(&run->op.err, PAWL_ECORRUPT, "get %s: it is shorter by now",
			run->file->key);
	}
	if (rv != 0) {
		run->file->err = run->op.err;
	}
	while (io != NULL) {
		struct store_io *next = io->next;

		bucket_end_io(run->file, io, rv);
		io = next;
	}
	free(run);
}

/* Returns whether a transfer continues the run that waits. */
static bool joins(const struct bucket_run *run, const struct store_file *file,
	const struct store_io *io)
{
	return run != NULL && run->file == file && run->ios_n < BUCKET_RUN_IOS &&
		run->off_bytes + run->len_bytes == io->off_bytes &&
		run->len_bytes + io->len_bytes <= BUCKET_RUN_BYTES;
}

void bucket_read(struct store_file *file, struct store_io *io)
{
	struct bucket *bucket = file->bucket;
	uint64_t left = io->off_bytes < file->size_bytes ? file->size_bytes - io->off_bytes : 0;
	struct bucket_run *run;

	if (file->etag[0] == '\0') {
		pawl_err_set(&file->err, PAWL_ENOTSUP, "read %s: it is not complete", file->key);
		bucket_end_io(file, io, PAWL_ENOTSUP);
		return;
	}
	if (left < io->len_bytes && (left == 0 || io->len_bytes - left >= STORE_ALIGN)) {
		pawl_err_set(&file->err, PAWL_ECORRUPT, "read %s: behind its end", file->key);
		bucket_end_io(file, io, PAWL_ECORRUPT);
		return;
	}
	if (!joins(bucket->run, file, io)) {
		bucket_send_run(bucket);
		run = FAULT_MEM("bucket.run", calloc(1, sizeof(*run)));
		if (run == NULL) {
			bucket_end_io(file, io, PAWL_ENOMEM);
			return;
		}
		run->file = file;
		run->off_bytes = io->off_bytes;
		run->ios_end = &run->ios;
		bucket->run = run;
	}
	run = bucket->run;
	io->next = NULL;
	*run->ios_end = io;
	run->ios_end = &io->next;
	run->ios_n++;
	run->len_bytes += io->len_bytes;
	if (run->len_bytes >= BUCKET_RUN_BYTES) {
		bucket_send_run(bucket);
	}
}
