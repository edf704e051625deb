/*
 * A root: the place where a job keeps its tags. Two kinds, behind one interface:
 *
 *   directories   a tag is a directory that a rename puts in place (root_posix.c)
 *   objects       a store without directories, such as a bucket: a tag is a manifest that one
 *                 conditional PUT puts in place (root_object.c)
 *
 * tags.h lists, opens, pins and removes tags; this header opens a root, builds tags in it, and
 * keeps the small files beside them. Code that uses this header knows neither renames nor links,
 * and no path of a tag's files but those of manifest_path and tag_draft. docs/format.md has both
 * layouts.
 *
 * agent/root.h is the agent's side of a root: its ledger, ranks and arenas.
 *
 * A root and all that is opened from it belong to one thread at a time. One process at a time owns
 * a root (tags_root_lock) and may change it; any number of others may read. Exceptions are named.
 */
#ifndef CKPT_ROOT_H
#define CKPT_ROOT_H

#include "ckpt/format/manifest.h"
#include "store/store.h"

struct pawl_err;
struct tags_root;

#define ROOT_HOLDER_MAX 512u     /* bytes of a holder's name, terminator included */
#define ROOT_ID_MAX     64u      /* bytes of the id of a shared draft, at most */
#define ROOT_SHARED_ID  "hosts-" /* begins the id of a draft that several hosts share */
#define ROOT_UNIT_ID    "unit-"  /* begins the id of a draft that a later process may go on with */
#define ROOT_FILE_MAX   (128u << 20) /* bytes of a small file that objects append to, at most */

/* ---- opening ---- */

/* Opens the root in a directory, and makes it if asked; or the root in a bucket, if path is the
 * address of one (store_is_bucket), as store_bucket_open does. hidden: a directory of the same file
 * system for all that is no finished tag, or NULL: in path. PAWL_ENOENT if there is no such
 * directory. */
int tags_root_open(const char *path, const char *hidden, bool create, struct tags_root **root,
	struct pawl_err *err);
/* Opens the root in a bucket as tags_root_open does, but asks it nothing: see
 * store_bucket_open_unasked. */
int tags_root_open_unasked(const char *path, struct tags_root **root, struct pawl_err *err);
/* Opens the root that a store holds, of objects if the store is flat. Takes the store, which is
 * closed with the root, unless this fails. Such a root of directories has no lock: PAWL_ENOTSUP. */
int tags_root_over(struct store *store, struct tags_root **root, struct pawl_err *err);
/* Releases the root if it was locked. NULL is fine. */
void tags_root_close(struct tags_root *root);
/* Returns the store of a root, for readers, writers and small files. Owned by the root. */
struct store *tags_root_store(struct tags_root *root);

/* ---- owning ---- */

/*
 * Takes the root for job, until it is closed. wait: another job may take a moment to release it.
 * Directories: PAWL_EBUSY names the holder; PAWL_EIO if the lock file is no plain file. Objects:
 * the newest owner has the root, and an earlier one finds out by tags_root_holds; nobody waits.
 */
int tags_root_lock(struct tags_root *root, const char *job, bool wait, struct pawl_err *err);
/* Returns whether a locked root is still the one at its path, and its lock still ours. Storage that
 * fails counts as still ours: it may work again. */
bool tags_root_holds(struct tags_root *root);
/* Returns whether a root of objects may be in use: its newest owner has not closed it. That owner
 * may have crashed. Directories: false, since tags_root_lock finds out. */
bool tags_root_held(struct tags_root *root);
/* Reads the last owner of a root: "job gpt (pid 123 on host)". It may be gone since. Returns false
 * if there never was one. holder has ROOT_HOLDER_MAX bytes. */
bool tags_root_holder(struct tags_root *root, char *holder);
/* Returns whether a job ever owned the root. */
bool tags_root_used(struct tags_root *root);

/* ---- building a tag ---- */

/* A tag being built. The files go into dir, by a writer (write.h), before it is published. Zeroed,
 * it is no draft, and may be abandoned all the same. */
struct tag_draft {
	char tag[CKPT_TAG_MAX];
	char dir[STORE_NAME_MAX];  /* folder of the store that the files go into */
	char etag[STORE_ETAG_MAX]; /* objects: manifest that this one replaces; "": none */
};

