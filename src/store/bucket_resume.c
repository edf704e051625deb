/*
 * Going on with what an earlier process left of an object after a crash or a deadline: see store.h.
 *
 * Nothing is kept on this side. The service lists the uploads of a key and the parts that each has,
 * with a CRC-32C or, at least, an etag, which is the MD5 of the part's bytes unless the bucket is
 * encrypted with keys of KMS. On Azure the CRC-32C is in the name of the part. A part that is
 * written again is compared with that. Where nothing agrees, it is sent again. So a wrong guess
 * costs time, and never a wrong byte.
 *
 * An object in n parts has, instead, the checksum of the checksums of its parts, and "-n".
 */
#include "store/bucket.h"

#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UPLOADS_MAX 8u /* uploads of one key that are looked at */
#define PIECE       (1u << 20)
#define MD5_BYTES   16u

/* A part that the service has. */
struct bucket_known {
	uint64_t size_bytes; /* 0: it does not have the part */
	char etag[OBJECT_ETAG_MAX];
	bool has_crc;
	uint32_t crc; /* CRC-32C of its bytes, with has_crc */
};

/* ---- checksums ---- */

/* Writes the MD5 of a part or object as an etag has it, without quotes. n: number of parts, 0: the
 * bytes were not summed by parts. */
static void write_md5(const uint8_t md5[MD5_BYTES], uint32_t n, char text[OBJECT_ETAG_MAX])
{
	for (unsigned i = 0; i < MD5_BYTES; i++) {
		snprintf(text + 2 * (size_t)i, 3, "%02x", md5[i]);
	}
	if (n > 0) {
		snprintf(text + 2 * (size_t)MD5_BYTES, 16, "-%u", n);
	}
}

/* Compares an etag, with or without quotes, with a text. */
static bool is_etag(const char *etag, const char *text)
{
	size_t len_bytes = strlen(text);

	etag += etag[0] == '"';
	return strncmp(etag, text, len_bytes) == 0 &&
		strspn(etag + len_bytes, "\"") == strlen(etag + len_bytes);
}

/* Returns the number behind the "-" of a checksum of checksums; 0: it is a plain one. */
static uint32_t count_summed(const char *text)
{
	const char *dash = strchr(text, '-');

	return dash != NULL ? (uint32_t)strtoul(dash + 1, NULL, 10) : 0;
}

/* Sums up a part as its etag would. Returns false if this process cannot. */
static bool sum_md5(size_t (*read)(void *user, uint64_t off, void *bytes, size_t size), void *user,
	uint64_t len_bytes, char text[OBJECT_ETAG_MAX])
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	uint8_t md5[EVP_MAX_MD_SIZE];
	uint8_t piece[16384];
	bool fine = ctx != NULL && EVP_DigestInit_ex(ctx, EVP_md5(), NULL) == 1;

	for (uint64_t off = 0; fine && off < len_bytes;) {
		uint64_t left = len_bytes - off;
		size_t n =
			read(user, off, piece, left < sizeof(piece) ? (size_t)left : sizeof(piece));

		fine = n > 0 && EVP_DigestUpdate(ctx, piece, n) == 1;
		off += n;
	}
	fine = fine && EVP_DigestFinal_ex(ctx, md5, NULL) == 1;
	EVP_MD_CTX_free(ctx);
	if (fine) {
		write_md5(md5, 0, text);
	}
	return fine;
}

/* ---- uploads ---- */

/* The parts of one upload, as they are listed. */
struct parts_found {
	struct bucket_known *known; /* OBJECT_PARTS_MAX */
	uint32_t n;                 /* number of the last part */
	uint32_t count;
};

/* Fits found of struct object_op. */
static int add_part(void *user, const struct object_found *found)
{
	struct parts_found *parts = user;
	struct bucket_known *known = &parts->known[found->part - 1];

	*known = (struct bucket_known){.size_bytes = found->size_bytes,
		.has_crc = found->has_crc,
		.crc = found->crc};
	snprintf(known->etag, sizeof(known->etag), "%s", found->etag);
	parts->n = found->part > parts->n ? found->part : parts->n;
	parts->count++;
	return 0;
}

static int list_parts(struct store_file *file, const char *upload, struct parts_found *parts,
	struct pawl_err *err)
{
	struct object_op op = {.verb = OBJECT_PARTS,
		.key = file->key,
		.upload = upload,
		.found = add_part,
		.user = parts};
	char token[OBJECT_TOKEN_MAX];
	int rv;

	do {
		memcpy(token, op.next_token, sizeof(token));
		op.token = token[0] != '\0' ? token : NULL;
		rv = object_do(file->bucket->client, &op, err);
	} while (rv == 0 && op.next_token[0] != '\0');
	return rv;
}

/* The uploads of one key. */
struct uploads_found {
	const char *key;
	char ids[UPLOADS_MAX][OBJECT_UPLOAD_MAX];
	uint32_t n;
};

