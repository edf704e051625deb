/* Shared by posix.c (names, small files) and posix_io.c (files for transfers) only. */
#ifndef STORE_POSIX_IMPL_H
#define STORE_POSIX_IMPL_H

#include "io/aio.h"
#include "store/dirs.h"

#include <sys/stat.h>

/* A transfer in flight. A store has STORE_DEPTH slots. */
struct posix_slot {
	struct aio_req req;  /* request for the rest of the transfer */
	struct store_io *io; /* the caller's request; NULL: the slot is free */
	size_t moved_bytes;  /* bytes of io moved so far */
	bool direct;         /* req was started with O_DIRECT */
};

struct posix_store {
	struct store store; /* first: what callers hold */
	int root_fd;        /* the directory that paths are relative to, even if it is moved */
	/* The directory that paths beginning with a dot are relative to; -1: the root. */
	int hidden_fd;
	bool counts_links; /* the file system gives a removed directory 0 links, and others more */
	struct aio *aio;   /* owned */
	struct posix_slot slots[STORE_DEPTH]; /* in no order */
	struct store_io *done;                /* list of requests finished from the page cache */
	struct store_io **done_end;           /* where the next one is linked */
	unsigned in_flight;                   /* requests submitted and not reaped */
};

/* Fills err from errno: "<verb> <path>: <reason>". If the root is gone the code is PAWL_EIO and the
 * message says so, so that the caller does not take it for a missing file. Returns the code. */
int posix_fail(const struct posix_store *ps, struct pawl_err *err, const char *verb,
	const char *path);
/* Returns the descriptor that path is relative to. */
int posix_dir_fd(const struct posix_store *ps, const char *path);
/* Opens a plain file as file_open_plain does; anything else that has the name is PAWL_EINVAL, or
 * PAWL_EIO with O_CREAT. The descriptor has O_NONBLOCK. Returns it, or a negative PAWL_E code with
 * err filled. */
int posix_open_regular(const struct posix_store *ps, const char *path, int flags, struct stat *st,
	struct pawl_err *err);

int posix_create(struct store *store, const char *path, uint64_t size_bytes,
	struct store_file **file, struct pawl_err *err);
int posix_open(struct store *store, const char *path, struct store_file **file,
	uint64_t *size_bytes, struct pawl_err *err);
int posix_map(struct store *store, struct store_file *file, bool unread, const uint8_t **bytes,
	struct pawl_err *err);
void posix_prefetch(struct store_file *file, uint64_t off_bytes, uint64_t len_bytes);
int posix_fill(struct store_file *file, uint64_t off_bytes, uint64_t len_bytes,
	struct pawl_err *err);
int posix_submit(struct store *store, struct store_io *io, struct pawl_err *err);
struct store_io *posix_reap(struct store *store, int timeout_ms);
int posix_resize(struct store *store, struct store_file *file, uint64_t size_bytes,
	struct pawl_err *err);
int posix_clone(struct store *store, const struct store_range *to, const struct store_range *from,
	uint64_t len_bytes, struct pawl_err *err);
int posix_sync(struct store *store, struct store_file *file, struct pawl_err *err);
void posix_close_file(struct store *store, struct store_file *file);

#endif
