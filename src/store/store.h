/*
 * Stores of bytes: one interface for directories, memory and buckets. What only a store of
 * directories can do is in dirs.h. A flat store has none: it keeps whole objects by their path,
 * as a bucket does (see store_is_flat).
 *
 * Paths are relative to the store's root, '/'-separated, no "." or "..", no name empty or above
 * STORE_NAME_MAX, at most STORE_PATH_MAX bytes and STORE_NEST_MAX names: else PAWL_EINVAL, or
 * PAWL_ELIMIT where too long. Any other byte is fine. "" is the root, for sync_dir, list,
 * refresh_dir and stat alone. A call that needs a plain file never waits for anything else of that
 * name, such as a FIFO. It fails, and err names what is there: PAWL_EINVAL for a read, PAWL_EIO for
 * a write. A path below something that is no directory does not exist: PAWL_ENOENT. Reads follow a
 * link; nothing is written through one. A store and its files belong to one thread at a time.
 * Writes are durable only after a sync of the file (data) and a store_sync_dir of the directory
 * that holds the name (existence, rename). After a crash a caller can rely on nothing else, and
 * tests enforce that.
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pawl_err;
struct store;
struct store_file;

#define STORE_PATH_MAX 1024u /* bytes, terminator included */
#define STORE_NAME_MAX 256u  /* bytes of one name in a path, terminator included */
#define STORE_NEST_MAX 16u   /* names in a path, and depth below a path that a remove descends to */
#define STORE_ALIGN    4096u /* offset, length and address of a transfer are multiples of it */
#define STORE_DEPTH    16u   /* transfers in flight, at most, in any store; see store_depth */
#define STORE_ETAG_MAX 128u  /* bytes of an etag, terminator included */

/* One asynchronous transfer. The caller owns it and its buffer, and keeps both alive from submit
 * until reap returns it, exactly once. */
struct store_io {
	struct store_file *file; /* open until reaped */
	void *buf;               /* STORE_ALIGN aligned */
	size_t len_bytes;        /* multiple of STORE_ALIGN */
	uint64_t off_bytes;      /* multiple of STORE_ALIGN */
	bool write;              /* true: write, false: read */
	/* A read of bytes that other processes are about to read, too: the store may keep the bytes
	 * for them. */
	bool shared;
	int rv;                /* when reaped: 0 (all of it moved), or a negative PAWL_E code */
	int sys;               /* errno behind rv, or 0 */
	const char *why;       /* text behind rv, valid until the file is closed; or NULL */
	void *user;            /* for the caller's use */
	struct store_io *next; /* used by the store while in flight */
};

enum store_kind {
	STORE_FILE,
	STORE_DIR,
	STORE_OTHER, /* only from stat: a FIFO, a socket, a device, or a link that leads nowhere */
};
/* Called for each name in a directory, "." and ".." left out, in no order. Must not change the
 * store. Return nonzero to stop; the list then succeeds. A link counts as what it leads to;
 * anything that is neither file nor directory counts as a file. */
typedef int store_list_fn(void *user, const char *name, enum store_kind kind);

/* Reads len_bytes at off of what a caller has, in ascending order and without gaps. Returns 0 or an
 * error. */
typedef int store_bytes_fn(void *user, uint64_t off, void *bytes, size_t len_bytes,
	struct pawl_err *err);

struct store_dir_ops; /* dirs.h */

/* The implementation's table; callers use the functions below. */
struct store_ops {
	const char *name; /* name of the kind, for messages */
	uint32_t depth;   /* see store_depth; 0: STORE_DEPTH */
	void (*close)(struct store *store);
	int (*create)(struct store *store, const char *path, uint64_t size_bytes,
		struct store_file **file, struct pawl_err *err);
	int (*open)(struct store *store, const char *path, struct store_file **file,
		uint64_t *size_bytes, struct pawl_err *err);
	int (*submit)(struct store *store, struct store_io *io, struct pawl_err *err);
	struct store_io *(*reap)(struct store *store, int timeout_ms);
	int (*resize)(struct store *store, struct store_file *file, uint64_t size_bytes,
		struct pawl_err *err);
	int (*sync)(struct store *store, struct store_file *file, struct pawl_err *err);
	void (*close_file)(struct store *store, struct store_file *file);
	int (*write_small)(struct store *store, const char *path, const void *bytes,
		size_t len_bytes, struct pawl_err *err);
	int (*read_small)(struct store *store, const char *path, void **bytes, size_t *len_bytes,
		size_t max_bytes, struct pawl_err *err);
	int (*stat)(struct store *store, const char *path, enum store_kind *kind,
		uint64_t *size_bytes, struct pawl_err *err);
	int (*list)(struct store *store, const char *path, store_list_fn *each, void *user,
		struct pawl_err *err);
	int (*remove)(struct store *store, const char *path, struct pawl_err *err);
	/* Flat stores only; NULL in a store of directories. match "": there must be no object. */
	int (*put_if)(struct store *store, const char *path, const void *bytes, size_t len_bytes,
		const char *match, char *etag, struct pawl_err *err);
	int (*read_etag)(struct store *store, const char *path, void **bytes, size_t *len_bytes,
		size_t max_bytes, char *etag, struct pawl_err *err);
	int (*sweep)(struct store *store, struct pawl_err *err); /* NULL: nothing to do */
	/* NULL: create is called. */
	int (*resume)(struct store *store, const char *path, uint64_t size_bytes,
		struct store_file **file, struct pawl_err *err);
	void (*on_stop)(struct store *store, bool (*stops)(void *user),
		void *user); /* NULL: nothing waits for long */
	/* NULL: never. */
	int (*has)(struct store *store, const char *path, uint64_t size_bytes, store_bytes_fn *read,
		void *user, bool *has, struct pawl_err *err);
};

