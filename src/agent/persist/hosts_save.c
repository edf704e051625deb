/*
 * A checkpoint that several hosts write together: see hosts_save.h.
 *
 * Happy path, each line done before the next: all hosts write their files into the directory and
 * sync them and their names; the others say so, each in a note with its part of the manifest; rank
 * 0's host has all notes, makes one manifest of them, gives the directory the name that
 * tag_publish expects, publishes, and says that it is done. Until the last rename nothing is
 * visible, so a crash of anybody before it leaves a hidden directory and notes, which rank 0's
 * agent removes when it opens the root again.
 */
#include "agent/persist/hosts_save.h"

#include "base/err.h"
#include "base/fault.h"
#include "ckpt/format/merge.h"
#include "ckpt/tags.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes a name that tags_recover knows as something unfinished. */
static void name_dir(const struct hosts *hosts, uint64_t n, char *dir, size_t cap_bytes)
{
	char name[CKPT_TAG_MAX];

	snprintf(name, sizeof(name), "hosts-%016" PRIx64 "-%" PRIu64, hosts->run.run, n);
	tag_new_dir(dir, cap_bytes, name);
}

/* Enters a run. If the run that this host was in has ended, the save ends with it. If none comes in
 * time, this host goes on waiting to be named in the next one: beginning anew would put off the
 * host that is about to name it. */
static int enter(struct hosts *hosts, struct pawl_err *err)
{
	int rv;

	hosts->used = hosts->used || hosts->in;
	rv = hosts_enter(hosts, err);
	hosts->used = hosts->used || rv == 0;
	return rv;
}

int hosts_save_begin(struct hosts *hosts, uint64_t n, char *dir, size_t dir_cap_bytes,
	struct pawl_err *err)
{
	char inner[STORE_NAME_MAX + 8];
	int rv = enter(hosts, err);

	if (rv != 0) {
		return rv;
	}
	name_dir(hosts, n, dir, dir_cap_bytes);
	snprintf(inner, sizeof(inner), "%s/.pawl", dir);
	rv = store_mkdir(hosts->store, dir, err);
	return rv == 0 ? store_mkdir(hosts->store, inner, err) : rv;
}

/* ---- the part of this host ---- */

/* Lists the partitions said to be alike; the note borrows the record's sums. */
static int list_shared(struct note_part *note, const struct record *record, struct pawl_err *err)
{
	note->shared = calloc(record->parts_n + 1, sizeof(*note->shared));
	if (!note->shared) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u partitions",
			record->parts_n);
	}
	for (uint32_t p = 0; p < record->parts_n; p++) {
		const struct record_part *part = &record->parts[p];
		struct note_shared *shared = &note->shared[note->shared_n];

		if (part->shared) {
			memcpy(shared->name, part->name, sizeof(shared->name));
			shared->size_bytes = part->size_bytes;
			shared->sums_n = part->sums_n;
			shared->sums = part->sums;
			note->shared_n++;
		}
	}
	return 0;
}

static int say_part(struct hosts *hosts, uint64_t n, const char *dir,
	const struct manifest *manifest, const struct record *record, struct pawl_err *err)
{
	struct note_part note = {.manifest = *manifest};
	int rv = store_sync_dir(hosts->store, dir, err);

	if (rv == 0) {
		rv = list_shared(&note, record, err);
	}
	if (rv == 0) {
		note_put_part(&hosts->out, &note);
		rv = hosts_say(hosts, 's', n, false, err);
	}
	free(note.shared);
	return rv;
}

/* ---- the merge on rank 0's host ---- */

/* All hosts' parts of a save. */
struct parts {
	struct note_part *notes;  /* part of each member */
	struct merge_host *hosts; /* rank 0's own files, then each member's */
	uint32_t n;               /* number of notes read */
};

