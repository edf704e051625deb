/*
 * Checkpoints, for a training process in any language: connect, save, wait, restore.
 *
 * A process describes its state as partitions: each a torch pickle (whose persistent ids name
 * storages "0", "1", …) and the memory of those storages. Saving stages them into memory that an
 * agent process owns and returns; the agent makes them durable. See docs/format.md.
 *
 * Threads: any number may call on one pawl_ckpt, but saves and restores are one at a time.
 * Ownership: arguments stay the caller's; each call says how long they must live. In a forked child
 * the copy is dead: all calls fail with PAWL_EPEER.
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
#define PAWL_CKPT_NOTIFICATION_MAX 1024       /* bytes of a note, terminator included */
#define PAWL_CKPT_AUTO             UINT64_MAX /* persist_every_ms: cheapest interval, as measured */

struct pawl_ckpt_options {
	const char *root; /* directory; made absolute */
	/* Name of the job, at most 127 bytes. Only processes of the same job share a root. */
	const char *job;
	uint32_t rank, world; /* number of this process; number of processes */
	uint32_t host_first;  /* lowest rank of this host, whose ranks are consecutive */
	uint32_t host_ranks;  /* ranks on this host; 0: all. If fewer, see "several hosts" below */
	uint32_t attempt;     /* how often the job was started before, from 0 */
	uint32_t keep;        /* durable checkpoints to keep, newest first; 0: all */
	uint64_t keep_every;  /* also keep steps that are a multiple of this; 0: none */
	/* One durable save in so many is written whole; the others share what did not change with
	 * the one before. 0, 1: all are whole. */
	uint32_t full_every;
	uint64_t persist_every_ms; /* interval of durable saves; 0: every save; or PAWL_CKPT_AUTO */
	/* Most memory that the memory tier may take on this node; 0: half of what is free. */
	uint64_t memory_bytes;
	/* Socket of the agent, if it is known; NULL: that of the job's own agent, spawned if nobody
	 * listens. */
	const char *socket;
	const char *program; /* the pawl program, to spawn the agent; NULL: never spawn */
	/* Directory in root's file system for all that is not a finished tag; NULL: root itself. */
	const char *hidden;
	bool named; /* saves have names; see "saves by tag" below */
	/* Let saves return before the copy, where the kernel can prove that nothing changed. */
	bool watch;
	/*
	 * Returns whether the caller knows of no span that changed since the save began; if it
	 * knows of one, *part and *storage say which, and the save fails. Called by a thread of the
	 * session once all of a save is copied of which some lay on a device, before the save is
	 * told to anybody. Must not wait for a save. NULL: nobody is asked.
	 */
	bool (*unchanged)(void *user, uint64_t id, int *part, int *storage);
	void *user; /* argument of unchanged */
};

/*
 * Several hosts: each has an agent of its own, and root is one directory that all of them see, in
 * which the agents agree. Every save is made durable. COMMITTED means that the ranks of this host
 * have staged the save, which may still fail. Restores read from root, and are the same on all
 * hosts. All ranks make the same saves in the same order, by tag too: each rank saves each tag
 * once, with a step, even if it has no partition of it (else PAWL_ENOTSUP). pawl_ckpt_stopping and
 * pawl_ckpt_due answer for this host alone. See docs/limits.md.
 */

/* Opens a session; blocks until the root is open, at most a minute. PAWL_EBUSY names the job that
 * has the root already. */
int pawl_ckpt_open(struct pawl_ckpt **out, const struct pawl_ckpt_options *options,
	struct pawl_err *err);
/* Waits at most timeout_ms (-1: no limit) until the newest save is durable, then leaves and always
 * frees. Returns 0 if that save is durable; else the error of its storage, or PAWL_ETIMEDOUT if
 * there was none. NULL is fine. */
int pawl_ckpt_close(struct pawl_ckpt *ckpt, int timeout_ms, struct pawl_err *err);
/* Declares that this process is leaving because of an error: a save by tag that some rank has no
 * part in yet must not be taken for whole when the session closes, nor waited for. why is kept for
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
 * pawl_ckpt_fence on one of their groups has returned. (If it is written to anyway, the save fails;
 * it is never wrong.) Everything else is copied on return. Memory on a device is copied as it is
 * once all work queued so far on the device's default stream is done; only fences protect it. *id
 * gets the save's number, also when the save was skipped: then its status says why. Errors are the
 * caller's alone (PAWL_EINVAL, PAWL_EMISMATCH: ranks disagree on the step).
 */
int pawl_ckpt_save(struct pawl_ckpt *ckpt, uint64_t step, const struct pawl_ckpt_part *parts,
	uint32_t parts_n, bool watch, uint64_t *id, struct pawl_err *err);
/*
 * Saves by tag, for programs that name their checkpoints, or in which not all ranks take part in
 * each save (options.named; these calls then replace pawl_ckpt_save). Ranks are matched by tag. A
 * partition's file has exactly the partition's name, whichever rank saves it; two ranks that use
 * one name fail the save. A rank that begins another tag, asks for a checkpoint, waits, flushes or
 * leaves has nothing more to add to the tag before; nor have ranks that have never saved anything.
 *
 * A tag that was saved before, since the ranks started, is added to; partitions of the same names
 * are replaced. step orders tags (PAWL_STEP_NONE: as high as the newest).
 */
