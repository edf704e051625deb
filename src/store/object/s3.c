/*
 * The dialect of Amazon S3, and of servers that speak its API: see dialect.h. Source: the Amazon
 * S3 API reference; what radosgw 16 and SeaweedFS do otherwise is said where it matters.
 *
 * Bytes are protected by a CRC-32C in a header, never by a trailer behind the body: servers that do
 * not know trailers store them as part of the object.
 */
#include "store/object/dialect.h"
#include "store/object/object_xml.h"

#include "base/err.h"
#include "base/fault.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REGION_DEFAULT "us-east-1"
#define KEYS_MAX       1000u       /* on a page: S3's limit */
#define LIST_TEXT_MAX  (16u << 20) /* bytes of a page: 1,000 keys, each encoded, and white space */
#define ETAG_XML_MAX   (OBJECT_ETAG_MAX * 6u) /* bytes of an escaped etag, terminator included */
#define PART_XML_MAX   (ETAG_XML_MAX + 160u)  /* bytes of a part in the text of COMPLETE */
#define CRC_BASE64_MAX 9u                     /* characters of a CRC-32C, terminator included */

/* ---- where a bucket is ---- */

static int locate(struct object_place *place, const char *region, const char *endpoint,
	struct pawl_err *err)
{
	const struct object_url *url = &place->url;

	snprintf(place->region, sizeof(place->region), "%s",
		region[0] != '\0' ? region : REGION_DEFAULT);
	place->in_host = false;
	if (endpoint[0] != '\0') {
		snprintf(place->endpoint, sizeof(place->endpoint), "%s", endpoint);
	} else if (strchr(url->bucket, '.') != NULL) {
		/* The service's certificate is for one name before its own. */
		snprintf(place->endpoint, sizeof(place->endpoint),
			"https://s3.%.200s.amazonaws.com", place->region);
	} else {
		place->in_host = true;
		snprintf(place->endpoint, sizeof(place->endpoint),
			"https://%.200s.s3.%.200s.amazonaws.com", url->bucket, place->region);
	}
	return 0;
}

/* ---- requests ---- */

static void write_crc(uint32_t crc, char text[CRC_BASE64_MAX])
{
	const unsigned char bytes[4] = {(unsigned char)(crc >> 24), (unsigned char)(crc >> 16),
		(unsigned char)(crc >> 8), (unsigned char)crc};

	EVP_EncodeBlock((unsigned char *)text, bytes, sizeof(bytes));
}