/* Checks that a host shares the same partitions as rank 0, with the same content. */
static int check_shared(const struct record *record, const struct note_part *note, uint32_t rank,
	char *part, struct pawl_err *err)
{
	uint32_t own_n = 0;

	for (uint32_t p = 0; p < record->parts_n; p++) {
		own_n += record->parts[p].shared;
	}
	if (own_n != note->shared_n) {
		return pawl_err_set(err, PAWL_EMISMATCH,
			"rank 0 says that %u partitions are alike on all ranks, rank %u says %u",
			own_n, rank, note->shared_n);
	}
	for (uint32_t s = 0; s < note->shared_n; s++) {
		const struct note_shared *shared = &note->shared[s];
		const struct record_part *own = record_find_shared(record, shared->name);
		bool differs = !own || own->size_bytes != shared->size_bytes;

		snprintf(part, CKPT_NAME_MAX, "%s", shared->name);
		if (differs ||
			(own->sums_n == shared->sums_n && shared->sums_n > 0 &&
				memcmp(own->sums, shared->sums,
					shared->sums_n * sizeof(*shared->sums)) != 0)) {
			return pawl_err_set(err, PAWL_EMISMATCH,
				"%s: differs between rank 0 and rank %u, which should hold it "
				"alike; from now on every rank's copy is kept",
				shared->name, rank);
		}
	}
	part[0] = '\0';
	return 0;
}

/* Reads the part of member m. */
static int read_part(struct hosts *hosts, uint64_t n, uint32_t m, struct parts *parts,
	struct pawl_err *err)
{
	const struct hosts_member *member = &hosts->run.members[m];
	struct note_part *note = &parts->notes[parts->n];
	void *bytes;
	size_t len_bytes;
	int rv = hosts_read(hosts, 's', n, m, &bytes, &len_bytes, err);

	if (rv == PAWL_ENOENT) {
		return pawl_err_set(err, PAWL_ECANCELED, "rank %u's host did not save it",
			member->first);
	}
	if (rv != 0) {
		return rv;
	}
	parts->n++;
	rv = note_get_part(bytes, len_bytes, note, err);
	free(bytes);
	if (rv == 0 && note->word.code != 0) {
		rv = pawl_err_set(err, note->word.code, "rank %u's host: %s", member->first,
			note->word.why);
	}
	parts->hosts[parts->n] = (struct merge_host){&note->manifest, member->first, member->ranks};
	return rv;
}

/* Waits for all parts and compares them. */
static int collect(struct hosts *hosts, uint64_t n, const struct record *record,
	struct parts *parts, char *part, struct pawl_err *err)
{
	int rv = hosts_gather(hosts, 's', n, err);

	for (uint32_t m = 0; m < hosts->run.members_n && rv == 0; m++) {
		rv = read_part(hosts, n, m, parts, err);
		if (rv == 0) {
			rv = check_shared(record, &parts->notes[m], hosts->run.members[m].first,
				part, err);
		}
	}
	return rv;
}

/* Gives the directory the name under which a tag is published, and publishes it. */
static int publish(struct hosts *hosts, const char *dir, const struct manifest *manifest,
	struct pawl_err *err)
{
	char fresh[STORE_NAME_MAX];
	int rv;

	tag_new_dir(fresh, sizeof(fresh), manifest->tag);
	tag_abandon(hosts->store, manifest->tag); /* what a failed attempt may have left */
	rv = store_rename(hosts->store, dir, fresh, STORE_REPLACE, err);
	if (rv == 0) {
		rv = tag_publish(hosts->store, manifest->tag, manifest, err);
	}
	if (rv != 0) {
		tag_abandon(hosts->store, manifest->tag);
	}
	return rv;
}

static int lead_end(struct hosts *hosts, uint64_t n, const char *dir,
	const struct manifest *manifest, const struct record *record, uint32_t *files,
	uint64_t *size_bytes, char *part, struct pawl_err *err)
{
	uint32_t members_n = hosts->run.members_n;
	struct parts parts = {.notes = calloc(members_n + 1, sizeof(*parts.notes)),
		.hosts = calloc(members_n + 1, sizeof(*parts.hosts))};
	struct note_word word = {0};
	struct manifest whole = {0};
	int rv = parts.notes && parts.hosts
		? 0
		: pawl_err_set(err, PAWL_ENOMEM, "no memory for %u hosts", members_n);

	if (rv == 0) {
		parts.hosts[0] = (struct merge_host){manifest, 0, hosts->own.ranks};
		rv = collect(hosts, n, record, &parts, part, err);
	}
	if (rv == 0) {
		rv = manifest_merge(parts.hosts, members_n + 1, &whole, err);
	}
	/* Without parts, nobody had anything to save under this tag. */
	if (rv == 0 && whole.parts_n > 0) {
		FAULT_CRASH("hosts.crash.merged");
		rv = publish(hosts, dir, &whole, err);
	}
	if (rv == 0) {
		FAULT_CRASH("hosts.crash.published");
		*files = whole.parts_n;
		*size_bytes = manifest_bytes(&whole);
		note_put_word(&hosts->out, &word);
		/* The tag is durable whether the other hosts hear of it or not. */
		hosts_say(hosts, 's', n, true, NULL);
		hosts_forget(hosts, 's', n);
	}
	for (uint32_t m = 0; m < parts.n; m++) {
		note_part_deinit(&parts.notes[m]);
	}
	free(parts.notes);
	free(parts.hosts);
	free(whole.parts);
	return rv;
}

