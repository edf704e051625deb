/*
 * The dialect of Azure Blob Storage: see dialect.h. Source: the REST API of the Blob service,
 * version 2021-12-02. Accounts of Data Lake Storage are reached by the same API, where a folder is
 * an object of its own, marked by metadata: it is left out, as if it were not there.
 *
 * Azure has no uploads with ids. Each blob has one list of blocks that are not part of it yet, to
 * which all who write the blob add, and from which the last step takes those that it names. So a
 * block's id says which bytes it has: the part's number and the CRC-32C. Whoever writes the same
 * bytes uses the same blocks, and the last step never takes other bytes than those that it means,
 * whatever else the blob was sent. But the first last step empties the list, so that one for other
 * bytes fails with InvalidBlockList, while one that is sent again finds its blocks in the blob. The
 * service drops blocks that nobody has taken after a week; nobody can drop them earlier without
 * writing the blob.
 *
 * The service knows no CRC-32C, but CRC-64/NVME, which it checks: a block whose bytes are not those
 * of its request is never there. What an object's CRC-32C is, we write into its metadata.
 */
#include "store/object/dialect.h"
#include "store/object/object_xml.h"

#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define API_VERSION   "2021-12-02"
#define KEYS_MAX      1000u       /* on a page; Azure's limit is 5000 */
#define LIST_TEXT_MAX (16u << 20) /* bytes of a page, or of a list of 100,000 blocks */
#define BLOCK_BYTES   24u         /* bytes of a block's id: all of a blob must be equally long */
#define BLOCK_ID_MAX  33u         /* bytes of one in base64, terminator included */
#define BLOCK_XML_MAX 64u         /* bytes of one in the text of COMPLETE */
#define UPLOAD        "blocks"    /* id of the only upload that a key has */
#define SUM_HEADER    "x-ms-content-crc64"
#define SUM_MAX       13u                     /* bytes of a CRC-64 in base64, terminator included */
#define SUM_PIECE     16384u                  /* bytes of a body that are summed at a time */
#define KEPT_HEADER   "x-ms-meta-pawl_crc32c" /* as sum of struct object_op */
#define FOLDER_MARK   "hdi_isfolder"

/* ---- where a container is ---- */

/* The account is in the host's name, or at the beginning of the path. */
static int locate(struct object_place *place, const char *region, const char *endpoint,
	struct pawl_err *err)
{
	const char *account = place->url.account;
	size_t len_bytes = strlen(account);
	const char *host;

	place->region[0] = '\0';
	if (endpoint[0] != '\0') {
		snprintf(place->endpoint, sizeof(place->endpoint), "%s", endpoint);
	} else {
		snprintf(place->endpoint, sizeof(place->endpoint),
			"https://%s.blob.core.windows.net", account);
	}
	host = strstr(place->endpoint, "://");
	host = host != NULL ? host + 3 : place->endpoint;
	place->in_host = strncmp(host, account, len_bytes) == 0 && host[len_bytes] == '.';
	return 0;
}

/* ---- blocks ---- */

/* Writes the id of a block: always as long, and without characters that XML would change. */
static void name_block(uint32_t part, uint32_t crc, char id[BLOCK_ID_MAX])
{
	char name[BLOCK_BYTES + 8];

	snprintf(name, sizeof(name), "crc32c-%08u-%08" PRIx32, part, crc);
	EVP_EncodeBlock((unsigned char *)id, (const unsigned char *)name, BLOCK_BYTES);
}

/* Reads an id. Returns false if it is none of ours. */
static bool read_block(const char *id, uint32_t *part, uint32_t *crc)
{
	unsigned char name[BLOCK_BYTES + 8];
	char again[BLOCK_ID_MAX];

	if (strlen(id) != BLOCK_ID_MAX - 1 ||
		EVP_DecodeBlock(name, (const unsigned char *)id, BLOCK_ID_MAX - 1) !=
			(int)BLOCK_BYTES) {
		return false;
	}
	name[BLOCK_BYTES] = '\0';
	if (sscanf((const char *)name, "crc32c-%8" SCNu32 "-%8" SCNx32, part, crc) != 2) {
		return false;
	}
	name_block(*part, *crc, again);
	return strcmp(again, id) == 0 && *part > 0 && *part <= OBJECT_PARTS_MAX;
}