#define PAWL_STEP_NONE  UINT64_MAX
#define PAWL_SAVE_ALONE 1u /* no other rank has a part in the save */
#define PAWL_SAVE_ADDS                                                                             \
	2u /* this session has saved the tag before: an agent started since adds to it, too */
/* PAWL_SAVE_STREAM is for callers that wait until the save is durable anyway. If another rank began
 * the save, this rank's part goes where that rank's does. */
#define PAWL_SAVE_STREAM                                                                           \
	4u /* the rank writes to the store itself, even though memory has room; see above */
int pawl_ckpt_save_tag(struct pawl_ckpt *ckpt, const char *tag, uint64_t step, uint32_t flags,
	const struct pawl_ckpt_part *parts, uint32_t parts_n, bool watch, uint64_t *id,
	struct pawl_err *err);
/*
 * Saves by tag in pieces: begin, any number of partitions, commit. Each partition has been copied
 * (or, where memory does not suffice, written) when pawl_ckpt_add returns. *id is the save's number
 * from begin on. One such save at a time: until it is committed or dropped, others are PAWL_EBUSY.
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
 * Optional: announces a save of step, of as many bytes as the last one. What the save needs of the
 * agent is requested now, so that the answer is there when the save comes.
 */
void pawl_ckpt_announce(struct pawl_ckpt *ckpt, uint64_t step);
/* Declares that this rank's next save will not come, announced or not: the other ranks' saves fail,
 * and later saves still match. Waits for the answer, if a request is under way. */
void pawl_ckpt_skip(struct pawl_ckpt *ckpt);
/* Returns when every span with one of these groups is copied. */
void pawl_ckpt_fence(struct pawl_ckpt *ckpt, uint64_t groups);
/* Reports that the caller saw a span change under the copy: the save fails unless it is committed
 * already. */
void pawl_ckpt_withdraw(struct pawl_ckpt *ckpt, uint64_t id, int part, int storage);

/* How safe a save is. COMMITTED: it, or a newer one, survives the training processes;
 * docs/limits.md says what memory that takes. DURABLE: it survives the machine, too. */
enum pawl_ckpt_level {
	PAWL_CKPT_FAILED = -1,
	PAWL_CKPT_STAGING,
	PAWL_CKPT_STAGED,
	PAWL_CKPT_COMMITTED,
	PAWL_CKPT_DURABLE
};

/* Evidence that no byte changed under the copy. */
enum pawl_ckpt_proof {
	PAWL_CKPT_COPIED,  /* everything was copied before save returned */
	PAWL_CKPT_WATCHED, /* the kernel watched what was copied later */
	PAWL_CKPT_FENCED,  /* some of the latter lay on CUDA devices, which only fences protect */
};

#define PAWL_CKPT_STATUS_KEPT 256 /* saves whose status is remembered; older ones: PAWL_ENOENT */

struct pawl_ckpt_status {
	enum pawl_ckpt_level level;
	int code; /* PAWL_E code of failure or of trouble with the storage, 0 if none */
	char why[PAWL_CKPT_WHY_MAX]; /* text of code */
	enum pawl_ckpt_proof proof;  /* evidence for the copy, as known when save returned */
	int part, storage;           /* span that changed or could not be copied; else -1 */
	uint64_t stall_ns; /* time that save took, since pawl_ckpt_announce if that was called */
	uint64_t stage_ns; /* time until all was copied; 0 while it is not */
};

int pawl_ckpt_status(struct pawl_ckpt *ckpt, uint64_t id, struct pawl_ckpt_status *status,
	struct pawl_err *err);
/* Waits until the save is at level. Returns 0; PAWL_ETIMEDOUT; PAWL_ECANCELED if the save failed,
 * or was superseded before it became durable. */
int pawl_ckpt_wait(struct pawl_ckpt *ckpt, uint64_t id, enum pawl_ckpt_level level, int timeout_ms,
	struct pawl_err *err);
/* Waits until the newest save is durable. Returns as pawl_ckpt_wait does. */
int pawl_ckpt_flush(struct pawl_ckpt *ckpt, int timeout_ms, struct pawl_err *err);
int pawl_ckpt_pin(struct pawl_ckpt *ckpt, const char *tag, bool pinned, struct pawl_err *err);
/* Deletes a tag, in memory and in the store, once writing to it is over. Succeeds if there is no
 * such tag. */
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
 * Returns whether this rank shall stop (finish the step, save, leave), because of a notice or a
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
/* Reports that a signal asked this process to stop, and that all ranks are to. Not from a signal
 * handler. */
void pawl_ckpt_stop(struct pawl_ckpt *ckpt);
/* Appends the names of partitions that were found to differ between ranks to buf, one a line.
 * Returns how many. */