/* Reads a CRC-32C that write_crc wrote. Returns false if the text is none. */
static bool read_crc(const char *text, uint32_t *crc)
{
	unsigned char bytes[6]; /* two too many: the text is padded */
	char again[CRC_BASE64_MAX];

	if (strlen(text) != CRC_BASE64_MAX - 1 ||
		EVP_DecodeBlock(bytes, (const unsigned char *)text, CRC_BASE64_MAX - 1) < 0) {
		return false;
	}
	*crc = (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 |
		bytes[3];
	write_crc(*crc, again);
	return strcmp(again, text) == 0;
}

static void add_crc(struct object_request *request, uint32_t crc)
{
	char text[CRC_BASE64_MAX];

	write_crc(crc, text);
	request_add_header(request, "x-amz-checksum-crc32c", "%s", text);
}

/* Adds a condition on the object's etag. */
static void add_match(const struct object_place *place, const struct object_op *op,
	struct object_request *request)
{
	size_t len_bytes = op->match != NULL ? strlen(op->match) : 0;

	if (op->match == NULL) {
		return;
	}
	if (len_bytes == 0) {
		request_add_header(request, "if-none-match", "*");
	} else if (place->bare_etags && len_bytes >= 2 && op->match[0] == '"') {
		request_add_header(request, "if-match", "%.*s", (int)(len_bytes - 2),
			op->match + 1);
	} else {
		request_add_header(request, "if-match", "%s", op->match);
	}
}

/* Lists pages in ascending order of parameters, as signatures need it. */
static void build_list(const struct object_op *op, struct object_request *request)
{
	char keys[16];

	snprintf(keys, sizeof(keys), "%u", op->keys_max > 0 ? op->keys_max : KEYS_MAX);
	if (op->token != NULL) {
		request_add_query(request, "continuation-token", op->token);
	}
	if (op->folders) {
		request_add_query(request, "delimiter", "/");
	}
	request_add_query(request, "encoding-type", "url");
	request_add_query(request, "list-type", "2");
	request_add_query(request, "max-keys", keys);
	request_add_query(request, "prefix", op->key);
}

/* A token has two lines: the marker of the key, and that of the upload. */
static void build_uploads(const struct object_op *op, struct object_request *request)
{
	char key[OBJECT_TOKEN_MAX];
	const char *line = op->token != NULL ? strchr(op->token, '\n') : NULL;

	request_add_query(request, "encoding-type", "url");
	if (line != NULL) {
		snprintf(key, sizeof(key), "%.*s", (int)(line - op->token), op->token);
		request_add_query(request, "key-marker", key);
	}
	request_add_query(request, "prefix", op->key);
	if (line != NULL) {
		request_add_query(request, "upload-id-marker", line + 1);
	}
	request_add_query(request, "uploads", "");
}

static void build_parts(const struct object_op *op, struct object_request *request)
{
	request_add_query(request, "max-parts", "1000");
	if (op->token != NULL) {
		request_add_query(request, "part-number-marker", op->token);
	}
	request_add_query(request, "uploadId", op->upload);
}

/* Writes an etag with XML's own characters escaped. */
static void escape_etag(const char *etag, char escaped[ETAG_XML_MAX])
{
	size_t n = 0;

	for (; *etag != '\0'; etag++) {
		const char one[2] = {*etag, '\0'};
		const char *text = one;

		if (*etag == '&') {
			text = "&amp;";
		} else if (*etag == '<') {
			text = "&lt;";
		} else if (*etag == '"') {
			text = "&quot;";
		}
		n += (size_t)snprintf(escaped + n, ETAG_XML_MAX - n, "%s", text);
	}
	escaped[n] = '\0';
}

/* Lists the parts, with their checksums, since the upload was begun with them. */
static int write_parts(struct object_op *op, struct pawl_err *err)
{
	size_t size_bytes = (size_t)op->parts_n * PART_XML_MAX + 128;
	char *text = FAULT_MEM("s3.parts", malloc(size_bytes));
	size_t n;

	if (text == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a list of %u parts",
			op->parts_n);
	}
	n = (size_t)snprintf(text, size_bytes, "<CompleteMultipartUpload>");
	for (uint32_t i = 0; i < op->parts_n; i++) {
		char crc[CRC_BASE64_MAX];
		char etag[ETAG_XML_MAX];

		write_crc(op->parts[i].crc, crc);
		escape_etag(op->parts[i].etag, etag);
		n += (size_t)snprintf(text + n, size_bytes - n,
			"<Part><PartNumber>%u</PartNumber><ETag>%s</ETag>"
			"<ChecksumCRC32C>%s</ChecksumCRC32C></Part>",
			i + 1, etag, crc);
	}
	n += (size_t)snprintf(text + n, size_bytes - n, "</CompleteMultipartUpload>");
	op->body_text = text;
	op->body_bytes = n;
	return 0;
}

static void build_part(const struct object_op *op, struct object_request *request)
{
	char number[16];

	snprintf(number, sizeof(number), "%u", op->part);
	request_add_query(request, "partNumber", number);
	request_add_query(request, "uploadId", op->upload);
	add_crc(request, op->crc);
}

static const char *method_of(enum object_verb verb)
{
	switch (verb) {
	case OBJECT_PUT:
	case OBJECT_PART:
		return "PUT";
	case OBJECT_HEAD:
		return "HEAD";
	case OBJECT_REMOVE:
	case OBJECT_ABORT:
		return "DELETE";
	case OBJECT_BEGIN:
	case OBJECT_COMPLETE:
		return "POST";
	default:
		return "GET";
	}
}