/* Lists the blocks. Those that an earlier attempt has made part of the blob count, too. */
static int write_blocks(struct object_op *op, struct pawl_err *err)
{
	size_t size_bytes = (size_t)op->parts_n * BLOCK_XML_MAX + 128;
	char *text = FAULT_MEM("azure.blocks", malloc(size_bytes));
	size_t n;

	if (text == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a list of %u parts",
			op->parts_n);
	}
	n = (size_t)snprintf(text, size_bytes,
		"<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>");
	for (uint32_t i = 0; i < op->parts_n; i++) {
		char id[BLOCK_ID_MAX];

		name_block(i + 1, op->parts[i].crc, id);
		n += (size_t)snprintf(text + n, size_bytes - n, "<Latest>%s</Latest>", id);
	}
	n += (size_t)snprintf(text + n, size_bytes - n, "</BlockList>");
	op->body_text = text;
	op->body_bytes = n;
	return 0;
}

/* ---- checksums ---- */

/* Adds the CRC-64 of the body, which the service checks: base64, little endian. */
static int add_sum(const struct object_place *place, const struct object_op *op,
	struct http_request *request, struct pawl_err *err)
{
	unsigned char piece[SUM_PIECE];
	unsigned char bytes[sizeof(uint64_t)];
	char text[SUM_MAX];
	uint64_t crc = 0;

	if (place->bare_bodies) {
		return 0;
	}
	for (uint64_t off = 0; off < op->body_bytes;) {
		uint64_t left = op->body_bytes - off;
		size_t n = op->read(op->user, off, piece,
			left < sizeof(piece) ? (size_t)left : sizeof(piece));

		if (n == 0) {
			return pawl_err_set(err, PAWL_EINVAL, "the bytes to send cannot be read");
		}
		crc = crc64(crc, piece, n);
		off += n;
	}
	for (unsigned i = 0; i < sizeof(bytes); i++) {
		bytes[i] = (unsigned char)(crc >> 8 * i);
	}
	EVP_EncodeBlock((unsigned char *)text, bytes, sizeof(bytes));
	request_add_header(request, SUM_HEADER, "%s", text);
	return 0;
}

/* Adds the CRC-32C of an object to its metadata. */
static void keep_sum(const struct object_op *op, struct http_request *request)
{
	char text[DIALECT_CRC_MAX];

	dialect_write_crc(op->crc, text);
	request_add_header(request, KEPT_HEADER, "%s", text);
}

/* Adds the CRC-32C of the CRCs of an object's parts to its metadata. */
static void keep_sum_of_parts(const struct object_op *op, struct http_request *request)
{
	char text[DIALECT_CRC_MAX];
	uint32_t sum = 0;

	for (uint32_t i = 0; i < op->parts_n; i++) {
		sum = crc32c_add(sum, op->parts[i].crc);
	}
	dialect_write_crc(sum, text);
	request_add_header(request, KEPT_HEADER, "%s-%u", text, op->parts_n);
}

/* ---- requests ---- */

/* Returns whether Azure takes a key as it is. It changes names that end with a dot, and '\\', so
 * that they would be those of other objects. */
static bool is_kept(const char *key)
{
	for (;;) {
		size_t len_bytes = strcspn(key, "/");

		if ((len_bytes > 0 && key[len_bytes - 1] == '.') ||
			memchr(key, '\\', len_bytes) != NULL) {
			return false;
		}
		if (key[len_bytes] == '\0') {
			return true;
		}
		key += len_bytes + 1;
	}
}

/* Adds a condition on the object's etag. */
static void add_match(const struct object_op *op, struct http_request *request)
{
	if (op->match != NULL && op->match[0] == '\0') {
		request_add_header(request, "if-none-match", "*");
	} else if (op->match != NULL) {
		request_add_header(request, "if-match", "%s", op->match);
	}
}

/* Lists pages in ascending order of parameters, as signatures need it. */
static void build_list(const struct object_op *op, struct http_request *request)
{
	char keys[16];

	snprintf(keys, sizeof(keys), "%u", op->keys_max > 0 ? op->keys_max : KEYS_MAX);
	request_add_query(request, "comp", "list");
	if (op->folders) {
		request_add_query(request, "delimiter", "/");
	}
	request_add_query(request, "include", "metadata");
	if (op->token != NULL) {
		request_add_query(request, "marker", op->token);
	}
	request_add_query(request, "maxresults", keys);
	if (op->key[0] != '\0') {
		request_add_query(request, "prefix", op->key);
	}
	request_add_query(request, "restype", "container");
}