struct store {
	const struct store_ops *ops;      /* functions of the kind, whose own fields follow */
	const struct store_dir_ops *dirs; /* functions of a store of directories; NULL: flat */
};

/* Opens a directory store at root, and makes the root and its parents if asked. Any thread may open
 * its own. */
int store_posix_open(const char *root, bool create, struct store **store, struct pawl_err *err);
/* Opens a directory store where all paths that begin with a dot live in hidden, a directory of the
 * same file system (NULL: in root), so that nothing unfinished lies in root. "" is both directories
 * together. */
int store_posix_open_split(const char *root, const char *hidden, bool create, struct store **store,
	struct pawl_err *err);

/* Returns whether a text is the address of a bucket, right or wrong, and not a path: "s3://...". */
bool store_is_bucket(const char *address);
/* Writes the address of a bucket in the one form that all spellings of it share. PAWL_EINVAL names
 * what is wrong with it; PAWL_ELIMIT. */
int store_bucket_name(const char *address, char *name, size_t size_bytes, struct pawl_err *err);
/*
 * Opens a bucket, or what lies below a prefix in one, as a flat store. object/object_url.h has the
 * form of addresses, object/cred_aws.h where credentials come from. PAWL_EINVAL: the address or the
 * configuration is wrong; PAWL_EIO, PAWL_ETIMEDOUT: there is no such bucket, it refuses the
 * credentials, or does not answer; PAWL_ENOTSUP. err names the remedy.
 *
 * Whatever fails for a while is tried again for TIME_BUCKET_PATIENCE. The first store_put_if finds
 * out whether the server keeps conditions at all: PAWL_ENOTSUP if not. A file that was written can
 * be read, resized below what was uploaded, or written twice at one place only before its bytes are
 * uploaded: PAWL_ENOTSUP.
 */
int store_bucket_open(const char *address, struct store **store, struct pawl_err *err);
/* Opens a bucket without a request. Whether there is such a bucket, which takes the credentials, is
 * found out by the first use. PAWL_EINVAL: the address or the configuration is wrong. */
int store_bucket_open_unasked(const char *address, struct store **store, struct pawl_err *err);

/*
 * Returns whether a store is flat: it has no directories, only objects with paths.
 *   - A file that is created is not seen under its path until it is synced; then it is whole and
 *     durable, and replaces what had the path. Closed without a sync, it is dropped.
 *   - A small file is written whole and durable, or not at all; names need no sync either.
 *   - A directory exists as long as an object lies below it.
 * Callers that write as store.h requires of a store of directories need not know the kind.
 */
bool store_is_flat(const struct store *store);

/* Closes the store, after its files were closed. Waits for transfers in flight. NULL is fine. */
void store_close(struct store *store);
/* Creates a file for transfers, including reads; truncates an existing one. It has size_bytes from
 * the start, all zeros, with the space reserved where the store can: PAWL_ENOSPC comes now, not in
 * mid-write. Writes beyond the end extend it. On error an empty file may be left at path. */
int store_create(struct store *store, const char *path, uint64_t size_bytes,
	struct store_file **file, struct pawl_err *err);
/* Opens an existing file for reading. PAWL_ENOENT if absent, PAWL_EINVAL if it is no plain file.
 * size_bytes may be NULL. */
int store_open(struct store *store, const char *path, struct store_file **file,
	uint64_t *size_bytes, struct pawl_err *err);
/* Returns how many transfers may be in flight, STORE_DEPTH or more: with so many the store is as
 * fast as it can be. */
uint32_t store_depth(const struct store *store);
/* Starts a transfer; at most store_depth may be in flight. Reads that pass the end of the file fail
 * with PAWL_ECORRUPT, except in the last block of a file, which need not be whole: bytes behind the
 * end are undefined. Transfers may finish in any order. If this fails, io was not taken. */
int store_submit(struct store *store, struct store_io *io, struct pawl_err *err);
/* Returns a finished transfer; NULL when none is in flight or none finished in timeout_ms (-1:
 * wait). */