static int build(const struct object_place *place, struct object_op *op,
	struct object_request *request, struct pawl_err *err)
{
	bool lists = op->verb == OBJECT_LIST || op->verb == OBJECT_UPLOADS;
	int rv = 0;

	request_init(request, method_of(op->verb), place->endpoint);
	if (!place->in_host) {
		request_add_path(request, place->url.bucket);
	}
	if (!lists) {
		request_add_path(request, op->key);
	} else if (place->in_host) {
		request_add_path(request, "");
	}
	switch (op->verb) {
	case OBJECT_PUT:
		add_match(place, op, request);
		add_crc(request, op->crc);
		break;
	case OBJECT_GET:
		add_match(place, op, request);
		if (op->len_bytes > 0) {
			request_add_header(request, "range", "bytes=%" PRIu64 "-%" PRIu64,
				op->off_bytes, op->off_bytes + op->len_bytes - 1);
		}
		break;
	case OBJECT_HEAD:
		request_add_header(request, "x-amz-checksum-mode", "ENABLED");
		break;
	case OBJECT_REMOVE:
		break;
	case OBJECT_LIST:
		build_list(op, request);
		op->text_max = LIST_TEXT_MAX;
		break;
	case OBJECT_UPLOADS:
		build_uploads(op, request);
		op->text_max = LIST_TEXT_MAX;
		break;
	case OBJECT_PARTS:
		build_parts(op, request);
		op->text_max = LIST_TEXT_MAX;
		break;
	case OBJECT_BEGIN:
		request_add_query(request, "uploads", "");
		request_add_header(request, "x-amz-checksum-algorithm", "CRC32C");
		break;
	case OBJECT_PART:
		build_part(op, request);
		break;
	case OBJECT_COMPLETE:
		request_add_query(request, "uploadId", op->upload);
		request_add_header(request, "content-type", "application/xml");
		rv = write_parts(op, err);
		break;
	case OBJECT_ABORT:
		request_add_query(request, "uploadId", op->upload);
		break;
	}
	if (rv == 0 && request->full) {
		rv = pawl_err_set(err, PAWL_ELIMIT, "a request for this key is too long");
	}
	return rv;
}

/* ---- answers ---- */

/* Decodes a key in place, as encoding-type=url has it. Returns false if it is not encoded so. */
static bool decode_key(char *key)
{
	char *to = key;

	for (const char *at = key; *at != '\0'; at++) {
		unsigned value;
		char hex[3] = "";

		if (*at == '+') {
			*to++ = ' ';
			continue;
		}
		if (*at != '%') {
			*to++ = *at;
			continue;
		}
		snprintf(hex, sizeof(hex), "%s", at + 1);
		if (strspn(hex, "0123456789abcdefABCDEF") != 2 || sscanf(hex, "%x", &value) != 1 ||
			value == 0) {
			return false;
		}
		*to++ = (char)value;
		at += 2;
	}
	*to = '\0';
	return true;
}

/* A page that is being read. */
struct page {
	struct dialect_page common; /* first: see dialect.h */
	bool more;                  /* another page follows */
	char upload[OBJECT_UPLOAD_MAX];
	char etag[OBJECT_ETAG_MAX];      /* PARTS: etag of the part that is being read */
	char number[16];                 /* PARTS: number of that part */
	char crc[CRC_BASE64_MAX];        /* PARTS: CRC-32C of that part; "": not told */
	char marks[2][OBJECT_TOKEN_MAX]; /* where the next page begins */
};

/* Returns what follows a prefix of a path, or NULL. */
static const char *behind(const char *path, const char *prefix)
{
	size_t len_bytes = strlen(prefix);

	return strncmp(path, prefix, len_bytes) == 0 ? path + len_bytes : NULL;
}

/* Returns a path without its first name: servers call the outermost element by different names. */
static const char *inner(const char *path)
{
	const char *slash = strchr(path, '/');

	return slash != NULL ? slash + 1 : "";
}

