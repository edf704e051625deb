/*
 * The dialect of Amazon S3, and of servers that speak its API: see dialect.h. Source: the Amazon
 * S3 API reference; what radosgw 16 and SeaweedFS do otherwise is said where it matters.
 *
 * Bytes are protected by a CRC-32C in a header, never by a trailer behind the body: servers that do
 * not know trailers store them as part of the object.
 */
#include "store/object/dialect.h"
#include "store/object/s3_xml.h"

#include <stdio.h>
#include <string.h>

#define REGION_DEFAULT "us-east-1"

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

static void add_crc(struct http_request *request, uint32_t crc)
{
	char text[DIALECT_CRC_MAX];

	dialect_write_crc(crc, text);
	request_add_header(request, "x-amz-checksum-crc32c", "%s", text);
}

/* Adds a condition on the object's etag. */
static void add_match(const struct object_place *place, const struct object_op *op,
	struct http_request *request)
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

static int build(const struct object_place *place, struct object_op *op,
	struct http_request *request, struct pawl_err *err)
{
	s3_xml_begin(place, op, request);
	if (op->verb == OBJECT_PUT || op->verb == OBJECT_GET) {
		add_match(place, op, request);
	}
	if (op->verb == OBJECT_PUT || op->verb == OBJECT_PART) {
		add_crc(request, op->crc);
	} else if (op->verb == OBJECT_HEAD) {
		request_add_header(request, "x-amz-checksum-mode", "ENABLED");
	} else if (op->verb == OBJECT_BEGIN) {
		request_add_header(request, "x-amz-checksum-algorithm", "CRC32C");
	}
	return s3_xml_end(op, true, request, err);
}

/* ---- answers ---- */

/* Checks the sum of what the service says that it got, if it says so. */
static int read_put(struct object_op *op, struct pawl_err *err)
{
	const char *sum = http_header(&op->call, "x-amz-checksum-crc32c");
	char own[DIALECT_CRC_MAX];

	dialect_write_crc(op->crc, own);
	if (sum != NULL && strcmp(sum, own) != 0) {
		return dialect_nonsense(op, "other bytes than those that were sent", err);
	}
	return dialect_read_etag(op, err);
}

static int read_got(struct object_op *op, struct pawl_err *err)
{
	int rv = dialect_read_body(op, "aws-chunked", err);

	return rv != 0 ? rv : dialect_read_etag(op, err);
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
		return s3_xml_read_page(op, err);
	case OBJECT_BEGIN:
		return s3_xml_read_begun(op, err);
	case OBJECT_COMPLETE:
		return s3_xml_read_completed(op, err);
	case OBJECT_REMOVE:
	case OBJECT_ABORT:
		break;
	}
	return 0;
}

static void read_error(struct object_op *op, char *message, char *region)
{
	const char *header = http_header(&op->call, "x-amz-bucket-region");

	s3_xml_read_error(op, message, region);
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