uint32_t pawl_ckpt_diverged(struct pawl_ckpt *ckpt, char *buf, size_t cap_bytes);
/* Takes the next note for the user, each once; false when there is none. buf: PAWL_CKPT_NOTIFICATION_MAX
 * bytes; in fewer, longer notes are cut. */
bool pawl_ckpt_next_notification(struct pawl_ckpt *ckpt, char *buf, size_t cap_bytes);
/* Waits for the next note, in a thread of the caller's that shows notes at once. Returns false when
 * there is none and pawl_ckpt_end_notifications was called. Before pawl_ckpt_close the caller must call
 * pawl_ckpt_end_notifications, and wait for this call to return false. */
bool pawl_ckpt_await_notification(struct pawl_ckpt *ckpt, char *buf, size_t cap_bytes);
void pawl_ckpt_end_notifications(struct pawl_ckpt *ckpt);
/* Tells the agent what this process has imported, for the template that restarts it. */
int pawl_ckpt_report_imports(struct pawl_ckpt *ckpt, const char *names, size_t len_bytes,
	struct pawl_err *err);
/* Returns whether the kernel can watch memory, the strongest proof that a system allows; else
 * *why_not (static) says why it cannot. */
bool pawl_ckpt_can_watch(struct pawl_ckpt *ckpt, const char **why_not);

/* ---- restoring ---- */

/*
 * Asks for the newest checkpoint (or that of step). All ranks get the same one, whichever rank asks
 * first. 0 and *out; PAWL_ENOENT: there is none. After that: read what is needed, vote, and if the
 * verdict is to go on, copy. Nothing of the caller's is touched before.
 */
int pawl_ckpt_restore(struct pawl_ckpt *ckpt, bool has_step, uint64_t step, int timeout_ms,
	struct pawl_restore **out, struct pawl_err *err);
/* Opens a checkpoint for this rank alone, without a vote: a tag, or the newest (NULL). Errors as
 * for pawl_ckpt_restore; PAWL_ECORRUPT if the tag is broken. What of it lies in memory stays there
 * until close, and holds up saves. */
int pawl_ckpt_find(struct pawl_ckpt *ckpt, const char *tag, int timeout_ms,
	struct pawl_restore **out, struct pawl_err *err);
/* Opens a checkpoint for tools, without an agent or other ranks: the newest complete tag of a root,
 * or that of step. A vote is returned as it is cast. */
int pawl_restore_open(const char *root, bool has_step, uint64_t step, struct pawl_restore **out,
	struct pawl_err *err);
int pawl_restore_open_tag(const char *root, const char *tag, struct pawl_restore **out,
	struct pawl_err *err);
/* Refuses what pawl_ckpt_restore opened, if this rank has not voted: the others are told, and none
 * waits for it. NULL is fine. */
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
 * partition takes. The bytes stay valid and unchanged until close: they may be looked at while
 * pawl_restore_read is under way in another thread. Otherwise a restore belongs to one thread at a
 * time. PAWL_ECORRUPT names file and offset. */
int pawl_restore_pickle(struct pawl_restore *restore, uint32_t index, const void **pickle,
	uint64_t *size_bytes, struct pawl_err *err);
/* Reads a whole partition, and verifies every byte. Errors as for pawl_restore_pickle. */
int pawl_restore_read(struct pawl_restore *restore, uint32_t index, struct pawl_err *err);
/* Return the number of storages of a partition, and the size of one. There are none before the
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
 * 0), for pawl_restore_read_needed and pawl_restore_copy. The caller frees *copies. A row of a table that
 * is no shard counts as the whole tensor; that its elements lie in row-major order, the caller must
 * know. PAWL_EMISMATCH: the tensor was saved with another shape or dtype, or not all of it was;
 * also the errors of pawl_restore_pickle. On error nothing is appended.
 */
int pawl_restore_reshard(struct pawl_restore *restore, const struct pawl_restore_box *box,
	struct pawl_restore_copy **copies, size_t *n, struct pawl_err *err);

/* Copies. PAWL_EINVAL, and nothing was copied, if a copy passes the end of its storage, or if
 * neither its partition nor what it needs was read. */
int pawl_restore_copy(const struct pawl_restore *restore, const struct pawl_restore_copy *copies,
	size_t n, struct pawl_err *err);

enum pawl_verdict { PAWL_VERDICT_GO, PAWL_VERDICT_RETRY, PAWL_VERDICT_REFUSED };

/* Declares damaged what pawl_ckpt_find found (PAWL_ECORRUPT): its copy in memory is given up, or
 * the tag put aside, so that nobody finds it again. */
void pawl_restore_mark_damaged(struct pawl_restore *restore, const char *why);
/* Votes, and waits for the other ranks. *all is GO or RETRY (ask again: the damaged copy is out of
 * the way); PAWL_EMISMATCH with the refusing rank's why. */
int pawl_restore_vote(struct pawl_restore *restore, enum pawl_verdict verdict, const char *why,
	int timeout_ms, enum pawl_verdict *all, struct pawl_err *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
