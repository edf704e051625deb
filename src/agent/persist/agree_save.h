/*
 * A checkpoint that several hosts write together: see agree.h. All hosts write their files into one
 * shared draft (root.h), hosts-<run>-<n>, for save n of the run. Readers ignore it, and the next
 * agent that owns the root removes it. The leader makes a tag of it, once it has the messages in
 * which all hosts list what they wrote and synced. For the storage thread.
 */
#ifndef AGENT_PERSIST_AGREE_SAVE_H
#define AGENT_PERSIST_AGREE_SAVE_H

#include "agent/persist/agree.h"
#include "ckpt/format/record.h"

/* Begins save n of this tag, or goes on with it: agree->draft is what this host's files go into.
 * PAWL_EPEER: the run is over, and this host must begin anew; PAWL_ETIMEDOUT: there is no run
 * yet. */
int agree_save_begin(struct agree *agree, uint64_t n, const char *tag, struct pawl_err *err);
/*
 * This host's files of save n, the newest that has begun, are written and synced: manifest lists
 * them. record is that of this host's
 * lowest rank: what it shares must be equal on all hosts. Returns 0 once the tag is durable, with
 * the files of all hosts (the leader gets their totals in *files and *size_bytes). PAWL_EMISMATCH
 * with a name in part (CKPT_NAME_MAX bytes): hosts hold that partition differently.
 */
int agree_save_end(struct agree *agree, uint64_t n, const struct manifest *manifest,
	const struct record *record, uint32_t *files, uint64_t *size_bytes, char *part,
	struct pawl_err *err);
/* This host's part will not come, or agree_save_end failed: fails the save on all hosts, with the
 * reason why, unless it is durable. Removes parts_n of parts, which may have been written. part,
 * PAWL_EPEER and PAWL_ETIMEDOUT as above; part may be "". */
int agree_save_fail(struct agree *agree, uint64_t n, const struct manifest_part *parts,
	uint32_t parts_n, const char *part, const struct pawl_err *why, struct pawl_err *err);
/* Leader, in the run: has no part in save n of another host, and fails it on all hosts. */
int agree_save_refuse(struct agree *agree, uint64_t n, const char *why, struct pawl_err *err);
/* The draft does not exist any more: the leader removed it, since the save failed. Returns the
 * leader's reason, never 0; part as above. */
int agree_save_why(struct agree *agree, uint64_t n, char *part, struct pawl_err *err);

#endif
