/*
 * Checkpoints, for a training process in any language: connect, save, wait, restore.
 *
 * A process describes its state as partitions: each a torch pickle (whose persistent ids name
 * storages "0", "1", …) and the memory of those storages. Saving stages them into memory that an
 * agent process owns and returns; the agent makes them durable. See docs/format.md.
 *
 * Threads: any number may call on one pawl_ckpt, but saves and restores are one at a time.
 * Ownership: what is passed in stays the caller's; how long it must live is said at each call.
 * After fork, the child's copy is dead: all calls fail with PAWL_EPEER.
 */
#ifndef PAWL_CKPT_H
#define PAWL_CKPT_H

#include "pawl/err.h"
#include "pawl/inspect.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct pawl_ckpt;    /* a rank's connection to its agent */
struct pawl_restore; /* a checkpoint being read */

#define PAWL_CKPT_WHY_MAX  512
#define PAWL_CKPT_NOTE_MAX 1024       /* bytes of a note, terminator included */
#define PAWL_CKPT_AUTO     UINT64_MAX /* persist_every_ms: what costs least, as measured */

struct pawl_ckpt_options {
	const char *root; /* directory; made absolute */
	const char *job;  /* who this is: only processes of the same job share a root. At most 127
			     bytes */
	uint32_t rank, world; /* this process, of how many */
	uint32_t host_first;  /* rank of this host; its ranks are one behind the other */
	uint32_t host_ranks;  /* on this host; 0: all. If not, see "several hosts" below */
	uint32_t attempt;     /* how often the job was started before, from 0 */
	uint32_t keep;        /* durable checkpoints to keep, newest first; 0: all */
	uint64_t keep_every;  /* and every one whose step divides by this; 0: none */
	uint32_t full_every;  /* one of so many durable saves is written whole; the others share
				 with the one before what did not change. 0, 1: all are whole */
	uint64_t persist_every_ms; /* between two made durable; 0: every save; or PAWL_CKPT_AUTO */
	uint64_t memory_bytes;     /* most the memory tier may take on this node; 0: half of what is
				      free */
	const char *socket;  /* the agent's, if it is known; NULL: the job's own, spawned if nobody
				listens */
	const char *program; /* the pawl program, to spawn; NULL: never spawn */
	const char *hidden;  /* directory of root's file system for what is not a finished tag;
				NULL: root itself */
	bool named;          /* saves have names, see "saves by tag" below */
	bool watch; /* let saves return before the copy, where the kernel can prove that nothing
		       changed */
	/*
	 * NULL; or asked by a thread of the session, when all of a save is copied of which some lay
	 * on a device, and before it is told to anybody: whether the caller knows of no span that
	 * changed since the save began. If it does, *part and *storage say which, and the save
	 * fails. Must not wait for a save.
	 */
	bool (*unchanged)(void *user, uint64_t id, int *part, int *storage);
	void *user; /* of unchanged */
};

/*
 * Several hosts: each has an agent of its own, and root is one directory that all of them see, in
 * which the agents agree. Every save is made durable; COMMITTED means that the ranks of this host
 * have staged it, and it may still fail; restores are from root, and the same on all hosts. All
 * ranks make the same saves in the same order, by tag too: each rank each tag once, with a step, if
 * only to say that it has no partition of it (else PAWL_ENOTSUP). pawl_ckpt_stopping and
 * pawl_ckpt_due answer for this host alone. See docs/limits.md.
 */

/* PAWL_EBUSY names the job that has the root already. Blocks until the root is open (at most a
 * minute). */
int pawl_ckpt_open(struct pawl_ckpt **out, const struct pawl_ckpt_options *options,
	struct pawl_err *err);
/* Waits at most timeout_ms (-1: for ever) until the newest save is durable, then leaves. 0; else it
 * is not: what its storage said, or PAWL_ETIMEDOUT if that said nothing. Always frees. NULL is
 * fine. */
int pawl_ckpt_close(struct pawl_ckpt *ckpt, int timeout_ms, struct pawl_err *err);
/* This process is leaving because of an error: a save by tag that some rank has no part in yet must
 * not be taken for whole when it closes, nor waited for; and why is for the record of how often the
 * job fails. */
