/*
 * A checkpoint that several hosts write together: see agree_save.h.
 *
 * The happy path, in this order:
 *   - all hosts write their files into the shared draft, and sync them and their names;
 *   - the others send their parts of the manifest;
 *   - the leader has all parts, and makes one manifest of them;
 *   - it publishes the draft, and sends the result.
 * Until then nothing is visible. A crash of any host before it leaves the draft and messages, which
 * the leader removes when it opens the root again.
 */
#include "agent/persist/agree_save.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "ckpt/format/merge.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Begins the shared draft of save n, which has the same id on all hosts. tag "": the tag is not
 * known here. Then only directories find what others wrote: there a draft has the name of its id;
 * objects that nobody publishes are removed by tags_recover. */
static int begin_draft(struct agree *agree, uint64_t n, const char *tag, struct tag_draft *draft,
	struct pawl_err *err)
{
	char id[ROOT_ID_MAX];

	snprintf(id, sizeof(id), "hosts-%016" PRIx64 "-%" PRIu64, agree->run.run, n);
	return tag_begin_shared(agree->root, tag[0] != '\0' ? tag : id, id, draft, err);
}

int agree_save_begin(struct agree *agree, uint64_t n, const char *tag, struct pawl_err *err)
{
	int rv = agree_take_part(agree, err);

	if (rv != 0) {
		return rv;
	}
	agree->draft_n = n;
	return begin_draft(agree, n, tag, &agree->draft, err);
}

/* ---- the part of this host ---- */

/* Lists the shared partitions; the message borrows the record's sums. */
static int list_shared(struct agree_msg_part *msg, const struct record *record,
	struct pawl_err *err)
{
	msg->shared = calloc(record->parts_n + 1, sizeof(*msg->shared));
	if (!msg->shared) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u partitions",
			record->parts_n);
	}
	for (uint32_t p = 0; p < record->parts_n; p++) {
		const struct record_part *part = &record->parts[p];
		struct agree_msg_shared *shared = &msg->shared[msg->shared_n];

		if (part->shared) {
			memcpy(shared->name, part->name, sizeof(shared->name));
			shared->size_bytes = part->size_bytes;
			shared->sums_n = part->sums_n;
			shared->sums = part->sums;
			msg->shared_n++;
		}
	}
	return 0;
}

static int send_part(struct agree *agree, uint64_t n, const struct manifest *manifest,
	const struct record *record, struct pawl_err *err)
{
	struct agree_msg_part msg = {.manifest = *manifest};
	int rv = tag_sync_files(agree->root, &agree->draft, err);

	if (rv == 0) {
		rv = list_shared(&msg, record, err);
	}
	if (rv == 0) {
		agree_msg_put_part(&agree->out, &msg);
		rv = agree_send(agree, AGREE_ROUND_SAVE, n, false, err);
	}
	free(msg.shared);
	return rv;
}

/* ---- the merge at the leader ---- */

/* All hosts' parts of a save. */
struct parts {
	struct agree_msg_part *msgs; /* part of each member */
	struct merge_host *hosts;    /* rank 0's own files, then each member's */
	uint32_t n;                  /* number of messages read */
};

/* Checks that a host shares the same partitions as rank 0, with the same content. */
static int check_shared(const struct record *record, const struct agree_msg_part *msg,
	uint32_t rank, char *part, struct pawl_err *err)
{
	uint32_t own_n = 0;

	for (uint32_t p = 0; p < record->parts_n; p++) {
		own_n += record->parts[p].shared;
	}
	if (own_n != msg->shared_n) {
		return pawl_err_set(err, PAWL_EMISMATCH,
			"rank 0 has %u partitions that are equal on all ranks, rank %u has %u",
			own_n, rank, msg->shared_n);
	}
	for (uint32_t s = 0; s < msg->shared_n; s++) {
		const struct agree_msg_shared *shared = &msg->shared[s];
		const struct record_part *own = record_find_shared(record, shared->name);
		bool differs = !own || own->size_bytes != shared->size_bytes;

		snprintf(part, CKPT_NAME_MAX, "%s", shared->name);
		if (differs ||
			(own->sums_n == shared->sums_n && shared->sums_n > 0 &&
				memcmp(own->sums, shared->sums,
					shared->sums_n * sizeof(*shared->sums)) != 0)) {
			return pawl_err_set(err, PAWL_EMISMATCH,
				"%s: differs between rank 0 and rank %u, which should have the "
				"same; from now on each rank saves its own",
				shared->name, rank);
		}
	}
	part[0] = '\0';
	return 0;
}

