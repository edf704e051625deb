/*
 * Checkpoints, for a training process in any language: connect, save, wait, restore.
 *
 * A process describes its state as partitions: each a torch pickle (whose persistent ids name
 * storages "0", "1", …) and the memory of those storages. Saving stages them into memory that an
 * agent process owns and returns; the agent makes them durable. See docs/format.md.
 *
 * Threads: any number may use one pawl_ckpt, but saves and restores run one at a time. Ownership:
 * arguments stay the caller's; each call says how long they must live. In a forked child all calls
 * fail with PAWL_EPEER.
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

#define PAWL_CKPT_WHY_MAX          512
#define PAWL_CKPT_NOTIFICATION_MAX 1024       /* bytes, terminator included */
#define PAWL_CKPT_AUTO             UINT64_MAX /* persist_every_ms: the cheapest interval */
#define PAWL_CKPT_REPLICAS_MAX     8u
#define PAWL_CKPT_PARITY_MAX       3u         /* replicas, with parity */
#define PAWL_CKPT_REPLICAS_DEFAULT UINT32_MAX /* replicas: the agent chooses */

struct pawl_ckpt_options {
	/* Directory, made absolute; or the address of a bucket: "s3://BUCKET/PREFIX". */
	const char *root;
	/* Name of the job, at most 127 bytes. Only processes of one job may share a root. */
	const char *job;
	uint32_t rank, world; /* number of this process; number of processes */
	uint32_t host_first;  /* lowest rank of this host, whose ranks are consecutive */
	uint32_t host_ranks;  /* ranks on this host; 0: all. If fewer, see "several hosts" below */
	uint32_t attempt;     /* how often the job was started before, from 0 */
	uint32_t keep;        /* durable checkpoints to keep, newest first; 0: all */
	uint64_t keep_every;  /* also keep steps that are a multiple of this; 0: none */
	/* One durable save in so many is written whole; the others share unchanged bytes with the
	 * previous one. 0, 1: all are whole. */
	uint32_t full_every;
	uint64_t persist_every_ms; /* interval of durable saves; 0: every save; or PAWL_CKPT_AUTO */
	/* Most memory that the memory tier may take on this node; 0: half of what is free. */
	uint64_t memory_bytes;
	/* Hosts that keep a copy, in memory, of what this host's ranks commit; at most
	 * PAWL_CKPT_REPLICAS_MAX. PAWL_CKPT_REPLICAS_DEFAULT: 1 if the ranks span hosts whose
	 * agents are connected, as under `pawl run`, else 0. No effect where they are not. */
	uint32_t replicas;
	/* In place of as many copies, keep that many sums over the parts of several hosts (at most
	 * PAWL_CKPT_PARITY_MAX): as many hosts may be lost, for a part of the memory. With fewer
	 * than 4 hosts: copies. The same on all ranks. */
	bool parity;
	/* Socket of the agent, if known; NULL: that of the job's own agent, spawned if nobody
	 * listens. */
	const char *socket;
	const char *program; /* the pawl program, to spawn the agent; NULL: never spawn */
	/* Directory in root's file system for all that is not a finished tag; NULL: root itself. */
	const char *hidden;
	bool named; /* saves have names; see "saves by tag" below */
	/* Let saves return before the copy, where the kernel can prove that nothing changed. */
	bool watch;
	/*
	 * Returns whether the caller knows of no span that changed since the save began. If it
	 * returns false, *part and *storage say which span changed, and the save fails. A thread of
	 * the session calls it for saves with memory on a device, once all is copied and before the
	 * save is reported to any other process. Must not wait for a save. NULL: no such check.
	 */
	bool (*unchanged)(void *user, uint64_t id, int *part, int *storage);
	void *user; /* argument of unchanged */
};

/*
 * Several hosts: each has an agent of its own. root is one directory that all hosts see, and the
 * agents agree by files in it. Every save is made durable, unless the agents are connected (pawl
 * run) and saves have no names: then that of rank 0's host chooses, by its persist_every. COMMITTED
 * means that the ranks of this host have staged the save, which may still fail. Restores read from
 * root, or from the hosts' memory if their agents are connected, and are the same on all hosts. All
 * ranks make the same saves in the same order, by tag too: each rank saves each tag once, with a
 * step, even if it has no partition of it (else PAWL_ENOTSUP). pawl_ckpt_stopping and pawl_ckpt_due
 * answer for this host alone. See docs/limits.md.
 */

/* Opens a session; blocks until the root is open, at most a minute. PAWL_EBUSY: another job has the
 * root; err names it. */