void pawl_ckpt_abandon(struct pawl_ckpt *ckpt, const char *why);

/* Memory of one storage of a partition. */
struct pawl_ckpt_span {
	uint64_t addr;       /* of the first byte */
	uint64_t size_bytes; /* may be 0 */
	uint64_t groups;     /* bit set of fences that protect it from its writers; 0: copied before
				save returns */
	uint64_t device;     /* 0: host memory; n: addr is of CUDA device n - 1 */
};

struct pawl_ckpt_part {
	const char *name; /* "model", or in folders "adapter/model"; at most 180 bytes */
	bool shared; /* all ranks hold the same storages: each writes a share, rank 0 the pickle */
	bool raw;    /* not a torch zip: the file is the spans one behind the other; no pickle */
	const void *pickle;     /* data.pkl */
	uint64_t pickle_bytes;  /* of it */
	const void *tensors;    /* encoded tensor table (pawl_ckpt_tensor_put), may be NULL */
	uint32_t tensors_bytes; /* of it */
	const struct pawl_ckpt_span *spans; /* one a storage, in the order of their keys */
	uint32_t spans_n;                   /* of them */
};

/*
 * Starts a save. Spans with groups are copied while the caller goes on; their memory must stay
 * allocated until the save is staged or failed, and must not be written to before pawl_ckpt_fence
 * on one of their groups returned (if it is all the same, the save fails; it is never wrong).
 * Everything else is copied on return. What lies on a device is copied as it is once all work
 * queued on the device's default stream so far is done; nobody watches it but the fences. *id gets
 * the save's number, also when the save was skipped: then its status says why. Errors are those of
 * the caller (PAWL_EINVAL, PAWL_EMISMATCH: ranks disagree on the step).
 */
int pawl_ckpt_save(struct pawl_ckpt *ckpt, uint64_t step, const struct pawl_ckpt_part *parts,
	uint32_t parts_n, bool watch, uint64_t *id, struct pawl_err *err);
/*
 * Saves by tag, for programs that name their checkpoints, or of whose ranks not all save each of
 * them (options.named; then these replace pawl_ckpt_save). Ranks are matched by tag. A partition's
 * file has exactly its name, whichever rank saves it; two ranks that use one name fail the save. A
 * rank that begins another tag, asks for a checkpoint, waits, flushes or leaves has nothing more to
 * add to the tag before, and neither have ranks that have never saved anything.
 *
 * A tag that was saved before since the ranks started is added to; partitions of the same names are
 * replaced. step orders tags (PAWL_STEP_NONE: as high as the newest).
 */
#define PAWL_STEP_NONE  UINT64_MAX
#define PAWL_SAVE_ALONE 1u /* no other rank has a part in it */
#define PAWL_SAVE_ADDS                                                                             \
	2u /* this session has saved the tag before: an agent that came since adds, too */
#define PAWL_SAVE_STREAM                                                                           \
	4u /* the rank writes it to the store itself, though memory has room for it: for those     \
	      who wait until it is durable anyway. What another rank began goes where that one's   \
	      does */
int pawl_ckpt_save_tag(struct pawl_ckpt *ckpt, const char *tag, uint64_t step, uint32_t flags,
	const struct pawl_ckpt_part *parts, uint32_t parts_n, bool watch, uint64_t *id,
	struct pawl_err *err);
/*
 * The same in pieces: begin, any number of partitions, commit. Each partition is copied (or, where
 * memory does not suffice, written) when pawl_ckpt_add returns. *id is the save's number from begin
 * on. One such save at a time: until it is committed or dropped, others are PAWL_EBUSY.
 */
int pawl_ckpt_begin(struct pawl_ckpt *ckpt, const char *tag, uint64_t step, uint32_t flags,
	uint64_t *id, struct pawl_err *err);
