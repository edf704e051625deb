/*
 * Azure's Blob service around S3's objects: see s3_azure.h. Source: the reference of its REST API.
 * What it does otherwise than S3:
 *
 * - There are no uploads. A blob has blocks, which are no part of it yet, and the last step names
 *   those that it becomes; the others are dropped. Their ids are equally long.
 * - A body with a CRC-64 that is not its own is refused. Blobs have metadata, as they were put.
 * - A condition on a blob that is there is refused by 409, and not by 412.
 */
#include "s3_azure.h"

#include "base/assert.h"
#include "base/crc.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID_MAX   89u /* bytes of a block's id in base64, terminator included */
#define META_MAX 64u
#define META     "x-ms-meta-pawl_crc32c" /* the only metadata that is kept */
#define SUM      "x-ms-content-crc64"

struct block {
	struct block *next;
	char id[ID_MAX];
	uint8_t *bytes; /* owned */
	size_t len_bytes;
};

/* What belongs to a key. */
struct blob {
	struct blob *next;
	char *key;           /* owned */
	struct block *taken; /* owned; in the blob, if it was made of blocks; in its order */
	struct block *loose; /* owned; in no blob */
	char meta[META_MAX]; /* "": none */
};

struct s3_azure {
	struct blob *blobs; /* owned */
};

/* ---- blobs and blocks ---- */

struct s3_azure *s3_azure_open(void)
{
	return s3_need(calloc(1, sizeof(struct s3_azure)));
}

static void free_blocks(struct block **blocks)
{
	while (*blocks != NULL) {
		struct block *block = *blocks;

		*blocks = block->next;
		free(block->bytes);
		free(block);
	}
}

void s3_azure_clear(struct s3_azure *azure)
{
	while (azure->blobs != NULL) {
		struct blob *blob = azure->blobs;

		azure->blobs = blob->next;
		free_blocks(&blob->taken);
		free_blocks(&blob->loose);
		free(blob->key);
		free(blob);
	}
}

void s3_azure_close(struct s3_azure *azure)
{
	s3_azure_clear(azure);
	free(azure);
}

static struct blob *find_blob(struct s3_azure *azure, const char *key)
{
	struct blob *blob = azure->blobs;

	while (blob != NULL && strcmp(blob->key, key) != 0) {
		blob = blob->next;
	}
	if (blob == NULL) {
		blob = s3_need(calloc(1, sizeof(*blob)));
		blob->key = s3_need(strdup(key));
		blob->next = azure->blobs;
		azure->blobs = blob;
	}
	return blob;
}

static struct block *find_block(struct block *blocks, const char *id)
{
	while (blocks != NULL && strcmp(blocks->id, id) != 0) {
		blocks = blocks->next;
	}
	return blocks;
}

unsigned s3_azure_blocks(const struct s3_azure *azure)
{
	unsigned n = 0;

	for (const struct blob *blob = azure->blobs; blob != NULL; blob = blob->next) {
		for (const struct block *block = blob->loose; block != NULL; block = block->next) {
			n++;
		}
	}
	return n;
}

/* ---- answers ---- */

static void refuse(const struct s3_request *request, struct s3_answer *answer, int status,
	const char *code)
{
	answer->headers[0] = '\0';
	s3_answer_field(answer, "x-ms-error-code: %s", code);
	s3_answer_error(request, answer, status, code, "");
}

/* Makes an error of S3's one of Azure's. */
static void translate(const struct s3_request *request, struct s3_answer *answer)
{
	bool whole = request->key[0] == '\0' || strcmp(request->bucket, S3_BUCKET) != 0;
	bool matches = s3_request_field(request, "if-match") != NULL;

	if (matches && (answer->status == 404 || answer->status == 412)) {
		refuse(request, answer, 412, "ConditionNotMet");
	} else if (answer->status == 404) {
		refuse(request, answer, 404, whole ? "ContainerNotFound" : "BlobNotFound");
	} else if (answer->status == 412) {
		refuse(request, answer, 409, "BlobAlreadyExists");
	} else if (answer->status == 416) {
		refuse(request, answer, 416, "InvalidRange");
	}
}