/* Hands a result to the caller. Returns nonzero to end the page. */
static int report(struct page *page, bool folder, const char *upload)
{
	int stop;

	if (!decode_key(page->common.key)) {
		page->common.key[0] = '\0'; /* a key that cannot be */
	}
	stop = dialect_report(&page->common, folder, upload);
	page->upload[0] = '\0';
	return stop;
}

static int read_listed(struct page *page, const char *name, const char *text)
{
	if (strcmp(name, "Contents/Key") == 0 || strcmp(name, "CommonPrefixes/Prefix") == 0) {
		dialect_keep_value(&page->common, page->common.key, sizeof(page->common.key), text);
	} else if (strcmp(name, "Contents/Size") == 0) {
		dialect_keep_value(&page->common, page->common.size, sizeof(page->common.size),
			text);
	} else if (strcmp(name, "Contents") == 0) {
		return report(page, false, NULL);
	} else if (strcmp(name, "CommonPrefixes") == 0) {
		return report(page, true, NULL);
	} else if (strcmp(name, "IsTruncated") == 0) {
		page->more = strcmp(text, "true") == 0;
	} else if (strcmp(name, "NextContinuationToken") == 0) {
		dialect_keep_value(&page->common, page->marks[0], sizeof(page->marks[0]), text);
	}
	return 0;
}

static int read_upload(struct page *page, const char *name, const char *text)
{
	if (strcmp(name, "Upload/Key") == 0) {
		dialect_keep_value(&page->common, page->common.key, sizeof(page->common.key), text);
	} else if (strcmp(name, "Upload/UploadId") == 0) {
		dialect_keep_value(&page->common, page->upload, sizeof(page->upload), text);
	} else if (strcmp(name, "Upload") == 0) {
		return report(page, false, page->upload);
	} else if (strcmp(name, "IsTruncated") == 0) {
		page->more = strcmp(text, "true") == 0;
	} else if (strcmp(name, "NextKeyMarker") == 0) {
		dialect_keep_value(&page->common, page->marks[0], sizeof(page->marks[0]), text);
		page->common.bad = page->common.bad || !decode_key(page->marks[0]);
	} else if (strcmp(name, "NextUploadIdMarker") == 0) {
		dialect_keep_value(&page->common, page->marks[1], sizeof(page->marks[1]), text);
	}
	return 0;
}

/* Hands a part to the caller. Returns nonzero to end the page. */
static int report_part(struct page *page)
{
	struct object_op *op = page->common.op;
	struct object_found found = {.key = op->key, .etag = page->etag};
	uint64_t number;
	int stop;

	if (!dialect_read_number(page->number, &number) || number == 0 ||
		number > OBJECT_PARTS_MAX ||
		!dialect_read_number(page->common.size, &found.size_bytes) ||
		page->etag[0] == '\0') {
		page->common.bad = true;
		return 0;
	}
	found.part = (uint32_t)number;
	found.has_crc = read_crc(page->crc, &found.crc);
	stop = op->found(op->user, &found);
	page->number[0] = '\0';
	page->etag[0] = '\0';
	page->crc[0] = '\0';
	page->common.size[0] = '\0';
	return stop;
}

static int read_part(struct page *page, const char *name, const char *text)
{
	if (strcmp(name, "Part/PartNumber") == 0) {
		dialect_keep_value(&page->common, page->number, sizeof(page->number), text);
	} else if (strcmp(name, "Part/Size") == 0) {
		dialect_keep_value(&page->common, page->common.size, sizeof(page->common.size),
			text);
	} else if (strcmp(name, "Part/ETag") == 0) {
		dialect_keep_value(&page->common, page->etag, sizeof(page->etag), text);
	} else if (strcmp(name, "Part/ChecksumCRC32C") == 0) {
		dialect_keep_value(&page->common, page->crc, sizeof(page->crc), text);
	} else if (strcmp(name, "Part") == 0) {
		return report_part(page);
	} else if (strcmp(name, "IsTruncated") == 0) {
		page->more = strcmp(text, "true") == 0;
	} else if (strcmp(name, "NextPartNumberMarker") == 0) {
		dialect_keep_value(&page->common, page->marks[0], sizeof(page->marks[0]), text);
	}
	return 0;
}