/* Reads the part of member m. */
static int read_part(struct agree *agree, uint64_t n, uint32_t m, struct parts *parts,
	struct pawl_err *err)
{
	const struct agree_member *member = &agree->run.members[m];
	struct agree_msg_part *msg = &parts->msgs[parts->n];
	void *bytes;
	size_t len_bytes;
	int rv;

	ASSERT(parts->n == m); /* members are read in order */
	rv = agree_read_part(agree, AGREE_ROUND_SAVE, n, m, &bytes, &len_bytes, err);
	if (rv == PAWL_ENOENT) {
		return pawl_err_set(err, PAWL_ECANCELED, "rank %u's host did not save it",
			member->first_rank);
	}
	if (rv != 0) {
		return rv;
	}
	parts->n++;
	rv = agree_msg_get_part(bytes, len_bytes, msg, err);
	free(bytes);
	if (rv == 0 && msg->status.code != 0) {
		rv = pawl_err_set(err, msg->status.code, "rank %u's host: %s", member->first_rank,
			msg->status.why);
	}
	parts->hosts[parts->n] =
		(struct merge_host){&msg->manifest, member->first_rank, member->ranks};
	return rv;
}

/* Waits for all parts and compares them. */
static int collect(struct agree *agree, uint64_t n, const struct record *record,
	struct parts *parts, char *part, struct pawl_err *err)
{
	int rv = agree_gather(agree, AGREE_ROUND_SAVE, n, err);

	for (uint32_t m = 0; m < agree->run.members_n && rv == 0; m++) {
		rv = read_part(agree, n, m, parts, err);
		if (rv == 0) {
			rv = check_shared(record, &parts->msgs[m], agree->run.members[m].first_rank,
				part, err);
		}
	}
	return rv;
}

static int publish(struct agree *agree, const struct manifest *manifest, struct pawl_err *err)
{
	int rv = tag_publish(agree->root, &agree->draft, manifest, err);

	if (rv != 0) {
		tag_abandon(agree->root, &agree->draft);
	}
	return rv;
}

static int leader_end(struct agree *agree, uint64_t n, const struct manifest *manifest,
	const struct record *record, uint32_t *files, uint64_t *size_bytes, char *part,
	struct pawl_err *err)
{
	uint32_t members_n = agree->run.members_n;
	struct parts parts = {.msgs = calloc(members_n + 1, sizeof(*parts.msgs)),
		.hosts = calloc(members_n + 1, sizeof(*parts.hosts))};
	struct agree_msg_status status = {0};
	struct manifest whole = {0};
	int rv = parts.msgs && parts.hosts
		? 0
		: pawl_err_set(err, PAWL_ENOMEM, "no memory for %u hosts", members_n);

	if (rv == 0) {
		parts.hosts[0] = (struct merge_host){manifest, 0, agree->own.ranks};
		rv = collect(agree, n, record, &parts, part, err);
	}
	if (rv == 0) {
		ASSERT(parts.n == members_n);
		rv = manifest_merge(parts.hosts, members_n + 1, &whole, err);
	}
	/* Without parts, nobody had anything to save under this tag. */
	if (rv == 0 && whole.parts_n > 0) {
		rv = publish(agree, &whole, err);
	}
	if (rv == 0) {
		*files = whole.parts_n;
		*size_bytes = manifest_bytes(&whole);
		agree_msg_put_status(&agree->out, &status);
		/* The tag is durable, whether the other hosts get the result or not. */
		agree_send(agree, AGREE_ROUND_SAVE, n, true, NULL);
		agree_remove_old(agree, AGREE_ROUND_SAVE, n);
	}
	for (uint32_t m = 0; m < parts.n; m++) {
		agree_msg_part_deinit(&parts.msgs[m]);
	}
	free(parts.msgs);
	free(parts.hosts);
	free(whole.parts);
	free(whole.folders);
	return rv;
}