int hosts_save_end(struct hosts *hosts, uint64_t n, const struct manifest *manifest,
	const struct record *record, uint32_t *files, uint64_t *size_bytes, char *part,
	struct pawl_err *err)
{
	struct note_word word = {0};
	char dir[STORE_NAME_MAX];
	int rv;

	part[0] = '\0';
	name_dir(hosts, n, dir, sizeof(dir));
	if (hosts_lead(hosts)) {
		rv = lead_end(hosts, n, dir, manifest, record, files, size_bytes, part, err);
	} else {
		rv = say_part(hosts, n, dir, manifest, record, err);
		FAULT_CRASH("hosts.crash.said");
		rv = rv == 0 ? hosts_hear(hosts, 's', n, &word, err) : rv;
		memcpy(part, word.part, sizeof(word.part));
	}
	if (rv == 0) {
		hosts->saves = n;
		hosts->durable = n;
	}
	return rv;
}

/* Within the run: removes this host's part and tells all hosts why. */
static int take_back(struct hosts *hosts, uint64_t n, const struct manifest_part *parts,
	uint32_t parts_n, const char *part, const struct pawl_err *why, struct pawl_err *err)
{
	struct note_part note = {.word = {.code = why->code}};
	char path[STORE_NAME_MAX + CKPT_NAME_MAX + 32];
	char dir[STORE_NAME_MAX];

	hosts->saves = n > hosts->saves ? n : hosts->saves;
	name_dir(hosts, n, dir, sizeof(dir));
	/* Rank 0's host removes first: on a full disk the note needs the room. */
	if (hosts_lead(hosts)) {
		store_remove(hosts->store, dir, NULL);
	}
	for (uint32_t p = 0; p < parts_n && !hosts_lead(hosts); p++) {
		snprintf(path, sizeof(path), "%s/%s", dir, parts[p].file);
		store_remove(hosts->store, path, NULL);
	}
	snprintf(note.word.why, sizeof(note.word.why), "%.255s", why->msg);
	snprintf(note.word.part, sizeof(note.word.part), "%s", part);
	if (hosts_lead(hosts)) {
		note_put_word(&hosts->out, &note.word);
	} else {
		note_put_part(&hosts->out, &note);
	}
	return hosts_say(hosts, 's', n, hosts_lead(hosts), err);
}

int hosts_save_fail(struct hosts *hosts, uint64_t n, const struct manifest_part *parts,
	uint32_t parts_n, const char *part, const struct pawl_err *why, struct pawl_err *err)
{
	int rv = n <= hosts->durable ? 0 : enter(hosts, err);

	return rv != 0 || n <= hosts->durable ? rv
					      : take_back(hosts, n, parts, parts_n, part, why, err);
}

int hosts_save_refuse(struct hosts *hosts, uint64_t n, const char *why, struct pawl_err *err)
{
	struct pawl_err reason;

	pawl_err_set(&reason, PAWL_ECANCELED, "%s", why);
	return take_back(hosts, n, NULL, 0, "", &reason, err);
}

int hosts_save_why(struct hosts *hosts, uint64_t n, char *part, struct pawl_err *err)
{
	struct note_word word = {0};
	int rv = hosts_hear(hosts, 's', n, &word, err);

	memcpy(part, word.part, sizeof(word.part));
	return rv != 0
		? rv
		: pawl_err_set(err, PAWL_ENOENT, "the directory that it is written to is gone");
}