int pawl_ckpt_open(struct pawl_ckpt **out, const struct pawl_ckpt_options *options,
	struct pawl_err *err);
/* Waits at most timeout_ms (-1: no limit) until the newest save is durable, then closes the session
 * and always frees it. Returns 0 if that save is durable; else the error of its storage, or
 * PAWL_ETIMEDOUT if there was none. NULL is fine. */
int pawl_ckpt_close(struct pawl_ckpt *ckpt, int timeout_ms, struct pawl_err *err);
/* Declares that this process ends because of an error. A save by tag in which some rank has no part
 * yet then never counts as complete, and closing the session does not wait for it. why goes into
 * the record of how often the job fails. */
void pawl_ckpt_abandon(struct pawl_ckpt *ckpt, const char *why);

/* Memory of one storage of a partition. */
struct pawl_ckpt_span {
	uint64_t addr;       /* address of the first byte */
	uint64_t size_bytes; /* may be 0 */
	/* Bit set of the fences that protect the span from its writers; 0: copied before save
	 * returns. */
	uint64_t groups;
	uint64_t device; /* 0: host memory; n: addr is of CUDA device n - 1 */
};

struct pawl_ckpt_part {
	const char *name; /* "model", or "adapter/model" in a folder; at most 180 bytes */
	bool shared; /* all ranks hold the same storages: each writes a share, rank 0 the pickle */
	bool raw;    /* no torch zip: the file is the spans, one behind the other; no pickle */
	const void *pickle;     /* contents of data.pkl */
	uint64_t pickle_bytes;  /* size of pickle */
	const void *tensors;    /* encoded tensor table (pawl_tensor_append); may be NULL */
	uint32_t tensors_bytes; /* size of tensors */
	const struct pawl_ckpt_span *spans; /* one per storage, in the order of their keys */
	uint32_t spans_n;                   /* number of entries in spans */
};

/*
 * Starts a save. Spans with groups are copied while the caller goes on: their memory must stay
 * allocated until the save is staged or has failed, and must not be written to before
 * pawl_ckpt_fence on one of their groups has returned. If it is written to anyway, the save fails;
 * it never contains wrong bytes. Everything else is copied on return. Memory on a device is copied
 * as it is once all work queued so far on the device's default stream is done; only fences protect
 * it. watch: false copies everything before the call returns; true does what options.watch allows.
 * *id gets the save's number, also if the save was skipped: then its status says why. Only errors
 * that the caller must handle are returned (PAWL_EINVAL; PAWL_EMISMATCH: ranks disagree on the
 * step).
 */
int pawl_ckpt_save(struct pawl_ckpt *ckpt, uint64_t step, const struct pawl_ckpt_part *parts,
	uint32_t parts_n, bool watch, uint64_t *id, struct pawl_err *err);
#define PAWL_STEP_NONE UINT64_MAX /* the step of a save by tag: as high as the newest */

/* How a rank saves by tag. */
enum pawl_save_flag {
	/* No other rank has a part in the save. */
	PAWL_SAVE_ALONE = 1,
	/* This session has saved the tag before: an agent started since adds to it, too. */
	PAWL_SAVE_ADDS = 2,
	/* The rank writes to the store itself, even if memory has room: for callers that wait until
	 * the save is durable anyway. If another rank began the save, this rank's part goes to the
	 * same place as that rank's. */
	PAWL_SAVE_STREAM = 4,
};

/*
 * Saves by tag, for programs that name their checkpoints, or in which not all ranks take part in
 * each save (options.named; these calls then replace pawl_ckpt_save). Ranks are matched by tag. A
 * partition's file has exactly the partition's name, whichever rank saves it; if two ranks use one
 * name, the save fails. A rank's part in a tag is complete when it begins another tag, asks for a
 * checkpoint, waits, flushes or closes. Ranks that have never saved have no part in it.
 *
 * watch is as for pawl_ckpt_save; flags: of enum pawl_save_flag.
 *
 * A save of a tag that was saved before, since the ranks started, adds to that tag and replaces
 * partitions of the same names. step orders tags (PAWL_STEP_NONE: as high as the newest).
 */
int pawl_ckpt_save_tag(struct pawl_ckpt *ckpt, const char *tag, uint64_t step, uint32_t flags,
	const struct pawl_ckpt_part *parts, uint32_t parts_n, bool watch, uint64_t *id,
	struct pawl_err *err);
