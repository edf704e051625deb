/*
 * What only a store of directories can do: see store.h. A flat store needs no directories, so that
 * making and syncing one succeeds and does nothing; all else is PAWL_ENOTSUP there.
 *
 * Only the parts of ckpt that know both kinds of roots include this file; tools/tidy.py holds that.
 */
#ifndef STORE_DIRS_H
#define STORE_DIRS_H

#include "store/store.h"

/* EXCHANGE: both names exist and swap atomically */
enum store_rename { STORE_REPLACE, STORE_EXCHANGE };

/* A place in an open file. */
struct store_range {
	struct store_file *file;
	uint64_t off_bytes;
};

/* The implementation's second table; callers use the functions below. */
struct store_dir_ops {
	int (*mkdir)(struct store *store, const char *path, struct pawl_err *err);
	int (*sync_dir)(struct store *store, const char *path, struct pawl_err *err);
	int (*rename)(struct store *store, const char *from, const char *to, enum store_rename how,
		struct pawl_err *err);
	int (*link)(struct store *store, const char *from, const char *to, struct pawl_err *err);
	int (*append_small)(struct store *store, const char *path, const void *bytes,
		size_t len_bytes, bool sync, struct pawl_err *err);
	int (*clone)(struct store *store, const struct store_range *to,
		const struct store_range *from, uint64_t len_bytes,
		struct pawl_err *err); /* NULL: never */
	int (*map)(struct store *store, struct store_file *file, bool unread, const uint8_t **bytes,
		struct pawl_err *err); /* NULL: never maps; prefetch and fill are then NULL, too */
	void (*prefetch)(struct store_file *file, uint64_t off_bytes, uint64_t len_bytes);
	int (*fill)(struct store_file *file, uint64_t off_bytes, uint64_t len_bytes,
		struct pawl_err *err);
};

/* Makes one directory; its parent must exist. An existing directory is success. */
int store_mkdir(struct store *store, const char *path, struct pawl_err *err);
/* Makes all missing directories on the way to path except the first, which must exist. They are
 * durable once each of them, and the first, was given to store_sync_dir. */
int store_mkdirs(struct store *store, const char *path, struct pawl_err *err);
/* Makes the names in directory path ("" = the root) durable. */
int store_sync_dir(struct store *store, const char *path, struct pawl_err *err);
/* Renames atomically. REPLACE onto an existing non-empty directory fails with PAWL_EEXIST; EXCHANGE
 * needs both names (PAWL_ENOTSUP where the system lacks it). Across directories, both directories
 * need a sync_dir. */
int store_rename(struct store *store, const char *from, const char *to, enum store_rename how,
	struct pawl_err *err);
/* Links a file, not a directory, to a second name; needs a sync_dir. PAWL_EEXIST if to exists,
 * PAWL_ENOTSUP where the system cannot link. */
int store_link(struct store *store, const char *from, const char *to, struct pawl_err *err);
/* Appends with one write, then syncs the data if asked to; a later synced append also syncs earlier
 * ones. Creates the file when absent. A failure may leave part of the bytes behind. */
int store_append_small(struct store *store, const char *path, const void *bytes, size_t len_bytes,
	bool sync, struct pawl_err *err);
/*
 * Makes bytes of an open file appear in another file, which was created, without writing them: both
 * files share them on disk until one of them changes. Offsets are multiples of 1 MiB, and so is the
 * length unless both files end there; no transfer of to is in flight. PAWL_ENOTSUP, the usual
 * answer, where the file system cannot share bytes.
 */
int store_clone(struct store *store, const struct store_range *to, const struct store_range *from,
	uint64_t len_bytes, struct pawl_err *err);
/*
 * Maps the whole of an open file for reading, until the file is closed, if that is cheaper than to
 * transfer it because nearly all of it is in memory already. From now on no read of these bytes
 * fails, and nobody changes them: their pages are kept, and a process that opens the file for
 * writing waits until it is closed here, or for as long as the system lets us (Linux:
 * fs.lease-break-time, 45 s). PAWL_ENOTSUP, with err saying why, is the usual answer: then transfer
 * the file. Transfers work in either case.
 */
int store_map(struct store *store, struct store_file *file, const uint8_t **bytes,
	struct pawl_err *err);
/* Maps a file that is not in memory: only bytes that store_fill has read since may be used. For
 * files that other processes of this node read as well. Errors as for store_map. */
int store_map_unread(struct store *store, struct store_file *file, const uint8_t **bytes,
	struct pawl_err *err);
/* Starts to read these bytes of a file mapped by store_map_unread. They begin and end at a multiple
 * of STORE_ALIGN, or end with the file. */
void store_prefetch(struct store *store, struct store_file *file, uint64_t off_bytes,
	uint64_t len_bytes);
/* Reads these bytes of a file mapped by store_map_unread, if they are not in memory. PAWL_EIO. */
int store_fill(struct store *store, struct store_file *file, uint64_t off_bytes, uint64_t len_bytes,
	struct pawl_err *err);

#endif
