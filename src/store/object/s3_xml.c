/* The API that Amazon S3 and Google's XML API have in common: see s3_xml.h. */
#include "store/object/s3_xml.h"

#include "store/object/object_xml.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX      1000u       /* on a page: the services' limit */
#define LIST_TEXT_MAX (16u << 20) /* bytes of a page: 1,000 keys, each encoded, and white space */
#define ETAG_XML_MAX  (OBJECT_ETAG_MAX * 6u) /* bytes of an escaped etag, terminator included */
#define PART_XML_MAX  (ETAG_XML_MAX + 160u)  /* bytes of a part in the text of COMPLETE */

/* ---- requests ---- */

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

void s3_xml_begin(const struct object_place *place, const struct object_op *op,
	struct http_request *request)
{
	bool lists = op->verb == OBJECT_LIST || op->verb == OBJECT_UPLOADS;

	request_init(request, method_of(op->verb), place->endpoint);
	if (!place->in_host) {
		request_add_path(request, place->url.bucket);
	}
	if (!lists) {
		request_add_path(request, op->key);
	} else if (place->in_host) {
		request_add_path(request, "");
	}
}

/* Lists pages in ascending order of parameters, as signatures need it. */
static void build_list(const struct object_op *op, struct http_request *request)
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
static void build_uploads(const struct object_op *op, struct http_request *request)
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

static void build_parts(const struct object_op *op, struct http_request *request)
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

/* Lists the parts; sums: with their checksums. */
static int write_parts(struct object_op *op, bool sums, struct pawl_err *err)
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
		char crc[DIALECT_CRC_MAX];
		char etag[ETAG_XML_MAX];

		escape_etag(op->parts[i].etag, etag);
		n += (size_t)snprintf(text + n, size_bytes - n,
			"<Part><PartNumber>%u</PartNumber><ETag>%s</ETag>", i + 1, etag);
		if (sums) {
			dialect_write_crc(op->parts[i].crc, crc);
			n += (size_t)snprintf(text + n, size_bytes - n,
				"<ChecksumCRC32C>%s</ChecksumCRC32C>", crc);
		}
		n += (size_t)snprintf(text + n, size_bytes - n, "</Part>");
	}
	n += (size_t)snprintf(text + n, size_bytes - n, "</CompleteMultipartUpload>");
	op->body_text = text;
	op->body_bytes = n;
	return 0;
}

static void build_part(const struct object_op *op, struct http_request *request)
{
	char number[16];

	snprintf(number, sizeof(number), "%u", op->part);
	request_add_query(request, "partNumber", number);
	request_add_query(request, "uploadId", op->upload);
}

int s3_xml_end(struct object_op *op, bool sums, struct http_request *request, struct pawl_err *err)
{
	int rv = 0;

	switch (op->verb) {
	case OBJECT_GET:
		if (op->len_bytes > 0) {
			request_add_header(request, "range", "bytes=%" PRIu64 "-%" PRIu64,
				op->off_bytes, op->off_bytes + op->len_bytes - 1);
		}
		break;
	case OBJECT_PUT:
	case OBJECT_HEAD:
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
		break;
	case OBJECT_PART:
		build_part(op, request);
		break;
	case OBJECT_COMPLETE:
		request_add_query(request, "uploadId", op->upload);
		request_add_header(request, "content-type", "application/xml");
		rv = write_parts(op, sums, err);
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
	char crc[DIALECT_CRC_MAX];       /* PARTS: CRC-32C of that part; "": not told */
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
	found.has_crc = dialect_read_crc(page->crc, &found.crc);
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
	const char *inside;

	ASSERT(verb == OBJECT_LIST || verb == OBJECT_UPLOADS || verb == OBJECT_PARTS);
	inside = behind(path, lists[verb].root);
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

int s3_xml_read_page(struct object_op *op, struct pawl_err *err)
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

int s3_xml_read_begun(struct object_op *op, struct pawl_err *err)
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
int s3_xml_read_completed(struct object_op *op, struct pawl_err *err)
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

void s3_xml_read_error(struct object_op *op, char *message, char *region)
{
	struct fault_text text_of = {op, message, region};

	op->code[0] = '\0';
	message[0] = '\0';
	region[0] = '\0';
	if (op->call.text != NULL) {
		xml_read(op->call.text, op->call.text_bytes, read_error_value, &text_of, NULL);
	}
}