/*
 * Saves by tag in pieces: begin, any number of partitions, commit. When pawl_ckpt_add returns, the
 * partition is copied (or, where memory does not suffice, written). *id is the save's number from
 * begin on. One such save at a time: until it is committed or dropped, others are PAWL_EBUSY.
 */
int pawl_ckpt_begin(struct pawl_ckpt *ckpt, const char *tag, uint64_t step, uint32_t flags,
	uint64_t *id, struct pawl_err *err);
/* Adds a partition. PAWL_EEXIST: the save already has one of this name. On other errors the save
 * has failed. */
int pawl_ckpt_add(struct pawl_ckpt *ckpt, const struct pawl_ckpt_part *part, struct pawl_err *err);
/* Declares this rank's part complete. On error the save has failed. */
int pawl_ckpt_commit(struct pawl_ckpt *ckpt, struct pawl_err *err);
/* Gives up the save in pieces: it fails for all ranks. */
void pawl_ckpt_drop(struct pawl_ckpt *ckpt, const char *why);

/*
 * Optional: announces a save of step, of as many bytes as the last one. Requests now what the save
 * needs of the agent, so that the answer is there when the save comes.
 */
void pawl_ckpt_announce(struct pawl_ckpt *ckpt, uint64_t step);
/* Declares that this rank's next save will not come, announced or not: the other ranks' saves fail,
 * and later saves still match. Waits for the answer, if a request is in progress. */
void pawl_ckpt_skip(struct pawl_ckpt *ckpt);
/* Returns when every span with one of these groups is copied. */
void pawl_ckpt_fence(struct pawl_ckpt *ckpt, uint64_t groups);
/* Reports that the caller saw a span change during the copy: the save fails unless it is already
 * committed. */
void pawl_ckpt_withdraw(struct pawl_ckpt *ckpt, uint64_t id, int part, int storage);

/* How safe a save is. COMMITTED: it, or a newer one, survives the training processes;
 * docs/limits.md says what memory that takes. REPLICATED: it survives the loss of as many hosts as
 * there are replicas. DURABLE: it survives the machine, too. A save may become durable without
 * having been replicated. */
enum pawl_ckpt_level {
	PAWL_CKPT_FAILED = -1,
	PAWL_CKPT_STAGING,
	PAWL_CKPT_STAGED,
	PAWL_CKPT_COMMITTED,
	PAWL_CKPT_REPLICATED,
	PAWL_CKPT_DURABLE
};

/* Evidence that no byte changed during the copy. */
enum pawl_ckpt_proof {
	PAWL_CKPT_COPIED,  /* everything was copied before save returned */
	PAWL_CKPT_WATCHED, /* the kernel watched what was copied later */
	PAWL_CKPT_FENCED,  /* as WATCHED, but with CUDA memory, which only fences protect */
};

#define PAWL_CKPT_STATUS_KEPT 256 /* saves whose status is remembered; older ones: PAWL_ENOENT */

struct pawl_ckpt_status {
	enum pawl_ckpt_level level;
	int code; /* PAWL_E code of the failure, or of an error of the storage; 0 if none */
	char why[PAWL_CKPT_WHY_MAX]; /* text of code */
	enum pawl_ckpt_proof proof;  /* evidence for the copy, as known when save returned */
	int part, storage;           /* span that changed or could not be copied; else -1 */
	uint64_t stall_ns; /* time that save took, since pawl_ckpt_announce if that was called */
	uint64_t stage_ns; /* time until all was copied; 0 while it is not */
};

int pawl_ckpt_status(struct pawl_ckpt *ckpt, uint64_t id, struct pawl_ckpt_status *status,
	struct pawl_err *err);
/* Waits until the save is at level, or a higher one. Returns 0; PAWL_ETIMEDOUT; PAWL_ECANCELED if
 * the save failed, or was superseded before it became durable. REPLICATED where there are no
 * replicas: waits until the save is durable. */
int pawl_ckpt_wait(struct pawl_ckpt *ckpt, uint64_t id, enum pawl_ckpt_level level, int timeout_ms,
	struct pawl_err *err);
/* Waits until the newest save is durable. Returns as pawl_ckpt_wait does. */
int pawl_ckpt_flush(struct pawl_ckpt *ckpt, int timeout_ms, struct pawl_err *err);
int pawl_ckpt_pin(struct pawl_ckpt *ckpt, const char *tag, bool pinned, struct pawl_err *err);
/* Deletes a tag, in memory and in the store, once nobody writes to it. Succeeds if there is no such
 * tag. */
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
 * Returns whether this rank must stop (finish the step, save, close), because of a notice or a
 * signal. To be called once a step, by all ranks alike: the answer turns to yes at the same call on
 * every rank, however their steps interleave.
 */