/* PAWL_EEXIST: the save has a partition of this name. On other errors the save has failed. */
int pawl_ckpt_add(struct pawl_ckpt *ckpt, const struct pawl_ckpt_part *part, struct pawl_err *err);
/* This rank's part is whole. Errors: the save has failed. */
int pawl_ckpt_commit(struct pawl_ckpt *ckpt, struct pawl_err *err);
/* The save in the making will not come: it fails for all ranks. */
void pawl_ckpt_drop(struct pawl_ckpt *ckpt, const char *why);

/*
 * Optional: a save of step is about to come, of as many bytes as the last one; what it needs of the
 * agent is asked for now, so that the answer is there when it comes.
 */
void pawl_ckpt_ask(struct pawl_ckpt *ckpt, uint64_t step);
/* This rank's next save will not come, asked for or not: the other ranks' saves fail, and the saves
 * after it still go together. Waits for the answer, if one is under way. */
void pawl_ckpt_unask(struct pawl_ckpt *ckpt);
/* Returns when every span with one of these groups is copied. */
void pawl_ckpt_fence(struct pawl_ckpt *ckpt, uint64_t groups);
/* The caller saw a span change under the copy: the save fails unless it is committed already. */
void pawl_ckpt_withdraw(struct pawl_ckpt *ckpt, uint64_t id, int part, int storage);

/* COMMITTED: the save, or a newer one, survives the training processes; docs/limits.md says what
 * memory that takes. DURABLE: the machine, too. */
enum pawl_ckpt_level {
	PAWL_CKPT_FAILED = -1,
	PAWL_CKPT_STAGING,
	PAWL_CKPT_STAGED,
	PAWL_CKPT_COMMITTED,
	PAWL_CKPT_DURABLE
};

/* What shows that no byte changed under the copy. */
enum pawl_ckpt_proof {
	PAWL_CKPT_COPIED,  /* everything was copied before save returned */
	PAWL_CKPT_WATCHED, /* the kernel watched what was copied later */
	PAWL_CKPT_FENCED,  /* some of that lay on CUDA devices, which only fences protect */
};

#define PAWL_CKPT_STATUS_KEPT 256 /* saves whose status is remembered; older ones: PAWL_ENOENT */

struct pawl_ckpt_status {
	enum pawl_ckpt_level level;
	int code; /* PAWL_E code of failure or of trouble with the storage, 0 if none */
	char why[PAWL_CKPT_WHY_MAX]; /* of code */
	enum pawl_ckpt_proof proof;  /* of what it had copied when save returned */
	int part, storage;           /* code PAWL_ECHANGED: which span changed; else -1 */
	uint64_t stall_ns;           /* save took */
	uint64_t stage_ns;           /* until all was copied; 0 while it is not */
};

int pawl_ckpt_status(struct pawl_ckpt *ckpt, uint64_t id, struct pawl_ckpt_status *status,
	struct pawl_err *err);
/* Waits until the save is at level. 0; PAWL_ETIMEDOUT; PAWL_ECANCELED when it failed, or was
 * superseded before it became durable. */
int pawl_ckpt_wait(struct pawl_ckpt *ckpt, uint64_t id, enum pawl_ckpt_level level, int timeout_ms,
	struct pawl_err *err);
/* Waits until the newest save is durable. As pawl_ckpt_wait. */
int pawl_ckpt_flush(struct pawl_ckpt *ckpt, int timeout_ms, struct pawl_err *err);
int pawl_ckpt_pin(struct pawl_ckpt *ckpt, const char *tag, bool pinned, struct pawl_err *err);
/* Deletes a tag, in memory and in the store, once what is being written is. A tag that is not there
 * is fine. */
int pawl_ckpt_remove(struct pawl_ckpt *ckpt, const char *tag, struct pawl_err *err);
/* A tag that is committed in memory and not yet durable. */
struct pawl_ckpt_pending {
	char tag[PAWL_TAG_MAX];
	uint64_t step;
};

#define PAWL_CKPT_PENDING_MAX 3

int pawl_ckpt_pending(struct pawl_ckpt *ckpt,
	struct pawl_ckpt_pending pending[PAWL_CKPT_PENDING_MAX], uint32_t *n, struct pawl_err *err);
