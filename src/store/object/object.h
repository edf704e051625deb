/*
 * Operations on the objects of one bucket, many at a time: each is signed when it is sent, tried
 * again while that makes sense, and ends exactly once. Behind it, a dialect (s3.c, gs.c, azure.c)
 * says what an operation looks like as a request, and what an answer means; auth_*.c have the
 * credentials; http.c sends.
 *
 * A client and its operations belong to one thread at a time.
 */
#ifndef STORE_OBJECT_OBJECT_H
#define STORE_OBJECT_OBJECT_H

#include "io/http.h"
#include "store/object/object_url.h"

#include "pawl/err.h"

#define OBJECT_ETAG_MAX   128u   /* bytes of an etag, terminator included */
#define OBJECT_UPLOAD_MAX 1024u  /* bytes of an upload's id, terminator included */
#define OBJECT_TOKEN_MAX  2048u  /* bytes of a listing's token, terminator included */
#define OBJECT_PARTS_MAX  10000u /* parts of one upload: S3's limit */
#define OBJECT_CODE_MAX   96u    /* bytes of the service's name of an error */
#define OBJECT_SUM_MAX    32u    /* bytes of a checksum as text, terminator included */

struct object_client;

enum object_verb {
	OBJECT_PUT,      /* writes a whole object */
	OBJECT_GET,      /* reads an object, or a range of it */
	OBJECT_HEAD,     /* gets size and etag */
	OBJECT_REMOVE,   /* removes an object; a missing one is success */
	OBJECT_LIST,     /* gets a page of keys */
	OBJECT_BEGIN,    /* begins an upload in parts */
	OBJECT_PART,     /* writes one part */
	OBJECT_COMPLETE, /* makes an object of the parts */
	OBJECT_ABORT,    /* drops an upload; a missing one is success */
	OBJECT_UPLOADS, /* gets a page of the uploads that are not complete; on Azure, where uploads
			  * have no ids, the one of this key, which may have no parts */
	OBJECT_PARTS,   /* gets a page of the parts that an upload has */
};

/* One result of a listing. key: below the bucket. folder: key ends with '/', and stands for all
 * keys that begin with it. upload: the upload's id; NULL but for OBJECT_UPLOADS. The rest is for
 * OBJECT_PARTS: number of the part, its etag, and its CRC-32C, if the service tells it. */
struct object_found {
	const char *key;
	uint64_t size_bytes;
	bool folder;
	const char *upload;
	uint32_t part;
	const char *etag;
	bool has_crc;
	uint32_t crc;
};

/* A part of an upload that the service has. */
struct object_part {
	char etag[OBJECT_ETAG_MAX]; /* as OBJECT_PART got it */
	uint32_t crc;               /* CRC-32C of its bytes */
};

/* One operation. The caller zeroes and fills it, and keeps it, and what it points to, until it is
 * reaped. Strings are not copied. */
struct object_op {
	enum object_verb verb;
	const char *key; /* below the bucket; of OBJECT_LIST and OBJECT_UPLOADS the prefix, or "" */
	/* PUT: NULL: always; "": if there is none; else if this is its etag. GET: NULL, or the etag
	 * that it must have. */
	const char *match;
	/* Body of PUT and PART, as in struct http_call. crc: its CRC-32C. */
	uint64_t body_bytes;
	size_t (*read)(void *user, uint64_t off, void *bytes, size_t size);
	uint32_t crc;
	/* GET: a range; len_bytes 0: the whole object. */
	uint64_t off_bytes, len_bytes;
	/* GET: takes bytes of the range, from off on in it; a retry begins again at 0. NULL: the
	 * object is kept as text, at most text_max bytes. */
	bool (*write)(void *user, uint64_t off, const void *bytes, size_t len_bytes);
	size_t text_max;
	/* LIST, UPLOADS, PARTS: called for each result of the page; nonzero ends the page. */
	int (*found)(void *user, const struct object_found *found);
	bool folders;      /* LIST: keys with a '/' behind the prefix count as folders */
	uint32_t keys_max; /* LIST: on a page; 0: 1000 */
	const char *token; /* LIST, UPLOADS, PARTS: of the page before; NULL: the first page */
	void *user;        /* for the functions above */
	bool once;         /* the operation is not tried again: best effort */
	/* PART, COMPLETE, ABORT, PARTS: */
	const char *upload;
	uint32_t part;                   /* from 1 */
	const struct object_part *parts; /* COMPLETE: all, ascending */
	uint32_t parts_n;