bool pawl_ckpt_stopping(struct pawl_ckpt *ckpt);
/*
 * Returns whether a save is worth it now, given what saves cost, how often this root's runs failed,
 * and when the last save was. To be called once a step, by all ranks alike: the answer turns to yes
 * at the same call on every rank, and to no with the next save.
 */
bool pawl_ckpt_due(struct pawl_ckpt *ckpt);
/* Reports that a signal asked this process to stop, so that all ranks stop. Not from a signal
 * handler. */
void pawl_ckpt_stop(struct pawl_ckpt *ckpt);
/* Appends the names of partitions that were found to differ between ranks to buf, one a line.
 * Returns how many. */
uint32_t pawl_ckpt_diverged(struct pawl_ckpt *ckpt, char *buf, size_t cap_bytes);
/* Takes the next notification for the user; each is returned once. Returns false if there is none.
 * buf: PAWL_CKPT_NOTIFICATION_MAX bytes; a smaller buffer gets a cut text. */
bool pawl_ckpt_next_notification(struct pawl_ckpt *ckpt, char *buf, size_t cap_bytes);
/* Waits for the next notification, in a thread of the caller's that shows them at once. Returns
 * false if there is none and pawl_ckpt_end_notifications was called. Before pawl_ckpt_close the
 * caller must call pawl_ckpt_end_notifications, and wait for this call to return false. */
bool pawl_ckpt_await_notification(struct pawl_ckpt *ckpt, char *buf, size_t cap_bytes);
void pawl_ckpt_end_notifications(struct pawl_ckpt *ckpt);
/* Reports to the agent what this process has imported, for the template that restarts it. names:
 * modules, one a line. */
int pawl_ckpt_report_imports(struct pawl_ckpt *ckpt, const char *names, size_t len_bytes,
	struct pawl_err *err);
/* Returns whether the kernel can watch memory, which is the strongest evidence (PAWL_CKPT_WATCHED).
 * If not, *why_not (static) says why. */
bool pawl_ckpt_can_watch(struct pawl_ckpt *ckpt, const char **why_not);

/* ---- restoring ---- */

/*
 * Asks for the newest checkpoint (or that of step). All ranks get the same one, whichever rank asks
 * first. Returns 0 and *out; PAWL_ENOENT: there is none. Then read what is needed, vote, and if the
 * verdict is GO, copy. Nothing before the copy writes to the caller's memory.
 */
int pawl_ckpt_restore(struct pawl_ckpt *ckpt, bool has_step, uint64_t step, int timeout_ms,
	struct pawl_restore **out, struct pawl_err *err);
/* Opens a checkpoint for this rank alone, without a vote: a tag, or the newest (NULL). Errors as
 * for pawl_ckpt_restore; PAWL_ECORRUPT if the tag is damaged. A checkpoint in memory stays there
 * until close, and delays saves. */
int pawl_ckpt_find(struct pawl_ckpt *ckpt, const char *tag, int timeout_ms,
	struct pawl_restore **out, struct pawl_err *err);
/* Opens a checkpoint for tools, without an agent or other ranks: the newest complete tag of a root,
 * or that of step. pawl_restore_vote then returns the verdict it is given. */
int pawl_restore_open(const char *root, bool has_step, uint64_t step, struct pawl_restore **out,
	struct pawl_err *err);
/* Opens a checkpoint as pawl_restore_open does, by its tag; NULL: the newest complete one.
 * PAWL_ENOENT: there is none. PAWL_ECORRUPT: the tag is damaged. */
int pawl_restore_open_tag(const char *root, const char *tag, struct pawl_restore **out,
	struct pawl_err *err);
/* Closes a checkpoint. If pawl_ckpt_restore opened it and this rank has not voted, that refuses it:
 * the other ranks learn of it and do not wait. NULL is fine. */
void pawl_restore_close(struct pawl_restore *restore);

struct pawl_restore_info {
	const char *tag; /* valid until close */
	uint64_t step;
	uint32_t world;   /* ranks that saved */
	uint32_t parts_n; /* number of partitions, of all ranks */
	bool memory;      /* read from the memory tier; else from the store */
};

struct pawl_restore_part {
	const char *name;    /* valid until close */
	const char *file;    /* name of the file in the tag; valid until close */
	int64_t rank;        /* rank that the partition belongs to; -1: shared by all */
	bool raw;            /* no torch zip: no pickle, and one storage, the whole file */
	uint64_t size_bytes; /* size of the file */
	const void *tensors; /* encoded tensor table */
	uint32_t tensors_bytes;
};