/* Answers with an error if the body is not what its checksum says. */
static bool check_sum(const struct s3_settings *settings, const struct s3_request *request,
	struct s3_answer *answer)
{
	const char *want = s3_request_field(request, SUM);
	uint64_t crc = crc64(0, request->body, request->body_bytes);
	unsigned char bytes[sizeof(crc)];
	char own[16];

	for (unsigned i = 0; i < sizeof(crc); i++) {
		bytes[i] = (unsigned char)(crc >> 8 * i);
	}
	EVP_EncodeBlock((unsigned char *)own, bytes, sizeof(bytes));
	if (want != NULL && settings->refuses_sums) {
		refuse(request, answer, 500, "FeatureNotSupported");
		return false;
	}
	if (want != NULL && strcmp(want, own) != 0) {
		refuse(request, answer, 400, "Crc64Mismatch");
		return false;
	}
	s3_answer_field(answer, SUM ": %s", own);
	return true;
}

static void keep_meta(struct blob *blob, const struct s3_request *request)
{
	const char *meta = s3_request_field(request, META);

	snprintf(blob->meta, sizeof(blob->meta), "%s", meta != NULL ? meta : "");
}

/* ---- whole blobs ---- */

static void put_blob(struct s3_azure *azure, struct s3_objects *objects,
	const struct s3_settings *settings, const struct s3_request *request,
	struct s3_answer *answer)
{
	const char *type = s3_request_field(request, "x-ms-blob-type");
	struct blob *blob = find_blob(azure, request->key);

	if (type == NULL || strcmp(type, "BlockBlob") != 0) {
		refuse(request, answer, 400, "MissingRequiredHeader");
		return;
	}
	if (!check_sum(settings, request, answer)) {
		return;
	}
	s3_objects_do(objects, settings, request, answer);
	if (answer->status == 200) {
		answer->status = 201;
		free_blocks(&blob->taken);
		free_blocks(&blob->loose);
		keep_meta(blob, request);
	}
}

static void get_blob(struct s3_azure *azure, struct s3_objects *objects,
	const struct s3_settings *settings, const struct s3_request *request,
	struct s3_answer *answer)
{
	const struct blob *blob = find_blob(azure, request->key);

	s3_objects_do(objects, settings, request, answer);
	if (answer->status / 100 == 2 && blob->meta[0] != '\0') {
		s3_answer_field(answer, META ": %s", blob->meta);
	}
}

static void delete_blob(struct s3_azure *azure, struct s3_objects *objects,
	const struct s3_settings *settings, const struct s3_request *request,
	struct s3_answer *answer)
{
	bool there = s3_objects_look(objects, request->key).version != 0;
	struct blob *blob = find_blob(azure, request->key);

	if (!there && strcmp(request->bucket, S3_BUCKET) == 0) {
		refuse(request, answer, 404, "BlobNotFound");
		return;
	}
	s3_objects_do(objects, settings, request, answer);
	if (answer->status == 204) {
		answer->status = 202;
		free_blocks(&blob->taken);
		blob->meta[0] = '\0';
	}
}

/* ---- blobs in blocks ---- */

/* Returns whether an id is base64, and as long as those that the blob has. */
static bool is_id(const struct blob *blob, const char *id)
{
	const struct block *other = blob->loose != NULL ? blob->loose : blob->taken;
	unsigned char bytes[ID_MAX];
	size_t len_bytes = strlen(id);

	return len_bytes > 0 && len_bytes < ID_MAX && len_bytes % 4 == 0 &&
		EVP_DecodeBlock(bytes, (const unsigned char *)id, (int)len_bytes) > 0 &&
		(other == NULL || strlen(other->id) == len_bytes);
}

static void put_block(struct s3_azure *azure, const struct s3_settings *settings,
	const struct s3_request *request, struct s3_answer *answer)
{
	struct blob *blob = find_blob(azure, request->key);
	char id[S3_NAME_MAX];
	struct block *block;

	s3_request_param(request, "blockid", id, sizeof(id));
	if (!is_id(blob, id)) {
		refuse(request, answer, 400, "InvalidBlobOrBlock");
		return;
	}
	if (!check_sum(settings, request, answer)) {
		return;
	}
	block = find_block(blob->loose, id);
	if (block == NULL) {
		block = s3_need(calloc(1, sizeof(*block)));
		snprintf(block->id, sizeof(block->id), "%s", id);
		block->next = blob->loose;
		blob->loose = block;
	}
	free(block->bytes);
	block->bytes = s3_need(malloc(request->body_bytes + 1));
	block->len_bytes = request->body_bytes;
	if (request->body_bytes > 0) {
		memcpy(block->bytes, request->body, request->body_bytes);
	}
	answer->status = 201;
}