/*
 * Shall this rank stop (finish the step, save, leave), because a notice or a signal came? To be
 * asked once a step, by all ranks alike: the answer turns to yes at the same question on every
 * rank, however their steps interleave.
 */
bool pawl_ckpt_stopping(struct pawl_ckpt *ckpt);
/*
 * Is a save worth it now, by what saves cost, how often this root's runs failed, and when the last
 * one was? To be asked once a step, by all ranks alike: the answer turns to yes at the same
 * question on every rank, and to no with the next save.
 */
bool pawl_ckpt_due(struct pawl_ckpt *ckpt);
/* A signal asked this process to stop: all ranks are to. Not from a signal handler. */
void pawl_ckpt_stop(struct pawl_ckpt *ckpt);
/* Appends the names of partitions found different between ranks to buf, one a line. Returns how
 * many. */
uint32_t pawl_ckpt_diverged(struct pawl_ckpt *ckpt, char *buf, size_t cap_bytes);
/* The next thing to tell the user once; false when there is none. buf: of PAWL_CKPT_NOTE_MAX bytes,
 * or what is longer is cut. */
bool pawl_ckpt_note(struct pawl_ckpt *ckpt, char *buf, size_t cap_bytes);
/* The same, for a thread of the caller's that says such things at once: waits until there is one.
 * False: there is none and pawl_ckpt_hush was called, as it must be, and this awaited, before
 * pawl_ckpt_close. */
bool pawl_ckpt_await_note(struct pawl_ckpt *ckpt, char *buf, size_t cap_bytes);
void pawl_ckpt_hush(struct pawl_ckpt *ckpt);
/* Tells the agent what this process has imported, for the template that restarts it. */
int pawl_ckpt_imports(struct pawl_ckpt *ckpt, const char *names, size_t len_bytes,
	struct pawl_err *err);
/* Strongest proof this system allows: true if the kernel can watch; else why_not (static) says why
 * not. */
bool pawl_ckpt_can_watch(struct pawl_ckpt *ckpt, const char **why_not);

/* ---- restoring ---- */

/*
 * Asks for the newest checkpoint (or step). All ranks get the same one, whichever rank asks first.
 * 0 and *out; PAWL_ENOENT: there is none. Then: read what is needed, vote, and if the verdict
 * is to go on, copy. Nothing of the caller's is touched before.
 */
int pawl_ckpt_restore(struct pawl_ckpt *ckpt, bool has_step, uint64_t step, int timeout_ms,
	struct pawl_restore **out, struct pawl_err *err);
/* For this rank alone, without a vote: a tag, or the newest (NULL). Errors as above; PAWL_ECORRUPT
 * if the tag is broken. What of it lies in memory stays there until close, and holds up saves. */
int pawl_ckpt_find(struct pawl_ckpt *ckpt, const char *tag, int timeout_ms,
	struct pawl_restore **out, struct pawl_err *err);
/* For tools, without an agent or other ranks: the newest complete tag of a root, or that of step.
 * Votes are not taken. */
int pawl_restore_open(const char *root, bool has_step, uint64_t step, struct pawl_restore **out,
	struct pawl_err *err);
int pawl_restore_open_tag(const char *root, const char *tag, struct pawl_restore **out,
	struct pawl_err *err);
void pawl_restore_close(struct pawl_restore *restore); /* NULL is fine */

struct pawl_restore_info {
	const char *tag; /* valid until close */
	uint64_t step;
	uint32_t world;   /* ranks that saved */
	uint32_t parts_n; /* partitions, of all ranks */
	bool memory;      /* from the memory tier, else from the store */
};

struct pawl_restore_part {
	const char *name;    /* valid until close */
	const char *file;    /* its name in the tag; valid until close */
	int64_t rank;        /* whose it is; -1: shared by all */
	bool raw;            /* no torch zip: no pickle, and one storage, the whole file */
	uint64_t size_bytes; /* of the file */
	const void *tensors; /* encoded table */
	uint32_t tensors_bytes;
};

