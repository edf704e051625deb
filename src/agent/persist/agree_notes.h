/*
 * The small files in which the hosts of a job agree (agree.h), wherever they lie: in the root; or,
 * if the root is of objects and all hosts have links, as notes in the memory of rank 0's host,
 * under the same paths. All hosts have links if each of them knows where rank 0's host listens. For
 * the storage thread, except agree_notes_cancel and agree_notes_resume.
 *
 * A host that does not lead gets at the notes over a link, which is opened when it is first needed.
 * While the leader cannot be reached, a call fails with PAWL_ETIMEDOUT and sets lost: what the call
 * asks for is not there yet, and the caller may try again. A link that broke while it was idle is
 * opened anew, once a call.
 */
#ifndef AGENT_PERSIST_AGREE_NOTES_H
#define AGENT_PERSIST_AGREE_NOTES_H

#include "agent/peer/peer_msg.h"
#include "agent/persist/agree_msg.h"
#include "store/store.h"

#include <pthread.h>

struct peer_link;
struct peers;
struct tags_root;

struct agree_notes {
	struct tags_root *root;  /* the caller's; NULL until agree_notes_open */
	struct peers *peers;     /* the caller's; NULL: the hosts have no links */
	uint64_t number;         /* number of the root among the leader's notes */
	bool is_leader;          /* this is rank 0's host */
	bool linked;             /* the notes are in the leader's memory, and not in the root */
	bool lost;               /* the last call failed since the leader could not be reached */
	char why[AGREE_WHY_MAX]; /* with lost: the reason, for users */
	/* Guards what is marked so; nothing that blocks is called with it. The thread that uses the
	 * link may read it without the lock, as nobody else sets it. */
	pthread_mutex_t lock;
	struct peer_link *link;         /* lock: connection to the leader; NULL: none */
	bool link_canceled;             /* lock: link is of no more use */
	uint32_t cancels;               /* lock: agree_notes_cancel calls that hold */
	char address[PEER_ADDRESS_MAX]; /* where link leads */
};

/* root_path: by which all hosts know the root. The caller has zeroed *notes. */
void agree_notes_init(struct agree_notes *notes, struct peers *peers, const char *root_path,
	bool is_leader);
void agree_notes_deinit(struct agree_notes *notes);
/* Sets the root; its files are the notes. */
void agree_notes_open(struct agree_notes *notes, struct tags_root *root);
/* Decides where the notes lie, for this start of the ranks. Returns whether that has changed. */
bool agree_notes_settle(struct agree_notes *notes);
/* Ends the wait for the leader: that call and all later ones fail with PAWL_ECANCELED, until
 * agree_notes_resume was called as often. */
void agree_notes_cancel(struct agree_notes *notes);
void agree_notes_resume(struct agree_notes *notes);

/* Writes a note, whole or not at all, in place of one of that path. PAWL_ENOENT: notes are files,
 * and there is no such folder. */
int agree_notes_write(struct agree_notes *notes, const char *path, const struct wire_out *bytes,
	struct pawl_err *err);
/* Reads a note. PAWL_ENOENT. The caller frees *bytes. */
int agree_notes_read(struct agree_notes *notes, const char *path, void **bytes, size_t *len_bytes,
	struct pawl_err *err);
/* Makes a folder in one that exists; an existing one is success. */
int agree_notes_make_folder(struct agree_notes *notes, const char *folder, struct pawl_err *err);
/* Has a folder be read anew where the system keeps old copies of names (NFS). */
int agree_notes_refresh(struct agree_notes *notes, const char *folder, struct pawl_err *err);

/* ---- the leader alone ---- */

/* Calls take for each name in a folder; the kinds may be wrong. take may read notes. Where folders
 * exist only through what is in them, a folder without notes is an empty one. */
int agree_notes_list(struct agree_notes *notes, const char *folder, store_list_fn *take, void *user,
	struct pawl_err *err);
/* Removes a note, or a folder of notes. Removing what is not there succeeds. */
int agree_notes_remove(struct agree_notes *notes, const char *path, struct pawl_err *err);
/* Removes a folder of notes at once, as tags_root_clear does. */
int agree_notes_clear(struct agree_notes *notes, const char *folder, const char *old,
	struct pawl_err *err);

#endif