/* Copies a block to the end of a list, and its bytes to the end of a text. */
static void take_block(const struct block *from, struct block ***end, struct s3_text *bytes)
{
	struct block *block = s3_need(calloc(1, sizeof(*block)));

	memcpy(block->id, from->id, sizeof(block->id));
	block->bytes = s3_need(malloc(from->len_bytes + 1));
	block->len_bytes = from->len_bytes;
	memcpy(block->bytes, from->bytes, from->len_bytes);
	s3_text_add(bytes, from->bytes, from->len_bytes);
	**end = block;
	*end = &block->next;
}

/* Takes the blocks that a list names. Returns whether they are all there. */
static bool take_blocks(const struct blob *blob, const char *list, struct block **taken,
	struct s3_text *bytes)
{
	static const char opens[] = "<Latest>";
	struct block **end = taken;

	while ((list = strstr(list, opens)) != NULL) {
		const struct block *block;
		char id[ID_MAX];

		list += sizeof(opens) - 1;
		snprintf(id, sizeof(id), "%.*s", (int)strcspn(list, "<"), list);
		block = find_block(blob->loose, id);
		block = block != NULL ? block : find_block(blob->taken, id);
		if (block == NULL) {
			return false;
		}
		take_block(block, &end, bytes);
	}
	return true;
}

static void put_list(struct s3_azure *azure, struct s3_objects *objects,
	const struct s3_request *request, struct s3_answer *answer)
{
	static const struct s3_settings plain = {.hook = NULL};
	struct blob *blob = find_blob(azure, request->key);
	struct s3_request whole = *request;
	struct block *taken = NULL;
	struct s3_text bytes = {0};

	if (!take_blocks(blob, request->body != NULL ? (const char *)request->body : "", &taken,
		    &bytes)) {
		free_blocks(&taken);
		free(bytes.bytes);
		refuse(request, answer, 400, "InvalidBlockList");
		return;
	}
	whole.kind = S3_PUT;
	whole.body = (uint8_t *)bytes.bytes;
	whole.body_bytes = bytes.len_bytes;
	s3_objects_do(objects, &plain, &whole, answer);
	free(bytes.bytes);
	if (answer->status != 200) {
		free_blocks(&taken);
		return;
	}
	answer->status = 201;
	free_blocks(&blob->taken);
	free_blocks(&blob->loose);
	blob->taken = taken;
	keep_meta(blob, request);
}

static void list_blocks(struct s3_azure *azure, const struct s3_objects *objects,
	const struct s3_request *request, struct s3_answer *answer)
{
	const struct blob *blob = find_blob(azure, request->key);
	char type[32];

	s3_request_param(request, "blocklisttype", type, sizeof(type));
	ASSERT(strcmp(type, "uncommitted") == 0); /* nobody asks for the others */
	if (blob->loose == NULL && s3_objects_look(objects, request->key).version == 0) {
		refuse(request, answer, 404, "BlobNotFound");
		return;
	}
	s3_answer_field(answer, "Content-Type: application/xml");
	s3_text_print(&answer->body,
		"\xef\xbb\xbf<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>"
		"<UncommittedBlocks>");
	for (const struct block *block = blob->loose; block != NULL; block = block->next) {
		s3_text_print(&answer->body, "<Block><Name>%s</Name><Size>%zu</Size></Block>",
			block->id, block->len_bytes);
	}
	s3_text_print(&answer->body, "</UncommittedBlocks></BlockList>");
}

/* ---- lists of blobs ---- */

/* Adds a parameter of a request to a query, under another name. */
static void add_param(const struct s3_request *request, const char *name, const char *other,
	struct s3_text *query)
{
	char value[S3_LINE_MAX];

