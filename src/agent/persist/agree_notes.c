/* Where the messages of agreeing hosts lie: see agree_notes.h. */
#include "agent/persist/agree_notes.h"

#include "agent/peer/notes.h"
#include "agent/peer/peer_link.h"
#include "agent/peer/peers.h"
#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "ckpt/root.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX (MANIFEST_MAX_BYTES - 1u) /* bytes of a note that is a file, at most */
#define NOTE_BYTES_MAX (PEER_BODY_MAX - 4096u)   /* bytes of any other note, at most */

void agree_notes_init(struct agree_notes *notes, struct peers *peers, const char *root_path,
	bool is_leader)
{
	notes->peers = peers;
	notes->number = peers != NULL ? peer_root(root_path) : 0;
	notes->is_leader = is_leader;
	pthread_mutex_init(&notes->lock, NULL);
}

void agree_notes_open(struct agree_notes *notes, struct tags_root *root)
{
	notes->root = root;
	notes->linked = false;
}

bool agree_notes_settle(struct agree_notes *notes)
{
	char address[PEER_ADDRESS_MAX];
	bool before = notes->linked;

	notes->linked = notes->peers != NULL && store_is_flat(tags_root_store(notes->root)) &&
		peers_leader(notes->peers, address, NULL) == 0;
	return notes->linked != before;
}

/* ---- the link to the leader ---- */

static void close_link(struct agree_notes *notes)
{
	struct peer_link *link = notes->link;

	pthread_mutex_lock(&notes->lock);
	notes->link = NULL;
	pthread_mutex_unlock(&notes->lock);
	peer_link_close(link);
}

void agree_notes_deinit(struct agree_notes *notes)
{
	close_link(notes);
	pthread_mutex_destroy(&notes->lock);
}

void agree_notes_cancel(struct agree_notes *notes)
{
	pthread_mutex_lock(&notes->lock);
	notes->cancels++;
	if (notes->link != NULL) {
		peer_link_cancel(notes->link);
		notes->link_canceled = true;
	}
	pthread_mutex_unlock(&notes->lock);
}

void agree_notes_resume(struct agree_notes *notes)
{
	pthread_mutex_lock(&notes->lock);
	ASSERT(notes->cancels > 0);
	notes->cancels--;
	pthread_mutex_unlock(&notes->lock);
}

/* Whether the link leads to this address, as far as is known. */
static bool is_usable(struct agree_notes *notes, const char *address)
{
	bool canceled;

	pthread_mutex_lock(&notes->lock);
	canceled = notes->link_canceled;
	pthread_mutex_unlock(&notes->lock);
	return notes->link != NULL && !canceled && strcmp(address, notes->address) == 0;
}

/* Makes a new link, unless calls are canceled; from then on, agree_notes_cancel reaches it. */
static int make_link(struct agree_notes *notes, struct pawl_err *err)
{
	struct peer_link *link;
	bool canceled;
	int rv = peer_link_make(&link, notes->peers, err);

	if (rv != 0) {
		return rv;
	}
	pthread_mutex_lock(&notes->lock);
	canceled = notes->cancels > 0;
	notes->link = link;
	notes->link_canceled = canceled;
	pthread_mutex_unlock(&notes->lock);
	return canceled ? pawl_err_set(err, PAWL_ECANCELED, "a call to rank 0's host was canceled")
			: 0;
}

/* Connects to where the leader is now. *fresh: the connection was made by this call. */
static int reach_leader(struct agree_notes *notes, bool *fresh, struct pawl_err *err)
{
	char address[PEER_ADDRESS_MAX];
	int rv = peers_leader(notes->peers, address, err);

	*fresh = rv != 0 || !is_usable(notes, address);
	if (!*fresh) {
		return 0;
	}
	close_link(notes);
	rv = rv == 0 ? make_link(notes, err) : rv;
	if (rv == 0) {
		memcpy(notes->address, address, sizeof(address));
		rv = peer_link_connect(notes->link, address, err);
	}
	return rv;
}

/* Whether the leader has answered with this error: the link is fine. */
static bool is_answer(int rv)
{
	return rv == 0 || rv == PAWL_ENOENT || rv == PAWL_ELIMIT || rv == PAWL_EINVAL;
}

/* Whether this error means that the leader does not answer now, and may do so later. */
static bool is_lost(int rv)
{
	return rv == PAWL_EPEER || rv == PAWL_ETIMEDOUT || rv == PAWL_EIO;
}

static int fail_lost(struct agree_notes *notes, const struct pawl_err *why, struct pawl_err *err)
{
	notes->lost = true;
	snprintf(notes->why, sizeof(notes->why), "the host of rank 0 cannot be reached (%.180s)",
		why->msg);
	return pawl_err_set(err, PAWL_ETIMEDOUT, "%s", notes->why);
}

/* Sends a request to the leader; the answer's blob is valid until the next call. */
static int call_leader(struct agree_notes *notes, struct peer_msg *msg, enum peer_kind answer,
	struct peer_msg *reply, struct pawl_err *err)
{
	struct pawl_err why = {0};
	bool fresh;
	bool opened;
	int rv;

	ASSERT(notes->linked && !notes->is_leader && !notes->lost);
	msg->root = notes->number;
	do {
		rv = reach_leader(notes, &fresh, &why);
		opened = rv == 0;
		if (opened) {
			rv = peer_link_call(notes->link, msg, answer, reply, &why);
		}
		if (opened && is_answer(rv)) {
			break;
		}
		close_link(notes);
		/* One that timed out was not idle. */
	} while (!fresh && is_lost(rv) && rv != PAWL_ETIMEDOUT);
	if (is_lost(rv) || (!opened && rv == PAWL_ENOENT)) {
		return fail_lost(notes, &why, err);
	}
	if (rv != 0 && err != NULL) {
		*err = why;
	}
	return rv;
}

