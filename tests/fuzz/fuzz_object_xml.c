/*
 * Fuzzes answers of object stores. The first byte says which dialect and operation the answer is
 * for, the second its status; headers follow, a line each, an empty line, and the text. What is
 * accepted holds what dialect.h and object.h promise.
 */
#include "fuzz.h"

#include "base/assert.h"
#include "base/err.h"
#include "store/object/dialect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX  "runs/"
#define VERBS_N (OBJECT_PARTS + 1u)

static const int statuses[] = {200, 201, 202, 204, 206, 403, 404, 503};

/* ---- results ---- */

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* xml_fn */
static int check_element(void *user, const char *path, const char *text)
{
	size_t len_bytes = strlen(text);
	unsigned *stop_after = user;

	ASSERT(path[0] != '\0' && strlen(path) < XML_PATH_MAX && len_bytes < XML_TEXT_MAX);
	ASSERT(len_bytes == 0 || (!is_space(text[0]) && !is_space(text[len_bytes - 1])));
	return (*stop_after)-- == 0 ? 7 : 0;
}

static int check_found(void *user, const struct object_found *found)
{
	const struct object_op *op = user;
	size_t len_bytes = strlen(found->key);

	ASSERT(strncmp(found->key, PREFIX, strlen(PREFIX)) == 0);
	ASSERT(!found->folder || found->key[len_bytes - 1] == '/');
	ASSERT((found->upload != NULL) == (op->verb == OBJECT_UPLOADS));
	ASSERT(found->upload == NULL || found->upload[0] != '\0');
	if (op->verb == OBJECT_PARTS) {
		ASSERT(found->part >= 1 && found->part <= OBJECT_PARTS_MAX);
		ASSERT(found->etag[0] != '\0' && strlen(found->etag) < OBJECT_ETAG_MAX);
	}
	return 0;
}

static void check_range(const struct object_op *op)
{
	ASSERT(op->off_bytes + op->got_bytes <= op->size_bytes);
	ASSERT(op->got_bytes <= op->len_bytes);
}

/* What is promised of an operation that has ended well. */
static void check_op(const struct object_op *op, bool s3)
{
	bool written =
		op->verb == OBJECT_PUT || op->verb == OBJECT_PART || op->verb == OBJECT_COMPLETE;

	if (written || op->verb == OBJECT_GET || op->verb == OBJECT_HEAD) {
		ASSERT(op->etag[0] != '\0');
	}
	if (op->verb == OBJECT_GET && op->len_bytes > 0) {
		check_range(op);
	}
	if (op->verb == OBJECT_BEGIN && s3) {
		ASSERT(op->upload_id[0] != '\0');
	}
	if (op->verb == OBJECT_LIST || op->verb == OBJECT_UPLOADS || op->verb == OBJECT_PARTS) {
		ASSERT(op->token == NULL || strcmp(op->token, op->next_token) != 0);
	}
}

/* ---- an answer ---- */

/* Keeps headers as http.c does. Returns where the text begins. */
static size_t take_headers(struct http_call *call, const char *text)
{
	size_t at = 0;

	while (text[at] != '\0' && text[at] != '\n') {
		size_t line = strcspn(text + at, "\n");
		size_t name = strcspn(text + at, ":\n");
		size_t size = line + 2;

		if (text[at + name] == ':' && size <= sizeof(call->headers) - call->headers_n) {
			call->headers_n += (size_t)snprintf(call->headers + call->headers_n, size,
						   "%.*s%c%.*s", (int)name, text + at, '\0',
						   (int)(line - name - 1), text + at + name + 1) +
				1;
		}
		at += line;
		at += text[at] == '\n';
	}
	return at + (text[at] == '\n');
}

static void read_answer(uint8_t kind, int status, char *text, size_t len_bytes)
{
	bool s3 = kind % 2 == 0;
	const struct object_dialect *dialect = s3 ? &s3_dialect : &azure_dialect;
	struct object_op *op = calloc(1, sizeof(*op));
	char message[OBJECT_MESSAGE_MAX], region[OBJECT_NAME_MAX];
	size_t head_bytes;

	ASSERT(op);
	*op = (struct object_op){.verb = (enum object_verb)(kind / 2 % VERBS_N),
		.key = PREFIX,
		.off_bytes = 10,
		.len_bytes = 100,
		.got_bytes = 90,
		.upload = "0123456789abcdef",
		.part = 1,
		.token = "token",
		.found = check_found,
		.user = op};
	op->call.status = status;
	head_bytes = take_headers(&op->call, text);
	op->call.text = text + head_bytes;
	op->call.text_bytes = len_bytes - head_bytes;
	if (status / 100 != 2) {
		dialect->read_error(op, message, region);
		ASSERT(strlen(message) < sizeof(message) && strlen(region) < sizeof(region));
	} else if (dialect->read(op, NULL) == 0) {
		check_op(op, s3);
	}
	ASSERT(strlen(op->code) < sizeof(op->code));
	free(op);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	unsigned stop_after;
	char *text;

	if (len_bytes < 2) {
		return 0;
	}
	text = malloc(len_bytes - 1);
	ASSERT(text);
	memcpy(text, bytes + 2, len_bytes - 2);
	text[len_bytes - 2] = '\0';
	read_answer(bytes[0], statuses[bytes[1] % 8], text, len_bytes - 2);
	stop_after = bytes[1];
	xml_read(text, len_bytes - 2, check_element, &stop_after, NULL);
	free(text);
	return 0;
}