/* Begins a tag, and removes what an earlier attempt left (objects: tags_recover does). PAWL_EINVAL:
 * no tag can have this name. If this fails, the draft may be abandoned. */
int tag_begin(struct tags_root *root, const char *tag, struct tag_draft *draft,
	struct pawl_err *err);
/* Begins a tag that several hosts or, one after the other, several processes write. id, the same
 * for all of them, names this attempt: ROOT_SHARED_ID or ROOT_UNIT_ID, then letters, digits and
 * '-', fewer than ROOT_ID_MAX bytes. Each host calls it, owner of the root or not, as often as it
 * likes. Only the owner publishes or abandons the draft. */
int tag_begin_shared(struct tags_root *root, const char *tag, const char *id,
	struct tag_draft *draft, struct pawl_err *err);
/* Prepares an empty manifest for files that are written into the draft. Call it before the first
 * part is added. The caller frees manifest->folders (not of a decoded manifest). */
int tag_draft_manifest(struct tags_root *root, const struct tag_draft *draft,
	struct manifest *manifest, struct pawl_err *err);
/* Makes the names of files that this host wrote durable. tag_publish does that, too. */
int tag_sync_files(struct tags_root *root, const struct tag_draft *draft, struct pawl_err *err);
/* Keeps a part of an earlier tag (from, opened) in the draft without writing it again: part becomes
 * a copy of old, for manifest, whose memory stays from's. */
int tag_keep_part(struct tags_root *root, const struct tag_draft *draft, struct manifest *manifest,
	const struct manifest *from, const struct manifest_part *old, struct manifest_part *part,
	struct pawl_err *err);
/* Keeps files that other programs put beside the files of a tag that is replaced (ours: its
 * manifest). PAWL_EEXIST if one is in the way. Objects: such files stay where they are. */
int tag_adopt(struct tags_root *root, const struct tag_draft *draft, const struct manifest *ours,
	struct pawl_err *err);
/*
 * Publishes a tag, durably: after a crash it is there whole, or what was there before is. The files
 * must be written and synced. Objects: PAWL_EBUSY if another process has published the tag since
 * tag_begin, or has taken the root; then that process's tag stays.
 */
int tag_publish(struct tags_root *root, const struct tag_draft *draft,
	const struct manifest *manifest, struct pawl_err *err);
/* Removes an unpublished draft and its files, best effort. */
void tag_abandon(struct tags_root *root, const struct tag_draft *draft);

/* ---- small files beside the tags; file is one name ---- */

/* Appends to a file, and makes it if it does not exist. With sync it is durable on return. A
 * failure may leave a part of the bytes. */
int tags_root_append(struct tags_root *root, const char *file, const void *bytes, size_t len_bytes,
	bool sync, struct pawl_err *err);
/* Gives a file another name, durably, in place of any file that has it. PAWL_ENOENT. Objects: after
 * a crash both names may exist. */
int tags_root_put_aside(struct tags_root *root, const char *file, const char *aside,
	struct pawl_err *err);
/* Makes a folder for small files, in a folder that exists; an existing one is success. Objects have
 * no folders: nothing is done. */
int tags_root_make_folder(struct tags_root *root, const char *folder, struct pawl_err *err);
/* Removes a folder of small files with all its content, at once: what others still write there is
 * removed with it, or lost. Leftovers may stay in old, and are removed by the next call. A missing
 * folder is success. */
int tags_root_clear(struct tags_root *root, const char *folder, const char *old,
	struct pawl_err *err);
/* Has the names in the root be read anew, where the system keeps old copies of them (NFS). */
int tags_root_refresh(struct tags_root *root, struct pawl_err *err);
/* Returns the bytes of the file, or of all files in the folder, at path of the store; 0 if there is
 * none. */
uint64_t tags_root_measure(struct tags_root *root, const char *path);

/* ---- looking at a root in a directory, without opening it; hidden as in tags_root_open ---- */

/* Returns whether a process of this machine has the root locked. Does not try the lock: in that
 * instant a job could be refused. */
bool tags_root_in_use(const char *path, const char *hidden);
/* Returns a number that usually changes when the root, or this small file in it, does: cheap. */
uint64_t tags_root_stamp(const char *path, const char *hidden, const char *file);
/* Removes a root that its caller has made and locked, if nothing else is in it; best effort. */
void tags_root_unmake(const char *path);

#endif
