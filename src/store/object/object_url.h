/*
 * Addresses of buckets:
 *
 *   s3://BUCKET/PREFIX                                   Amazon S3, and servers that speak its API
 *   gs://BUCKET/PREFIX                                   Google Cloud Storage
 *   azure://ACCOUNT/CONTAINER/PREFIX                     Azure Blob Storage
 *   abfs[s]://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX   the same, by its Blob endpoint
 *
 * with ?endpoint=URL&region=NAME&profile=NAME&single_writer=1 behind them. Names and values may be
 * percent-encoded. An address holds no secret: user:password in it is refused.
 */
#ifndef STORE_OBJECT_OBJECT_URL_H
#define STORE_OBJECT_OBJECT_URL_H

#include <stdbool.h>
#include <stddef.h>

struct pawl_err;

#define OBJECT_NAME_MAX     256u  /* bytes of a name in an address, terminator included */
#define OBJECT_KEY_MAX      1025u /* bytes of a key, terminator included; all services take 1024 */
#define OBJECT_ENDPOINT_MAX 512u  /* bytes of an endpoint, terminator included */
#define OBJECT_ROOM         512u  /* bytes of a key behind the prefix of an address, at least */

enum object_service {
	OBJECT_S3,
	OBJECT_GCS,
	OBJECT_AZURE,
};

struct object_url {
	enum object_service service;        /* service that has the bucket */
	char bucket[OBJECT_NAME_MAX];       /* Azure: the container */
	char account[OBJECT_NAME_MAX];      /* Azure only, else "" */
	char prefix[OBJECT_KEY_MAX];        /* begins all keys; no '/' at its ends; "": none */
	char endpoint[OBJECT_ENDPOINT_MAX]; /* "http://127.0.0.1:9000", no '/' at its end; "": the
					     * environment's, or the service's own */
	char region[OBJECT_NAME_MAX];       /* "": the environment's */
	char profile[OBJECT_NAME_MAX];      /* in the credentials' file; "": the environment's */
	bool single_writer; /* the caller promises that nobody else writes: the server need not
			     * support conditional PUTs */
};

/* Returns whether a text is such an address, right or wrong, rather than a path: it begins with one
 * of the schemes above, in any case. Any thread. */
bool object_url_is(const char *text);
/* Reads an address. PAWL_EINVAL names what is wrong, and how it should look; PAWL_ELIMIT: a name is
 * too long. */
int object_url_parse(const char *text, struct object_url *url, struct pawl_err *err);
/* Writes the address in the one form that all spellings of it share, for keys of tables and for
 * messages. text has size bytes; a longer one is cut. */
void object_url_write(const struct object_url *url, char *text, size_t size_bytes);
/* Reads an endpoint: "http[s]://HOST[:PORT]", and no more. what names it in messages, such as
 * "AWS_ENDPOINT_URL". A '/' at its end is dropped. PAWL_EINVAL. */
int object_endpoint_parse(const char *text, const char *what, char endpoint[OBJECT_ENDPOINT_MAX],
	struct pawl_err *err);

#endif