static void build_part(const struct object_op *op, struct http_request *request)
{
	char id[BLOCK_ID_MAX];

	name_block(op->part, op->crc, id);
	request_add_query(request, "blockid", id);
	request_add_query(request, "comp", "block");
}

static const char *method_of(enum object_verb verb)
{
	switch (verb) {
	case OBJECT_PUT:
	case OBJECT_PART:
	case OBJECT_COMPLETE:
		return "PUT";
	case OBJECT_HEAD:
		return "HEAD";
	case OBJECT_REMOVE:
		return "DELETE";
	default:
		return "GET";
	}
}

/* Reports the upload of one key; whether it has blocks, PARTS finds out. Below a folder none are
 * looked for: who does so wants to drop them, which cannot be done. */
static void report_upload(struct object_op *op)
{
	size_t len_bytes = strlen(op->key);
	struct object_found found = {.key = op->key, .upload = UPLOAD};

	op->next_token[0] = '\0';
	if (len_bytes > 0 && op->key[len_bytes - 1] != '/') {
		op->found(op->user, &found);
	}
}

/* Does what needs no request. Returns false if it does. */
static bool do_at_once(struct object_op *op)
{
	switch (op->verb) {
	case OBJECT_BEGIN:
		snprintf(op->upload_id, sizeof(op->upload_id), "%s", UPLOAD);
		return true;
	case OBJECT_ABORT:
		return true;
	case OBJECT_UPLOADS:
		report_upload(op);
		return true;
	default:
		return false;
	}
}

/* Begins a request for a container, or for an object in it. */
static void begin_request(const struct object_place *place, const struct object_op *op,
	struct http_request *request)
{
	request_init(request, method_of(op->verb), place->endpoint);
	if (!place->in_host) {
		request_add_path(request, place->url.account);
	}
	request_add_path(request, place->url.bucket);
	if (op->verb != OBJECT_LIST) {
		request_add_path(request, op->key);
	}
	request_add_header(request, "x-ms-version", API_VERSION);
}

static int build(const struct object_place *place, struct object_op *op,
	struct http_request *request, struct pawl_err *err)
{
	int rv = 0;

	if (op->verb != OBJECT_LIST && op->verb != OBJECT_UPLOADS && !is_kept(op->key)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"a name in this key ends with a dot, or has a '\\': Azure would change it");
	}
	if (do_at_once(op)) {
		return BUILD_DONE;
	}
	begin_request(place, op, request);
	switch (op->verb) {
	case OBJECT_PUT:
		add_match(op, request);
		request_add_header(request, "x-ms-blob-type", "BlockBlob");
		keep_sum(op, request);
		rv = add_sum(place, op, request, err);
		break;
	case OBJECT_GET:
		add_match(op, request);
		if (op->len_bytes > 0) {
			request_add_header(request, "range", "bytes=%" PRIu64 "-%" PRIu64,
				op->off_bytes, op->off_bytes + op->len_bytes - 1);
		}
		break;
	case OBJECT_LIST:
		build_list(op, request);
		op->text_max = LIST_TEXT_MAX;
		break;
	case OBJECT_PART:
		build_part(op, request);
		rv = add_sum(place, op, request, err);
		break;
	case OBJECT_PARTS:
		request_add_query(request, "blocklisttype", "uncommitted");
		request_add_query(request, "comp", "blocklist");
		op->text_max = LIST_TEXT_MAX;
		break;
	case OBJECT_COMPLETE:
		request_add_query(request, "comp", "blocklist");
		request_add_header(request, "content-type", "application/xml");
		keep_sum_of_parts(op, request);
		rv = write_blocks(op, err);
		break;
	default:
		break;
	}
	if (rv == 0 && request->full) {
		rv = pawl_err_set(err, PAWL_ELIMIT, "a request for this key is too long");
	}
	return rv;
}

/* ---- pages of lists ---- */