/* xml_fn. A service that does not know uploads may answer with the objects, of which none may be
 * taken for an upload: whoever drops uploads would delete it. */
static int read_page_value(void *user, const char *path, const char *text)
{
	static const struct {
		const char *root;
		int (*read)(struct page *page, const char *name, const char *text);
	} lists[] = {
		[OBJECT_LIST] = {"ListBucketResult", read_listed},
		[OBJECT_UPLOADS] = {"ListMultipartUploadsResult", read_upload},
		[OBJECT_PARTS] = {"ListPartsResult", read_part},
	};
	struct page *page = user;
	enum object_verb verb = page->common.op->verb;
	const char *inside = behind(path, lists[verb].root);

	if (inside != NULL && inside[0] == '/') {
		return lists[verb].read(page, inside + 1, text);
	}
	if (strcmp(path, "Error/Code") == 0) {
		dialect_keep(page->common.op->code, sizeof(page->common.op->code), text);
	}
	page->common.whole = strcmp(path, lists[verb].root) == 0;
	return 0;
}

static int set_token(struct page *page, struct pawl_err *err)
{
	struct object_op *op = page->common.op;
	bool fits = true;

	op->next_token[0] = '\0';
	if (page->more && op->verb != OBJECT_UPLOADS) {
		fits = dialect_keep(op->next_token, sizeof(op->next_token), page->marks[0]);
	} else if (page->more) {
		fits = (size_t)snprintf(op->next_token, sizeof(op->next_token), "%s\n%s",
			       page->marks[0], page->marks[1]) < sizeof(op->next_token);
	}
	if (!fits || (page->more && page->marks[0][0] == '\0')) {
		return dialect_nonsense(op, "a page of a list without a usable next page", err);
	}
	if (op->token != NULL && page->more && strcmp(op->next_token, op->token) == 0) {
		return dialect_nonsense(op, "a list that never ends", err);
	}
	return 0;
}

