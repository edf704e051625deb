/*
 * Writing an object in parts: see bucket.h.
 *
 * A file of one part is put whole when it is synced. Each part of a longer one is uploaded as soon
 * as its bytes are there, out of the memory of the caller, whose transfers end with it: no copy is
 * made. The last part is copied. It is uploaded early, too, but the caller may still cut or extend
 * the file, and then that part is uploaded again. The object exists from the last step of sync on.
 *
 * Transfers that do not continue their part are copied as well, and so are those of a part that
 * waits while nothing else is in flight.
 */
#include "store/bucket.h"

#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

/* ---- parts ---- */

static uint32_t count_parts(const struct store_file *file)
{
	return (uint32_t)((file->size_bytes + file->part_bytes - 1) / file->part_bytes);
}

/* Returns how many bytes of the file are in a part. */
static uint64_t part_bytes(const struct store_file *file, uint32_t i)
{
	uint64_t from = i * file->part_bytes;
	uint64_t left = file->size_bytes > from ? file->size_bytes - from : 0;

	return left < file->part_bytes ? left : file->part_bytes;
}

static bool is_last(const struct store_file *file, uint32_t i)
{
	return i + 1 >= count_parts(file);
}

static int fail(struct store_file *file, int rv)
{
	if (file->rv == 0) {
		file->rv = rv;
	}
	return file->rv;
}

static int fail_memory(struct store_file *file)
{
	if (file->rv == 0) {
		file->rv =
			pawl_err_set(&file->err, PAWL_ENOMEM, "no memory to write %s", file->key);
	}
	return file->rv;
}

/* Has room for parts up to the i-th. PAWL_ELIMIT: so many are not possible. */
static int reserve_parts(struct store_file *file, uint32_t i)
{
	uint32_t n = i + 1;
	struct bucket_slot *slots;
	struct object_part *done;

	if (i < file->parts_n) {
		return 0;
	}
	if (n > OBJECT_PARTS_MAX) {
		return fail(file,
			pawl_err_set(&file->err, PAWL_ELIMIT,
				"%s: longer than %u parts of %" PRIu64 " bytes", file->key,
				OBJECT_PARTS_MAX, file->part_bytes));
	}
	slots = FAULT_MEM("bucket.parts", realloc(file->slots, n * sizeof(*slots)));
	file->slots = slots != NULL ? slots : file->slots;
	done = FAULT_MEM("bucket.parts", realloc(file->done, n * sizeof(*done)));
	file->done = done != NULL ? done : file->done;
	if (slots == NULL || done == NULL) {
		return fail_memory(file);
	}
	memset(slots + file->parts_n, 0, (n - file->parts_n) * sizeof(*slots));
	memset(done + file->parts_n, 0, (n - file->parts_n) * sizeof(*done));
	file->parts_n = n;
	return 0;
}

/* Returns a part, made if there is none; NULL after an error. */
static struct bucket_part *get_part(struct store_file *file, uint32_t i)
{
	struct bucket_part *part;

	if (reserve_parts(file, i) != 0) {
		return NULL;
	}
	if (file->slots[i].part == NULL) {
		part = FAULT_MEM("bucket.part", calloc(1, sizeof(*part)));
		if (part == NULL) {
			fail_memory(file);
			return NULL;
		}
		part->file = file;
		part->ios_end = &part->ios;
		part->op.part = i + 1;
		file->slots[i].part = part;
	}
	return file->slots[i].part;
}

/* Ends all transfers that wait in a part. */
static void end_ios(struct bucket_part *part, int rv)
{
	struct store_io *io = part->ios;

	part->ios = NULL;
	part->ios_end = &part->ios;
	part->at = NULL;
	while (io != NULL) {
		struct store_io *next = io->next;

		bucket_end_io(part->file, io, rv);
		io = next;
	}
}

/* Ends the upload of a part whose bytes are about to change: its checksum would not be theirs. */
static void recall(struct bucket_part *part)
{
	part->stale = part->sent;
	if (part->submitted) {
		object_cancel(part->file->bucket->client, &part->op);
		part->submitted = false;
		part->file->sending--;
	}
}

/* Copies bytes into the part's own memory. */
static void copy_in(struct bucket_part *part, uint64_t at, const void *bytes, uint64_t len_bytes)
{
	recall(part);
	memcpy(part->bounce + at, bytes, len_bytes);
	if (at <= part->filled_bytes && at + len_bytes > part->filled_bytes) {
		part->filled_bytes = at + len_bytes;
	}
}

