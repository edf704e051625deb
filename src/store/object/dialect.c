/* What the dialects share: see dialect.h. */
#include "store/object/dialect.h"

#include "base/err.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool dialect_keep(char *to, size_t size_bytes, const char *text)
{
	return (size_t)snprintf(to, size_bytes, "%s", text) < size_bytes;
}

int dialect_nonsense(struct object_op *op, const char *what, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_EIO, "an answer that makes no sense (HTTP %d, %s)",
		op->call.status, what);
}

void dialect_keep_value(struct dialect_page *page, char *to, size_t size_bytes, const char *text)
{
	page->bad = page->bad || !dialect_keep(to, size_bytes, text);
}

/* Returns whether a key lies below a prefix, and stands for a folder as it should. */
static bool is_inside(const char *key, const char *prefix, bool folder)
{
	size_t len_bytes = strlen(key);

	return len_bytes > 0 && strncmp(key, prefix, strlen(prefix)) == 0 &&
		(!folder || key[len_bytes - 1] == '/');
}

int dialect_report(struct dialect_page *page, bool folder, const char *upload)
{
	struct object_found found = {.key = page->key, .folder = folder, .upload = upload};
	int stop = 0;

	if (!is_inside(page->key, page->op->key, folder) ||
		(page->size[0] != '\0' && !dialect_read_number(page->size, &found.size_bytes)) ||
		(upload != NULL && upload[0] == '\0')) {
		page->bad = true;
	} else if (!page->left_out) {
		stop = page->op->found(page->op->user, &found);
	}
	page->left_out = false;
	page->key[0] = '\0';
	page->size[0] = '\0';
	return stop;
}

int dialect_read_page(struct dialect_page *page, xml_fn *each, struct pawl_err *err)
{
	struct object_op *op = page->op;
	int rv;

	op->next_token[0] = '\0';
	rv = xml_read(op->call.text != NULL ? op->call.text : "", op->call.text_bytes, each, page,
		err);
	if (rv != 0) {
		return rv > 0 ? DIALECT_STOPPED : rv;
	}
	if (op->code[0] != '\0') {
		return pawl_err_set(err, PAWL_EIO, "HTTP %d, %s", op->call.status, op->code);
	}
	if (!page->whole) {
		return dialect_nonsense(op, "no list", err);
	}
	return page->bad ? dialect_nonsense(op, "a list with a value that cannot be", err) : 0;
}

bool dialect_read_number(const char *text, uint64_t *number)
{
	char *end;

	if (text == NULL || text[0] < '0' || text[0] > '9') {
		return false;
	}
	*number = strtoull(text, &end, 10);
	return *end == '\0';
}

/* Reads the size of the whole object from the answer to a ranged GET, and checks that these are the
 * bytes that were asked for. */
static int read_range(struct object_op *op, struct pawl_err *err)
{
	const char *range = http_header(&op->call, "content-range");
	const char *slash = range != NULL ? strchr(range, '/') : NULL;
	uint64_t from, to;

	if (range == NULL && op->call.status == 200 && op->off_bytes == 0 &&
		op->got_bytes <= op->len_bytes) {
		op->size_bytes = op->got_bytes; /* the object ends in the range, and it is all */
		return 0;
	}
	/* rclone answers a range with status 200. */
	if (slash == NULL || !dialect_read_number(slash + 1, &op->size_bytes) ||
		sscanf(range, "bytes %" SCNu64 "-%" SCNu64 "/", &from, &to) != 2 ||
		from != op->off_bytes || to < from || to - from >= op->len_bytes ||
		to >= op->size_bytes || op->got_bytes != to - from + 1) {
		return dialect_nonsense(op, "another range than was asked for", err);
	}
	return 0;
}

int dialect_read_etag(struct object_op *op, struct pawl_err *err)
{
	const char *etag = http_header(&op->call, "etag");

	if (etag == NULL || etag[0] == '\0' || !dialect_keep(op->etag, sizeof(op->etag), etag)) {
		return dialect_nonsense(op, "no usable etag", err);
	}
	return 0;
}

int dialect_read_body(struct object_op *op, const char *plain, struct pawl_err *err)
{
	const char *encoding = http_header(&op->call, "content-encoding");

	if (encoding != NULL && encoding[0] != '\0' && strcmp(encoding, "identity") != 0 &&
		(plain == NULL || strcmp(encoding, plain) != 0)) {
		return dialect_nonsense(op, "an encoding that was not asked for", err);
	}
	if (op->call.status != 200 && op->call.status != 206) {
		return dialect_nonsense(op, "no object", err);
	}
	if (op->len_bytes > 0) {
		return read_range(op, err);
	}
	op->size_bytes = op->write != NULL ? op->got_bytes : op->call.text_bytes;
	return 0;
}

void dialect_write_crc(uint32_t crc, char text[DIALECT_CRC_MAX])
{
	const unsigned char bytes[4] = {(unsigned char)(crc >> 24), (unsigned char)(crc >> 16),
		(unsigned char)(crc >> 8), (unsigned char)crc};

	EVP_EncodeBlock((unsigned char *)text, bytes, sizeof(bytes));
}

bool dialect_read_crc(const char *text, uint32_t *crc)
{
	unsigned char bytes[6]; /* two too many: the text is padded */
	char again[DIALECT_CRC_MAX];

	if (strlen(text) != DIALECT_CRC_MAX - 1 ||
		EVP_DecodeBlock(bytes, (const unsigned char *)text, DIALECT_CRC_MAX - 1) < 0) {
		return false;
	}
	*crc = (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 |
		bytes[3];
	dialect_write_crc(*crc, again);
	return strcmp(again, text) == 0;
}