int agree_save_end(struct agree *agree, uint64_t n, const struct manifest *manifest,
	const struct record *record, uint32_t *files, uint64_t *size_bytes, char *part,
	struct pawl_err *err)
{
	struct agree_msg_status status = {0};
	int rv;

	ASSERT(agree->draft_n == n);
	part[0] = '\0';
	if (agree_is_leader(agree)) {
		rv = leader_end(agree, n, manifest, record, files, size_bytes, part, err);
	} else {
		rv = send_part(agree, n, manifest, record, err);
		rv = rv == 0 ? agree_await_result(agree, AGREE_ROUND_SAVE, n, &status, err) : rv;
		memcpy(part, status.part, sizeof(status.part));
	}
	if (rv == 0) {
		agree->last_save = n;
		agree->last_durable = n;
	}
	return rv;
}

/* Leader: removes what all hosts wrote of save n, which may not have begun here. */
static void remove_draft(struct agree *agree, uint64_t n)
{
	struct tag_draft draft = agree->draft;

	if (agree->draft_n != n) {
		begin_draft(agree, n, "", &draft, NULL);
	}
	tag_abandon(agree->root, &draft);
}

/* Removes what this host wrote of save n. */
static void remove_files(struct agree *agree, uint64_t n, const struct manifest_part *parts,
	uint32_t parts_n)
{
	char path[STORE_PATH_MAX];

	for (uint32_t p = 0; p < parts_n && agree->draft_n == n; p++) {
		manifest_file_path(path, sizeof(path), agree->draft.dir, &parts[p], 0);
		store_remove(tags_root_store(agree->root), path, NULL);
	}
}

/* Within the run: removes this host's part, and fails the save on all hosts. */
static int withdraw_part(struct agree *agree, uint64_t n, const struct manifest_part *parts,
	uint32_t parts_n, const char *part, const struct pawl_err *why, struct pawl_err *err)
{
	struct agree_msg_part msg = {.status = {.code = why->code}};
	int rv;

	agree->last_save = n > agree->last_save ? n : agree->last_save;
	/* Files are removed before the message is written: on a full disk it needs the space. */
	if (agree_is_leader(agree)) {
		remove_draft(agree, n);
	} else {
		remove_files(agree, n, parts, parts_n);
	}
	snprintf(msg.status.why, sizeof(msg.status.why), "%.255s", why->msg);
	snprintf(msg.status.part, sizeof(msg.status.part), "%s", part);
	if (agree_is_leader(agree)) {
		agree_msg_put_status(&agree->out, &msg.status);
	} else {
		agree_msg_put_part(&agree->out, &msg);
	}
	rv = agree_send(agree, AGREE_ROUND_SAVE, n, agree_is_leader(agree), err);
	if (rv == 0 && agree->chosen && agree_is_leader(agree)) {
		agree_remove_old(agree, AGREE_ROUND_SAVE, n);
	}
	return rv;
}

int agree_save_fail(struct agree *agree, uint64_t n, const struct manifest_part *parts,
	uint32_t parts_n, const char *part, const struct pawl_err *why, struct pawl_err *err)
{
	int rv = n <= agree->last_durable ? 0 : agree_take_part(agree, err);

	return rv != 0 || n <= agree->last_durable
		? rv
		: withdraw_part(agree, n, parts, parts_n, part, why, err);
}

int agree_save_refuse(struct agree *agree, uint64_t n, const char *why, struct pawl_err *err)
{
	struct pawl_err reason;

	pawl_err_set(&reason, PAWL_ECANCELED, "%s", why);
	return withdraw_part(agree, n, NULL, 0, "", &reason, err);
}

int agree_save_why(struct agree *agree, uint64_t n, char *part, struct pawl_err *err)
{
	struct agree_msg_status status = {0};
	int rv = agree_await_result(agree, AGREE_ROUND_SAVE, n, &status, err);

	memcpy(part, status.part, sizeof(status.part));
	return rv != 0 ? rv
		       : pawl_err_set(err, PAWL_ENOENT, "the directory of the save was removed");
}