/* A page that is being read. */
struct page {
	struct dialect_page
		common; /* first: see dialect.h; a blob that marks a folder is left out */
	char marker[XML_TEXT_MAX]; /* where the next page begins; "": this is the last one */
	char block[BLOCK_ID_MAX];  /* PARTS: id of the block that is being read; "": not ours */
};

static int read_listed(struct page *page, const char *name, const char *text)
{
	if (strcmp(name, "Blob/Name") == 0 || strcmp(name, "BlobPrefix/Name") == 0) {
		dialect_keep_value(&page->common, page->common.key, sizeof(page->common.key), text);
	} else if (strcmp(name, "Blob/Properties/Content-Length") == 0) {
		dialect_keep_value(&page->common, page->common.size, sizeof(page->common.size),
			text);
	} else if (strcmp(name, "Blob/Properties/ResourceType") == 0) {
		page->common.left_out = page->common.left_out || strcmp(text, "directory") == 0;
	} else if (strcasecmp(name, "Blob/Metadata/" FOLDER_MARK) == 0) {
		page->common.left_out = page->common.left_out || strcasecmp(text, "true") == 0;
	} else if (strcmp(name, "Blob") == 0) {
		return dialect_report(&page->common, false, NULL);
	} else if (strcmp(name, "BlobPrefix") == 0) {
		page->common.left_out = false;
		return dialect_report(&page->common, true, NULL);
	}
	return 0;
}

/* Hands a block to the caller, if its id is one of ours. Returns nonzero to end the list. */
static int report_block(struct page *page)
{
	struct object_op *op = page->common.op;
	struct object_found found = {.key = op->key, .etag = page->block, .has_crc = true};
	int stop = 0;

	if (!dialect_read_number(page->common.size, &found.size_bytes)) {
		page->common.bad = true;
	} else if (read_block(page->block, &found.part, &found.crc)) {
		stop = op->found(op->user, &found);
	}
	page->block[0] = '\0';
	page->common.size[0] = '\0';
	return stop;
}

static int read_part(struct page *page, const char *name, const char *text)
{
	if (strcmp(name, "Block/Name") == 0) {
		if (!dialect_keep(page->block, sizeof(page->block), text)) {
			page->block[0] = '\0';
		}
	} else if (strcmp(name, "Block/Size") == 0) {
		dialect_keep_value(&page->common, page->common.size, sizeof(page->common.size),
			text);
	} else if (strcmp(name, "Block") == 0) {
		return report_block(page);
	}
	return 0;
}

/* xml_fn */
static int read_page_value(void *user, const char *path, const char *text)
{
	static const char blobs[] = "EnumerationResults/Blobs/";
	static const char blocks[] = "BlockList/UncommittedBlocks/";
	struct page *page = user;
	bool parts = page->common.op->verb == OBJECT_PARTS;

	if (!parts && strncmp(path, blobs, sizeof(blobs) - 1) == 0) {
		return read_listed(page, path + sizeof(blobs) - 1, text);
	}
	if (parts && strncmp(path, blocks, sizeof(blocks) - 1) == 0) {
		return read_part(page, path + sizeof(blocks) - 1, text);
	}
	if (strcmp(path, "EnumerationResults/NextMarker") == 0) {
		dialect_keep(page->marker, sizeof(page->marker), text);
	} else if (strcmp(path, "Error/Code") == 0) {
		dialect_keep(page->common.op->code, sizeof(page->common.op->code), text);
	}
	page->common.whole = strcmp(path, parts ? "BlockList" : "EnumerationResults") == 0;
	return 0;
}

static int set_token(struct page *page, struct pawl_err *err)
{
	struct object_op *op = page->common.op;

	if (!dialect_keep(op->next_token, sizeof(op->next_token), page->marker)) {
		op->next_token[0] = '\0';
		return dialect_nonsense(op, "a page of a list without a usable next page", err);
	}
	if (op->token != NULL && strcmp(op->next_token, op->token) == 0) {
		return dialect_nonsense(op, "a list that never ends", err);
	}
	return 0;
}

static int read_page(struct object_op *op, struct pawl_err *err)
{
	struct page *page = FAULT_MEM("azure.page", calloc(1, sizeof(*page)));
	int rv;

	if (page == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a page of a list");
	}
	page->common.op = op;
	rv = dialect_read_page(&page->common, read_page_value, err);
	rv = rv == 0 ? set_token(page, err) : rv;
	free(page);
	return rv == DIALECT_STOPPED ? 0 : rv;
}