static int read_page(struct object_op *op, struct pawl_err *err)
{
	struct page *page = FAULT_MEM("s3.page", calloc(1, sizeof(*page)));
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

/* xml_fn */
static int read_upload_id(void *user, const char *path, const char *text)
{
	struct object_op *op = user;

	if (strcmp(inner(path), "UploadId") == 0 &&
		!dialect_keep(op->upload_id, sizeof(op->upload_id), text)) {
		op->upload_id[0] = '\0';
		return 1;
	}
	return 0;
}

static int read_begun(struct object_op *op, struct pawl_err *err)
{
	int rv;

	op->upload_id[0] = '\0';
	rv = xml_read(op->call.text != NULL ? op->call.text : "", op->call.text_bytes,
		read_upload_id, op, err);
	if (rv >= 0 && op->upload_id[0] == '\0') {
		rv = dialect_nonsense(op, "an upload without an id", err);
	}
	return rv;
}

/* What the text of a completed upload says. */
struct completed {
	struct object_op *op;
	bool done; /* the answer is a result, not an error */
};

/* xml_fn */
static int read_completed_value(void *user, const char *path, const char *text)
{
	struct completed *completed = user;
	struct object_op *op = completed->op;

	if (strcmp(path, "Error/Code") == 0) {
		dialect_keep(op->code, sizeof(op->code), text);
	} else if (strcmp(inner(path), "ETag") == 0) {
		completed->done = dialect_keep(op->etag, sizeof(op->etag), text) && text[0] != '\0';
	}
	return 0;
}

/* The status of the answer was sent before the service knew whether it would succeed. */
static int read_completed(struct object_op *op, struct pawl_err *err)
{
	struct completed completed = {op, false};
	int rv;

	op->etag[0] = '\0';
	rv = xml_read(op->call.text != NULL ? op->call.text : "", op->call.text_bytes,
		read_completed_value, &completed, err);
	if (rv == 0 && op->code[0] != '\0') {
		rv = pawl_err_set(err, PAWL_EIO, "HTTP %d, %s", op->call.status, op->code);
	} else if (rv == 0 && !completed.done) {
		rv = dialect_nonsense(op, "a completed upload without an etag", err);
	}
	return rv;
}

/* Checks the sum of what the service says that it got, if it says so. */
static int read_put(struct object_op *op, struct pawl_err *err)
{
	const char *sum = http_header(&op->call, "x-amz-checksum-crc32c");
	char own[CRC_BASE64_MAX];

	write_crc(op->crc, own);
	if (sum != NULL && strcmp(sum, own) != 0) {
		return dialect_nonsense(op, "other bytes than those that were sent", err);
	}
	return dialect_read_etag(op, err);
}

static int read_got(struct object_op *op, struct pawl_err *err)
{
	const char *encoding = http_header(&op->call, "content-encoding");

	if (encoding != NULL && strcmp(encoding, "identity") != 0 && encoding[0] != '\0' &&
		strcmp(encoding, "aws-chunked") != 0) {
		return dialect_nonsense(op, "an encoding that was not asked for", err);
	}
	if (op->call.status != 200 && op->call.status != 206) {
		return dialect_nonsense(op, "no object", err);
	}
	if (op->len_bytes > 0) {
		int rv = dialect_read_range(op, err);

		if (rv != 0) {
			return rv;
		}
	} else {
		op->size_bytes = op->write != NULL ? op->got_bytes : op->call.text_bytes;
	}
	return dialect_read_etag(op, err);
}

static int read_head(struct object_op *op, struct pawl_err *err)
{
	const char *sum = http_header(&op->call, "x-amz-checksum-crc32c");

	if (!dialect_read_number(http_header(&op->call, "content-length"), &op->size_bytes)) {
		return dialect_nonsense(op, "no size", err);
	}
	op->sum[0] = '\0';
	if (sum != NULL) {
		dialect_keep(op->sum, sizeof(op->sum), sum);
	}
	return dialect_read_etag(op, err);
}

static int read_answer(struct object_op *op, struct pawl_err *err)
{
	switch (op->verb) {
	case OBJECT_PUT:
	case OBJECT_PART:
		return read_put(op, err);
	case OBJECT_GET:
		return read_got(op, err);
	case OBJECT_HEAD:
		return read_head(op, err);
	case OBJECT_LIST:
	case OBJECT_UPLOADS:
	case OBJECT_PARTS:
		return read_page(op, err);
	case OBJECT_BEGIN:
		return read_begun(op, err);
	case OBJECT_COMPLETE:
		return read_completed(op, err);
	case OBJECT_REMOVE:
	case OBJECT_ABORT:
		break;
	}
	return 0;
}

/* What the text of an error says. */
struct fault_text {
	struct object_op *op;
	char *message;
	char *region;
};

/* xml_fn */
static int read_error_value(void *user, const char *path, const char *text)
{
	struct fault_text *text_of = user;

	if (strcmp(path, "Error/Code") == 0) {
		dialect_keep(text_of->op->code, sizeof(text_of->op->code), text);
	} else if (strcmp(path, "Error/Message") == 0) {
		dialect_keep(text_of->message, OBJECT_MESSAGE_MAX, text);
	} else if (strcmp(path, "Error/Region") == 0) {
		dialect_keep(text_of->region, OBJECT_NAME_MAX, text);
	}
	return 0;
}

static void read_error(struct object_op *op, char *message, char *region)
{
	const char *header = http_header(&op->call, "x-amz-bucket-region");
	struct fault_text text_of = {op, message, region};

	op->code[0] = '\0';
	message[0] = '\0';
	region[0] = '\0';
	if (op->call.text != NULL) {
		xml_read(op->call.text, op->call.text_bytes, read_error_value, &text_of, NULL);
	}
	if (header != NULL) {
		dialect_keep(region, OBJECT_NAME_MAX, header);
	}
}

const struct object_dialect s3_dialect = {
	.locate = locate,
	.build = build,
	.read = read_answer,
	.read_error = read_error,
};