/* Gives the part memory of its own, and ends the transfers that wait in it. */
static int bounce(struct bucket_part *part)
{
	struct store_file *file = part->file;
	uint64_t at = 0;

	if (part->bounce == NULL) {
		part->bounce = FAULT_MEM("bucket.bounce", calloc(1, file->part_bytes));
		if (part->bounce == NULL) {
			end_ios(part, PAWL_ENOMEM);
			return fail_memory(file);
		}
	}
	for (struct store_io *io = part->ios; io != NULL; io = io->next) {
		memcpy(part->bounce + at, io->buf, io->len_bytes);
		at += io->len_bytes;
	}
	end_ios(part, 0);
	return 0;
}

bool bucket_bounce_all(struct bucket *bucket)
{
	bool any = false;

	for (struct store_file *file = bucket->files; file != NULL; file = file->next) {
		for (uint32_t i = 0; i < file->parts_n; i++) {
			struct bucket_part *part = file->slots[i].part;

			if (part != NULL && part->ios != NULL && !part->sent) {
				any = true;
				bounce(part);
			}
		}
	}
	return any;
}

/* ---- uploads ---- */

/* Copies the bytes of the part's transfers from off on. */
static size_t gather(struct bucket_part *part, uint64_t off, uint8_t *bytes, size_t size)
{
	size_t n = 0;

	if (part->at == NULL || off < part->at_bytes) {
		part->at = part->ios;
		part->at_bytes = 0;
	}
	while (part->at != NULL && n < size) {
		uint64_t in = off + n - part->at_bytes;
		size_t left;

		if (in >= part->at->len_bytes) {
			part->at_bytes += part->at->len_bytes;
			part->at = part->at->next;
			continue;
		}
		left = part->at->len_bytes - (size_t)in;
		left = left < size - n ? left : size - n;
		memcpy(bytes + n, (const uint8_t *)part->at->buf + in, left);
		n += left;
	}
	return n;
}

static size_t read_part(void *user, uint64_t off, void *bytes, size_t size)
{
	struct bucket_part *part = user;

	if (part->bounce != NULL) {
		memcpy(bytes, part->bounce + off, size);
		return size;
	}
	if (part->ios != NULL) {
		return gather(part, off, bytes, size);
	}
	memset(bytes, 0, size); /* a hole */
	return size;
}

static uint32_t sum_part(const struct bucket_part *part)
{
	static const uint8_t zeros[4096];
	uint64_t left = part->send_bytes;
	uint32_t crc = 0;

	if (part->bounce != NULL) {
		return crc32c(0, part->bounce, left);
	}
	for (const struct store_io *io = part->ios; io != NULL && left > 0; io = io->next) {
		uint64_t n = io->len_bytes < left ? io->len_bytes : left;

		crc = crc32c(crc, io->buf, n);
		left -= n;
	}
	while (left > 0) {
		uint64_t n = sizeof(zeros) < left ? sizeof(zeros) : left;

		crc = crc32c(crc, zeros, n);
		left -= n;
	}
	return crc;
}

static int begin_upload(struct store_file *file)
{
	struct object_op op = {.verb = OBJECT_BEGIN, .key = file->key};
	int rv = object_do(file->bucket->client, &op, &file->err);

	if (rv == 0) {
		memcpy(file->upload, op.upload_id, sizeof(file->upload));
	}
	return rv == 0 ? 0 : fail(file, rv);
}

/* Begins to upload a part. */
static void send_part(struct bucket_part *part)
{
	struct store_file *file = part->file;
	uint32_t i = part->op.part - 1;

	if (file->rv == 0 && file->upload[0] == '\0') {
		begin_upload(file);
	}
	if (file->rv != 0) {
		end_ios(part, file->rv);
		return;
	}
	part->sent = true;
	part->stale = false;
	part->send_bytes = part_bytes(file, i);
	part->at = NULL;
	part->op = (struct object_op){.verb = OBJECT_PART,
		.key = file->key,
		.upload = file->upload,
		.part = i + 1,
		.body_bytes = part->send_bytes,
		.read = read_part,
		.user = part};
	part->op.crc = sum_part(part);
	if (bucket_is_known(part)) {
		snprintf(file->done[i].etag, sizeof(file->done[i].etag), "%s",
			bucket_known_etag(part));
		file->done[i].crc = part->op.crc;
		end_ios(part, 0);
		return;
	}
	part->submitted = true;
	file->sending++;
	object_submit(file->bucket->client, &part->op);
}