/* ---- seeds ---- */

/* Each answer is for one operation of one dialect. */
struct seed {
	bool azure;
	enum object_verb verb;
	uint8_t status; /* place in statuses */
	const char *text;
};

static const struct seed seeds[] = {
	{false, OBJECT_LIST, 0,
		"\n<?xml version=\"1.0\"?><ListBucketResult "
		"xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
		"<Contents><Key>runs/a%20b+c</Key><Size>12</Size></"
		"Contents><CommonPrefixes><Prefix>"
		"runs/b/</Prefix></CommonPrefixes><IsTruncated>true</IsTruncated>"
		"<NextContinuationToken>n&amp;xt</NextContinuationToken></ListBucketResult>"},
	{false, OBJECT_UPLOADS, 0,
		"\n<ListMultipartUploadsResult><Upload><Key>runs/a</Key><UploadId>u-1</UploadId>"
		"</Upload><IsTruncated>true</IsTruncated><NextKeyMarker>runs/a</NextKeyMarker>"
		"<NextUploadIdMarker>u-1</NextUploadIdMarker></ListMultipartUploadsResult>"},
	{false, OBJECT_PARTS, 0,
		"\n<ListPartsResult><Part><PartNumber>7</PartNumber><ETag>&quot;0a&quot;</ETag>"
		"<Size>16777216</Size><ChecksumCRC32C>4waSgw==</ChecksumCRC32C></Part>"
		"<IsTruncated>true</IsTruncated><NextPartNumberMarker>7</NextPartNumberMarker>"
		"</ListPartsResult>"},
	{false, OBJECT_BEGIN, 0,
		"\n<InitiateMultipartUploadResult><UploadId>u-1</UploadId>"
		"</InitiateMultipartUploadResult>"},
	{false, OBJECT_COMPLETE, 0,
		"\n  <CompleteMultipartUploadResult><ETag>&quot;0a-2&quot;</ETag>"
		"</CompleteMultipartUploadResult>"},
	{false, OBJECT_COMPLETE, 0,
		"\n<Error><Code>InternalError</Code><Message>again</Message></Error>"},
	{false, OBJECT_GET, 5,
		"x-amz-bucket-region:eu-west-1\n\n<Error><Code>AccessDenied</Code><Message>no\n"
		"</Message><Region>eu-west-1</Region></Error>"},
	{false, OBJECT_GET, 4, "content-range:bytes 10-99/120\netag:\"0a\"\n\n"},
	{false, OBJECT_HEAD, 0, "content-length:120\netag:\"0a\"\n\n"},
	{false, OBJECT_PART, 0, "x-amz-checksum-crc32c:AAAAAA==\netag:\"0a\"\n\n"},
	{true, OBJECT_LIST, 0,
		"\n\xef\xbb\xbf<?xml version=\"1.0\" "
		"encoding=\"utf-8\"?><EnumerationResults><Blobs><Blob>"
		"<Name>runs/a b</Name><Properties><Content-Length>12</Content-Length></Properties>"
		"<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata></Blob><BlobPrefix><Name>"
		"runs/b/</Name></BlobPrefix></Blobs><NextMarker>next</NextMarker>"
		"</EnumerationResults>"},
	{true, OBJECT_GET, 4,
		"content-range:bytes 10-99/120\netag:0x8D\nx-ms-meta-hdi_isfolder:no\n\n"},
	{true, OBJECT_PARTS, 0,
		"\n\xef\xbb\xbf<?xml version=\"1.0\" "
		"encoding=\"utf-8\"?><BlockList><CommittedBlocks/>"
		"<UncommittedBlocks><Block><Name>Y3JjMzJjLTAwMDAwMDAxLTFhMmIzYzRk</Name><Size>"
		"16777216</Size></Block><Block><Name>MDEyMzQ1Njc4OWFiY2RlZi0wMDAwMDAx</Name><Size>"
		"7</Size></Block></UncommittedBlocks></BlockList>"},
	{true, OBJECT_HEAD, 0,
		"content-length:120\netag:0x8D\nx-ms-meta-pawl_crc32c:2IMaJQ==-2\n\n"},
	{true, OBJECT_COMPLETE, 1, "etag:0x8D\n\n"},
	{true, OBJECT_PUT, 6,
		"x-ms-error-code:BlobNotFound\n\n<Error><Code>BlobNotFound</Code>"
		"<Message>gone\nTime:2026</Message></Error>"},
};

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	size_t len_bytes;

	if (i >= sizeof(seeds) / sizeof(*seeds)) {
		return 0;
	}
	len_bytes = strlen(seeds[i].text);
	buf[0] = (uint8_t)((unsigned)seeds[i].verb * 2 + seeds[i].azure);
	buf[1] = seeds[i].status;
	memcpy(buf + 2, seeds[i].text, len_bytes);
	return len_bytes + 2;
}