/* Fits found of struct object_op. Keys that only begin with this one are listed, too. */
static int add_upload(void *user, const struct object_found *found)
{
	struct uploads_found *uploads = user;

	if (strcmp(found->key, uploads->key) == 0) {
		snprintf(uploads->ids[uploads->n++], OBJECT_UPLOAD_MAX, "%s", found->upload);
	}
	return uploads->n == UPLOADS_MAX;
}

/* Whether the parts can be those of this file: the sizes are, and none is behind its end, which
 * some servers refuse to complete. */
static bool fit(const struct store_file *file, const struct parts_found *parts)
{
	uint64_t n = (file->size_bytes + file->part_bytes - 1) / file->part_bytes;

	if (parts->n > n) {
		return false;
	}
	for (uint32_t i = 0; i < parts->n; i++) {
		uint64_t left = file->size_bytes - i * file->part_bytes;
		uint64_t want = left < file->part_bytes ? left : file->part_bytes;

		if (parts->known[i].size_bytes != 0 && parts->known[i].size_bytes != want) {
			return false;
		}
	}
	return true;
}

/* Takes an upload for the file, if it has more parts than the one that the file goes on with. */
static int try_upload(struct store_file *file, const char *id, uint32_t *most, struct pawl_err *err)
{
	struct parts_found parts = {.n = 0};
	int rv;

	parts.known = FAULT_MEM("bucket.resume", calloc(OBJECT_PARTS_MAX, sizeof(*parts.known)));
	if (parts.known == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to go on with %s", file->key);
	}
	rv = list_parts(file, id, &parts, err);
	if (rv == 0 && parts.count > *most && fit(file, &parts)) {
		free(file->known);
		file->known = parts.known;
		file->known_n = parts.n;
		snprintf(file->upload, sizeof(file->upload), "%s", id);
		*most = parts.count;
	} else {
		free(parts.known);
	}
	return rv == PAWL_ENOENT ? 0 : rv; /* the upload is gone meanwhile */
}

int bucket_resume(struct store *store, const char *path, uint64_t size_bytes,
	struct store_file **file, struct pawl_err *err)
{
	struct store_file *made;
	struct uploads_found uploads = {.n = 0};
	struct object_op op = {.verb = OBJECT_UPLOADS, .found = add_upload, .user = &uploads};
	uint32_t most = 0;
	int rv = bucket_create(store, path, size_bytes, &made, err);

	if (rv != 0) {
		return rv;
	}
	made->resumes = true;
	uploads.key = made->key;
	op.key = made->key;
	if (size_bytes > made->part_bytes) {
		rv = object_do(made->bucket->client, &op, err);
		rv = rv != 0 && op.code[0] != '\0' ? 0 : rv; /* listing may be refused */
	}
	for (uint32_t i = 0; i < uploads.n && rv == 0; i++) {
		rv = try_upload(made, uploads.ids[i], &most, err);
	}
	if (rv != 0) {
		bucket_close_file(store, made);
		return rv;
	}
	*file = made;
	return 0;
}

bool bucket_is_known(const struct bucket_part *part)
{
	const struct store_file *file = part->file;
	uint32_t i = part->op.part - 1;
	const struct bucket_known *known = i < file->known_n ? &file->known[i] : NULL;
	char md5[OBJECT_ETAG_MAX];

	if (known == NULL || known->size_bytes == 0 || known->size_bytes != part->op.body_bytes) {
		return false;
	}
	if (known->has_crc) {
		return known->crc == part->op.crc;
	}
	return sum_md5(part->op.read, part->op.user, part->op.body_bytes, md5) &&
		is_etag(known->etag, md5);
}

const char *bucket_known_etag(const struct bucket_part *part)
{
	return part->file->known[part->op.part - 1].etag;
}

/* ---- objects ---- */

/* The checksum of an object whose bytes the caller reads. */
struct object_sum {
	bool by_md5;
	uint64_t part_bytes; /* bytes of each part but the last */
	uint32_t parts_n;    /* 0: the bytes are summed as a whole */
	EVP_MD_CTX *part;    /* MD5 of the part, or of all */
	EVP_MD_CTX *all;     /* MD5 of the MD5s of parts */
	uint32_t part_crc, all_crc;
};

static bool add_bytes(struct object_sum *sum, const void *bytes, size_t len_bytes)
{
	if (sum->by_md5) {
		return EVP_DigestUpdate(sum->part, bytes, len_bytes) == 1;
	}
	sum->part_crc = crc32c(sum->part_crc, bytes, len_bytes);
	return true;
}