void bucket_part_ended(struct bucket_part *part)
{
	struct store_file *file = part->file;
	struct object_part *done = &file->done[part->op.part - 1];

	part->submitted = false;
	file->sending--;
	if (part->op.rv == PAWL_ENOENT) {
		part->op.rv =
			pawl_err_set(&part->op.err, PAWL_EIO, "%s: its upload is gone", file->key);
	}
	if (part->op.rv != 0) {
		if (file->rv == 0) {
			file->err = part->op.err;
		}
		fail(file, part->op.rv);
	} else {
		memcpy(done->etag, part->op.etag, sizeof(done->etag));
		done->crc = part->op.crc;
	}
	end_ios(part, part->op.rv);
}

/* Sends a part if all its bytes are there. */
static void send_if_full(struct bucket_part *part)
{
	struct store_file *file = part->file;
	uint32_t i = part->op.part - 1;

	if (part->sent || count_parts(file) < 2 || part->filled_bytes < part_bytes(file, i)) {
		return;
	}
	if (is_last(file, i) && bounce(part) != 0) {
		return;
	}
	send_part(part);
}

/* ---- writing ---- */

uint64_t bucket_part_size(uint64_t size_bytes)
{
	uint64_t part_bytes = (size_bytes / OBJECT_PARTS_MAX + MIB) / MIB * MIB;

	return part_bytes < BUCKET_PART_BYTES ? BUCKET_PART_BYTES : part_bytes;
}

int bucket_create(struct store *store, const char *path, uint64_t size_bytes,
	struct store_file **file, struct pawl_err *err)
{
	struct bucket *bucket = (struct bucket *)store;
	char key[OBJECT_KEY_MAX];
	struct store_file *made;
	int rv = bucket_key(bucket, path, false, key, err);

	if (rv != 0) {
		return rv;
	}
	made = FAULT_MEM("bucket.create", calloc(1, sizeof(*made)));
	if (made != NULL) {
		made->key = FAULT_MEM("bucket.create", strdup(key));
	}
	if (made == NULL || made->key == NULL) {
		free(made);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to write %s", key);
	}
	made->bucket = bucket;
	made->writing = true;
	made->size_bytes = size_bytes;
	made->part_bytes = bucket_part_size(size_bytes);
	made->next = bucket->files;
	bucket->files = made;
	*file = made;
	return 0;
}

/* Copies a piece of a transfer that does not continue its part. */
static int copy_piece(struct store_file *file, uint64_t off, const uint8_t *bytes,
	uint64_t len_bytes)
{
	struct bucket_part *part = get_part(file, (uint32_t)(off / file->part_bytes));

	if (part == NULL) {
		return file->rv;
	}
	if (part->sent && part->bounce == NULL) {
		return fail(file,
			pawl_err_set(&file->err, PAWL_ENOTSUP,
				"%s: bytes at %" PRIu64 " were uploaded before", file->key, off));
	}
	if (bounce(part) != 0) {
		return file->rv;
	}
	copy_in(part, off % file->part_bytes, bytes, len_bytes);
	send_if_full(part);
	return 0;
}

static int copy_pieces(struct store_file *file, const struct store_io *io)
{
	uint64_t done_bytes = 0;
	int rv = 0;

	while (rv == 0 && done_bytes < io->len_bytes) {
		uint64_t off = io->off_bytes + done_bytes;
		uint64_t room = file->part_bytes - off % file->part_bytes;
		uint64_t left = io->len_bytes - done_bytes;
		uint64_t n = room < left ? room : left;

		rv = copy_piece(file, off, (const uint8_t *)io->buf + done_bytes, n);
		done_bytes += n;
	}
	return rv;
}

/* Returns the part that a transfer continues, or NULL: it must be copied, or there was an error. */
static struct bucket_part *continued_part(struct store_file *file, const struct store_io *io)
{
	uint32_t i = (uint32_t)(io->off_bytes / file->part_bytes);
	uint64_t at = io->off_bytes % file->part_bytes;
	struct bucket_part *part = get_part(file, i);

