/* The store in a bucket: see store_bucket_open in store.h. For the files of this room alone. */
#ifndef STORE_BUCKET_H
#define STORE_BUCKET_H

#include "store/object/object.h"
#include "store/store.h"

#include "pawl/err.h"

#define BUCKET_DEPTH      128u        /* transfers in flight: eight parts of 1 MiB pieces */
#define BUCKET_PART_BYTES (16u << 20) /* bytes of a part; more in files of over 10,000 parts */
#define BUCKET_RUN_BYTES  (8u << 20)  /* bytes that one request reads, at most */
#define BUCKET_RUN_IOS    64u         /* transfers that one request serves, at most */

_Static_assert(STORE_ETAG_MAX == OBJECT_ETAG_MAX, "an etag of an object is one of a store");

/* A part of a file that is being written. Its bytes are in transfers of the caller, in order, or,
 * once bounce is there, in bounce. */
struct bucket_part {
	struct store_file *file;
	struct store_io *ios;      /* in order, from the part's first byte on, without gaps */
	struct store_io **ios_end; /* where the next is linked */
	uint8_t *bounce;           /* owned; the part's bytes, zeros where none were written */
	uint64_t filled_bytes;     /* from the part's first byte on, without gaps */
	uint64_t send_bytes;       /* bytes in the newest upload of the part */
	bool sent;                 /* the part is being uploaded, or was */
	bool submitted;            /* op is with the client, and not reaped */
	bool stale;                /* written to, or changed in size, since the part was sent */
	struct store_io *at;       /* transfer that was read last */
	uint64_t at_bytes;         /* offset of that transfer in the part */
	struct object_op op;
};

/* The place of a part in its file. */
struct bucket_slot {
	struct bucket_part *part; /* owned; NULL: nothing was written there */
};

struct store_file {
	struct bucket *bucket;
	struct store_file *next; /* being written */
	char *key;               /* owned */
	uint64_t size_bytes;
	char etag[OBJECT_ETAG_MAX]; /* etag of the complete object; "": there is none yet */

	/* The rest is used while the file is being written. */
	bool writing;
	int rv; /* error of the first part that failed, or 0 */
	struct pawl_err err;
	uint64_t part_bytes;       /* bytes of every part but the last */
	struct bucket_slot *slots; /* owned, parts_n of them */
	uint32_t parts_n;
	uint32_t sending;               /* parts that are being uploaded */
	char upload[OBJECT_UPLOAD_MAX]; /* "": not begun */
	struct object_part *done;       /* owned; of the parts that were sent, parts_n of them */
	bool resumes; /* made by bucket_resume: what was uploaded is left for the next */
	struct bucket_known *known; /* owned; parts that the upload had when it was found */
	uint32_t known_n;
};

/* A run of transfers that one request reads. */
struct bucket_run {
	struct store_file *file;
	struct store_io *ios; /* in order, without gaps */
	struct store_io **ios_end;
	uint32_t ios_n;
	uint64_t off_bytes;
	uint64_t len_bytes;
	struct store_io *at; /* transfer that is being filled */
	uint64_t at_bytes;   /* offset of that transfer in the run */
	struct object_op op;
};

struct bucket {
	struct store store; /* first: what callers hold */
	struct object_client *client;
	struct object_url url;
	struct store_io *done; /* transfers that have ended, in order */
	struct store_io **done_end;
	uint32_t in_flight;       /* transfers */
	struct bucket_run *run;   /* run that further transfers may join; owned, or NULL */
	struct store_file *files; /* being written, in no order */
	bool conditional;         /* the server was seen to keep conditions */
};

/* Returns the key of a path, or of the folder at it with a '/' at its end. PAWL_ELIMIT. */
int bucket_key(const struct bucket *bucket, const char *path, bool folder, char key[OBJECT_KEY_MAX],
	struct pawl_err *err);
/* Ends a transfer of a file: it is reaped next. */
void bucket_end_io(struct store_file *file, struct store_io *io, int rv);
/* Waits until an operation has ended, and handles it. Returns false if there is none, or none ended
 * in timeout_ms. */
bool bucket_step(struct bucket *bucket, int timeout_ms);

/* ---- writing: bucket_write.c ---- */

int bucket_create(struct store *store, const char *path, uint64_t size_bytes,
	struct store_file **file, struct pawl_err *err);
void bucket_write(struct store_file *file, struct store_io *io);
/* A part's upload has ended. */
void bucket_part_ended(struct bucket_part *part);
/* Copies what waits for the rest of its part, so that those transfers end. Returns whether there
 * was any. */
bool bucket_bounce_all(struct bucket *bucket);
int bucket_resize(struct store *store, struct store_file *file, uint64_t size_bytes,
	struct pawl_err *err);
int bucket_sync(struct store *store, struct store_file *file, struct pawl_err *err);
void bucket_close_file(struct store *store, struct store_file *file);

/* Returns the bytes of each part but the last, of a file of this size. */
uint64_t bucket_part_size(uint64_t size_bytes);

/* ---- going on: bucket_resume.c ---- */

int bucket_resume(struct store *store, const char *path, uint64_t size_bytes,
	struct store_file **file, struct pawl_err *err);
/* Returns whether the service has a part already; its op is filled in. */
bool bucket_is_known(const struct bucket_part *part);
/* Returns the etag of a part that the service has. */
const char *bucket_known_etag(const struct bucket_part *part);
int bucket_has(struct store *store, const char *path, uint64_t size_bytes, store_bytes_fn *read,
	void *user, bool *has, struct pawl_err *err);

/* ---- reading: bucket_read.c ---- */

int bucket_open(struct store *store, const char *path, struct store_file **file,
	uint64_t *size_bytes, struct pawl_err *err);
void bucket_read(struct store_file *file, struct store_io *io);
/* Sends the run that further transfers might have joined. */
void bucket_send_run(struct bucket *bucket);
/* A run's request has ended. */
void bucket_run_ended(struct bucket_run *run);

#endif
