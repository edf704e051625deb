/* What differs between the services, as functions from an operation to a request, and from an
 * answer to its results. Pure: nothing here does I/O. */
#ifndef STORE_OBJECT_DIALECT_H
#define STORE_OBJECT_DIALECT_H

#include "io/http_request.h"
#include "store/object/object.h"
#include "store/object/object_xml.h"

/* Where a bucket is. */
struct object_place {
	struct object_url url;
	char endpoint[OBJECT_ENDPOINT_MAX]; /* "http[s]://HOST[:PORT]" */
	char region[OBJECT_NAME_MAX];       /* known to the signer */
	bool in_host;     /* the endpoint's host names the bucket (Azure: the account); else the
			  * path does */
	bool bare_etags;  /* see object_use_bare_etags */
	bool bare_bodies; /* Azure: bodies have no checksum, which the service refuses */
};

struct object_dialect {
	/* Finds the place, once region and endpoint are known ("": not set). PAWL_EINVAL. */
	int (*locate)(struct object_place *place, const char *region, const char *endpoint,
		struct pawl_err *err);
	/* Fills the request, without signature. PAWL_ENOMEM; PAWL_ELIMIT: it is too long. A body of
	 * the dialect's own goes into op->body_text. BUILD_DONE: the service needs no request for
	 * this; op has its results. */
	int (*build)(const struct object_place *place, struct object_op *op,
		struct http_request *request, struct pawl_err *err);
	/*
	 * Reads an answer with status 2xx, or one without a body to read, into the results of op.
	 * PAWL_EIO: it makes no sense, and the request may be tried again; op->code is set if it is
	 * an error in spite of its status. PAWL_ENOENT: it is of a folder, not of an object.
	 */
	int (*read)(struct object_op *op, struct pawl_err *err);
	/* Reads an error: sets op->code, and message (of OBJECT_MESSAGE_MAX bytes) if there is one;
	 * region (of OBJECT_NAME_MAX bytes) if the answer names another one. Else they are "". */
	void (*read_error)(struct object_op *op, char *message, char *region);
};

#define OBJECT_MESSAGE_MAX 256u
#define DIALECT_CRC_MAX    9u /* bytes of a CRC-32C in base64, terminator included */

#define BUILD_DONE 1

/* ---- what the dialects share ---- */

/* A page of a list that is being read; the first field of each dialect's own. */
struct dialect_page {
	struct object_op *op;
	bool bad;               /* a value cannot be what it must be */
	bool whole;             /* the text is a list, and not an error or a page of a proxy */
	bool left_out;          /* the result that is being read is not for the caller */
	char key[XML_TEXT_MAX]; /* key of the result that is being read */
	char size[32];          /* size of that result, a number; "": 0 */
};

/* Reads the text of a page: each, an xml_fn, gets the page. Returns 0, or DIALECT_STOPPED if the
 * caller of the operation has seen enough. PAWL_EIO: it is no list, or has a value that cannot be;
 * op->code is set if it is an error in spite of its status. */
int dialect_read_page(struct dialect_page *page, xml_fn *each, struct pawl_err *err);
#define DIALECT_STOPPED 1
/* Keeps a value of a page, which is bad if it does not fit. */
void dialect_keep_value(struct dialect_page *page, char *to, size_t size_bytes, const char *text);
/* Hands the result of the page that was read last to the operation's caller, unless its key lies
 * outside of the prefix: whoever removes what is listed must remove nothing else. Returns nonzero
 * to end the page. */
int dialect_report(struct dialect_page *page, bool folder, const char *upload);
/* Copies a text. Returns false if it had to be cut. */
bool dialect_keep(char *to, size_t size_bytes, const char *text);
/* Returns PAWL_EIO: the answer makes no sense, because of what. */
int dialect_nonsense(struct object_op *op, const char *what, struct pawl_err *err);
/* Reads a number of decimal digits. Returns false if text is none, or NULL. */
bool dialect_read_number(const char *text, uint64_t *number);
/* Checks that the answer to a GET is an object, with the range that was asked for, in no encoding,
 * and reads the size of the whole object. plain: an encoding that counts as none; NULL: there is no
 * such. */
int dialect_read_body(struct object_op *op, const char *plain, struct pawl_err *err);
/* Reads the etag of the answer, which must have one. */
int dialect_read_etag(struct object_op *op, struct pawl_err *err);

/* Writes a CRC-32C in base64, big endian, as services have it. */
void dialect_write_crc(uint32_t crc, char text[DIALECT_CRC_MAX]);
/* Reads one. Returns false if the text is none. */
bool dialect_read_crc(const char *text, uint32_t *crc);

extern const struct object_dialect s3_dialect;
extern const struct object_dialect azure_dialect;
extern const struct object_dialect gs_dialect;

#endif