void pawl_restore_info(const struct pawl_restore *restore, struct pawl_restore_info *info);
void pawl_restore_part(const struct pawl_restore *restore, uint32_t part,
	struct pawl_restore_part *out);
/* Reads and verifies a partition's pickle alone, which takes a small part of the time that all of
 * it takes. The bytes are valid, and stay the same, until close: they may be looked at while
 * pawl_restore_read is under way in another thread. Else a restore belongs to one thread at a time.
 * PAWL_ECORRUPT names file and offset. */
int pawl_restore_pickle(struct pawl_restore *restore, uint32_t index, const void **pickle,
	uint64_t *size_bytes, struct pawl_err *err);
/* Reads the partition whole and verifies every byte. Errors as pawl_restore_pickle. */
int pawl_restore_read(struct pawl_restore *restore, uint32_t index, struct pawl_err *err);
/* Sizes of the storages of a partition whose pickle, or all, was read; before there are none. */
uint32_t pawl_restore_storages(const struct pawl_restore *restore, uint32_t part);
uint64_t pawl_restore_storage_bytes(const struct pawl_restore *restore, uint32_t part,
	uint32_t storage);

/* Bytes to copy out of storages that were read. */
struct pawl_restore_copy {
	uint64_t part, storage; /* indices */
	uint64_t off_bytes;     /* in the storage */
	uint64_t dst;           /* address */
	uint64_t len_bytes;
};

/*
 * Reads and verifies what these copies need, which may be a small part of their partitions, in
 * chunks of 1 MiB; dst is not looked at. Ranks of a node that need the same bytes read them from
 * the storage once. PAWL_EINVAL as pawl_restore_copy; else as pawl_restore_pickle.
 */
int pawl_restore_need(struct pawl_restore *restore, const struct pawl_restore_copy *copies,
	size_t n, struct pawl_err *err);

/* A part of a tensor that this rank wants, of whatever shards it was saved in. */
struct pawl_restore_box {
	const char *part;       /* name of the partition, which several ranks may have saved */
	const char *tensor;     /* its name in the tensor tables */
	const char *dtype;      /* as there */
	uint32_t item_bytes;    /* of an element of that dtype */
	uint32_t ndim;          /* of the three lists */
	const uint64_t *global; /* shape of the whole tensor */
	const uint64_t *start;  /* first element that is wanted */
	const uint64_t *shape;  /* elements that are wanted */
	uint64_t dst;           /* where they go, in row-major order */
};

/*
 * Appends the copies that fill a box to *copies (malloc'ed, grown by realloc; begin with NULL and
 * 0), for pawl_restore_need and pawl_restore_copy. The caller frees it. A row of a table that is no
 * shard counts as the whole tensor: that its elements lie in row-major order is the caller's to
 * know. PAWL_EMISMATCH: the tensor was saved with another shape or dtype, or not all of it was;
 * errors of pawl_restore_pickle. Then *copies has no more than before.
 */
int pawl_restore_reshard(struct pawl_restore *restore, const struct pawl_restore_box *box,
	struct pawl_restore_copy **copies, size_t *n, struct pawl_err *err);

/* PAWL_EINVAL if a copy passes the end of its storage, or neither its partition was read nor what
 * it needs; then nothing was copied. */
int pawl_restore_copy(const struct pawl_restore *restore, const struct pawl_restore_copy *copies,
	size_t n, struct pawl_err *err);

enum pawl_verdict { PAWL_VERDICT_GO, PAWL_VERDICT_RETRY, PAWL_VERDICT_REFUSED };

/* What was found by pawl_ckpt_find is damaged (PAWL_ECORRUPT): its copy in memory is given up, or
 * the tag put aside, so that nobody finds it again. */
void pawl_restore_condemn(struct pawl_restore *restore, const char *why);
/* Votes, and waits for the other ranks. *all is GO or RETRY (ask again: the damaged copy is out of
 * the way); PAWL_EMISMATCH with the refusing rank's why. */
int pawl_restore_vote(struct pawl_restore *restore, enum pawl_verdict verdict, const char *why,
	int timeout_ms, enum pawl_verdict *all, struct pawl_err *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
