/*
 * A server of the API of Amazon S3 inside of the test process, at 127.0.0.1, with all objects in
 * memory. It does what the API documents, checks no signature, and does wrong what a test asks for.
 * Real servers, and vectors of signatures, are in other tests.
 *
 * A request that is signed for Google's XML API is treated as by that: see s3_google.h. One with a
 * version of Azure's Blob service is treated as by that: see s3_azure.h.
 *
 * It has one bucket, S3_BUCKET. Each connection has a thread, so a test may use it from any thread.
 */
#ifndef TEST_S3_SERVER_H
#define TEST_S3_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define S3_BUCKET     "bucket"
#define S3_KEY_ID     "AKIDTEST" /* set by s3_server_setenv */
#define S3_SECRET     "hush-secret"
#define S3_PART       ((uint64_t)5 << 20) /* bytes of every part but the last, at least */
#define S3_ADDRESS    "s3://" S3_BUCKET
#define S3_KEPT_MAX   (1u << 20)        /* bytes of a body that is always kept, at most */
#define GS_ADDRESS    "gs://" S3_BUCKET /* S3_BUCKET by Google's API */
#define AZURE_ACCOUNT "account"
#define AZURE_ADDRESS "azure://" AZURE_ACCOUNT "/" S3_BUCKET /* S3_BUCKET by Azure's API */

struct s3_server;

enum s3_kind {
	S3_PUT,
	S3_GET,
	S3_HEAD,
	S3_DELETE,
	S3_LIST,
	S3_BEGIN,
	S3_PART_PUT,
	S3_COMPLETE,
	S3_ABORT,
	S3_UPLOADS,
	S3_PARTS,
	S3_CREDS, /* GET /creds: see struct s3_settings */
	S3_KINDS,
};

/* A request, as a hook sees it. */
struct s3_ask {
	unsigned nth; /* number among all requests since the start or the last reset, from 1 */
	unsigned nth_of_kind; /* number among requests of the kind, from 1 */
	enum s3_kind kind;
	const char *method;
	const char *path; /* percent-encoded, like query */
	const char *query;
	const char *key_id; /* the request was signed with; "": not signed */
	int64_t now_ns;     /* on the monotonic clock */
};

enum s3_fault_kind {
	S3_FINE,          /* carries the request out, and answers */
	S3_ANSWER,        /* answers with status, and code or text; carries nothing out */
	S3_LOSE,          /* carries it out, and resets the connection */
	S3_RESET_REQUEST, /* resets after n bytes of the request's body */
	S3_RESET_ANSWER,  /* resets after n bytes of the answer's body */
	S3_TRUNCATE,      /* ends the connection n bytes before the end of the body */
	S3_LONGER,        /* sends n bytes more than it announced */
	S3_ENDLESS,       /* sends the body in chunks, without the last */
	S3_SHIFT_RANGE,   /* Content-Range has numbers that are n too high */
	S3_NO_ETAG,
	S3_SLOW,  /* sends the body at n bytes a second */
	S3_STALL, /* answers nothing until the client is gone */
	/* flips a bit in byte n of the body, or of the request's body, before it is looked at; in
	 * a shorter one, in byte n % its length */
	S3_FLIP_ANSWER,
	S3_FLIP_REQUEST,
	S3_HUGE_BODY,   /* answers with status and a body of n bytes */
	S3_HUGE_HEADER, /* adds a header of n bytes */
	S3_CONTINUE,    /* sends n times 100 Continue first */
	S3_BLANKS,      /* sends n blanks, 20 ms apart, before the body, in chunks */
};

/* What goes wrong with a request; zero: nothing. Strings must live until the server has stopped. */
struct s3_fault {
	enum s3_fault_kind kind;
	int status;
	const char *code;    /* S3's name of the error; NULL: text */
	const char *text;    /* the body; NULL: none */
	const char *headers; /* lines that are added to any answer; NULL: none */
	uint64_t n;
};

/* Called for each request, one at a time, with a lock of the server held: call nothing of it. */
typedef void s3_hook_fn(void *user, const struct s3_ask *ask, struct s3_fault *fault);

/* How the server behaves; zero: as S3 does. */
struct s3_settings {
	char key_id[64];  /* the only one known: others get InvalidAccessKeyId; "": all */
	char token[64];   /* the only session token that has not expired; "": all */
	char creds[1024]; /* text of GET /creds; "": 404 */
	/* GET /creds gives keys of a session that ends so soon, and nothing is done without those
	 * of one that has not; 0: creds, and token */
	unsigned session_s;
	int64_t clock_s;         /* how far its clock is ahead */
	char region[64];         /* where the bucket is; "": anywhere */
	int region_status;       /* answers requests for another region: 301, 307 or 400 */
	bool ignores_conditions; /* PUT has no conditions, as with "rclone serve s3" */
	bool bare_etags;         /* If-Match has no quotes, as with radosgw 16 */
	/* etags are MD5s of the bytes, and it tells no other checksum, as radosgw does */
	bool tells_md5;
	bool tells_nothing;      /* answers have no checksum, and etags are numbers */
	bool refuses_sums;       /* a body's checksum is an error, as with Azurite before 3.37 */
	bool completes_again;    /* an upload can be completed twice; else it is gone */
	uint64_t part_min_bytes; /* 0: S3_PART */
	unsigned page_max;       /* keys on a page, at most; 0: 1000 */
	unsigned capacity;       /* requests in flight; more get SlowDown; 0: any number */
	int hold_ms;             /* how long each request takes at least */
	uint64_t conn_bytes_s;   /* bytes of bodies that a connection moves a second; 0: any */
	uint64_t link_bytes_s;   /* bytes of bodies that all connections move a second; 0: any */
	bool drops_bytes; /* a body of more than S3_KEPT_MAX bytes is lost, and reads as zeros */
	s3_hook_fn *hook; /* or NULL */
	void *user;       /* for hook */
};

struct s3_counts {
	unsigned all;
	unsigned of[S3_KINDS];
	unsigned most;       /* requests in flight at one time */
	unsigned uploads;    /* uploads that are open now */
	unsigned blocks;     /* blocks of Azure's that are in no blob now */
	unsigned spoiled;    /* requests that went wrong by a hook or for want of capacity */
	unsigned stale;      /* requests with keys of a session that had ended, or of none */
	uint64_t sent_bytes; /* bytes of bodies of answers */
};

/* Aborts the test if there is no socket or memory. */
struct s3_server *s3_server_start(void);
/* Starts it at another numeric IPv4 address of this host. */
struct s3_server *s3_server_start_at(const char *host);
/* Ends all connections. */
void s3_server_stop(struct s3_server *server);
/* Points the environment's variables for AWS, Google and Azure at the server, and nowhere else. */
void s3_server_setenv(const struct s3_server *server);
const char *s3_server_endpoint(const struct s3_server *server);
/* Changes how requests are treated that come from now on. */
void s3_server_set(struct s3_server *server, const struct s3_settings *settings);
void s3_server_get_counts(struct s3_server *server, struct s3_counts *counts);
/* Sets all counts but those of uploads and blocks to 0. */
void s3_server_reset(struct s3_server *server);
/* Waits until all connections are closed. */
void s3_server_wait_idle(struct s3_server *server);
/* Returns whether there is an object with exactly these bytes. */
bool s3_server_holds(struct s3_server *server, const char *key, const void *bytes,
	size_t len_bytes);
/* Puts an object without a request. */
void s3_server_put(struct s3_server *server, const char *key, const void *bytes, size_t len_bytes);
/* Drops all objects and uploads. */
void s3_server_clear(struct s3_server *server);

#endif