	/* Valid when reaped. */
	/* 0, or: PAWL_ENOENT; PAWL_EEXIST and PAWL_EMISMATCH: match; PAWL_ECORRUPT: GET found
	 * another object than match; PAWL_ELIMIT: longer than text_max; PAWL_EIO;
	 * PAWL_ETIMEDOUT; PAWL_EINVAL; PAWL_ENOMEM */
	int rv;
	struct pawl_err err;
	char etag[OBJECT_ETAG_MAX];        /* PUT, PART, COMPLETE, GET, HEAD: with its quotes,
					    * if it has some; COMPLETE: "": not told */
	uint64_t size_bytes;               /* HEAD, and GET: of the whole object */
	char *text;                        /* GET: owned by the caller, NUL behind it, or NULL */
	size_t text_bytes;                 /* GET */
	char upload_id[OBJECT_UPLOAD_MAX]; /* BEGIN */
	char next_token[OBJECT_TOKEN_MAX]; /* LIST, UPLOADS, PARTS: "": this was the last page */
	/* HEAD: CRC-32C in base64; of an object in n parts, that of the CRCs of its parts, big
	 * endian, followed by "-n"; "": the service does not tell. */
	char sum[OBJECT_SUM_MAX];
	char code[OBJECT_CODE_MAX]; /* the service's name of the error, or "" */

	/* Private. */
	struct http_call call;        /* attempt under way */
	struct http_request *request; /* owned while in flight */
	char *body_text;              /* COMPLETE: owned while in flight */
	uint64_t got_bytes;           /* GET: of this attempt */
	uint32_t attempts;            /* number of attempts so far */
	uint32_t refusals;            /* answers so far about credentials, clock or region */
	int64_t submitted_ns;
	int64_t began_ns;      /* beginning of this attempt */
	int64_t not_before_ns; /* earliest beginning of the next attempt */
	struct object_op *next;
};

struct object_options {
	uint32_t connections; /* requests in flight, at most */
	int64_t patience_ns;  /* how long an operation is tried again */
	int64_t connect_ns;   /* as in struct http_options */
	int64_t stall_ns;
};

/* Opens a bucket; asks nothing of it yet. PAWL_EINVAL: the environment or a profile is wrong. */
int object_open(const struct object_url *url, const struct object_options *options,
	struct object_client **client, struct pawl_err *err);
/* Cancels what is in flight. NULL is fine. */
void object_close(struct object_client *client);
/* Takes an operation, and sends it as soon as there is room. */
void object_submit(struct object_client *client, struct object_op *op);
/* Moves bytes without waiting. */
void object_pump(struct object_client *client);
/* Returns an operation that has ended; NULL: none is in flight, or none ended within timeout_ms
 * (-1: as long as it takes). */
struct object_op *object_reap(struct object_client *client, int timeout_ms);
/* Carries one operation out, while others go on; returns its rv, and copies its err. */
int object_do(struct object_client *client, struct object_op *op, struct pawl_err *err);
/* Returns whether any operation is in flight, or ended and not reaped. */
bool object_is_busy(const struct object_client *client);
/* Ends an operation that was submitted and not reaped; it is not reaped. */
void object_cancel(struct object_client *client, struct object_op *op);
/* Sets a function that is asked now and then, by the thread that waits for an operation, whether
 * all operations are to end: they do so with PAWL_ECANCELED. NULL: never. */
void object_on_stop(struct object_client *client, bool (*stops)(void *user), void *user);
/* Sends etags of conditions without their quotes from now on: radosgw 16 takes no others. */
void object_use_bare_etags(struct object_client *client);

#endif