static void set_path(struct peer_msg *msg, const char *path)
{
	ASSERT(strlen(path) < sizeof(msg->path));
	snprintf(msg->path, sizeof(msg->path), "%s", path);
}

/* ---- notes ---- */

int agree_notes_write(struct agree_notes *notes, const char *path, const struct wire_out *bytes,
	struct pawl_err *err)
{
	struct peer_msg msg = {.kind = PEER_NOTE_WRITE,
		.blob = bytes->bytes,
		.blob_bytes = (uint32_t)bytes->len_bytes};
	struct peer_msg reply;

	notes->lost = false;
	if (bytes->failed) {
		return wire_out_error(bytes, "a message to the other hosts", err);
	}
	if (!notes->linked) {
		return store_publish(tags_root_store(notes->root), path, bytes->bytes,
			bytes->len_bytes, err);
	}
	if (bytes->len_bytes > NOTE_BYTES_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT,
			"a message to the other hosts has %zu bytes, at most %u", bytes->len_bytes,
			NOTE_BYTES_MAX);
	}
	if (notes->is_leader) {
		return notes_write(peers_notes(notes->peers), notes->number, path, bytes->bytes,
			bytes->len_bytes, err);
	}
	set_path(&msg, path);
	return call_leader(notes, &msg, PEER_OK, &reply, err);
}

/* Reads a note of this process. */
static int read_own(struct agree_notes *notes, const char *path, void **bytes, size_t *len_bytes,
	struct pawl_err *err)
{
	struct wire_out out = {0};
	int rv = notes_read(peers_notes(notes->peers), notes->number, path, &out, err);

	rv = rv == 0 && out.failed ? wire_out_error(&out, path, err) : rv;
	if (rv != 0) {
		wire_out_deinit(&out);
		return rv;
	}
	*bytes = out.bytes;
	*len_bytes = out.len_bytes;
	return 0;
}

int agree_notes_read(struct agree_notes *notes, const char *path, void **bytes, size_t *len_bytes,
	struct pawl_err *err)
{
	struct peer_msg msg = {.kind = PEER_NOTE_READ};
	struct peer_msg reply;
	void *copy;
	int rv;

	notes->lost = false;
	if (!notes->linked) {
		return store_read_small(tags_root_store(notes->root), path, bytes, len_bytes,
			FILE_BYTES_MAX, err);
	}
	if (notes->is_leader) {
		return read_own(notes, path, bytes, len_bytes, err);
	}
	set_path(&msg, path);
	rv = call_leader(notes, &msg, PEER_NOTE, &reply, err);
	if (rv != 0) {
		return rv;
	}
	copy = FAULT_MEM("agree.note", malloc((size_t)reply.blob_bytes + 1));
	if (copy == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a message of %u bytes",
			reply.blob_bytes);
	}
	if (reply.blob_bytes > 0) {
		memcpy(copy, reply.blob, reply.blob_bytes);
	}
	*bytes = copy;
	*len_bytes = reply.blob_bytes;
	return 0;
}

int agree_notes_make_folder(struct agree_notes *notes, const char *folder, struct pawl_err *err)
{
	return notes->linked ? 0 : tags_root_make_folder(notes->root, folder, err);
}

int agree_notes_refresh(struct agree_notes *notes, const char *folder, struct pawl_err *err)
{
	return notes->linked ? 0 : store_refresh_dir(tags_root_store(notes->root), folder, err);
}

/* ---- the leader alone ---- */

/* Lists notes of this process. */
static int list_own(struct agree_notes *notes, const char *folder, store_list_fn *take, void *user,
	struct pawl_err *err)
{
	struct wire_out names = {0};
	int rv = notes_list(peers_notes(notes->peers), notes->number, folder, &names, err);
	size_t at = 0;

	rv = rv == 0 && names.failed ? wire_out_error(&names, folder, err) : rv;
	while (rv == 0 && at < names.len_bytes) {
		const char *name = (const char *)names.bytes + at;

		at = take(user, name, STORE_FILE) == 0 ? at + strlen(name) + 1 : names.len_bytes;
	}
	wire_out_deinit(&names);
	return rv;
}

int agree_notes_list(struct agree_notes *notes, const char *folder, store_list_fn *take, void *user,
	struct pawl_err *err)
{
	struct store *store = tags_root_store(notes->root);
	int rv;

	ASSERT(notes->is_leader);
	rv = notes->linked ? list_own(notes, folder, take, user, err)
			   : store_list(store, folder, take, user, err);
	return rv == PAWL_ENOENT && store_is_flat(store) ? 0 : rv;
}

int agree_notes_remove(struct agree_notes *notes, const char *path, struct pawl_err *err)
{
	ASSERT(notes->is_leader);
	if (!notes->linked) {
		return store_remove(tags_root_store(notes->root), path, err);
	}
	notes_remove(peers_notes(notes->peers), notes->number, path);
	return 0;
}

int agree_notes_clear(struct agree_notes *notes, const char *folder, const char *old,
	struct pawl_err *err)
{
	ASSERT(notes->is_leader);
	return notes->linked ? agree_notes_remove(notes, folder, err)
			     : tags_root_clear(notes->root, folder, old, err);
}