/* Ends a part: adds its checksum to that of all. */
static bool end_part(struct object_sum *sum)
{
	uint8_t md5[EVP_MAX_MD_SIZE];

	if (sum->by_md5) {
		return EVP_DigestFinal_ex(sum->part, md5, NULL) == 1 &&
			EVP_DigestUpdate(sum->all, md5, MD5_BYTES) == 1 &&
			EVP_DigestInit_ex(sum->part, EVP_md5(), NULL) == 1;
	}
	sum->all_crc = crc32c_add(sum->all_crc, sum->part_crc);
	sum->part_crc = 0;
	return true;
}

/* Writes the checksum as the service has it. */
static bool write_sum(struct object_sum *sum, char text[OBJECT_ETAG_MAX])
{
	uint32_t crc = sum->parts_n > 0 ? sum->all_crc : sum->part_crc;
	const uint8_t bytes[4] = {(uint8_t)(crc >> 24), (uint8_t)(crc >> 16), (uint8_t)(crc >> 8),
		(uint8_t)crc};
	uint8_t md5[EVP_MAX_MD_SIZE];
	int n;

	if (sum->by_md5) {
		if (EVP_DigestFinal_ex(sum->parts_n > 0 ? sum->all : sum->part, md5, NULL) != 1) {
			return false;
		}
		write_md5(md5, sum->parts_n, text);
		return true;
	}
	n = EVP_EncodeBlock((unsigned char *)text, bytes, sizeof(bytes));
	if (sum->parts_n > 0) {
		snprintf(text + n, 16, "-%u", sum->parts_n);
	}
	return true;
}

/* Reads the bytes and sums them. Returns 0; or 1 if this process cannot; or the caller's error. */
static int read_sum(struct object_sum *sum, uint64_t size_bytes, store_bytes_fn *read, void *user,
	char text[OBJECT_ETAG_MAX], struct pawl_err *err)
{
	uint8_t *piece = FAULT_MEM("bucket.has", malloc(PIECE));
	uint64_t in_part = 0;
	bool fine = true;
	int rv = piece != NULL ? 0
			       : pawl_err_set(err, PAWL_ENOMEM, "no memory to compare an object");

	for (uint64_t off = 0; off < size_bytes && rv == 0 && fine;) {
		uint64_t left = size_bytes - off;
		size_t n = left < PIECE ? (size_t)left : PIECE;

		rv = read(user, off, piece, n, err);
		fine = rv == 0 && add_bytes(sum, piece, n);
		off += n;
		in_part += n;
		if (fine && sum->parts_n > 0 && (in_part == sum->part_bytes || off == size_bytes)) {
			fine = end_part(sum);
			in_part = 0;
		}
	}
	free(piece);
	if (rv != 0) {
		return rv;
	}
	return fine && write_sum(sum, text) ? 0 : 1;
}

/* Prepares to sum as the service did. Returns false if its checksum cannot be that of parts of our
 * size. */
static bool begin_sum(struct object_sum *sum, const struct object_op *head, uint64_t size_bytes)
{
	const char *text = head->sum[0] != '\0' ? head->sum : head->etag;

	sum->by_md5 = head->sum[0] == '\0';
	sum->parts_n = count_summed(text);
	sum->part_bytes = bucket_part_size(size_bytes);
	if (sum->parts_n > 0 &&
		sum->parts_n != (size_bytes + sum->part_bytes - 1) / sum->part_bytes) {
		return false;
	}
	if (!sum->by_md5) {
		return true;
	}
	sum->part = EVP_MD_CTX_new();
	sum->all = EVP_MD_CTX_new();
	return sum->part != NULL && sum->all != NULL &&
		EVP_DigestInit_ex(sum->part, EVP_md5(), NULL) == 1 &&
		EVP_DigestInit_ex(sum->all, EVP_md5(), NULL) == 1;
}

int bucket_has(struct store *store, const char *path, uint64_t size_bytes, store_bytes_fn *read,
	void *user, bool *has, struct pawl_err *err)
{
	struct bucket *bucket = (struct bucket *)store;
	char key[OBJECT_KEY_MAX];
	char text[OBJECT_ETAG_MAX];
	struct object_op head = {.verb = OBJECT_HEAD, .key = key};
	struct object_sum sum = {.by_md5 = false};
	int rv = bucket_key(bucket, path, false, key, err);

	*has = false;
	rv = rv == 0 ? object_do(bucket->client, &head, err) : rv;
	if (rv != 0 || head.size_bytes != size_bytes) {
		return rv == PAWL_ENOENT ? 0 : rv;
	}
	if (begin_sum(&sum, &head, size_bytes)) {
		rv = read_sum(&sum, size_bytes, read, user, text, err);
		*has = rv == 0 &&
			(sum.by_md5 ? is_etag(head.etag, text) : strcmp(head.sum, text) == 0);
		rv = rv > 0 ? 0 : rv;
	}
	EVP_MD_CTX_free(sum.part);
	EVP_MD_CTX_free(sum.all);
	return rv;
}