void pawl_restore_info(const struct pawl_restore *restore, struct pawl_restore_info *info);
void pawl_restore_part(const struct pawl_restore *restore, uint32_t part,
	struct pawl_restore_part *out);
/* Reads and verifies a partition's pickle alone, in a small part of the time that the whole
 * partition takes. The bytes stay valid and unchanged until close, even while pawl_restore_read
 * runs in another thread. Otherwise only one thread at a time may use a restore. PAWL_ECORRUPT: err
 * names file and offset. */
int pawl_restore_pickle(struct pawl_restore *restore, uint32_t index, const void **pickle,
	uint64_t *size_bytes, struct pawl_err *err);
/* Reads a whole partition, and verifies every byte. Errors as for pawl_restore_pickle. */
int pawl_restore_read(struct pawl_restore *restore, uint32_t index, struct pawl_err *err);
/* Return the number of storages of a partition, and the size of one. The number is 0 before the
 * pickle, or the whole partition, was read. */
uint32_t pawl_restore_storages(const struct pawl_restore *restore, uint32_t part);
uint64_t pawl_restore_storage_bytes(const struct pawl_restore *restore, uint32_t part,
	uint32_t storage);

/* Bytes to copy out of a storage that was read. */
struct pawl_restore_copy {
	uint64_t part, storage; /* indices */
	uint64_t off_bytes;     /* offset in the storage */
	uint64_t dst;           /* destination address */
	uint64_t len_bytes;
};

/*
 * Reads and verifies what these copies need, which may be a small part of their partitions, in
 * chunks of 1 MiB; dst is not used. Ranks of a node that need the same bytes read them from the
 * storage once. PAWL_EINVAL as for pawl_restore_copy; other errors as for pawl_restore_pickle.
 */
int pawl_restore_read_needed(struct pawl_restore *restore, const struct pawl_restore_copy *copies,
	size_t n, struct pawl_err *err);

/* A part of a tensor that this rank wants, whatever shards it was saved in. */
struct pawl_restore_box {
	const char *part;       /* name of the partition, which several ranks may have saved */
	const char *tensor;     /* name of the tensor in the tensor tables */
	const char *dtype;      /* dtype in the tensor tables */
	uint32_t item_bytes;    /* bytes of an element of that dtype */
	uint32_t ndim;          /* number of entries in each of the next three */
	const uint64_t *global; /* shape of the whole tensor */
	const uint64_t *start;  /* first element that is wanted */
	const uint64_t *shape;  /* number of elements that are wanted */
	uint64_t dst;           /* address where the elements go, in row-major order */
};

/*
 * Appends the copies that fill a box to *copies (malloc'ed, grown by realloc; begin with NULL and
 * 0), for pawl_restore_read_needed and pawl_restore_copy. The caller frees *copies. A row that is
 * no shard counts as the whole tensor; the caller must know that its elements lie in row-major
 * order. PAWL_EMISMATCH: the tensor was saved with another shape or dtype, or not all of it was;
 * also the errors of pawl_restore_pickle. On error nothing is appended.
 */
int pawl_restore_reshard(struct pawl_restore *restore, const struct pawl_restore_box *box,
	struct pawl_restore_copy **copies, size_t *n, struct pawl_err *err);

/* Copies. PAWL_EINVAL, and nothing was copied, if a copy passes the end of its storage, or if
 * neither its partition nor what it needs was read. */
int pawl_restore_copy(const struct pawl_restore *restore, const struct pawl_restore_copy *copies,
	size_t n, struct pawl_err *err);

enum pawl_verdict { PAWL_VERDICT_GO, PAWL_VERDICT_RETRY, PAWL_VERDICT_REFUSED };

/* Reports that what pawl_ckpt_find opened is damaged (PAWL_ECORRUPT): the agent discards its copy
 * in memory, or quarantines the tag, so that nobody finds it again. */
void pawl_restore_mark_damaged(struct pawl_restore *restore, const char *why);
/* Votes, and waits for the other ranks. *all is GO or RETRY (ask again: the damaged copy is not
 * offered any more). PAWL_EMISMATCH: a rank refused; err has its why. */
int pawl_restore_vote(struct pawl_restore *restore, enum pawl_verdict verdict, const char *why,
	int timeout_ms, enum pawl_verdict *all, struct pawl_err *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