struct store_io *store_reap(struct store *store, int timeout_ms);
/* Returns why a transfer that was reaped has failed. */
const char *store_io_why(const struct store_io *io);
/* Cuts or extends a file that was created, while no transfer is in flight: the last block written
 * may have been longer than the file is to be. */
int store_resize(struct store *store, struct store_file *file, uint64_t size_bytes,
	struct pawl_err *err);
/* Waits until all reaped writes are durable (data and size, not the name). */
int store_sync(struct store *store, struct store_file *file, struct pawl_err *err);
/* Closes a file, whose transfers must be reaped before. Loses no data: syncing is separate. NULL is
 * fine. */
void store_close_file(struct store *store, struct store_file *file);
/* Creates or truncates path with these bytes and syncs its data. Not atomic, and the name is not
 * synced: see store_publish. */
int store_write_small(struct store *store, const char *path, const void *bytes, size_t len_bytes,
	struct pawl_err *err);
/* Reads a whole file, malloc'ed with a NUL behind it (not counted). A file over max_bytes is
 * PAWL_ELIMIT, and nothing is read. The caller frees *bytes. */
int store_read_small(struct store *store, const char *path, void **bytes, size_t *len_bytes,
	size_t max_bytes, struct pawl_err *err);
/* Returns kind and size of a path. kind and size_bytes (0 for a directory) may be NULL. PAWL_ENOENT
 * if absent. */
int store_stat(struct store *store, const char *path, enum store_kind *kind, uint64_t *size_bytes,
	struct pawl_err *err);
/* Calls each for every name in a directory, or until it returns nonzero; both are success.
 * PAWL_ENOENT if absent; PAWL_EIO, also if path is no directory; PAWL_ENOMEM. */
int store_list(struct store *store, const char *path, store_list_fn *each, void *user,
	struct pawl_err *err);
/* Opens a directory and closes it again: from then on, NFS shows what another host put there. No
 * effect on a flat store, which keeps no old copies. Errors as for store_list. */
int store_refresh_dir(struct store *store, const char *path, struct pawl_err *err);
/* Removes a file, or a directory with all its content, never following a link. A missing path is
 * success. Not atomic. */
int store_remove(struct store *store, const char *path, struct pawl_err *err);

/* ---- flat stores only; PAWL_ENOTSUP from others ---- */

/*
 * Writes a whole object if it is what the caller expects: match NULL or "": there is none, else
 * PAWL_EEXIST; otherwise its etag is match, else PAWL_EMISMATCH, also if it is gone. Durable on
 * return, and etag is that of the new bytes. After any other error the object holds the old bytes
 * or the new ones, since an answer can be lost: read it to find out.
 */
int store_put_if(struct store *store, const char *path, const void *bytes, size_t len_bytes,
	const char *match, char etag[STORE_ETAG_MAX], struct pawl_err *err);
/* Reads as store_read_small does, and gets the object's etag: no two versions of an object have the
 * same. */
int store_read_etag(struct store *store, const char *path, void **bytes, size_t *len_bytes,
	size_t max_bytes, char etag[STORE_ETAG_MAX], struct pawl_err *err);

/*
 * Creates a file as store_create does. If an earlier writer of this path left an upload unfinished,
 * goes on with that: parts that the service has already, with the bytes that are written now, are
 * not sent again. A file that is closed without a sync, or whose sync fails, is left for the next
 * call; store_sweep drops it. Stores that keep nothing of the kind begin anew.
 */
int store_resume(struct store *store, const char *path, uint64_t size_bytes,
	struct store_file **file, struct pawl_err *err);
/* Sets *has: whether there is an object of this size at path with exactly the bytes that read
 * yields, as far as checksums tell that the service has kept. If it keeps none: no. read is not
 * called if the size differs; it gets 1 MiB at a time. */
int store_has(struct store *store, const char *path, uint64_t size_bytes, store_bytes_fn *read,
	void *user, bool *has, struct pawl_err *err);
/* Removes what writers that are gone left unfinished, and nobody can see: call it when no file is
 * being written. Other stores have nothing of the kind. */
int store_sweep(struct store *store, struct pawl_err *err);
/* Sets a function that is asked now and then, by the thread that waits for a service, whether the
 * wait is to end: PAWL_ECANCELED, and all that is in flight with it. NULL: never. Directories wait
 * for no service. */
void store_on_stop(struct store *store, bool (*stops)(void *user), void *user);

/* ---- built from the above, the same for every store ---- */

/* Puts a small file in place, whole or not at all, durable on return: path.new, sync, rename,
 * sync_dir. On error path holds the old bytes or, when only the last step failed, the new ones;
 * path.new may be left behind and is overwritten by the next call. A flat store does without. */
int store_publish(struct store *store, const char *path, const void *bytes, size_t len_bytes,
	struct pawl_err *err);

#endif