/* ---- other answers ---- */

/* Returns whether the sum of what the service got, if it tells that, is another one than ours. */
static bool differs(const struct object_op *op)
{
	const char *got = http_header(&op->call, SUM_HEADER);
	const char *own = op->request != NULL ? request_header(op->request, SUM_HEADER) : NULL;

	return got != NULL && own != NULL && strcmp(got, own) != 0;
}

/* Reads what was written. A block has no etag: its id stands for one. */
static int read_written(struct object_op *op, struct pawl_err *err)
{
	if (op->call.status != 201) {
		return dialect_nonsense(op, "nothing was written", err);
	}
	if (differs(op)) {
		return dialect_nonsense(op, "other bytes than those that were sent", err);
	}
	if (op->verb == OBJECT_PART) {
		name_block(op->part, op->crc, op->etag);
		return 0;
	}
	return dialect_read_etag(op, err);
}

/* Returns whether an object stands for a folder. */
static bool marks_folder(const struct object_op *op)
{
	const char *mark = http_header(&op->call, "x-ms-meta-" FOLDER_MARK);

	return mark != NULL && strcasecmp(mark, "true") == 0;
}

static int read_got(struct object_op *op, struct pawl_err *err)
{
	int rv;

	if (marks_folder(op)) {
		return pawl_err_set(err, PAWL_ENOENT, "a folder, and no object");
	}
	rv = dialect_read_body(op, NULL, err);
	return rv != 0 ? rv : dialect_read_etag(op, err);
}

static int read_head(struct object_op *op, struct pawl_err *err)
{
	const char *sum = http_header(&op->call, KEPT_HEADER);

	if (!dialect_read_number(http_header(&op->call, "content-length"), &op->size_bytes)) {
		return dialect_nonsense(op, "no size", err);
	}
	if (marks_folder(op)) {
		return pawl_err_set(err, PAWL_ENOENT, "a folder, and no object");
	}
	op->sum[0] = '\0';
	if (sum != NULL && !dialect_keep(op->sum, sizeof(op->sum), sum)) {
		op->sum[0] = '\0';
	}
	return dialect_read_etag(op, err);
}

static int read_answer(struct object_op *op, struct pawl_err *err)
{
	switch (op->verb) {
	case OBJECT_PUT:
	case OBJECT_PART:
	case OBJECT_COMPLETE:
		return read_written(op, err);
	case OBJECT_GET:
		return read_got(op, err);
	case OBJECT_HEAD:
		return read_head(op, err);
	case OBJECT_LIST:
	case OBJECT_PARTS:
		return read_page(op, err);
	case OBJECT_REMOVE:
		return op->call.status == 202 ? 0
					      : dialect_nonsense(op, "nothing was removed", err);
	default:
		return 0; /* was never sent */
	}
}

/* What the text of an error says. */
struct fault_text {
	struct object_op *op;
	char *message; /* first line; the others have ids and a time */
};

/* xml_fn */
static int read_error_value(void *user, const char *path, const char *text)
{
	struct fault_text *fault = user;

	if (strcmp(path, "Error/Code") == 0 && fault->op->code[0] == '\0') {
		dialect_keep(fault->op->code, sizeof(fault->op->code), text);
	} else if (strcmp(path, "Error/Message") == 0) {
		snprintf(fault->message, OBJECT_MESSAGE_MAX, "%.*s", (int)strcspn(text, "\r\n"),
			text);
	}
	return 0;
}

/* The code is in a header, too: an answer to HEAD has no text. */
static void read_error(struct object_op *op, char *message, char *region)
{
	const char *header = http_header(&op->call, "x-ms-error-code");
	struct fault_text fault = {op, message};

	op->code[0] = '\0';
	message[0] = '\0';
	region[0] = '\0';
	if (header != NULL) {
		dialect_keep(op->code, sizeof(op->code), header);
	}
	if (op->call.text != NULL) {
		xml_read(op->call.text, op->call.text_bytes, read_error_value, &fault, NULL);
	}
}

const struct object_dialect azure_dialect = {
	.locate = locate,
	.build = build,
	.read = read_answer,
	.read_error = read_error,
};
