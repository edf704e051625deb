/*
 * The dialect of Google Cloud Storage, by its XML API: see dialect.h. Source: the reference of the
 * XML API. It is S3's but for its own headers, x-goog-*, which no request mixes with x-amz-*.
 *
 * Conditions are on generations: each write of an object gives it another one, and 0 is that of an
 * object that is not there. So the etag of an object is its generation here, "g1700000000000000";
 * the service's own etags are no conditions of a write. Parts have no generation: their etags are
 * the service's.
 *
 * The CRC-32C of an object is that of all its bytes, in parts or not. An upload in parts takes no
 * condition, and no checksum at its end; each part has one.
 */
#include "store/object/dialect.h"
#include "store/object/s3_xml.h"

#include "base/err.h"

#include <stdio.h>
#include <string.h>

#define ENDPOINT_DEFAULT "https://storage.googleapis.com"
#define REGION_DEFAULT   "auto"             /* signatures may have any */
#define NO_GENERATION    "9007199254740991" /* generations count microseconds from 1970 on: 2255 */
#define DIGITS_MAX       19u                /* digits of a generation */

/* ---- where a bucket is ---- */

/* The path always names the bucket, whose name may have dots and underscores. */
static int locate(struct object_place *place, const char *region, const char *endpoint,
	struct pawl_err *err)
{
	snprintf(place->region, sizeof(place->region), "%s",
		region[0] != '\0' ? region : REGION_DEFAULT);
	snprintf(place->endpoint, sizeof(place->endpoint), "%s",
		endpoint[0] != '\0' ? endpoint : ENDPOINT_DEFAULT);
	place->in_host = false;
	return 0;
}

/* ---- requests ---- */

/* Returns whether a text is a generation: digits, at least one, and not 0. */
static bool is_generation(const char *text)
{
	size_t digits = strspn(text, "0123456789");

	return digits > 0 && digits <= DIGITS_MAX && text[digits] == '\0' && text[0] != '0';
}

/* Adds a condition on the object's generation. An etag that is none is that of no object. */
static void add_match(const struct object_op *op, struct http_request *request)
{
	const char *generation = NO_GENERATION;

	if (op->match == NULL) {
		return;
	}
	if (op->match[0] == '\0') {
		generation = "0";
	} else if (op->match[0] == 'g' && is_generation(op->match + 1)) {
		generation = op->match + 1;
	}
	request_add_header(request, "x-goog-if-generation-match", "%s", generation);
}

static int build(const struct object_place *place, struct object_op *op,
	struct http_request *request, struct pawl_err *err)
{
	char crc[DIALECT_CRC_MAX];

	s3_xml_begin(place, op, request);
	if (op->verb == OBJECT_PUT || op->verb == OBJECT_GET) {
		add_match(op, request);
	}
	if (op->verb == OBJECT_PUT || op->verb == OBJECT_PART) {
		dialect_write_crc(op->crc, crc);
		request_add_header(request, "x-goog-hash", "crc32c=%s", crc);
	}
	return s3_xml_end(op, false, request, err);
}

/* ---- answers ---- */

/* Finds the CRC-32C of an answer, "crc32c=AAAAAA==,md5=...", in one header or in several. "": it is
 * not told. */
static void find_sum(const struct object_op *op, char sum[DIALECT_CRC_MAX])
{
	static const char name[] = "crc32c=";
	const char *at = NULL;

	sum[0] = '\0';
	while ((at = http_next_header(&op->call, "x-goog-hash", at)) != NULL) {
		const char *item = at;

		while (item[0] != '\0') {
			size_t len_bytes;

			item += strspn(item, ", ");
			len_bytes = strcspn(item, ", ");
			if (strncmp(item, name, sizeof(name) - 1) == 0 &&
				len_bytes == sizeof(name) - 1 + DIALECT_CRC_MAX - 1) {
				snprintf(sum, DIALECT_CRC_MAX, "%s", item + sizeof(name) - 1);
			}
			item += len_bytes;
		}
	}
}

static int read_generation(struct object_op *op, struct pawl_err *err)
{
	const char *generation = http_header(&op->call, "x-goog-generation");

	if (generation == NULL || !is_generation(generation)) {
		return dialect_nonsense(op, "no generation", err);
	}
	snprintf(op->etag, sizeof(op->etag), "g%s", generation);
	return 0;
}

/* Checks the sum of what the service says that it got, if it says so. */
static int read_written(struct object_op *op, struct pawl_err *err)
{
	char sum[DIALECT_CRC_MAX];
	char own[DIALECT_CRC_MAX];

	find_sum(op, sum);
	dialect_write_crc(op->crc, own);
	if (sum[0] != '\0' && strcmp(sum, own) != 0) {
		return dialect_nonsense(op, "other bytes than those that were sent", err);
	}
	return op->verb == OBJECT_PART ? dialect_read_etag(op, err) : read_generation(op, err);
}

static int read_got(struct object_op *op, struct pawl_err *err)
{
	int rv = dialect_read_body(op, NULL, err);

	return rv != 0 ? rv : read_generation(op, err);
}

static int read_head(struct object_op *op, struct pawl_err *err)
{
	if (!dialect_read_number(http_header(&op->call, "content-length"), &op->size_bytes)) {
		return dialect_nonsense(op, "no size", err);
	}
	find_sum(op, op->sum);
	return read_generation(op, err);
}

/* The text has an etag that is no generation, and a header may have the generation. */
static int read_completed(struct object_op *op, struct pawl_err *err)
{
	int rv = s3_xml_read_completed(op, err);

	op->etag[0] = '\0';
	if (rv == 0 && http_header(&op->call, "x-goog-generation") != NULL) {
		rv = read_generation(op, err);
	}
	return rv;
}

static int read_answer(struct object_op *op, struct pawl_err *err)
{
	switch (op->verb) {
	case OBJECT_PUT:
	case OBJECT_PART:
		return read_written(op, err);
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
		return read_completed(op, err);
	case OBJECT_REMOVE:
	case OBJECT_ABORT:
		break;
	}
	return 0;
}

/* Signatures may have any region, so none is ever wrong. */
static void read_error(struct object_op *op, char *message, char *region)
{
	s3_xml_read_error(op, message, region);
	region[0] = '\0';
}

const struct object_dialect gs_dialect = {
	.locate = locate,
	.build = build,
	.read = read_answer,
	.read_error = read_error,
};