	if (part == NULL || part->bounce != NULL || part->sent || part->filled_bytes != at ||
		at + io->len_bytes > file->part_bytes) {
		return NULL;
	}
	return part;
}

void bucket_write(struct store_file *file, struct store_io *io)
{
	uint64_t end = io->off_bytes + io->len_bytes;
	struct bucket_part *part;

	ASSERT(file->writing); /* store.h: only files that were created are written */
	/* Padding of the last block is no longer file: a longer last block is cut at sync. */
	if (end > file->size_bytes && end - file->size_bytes >= STORE_ALIGN) {
		file->size_bytes = end;
	}
	part = file->rv == 0 ? continued_part(file, io) : NULL;
	if (part == NULL) {
		bucket_end_io(file, io, file->rv == 0 ? copy_pieces(file, io) : file->rv);
		return;
	}
	io->next = NULL;
	*part->ios_end = io;
	part->ios_end = &io->next;
	part->filled_bytes += io->len_bytes;
	send_if_full(part);
	if (part->op.part > 1 && file->slots[part->op.part - 2].part != NULL) {
		send_if_full(file->slots[part->op.part - 2].part); /* the last one, until now */
	}
}

int bucket_resize(struct store *store, struct store_file *file, uint64_t size_bytes,
	struct pawl_err *err)
{
	uint64_t old_bytes = file->size_bytes;
	uint32_t old_n = count_parts(file);

	ASSERT(file->writing);
	file->size_bytes = size_bytes;
	for (uint32_t i = 0; i < file->parts_n; i++) {
		struct bucket_part *part = file->slots[i].part;
		uint64_t left = part_bytes(file, i);

		if (part == NULL || (part->sent && part->send_bytes == left)) {
			continue;
		}
		if (part->sent && part->bounce == NULL) {
			file->size_bytes = old_bytes;
			return pawl_err_set(err, PAWL_ENOTSUP,
				"resize %s: its bytes were uploaded before", file->key);
		}
		recall(part);
		if (part->bounce != NULL && left < file->part_bytes && size_bytes < old_bytes) {
			memset(part->bounce + left, 0, file->part_bytes - left);
		}
		part->filled_bytes = part->filled_bytes < left ? part->filled_bytes : left;
	}
	ASSERT(old_n <= OBJECT_PARTS_MAX || size_bytes >= old_bytes);
	return 0;
}

/* ---- completing ---- */

/* Waits until no part of the file is being uploaded. */
static void drain(struct store_file *file)
{
	while (file->sending > 0) {
		bool stepped = bucket_step(file->bucket, -1);

		ASSERT(stepped);
	}
}

/* Puts a file of one part. */
static int put_whole(struct store_file *file, struct pawl_err *err)
{
	struct bucket_part *part = get_part(file, 0);
	struct object_op op = {.verb = OBJECT_PUT,
		.key = file->key,
		.body_bytes = file->size_bytes,
		.read = read_part,
		.user = part};
	int rv;

	if (part == NULL) {
		return pawl_err_set(err, file->rv, "%s", file->err.msg);
	}
	part->send_bytes = file->size_bytes;
	op.crc = sum_part(part);
	rv = object_do(file->bucket->client, &op, err);
	if (rv == 0) {
		memcpy(file->etag, op.etag, sizeof(file->etag));
	}
	return rv;
}

/* Uploads the parts that were not, or have changed since; at least one of an empty file. */
static int send_rest(struct store_file *file, struct pawl_err *err)
{
	uint32_t n = count_parts(file);

	drain(file);
	for (uint32_t i = 0; i < n && file->rv == 0; i++) {
		struct bucket_part *part = get_part(file, i);

		if (part != NULL && (!part->sent || part->stale)) {
			send_part(part);
		}
	}
	drain(file);
	if (file->rv != 0 && err != NULL) {
		*err = file->err;
	}
	return file->rv;
}

/* Gets the etag of the object that was completed, and checks its size. radosgw 16 does not tell the
 * etag when it completes an upload. */
static int look_completed(struct store_file *file, struct pawl_err *err)
{
	struct object_op head = {.verb = OBJECT_HEAD, .key = file->key};
	int rv = object_do(file->bucket->client, &head, err);

	if (rv == 0 && head.size_bytes != file->size_bytes) {
		rv = pawl_err_set(err, PAWL_EIO,
			"complete %s: %" PRIu64 " bytes, but %" PRIu64 " were uploaded", file->key,
			head.size_bytes, file->size_bytes);
	}
	if (rv == 0) {
		memcpy(file->etag, head.etag, sizeof(file->etag));
	}
	return rv;
}