	if (s3_request_param(request, name, value, sizeof(value))) {
		s3_text_print(query, "%s%s=", query->len_bytes > 0 ? "&" : "", other);
		s3_text_encode(query, value);
	}
}

/* Returns what follows a text, if that is at the beginning; else NULL. */
static const char *behind(const char *at, const char *text)
{
	return strncmp(at, text, strlen(text)) == 0 ? at + strlen(text) : NULL;
}

/* Writes a page of S3's as one of Azure's. */
static void write_page(const char *page, struct s3_text *body)
{
	const char *marker = "";

	for (; (page = strchr(page, '<')) != NULL; page++) {
		const char *key = behind(page, "<Contents><Key>");
		const char *folder = behind(page, "<CommonPrefixes><Prefix>");
		const char *next = behind(page, "<NextContinuationToken>");

		if (key != NULL) {
			const char *size = strstr(key, "<Size>") + strlen("<Size>");

			s3_text_print(body,
				"<Blob><Name>%.*s</Name><Properties><Content-Length>%.*s"
				"</Content-Length></Properties></Blob>",
				(int)strcspn(key, "<"), key, (int)strcspn(size, "<"), size);
		} else if (folder != NULL) {
			s3_text_print(body, "<BlobPrefix><Name>%.*s</Name></BlobPrefix>",
				(int)strcspn(folder, "<"), folder);
		}
		marker = next != NULL ? next : marker;
	}
	s3_text_print(body, "</Blobs><NextMarker>%.*s</NextMarker>", (int)strcspn(marker, "<"),
		marker);
}

static void list_blobs(struct s3_objects *objects, const struct s3_settings *settings,
	const struct s3_request *request, struct s3_answer *answer)
{
	struct s3_request other = *request;
	struct s3_answer page = {.status = 200};
	struct s3_text query = {0};

	add_param(request, "delimiter", "delimiter", &query);
	add_param(request, "marker", "continuation-token", &query);
	add_param(request, "maxresults", "max-keys", &query);
	add_param(request, "prefix", "prefix", &query);
	snprintf(other.query, sizeof(other.query), "%s", query.bytes != NULL ? query.bytes : "");
	s3_objects_do(objects, settings, &other, &page);
	if (page.status == 200) {
		s3_answer_field(answer, "Content-Type: application/xml");
		s3_text_print(&answer->body,
			"\xef\xbb\xbf<?xml version=\"1.0\" encoding=\"utf-8\"?>"
			"<EnumerationResults><Blobs>");
		write_page(page.body.bytes, &answer->body);
		s3_text_print(&answer->body, "</EnumerationResults>");
	}
	answer->status = page.status;
	free(page.body.bytes);
	free(query.bytes);
}

/* ---- all kinds ---- */

bool s3_azure_is(const struct s3_request *request)
{
	return s3_request_field(request, "x-ms-version") != NULL;
}

void s3_azure_do(struct s3_azure *azure, struct s3_objects *objects,
	const struct s3_settings *settings, const struct s3_request *request,
	struct s3_answer *answer)
{
	bool blocks = request->kind == S3_PART_PUT || request->kind == S3_PARTS;

	if (blocks && strcmp(request->bucket, S3_BUCKET) != 0) {
		refuse(request, answer, 404, "ContainerNotFound");
		return;
	}
	switch (request->kind) {
	case S3_PUT:
		put_blob(azure, objects, settings, request, answer);
		break;
	case S3_GET:
	case S3_HEAD:
		get_blob(azure, objects, settings, request, answer);
		break;
	case S3_DELETE:
		delete_blob(azure, objects, settings, request, answer);
		break;
	case S3_LIST:
		list_blobs(objects, settings, request, answer);
		break;
	case S3_PART_PUT:
		put_block(azure, settings, request, answer);
		break;
	case S3_COMPLETE:
		put_list(azure, objects, request, answer);
		break;
	default:
		ASSERT(request->kind == S3_PARTS);
		list_blocks(azure, objects, request, answer);
	}
	if (answer->status / 100 == 4 && strstr(answer->headers, "x-ms-error-code") == NULL) {
		translate(request, answer);
	}
}