static int complete(struct store_file *file, struct pawl_err *err)
{
	struct object_op op = {.verb = OBJECT_COMPLETE,
		.key = file->key,
		.upload = file->upload,
		.parts = file->done,
		.parts_n = count_parts(file)};
	int rv;

	if (op.parts_n < file->parts_n && file->slots[op.parts_n].part != NULL &&
		file->slots[op.parts_n].part->sent) {
		return pawl_err_set(err, PAWL_ENOTSUP,
			"complete %s: it was cut below what was uploaded", file->key);
	}
	rv = object_do(file->bucket->client, &op, err);
	/* The answer of an earlier attempt may have been lost: the object tells. */
	if (rv == 0 || (rv == PAWL_ENOENT && op.attempts > 1)) {
		rv = look_completed(file, err);
	}
	if (rv == 0) {
		file->upload[0] = '\0';
	}
	return rv == PAWL_ENOENT
		? pawl_err_set(err, PAWL_EIO, "complete %s: the upload is gone", file->key)
		: rv;
}

static void free_parts(struct store_file *file)
{
	for (uint32_t i = 0; i < file->parts_n; i++) {
		struct bucket_part *part = file->slots[i].part;

		if (part != NULL) {
			ASSERT(part->ios == NULL); /* reaped before the file is closed or synced */
			free(part->bounce);
			free(part);
		}
	}
	free(file->slots);
	free(file->done);
	free(file->known);
	file->slots = NULL;
	file->done = NULL;
	file->known = NULL;
	file->known_n = 0;
	file->parts_n = 0;
}

/* Takes a file out of those that are being written. */
static void stop_writing(struct store_file *file)
{
	struct store_file **at = &file->bucket->files;

	while (*at != file) {
		ASSERT(*at != NULL);
		at = &(*at)->next;
	}
	*at = file->next;
	file->writing = false;
	free_parts(file);
}

/* Ends all uploads of parts. */
static void stop_sending(struct store_file *file)
{
	for (uint32_t i = 0; i < file->parts_n && file->sending > 0; i++) {
		struct bucket_part *part = file->slots[i].part;

		if (part != NULL) {
			recall(part);
		}
	}
	ASSERT(file->sending == 0);
}

/* Drops what was uploaded, best effort: a sweep drops what is left. */
static void abort_upload(struct store_file *file)
{
	struct object_op op = {.verb = OBJECT_ABORT,
		.key = file->key,
		.upload = file->upload,
		.once = true};

	stop_sending(file);
	if (file->upload[0] != '\0') {
		object_do(file->bucket->client, &op, NULL);
		file->upload[0] = '\0';
	}
}

/* Gives a file up that is not complete. What was uploaded of one that resumes is left for the next
 * attempt, unless the service refuses to complete it. */
static void give_up(struct store_file *file, bool refused)
{
	if (file->resumes && !refused) {
		stop_sending(file);
		file->upload[0] = '\0';
	} else {
		abort_upload(file);
	}
}

int bucket_sync(struct store *store, struct store_file *file, struct pawl_err *err)
{
	bool refused = false;
	int rv;

	if (!file->writing) {
		return file->etag[0] != '\0'
			? 0
			: pawl_err_set(err, PAWL_EIO, "complete %s: the upload failed before",
				  file->key);
	}
	bucket_bounce_all(file->bucket);
	rv = file->rv;
	if (rv != 0 && err != NULL) {
		*err = file->err;
	}
	if (rv == 0 && count_parts(file) < 2 && file->upload[0] == '\0') {
		rv = put_whole(file, err);
	} else if (rv == 0) {
		rv = send_rest(file, err);
		if (rv == 0) {
			rv = complete(file, err);
			refused = rv != PAWL_ETIMEDOUT;
		}
	}
	if (rv != 0) {
		give_up(file, refused);
	}
	stop_writing(file);
	return rv;
}

void bucket_close_file(struct store *store, struct store_file *file)
{
	if (file->writing) {
		give_up(file, false);
		stop_writing(file);
	}
	free(file->key);
	free(file);
}
