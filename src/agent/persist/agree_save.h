/*
 * A checkpoint that several hosts write together: see agree.h. All hosts write their files into one
 * directory of the run and the save, .pawl.hosts-<run>-<n>.new. No reader looks at it, and the next
 * agent that has the root removes it; rank 0's host makes a tag of it, once it has all hosts' notes
 * on what they wrote and synced. For the storage thread.
 */
#ifndef AGENT_PERSIST_AGREE_SAVE_H
#define AGENT_PERSIST_AGREE_SAVE_H

#include "agent/persist/agree.h"
#include "ckpt/format/record.h"

/* Names the directory for this host's files of save n, and makes it if need be. PAWL_EPEER: the run
 * is over, and this host must begin anew; PAWL_ETIMEDOUT: there is no run yet. */
int agree_save_begin(struct agree *agree, uint64_t n, char *dir, size_t dir_cap_bytes,
	struct pawl_err *err);
/*
 * This host's files are written and synced: manifest lists them. record is that of this host's
 * lowest rank: what it shares must be alike on all hosts. Returns 0 once the tag is durable, with
 * the files of all hosts (rank 0's host gets their totals in *files and *size_bytes).
 * PAWL_EMISMATCH with a name in part (CKPT_NAME_MAX bytes): that partition is not alike.
 */
int agree_save_end(struct agree *agree, uint64_t n, const struct manifest *manifest,
	const struct record *record, uint32_t *files, uint64_t *size_bytes, char *part,
	struct pawl_err *err);
/* This host's part will not come, or agree_save_end failed: tells all hosts why, unless they know.
 * parts_n of parts may have been written; part, PAWL_EPEER and PAWL_ETIMEDOUT as above, part may be
 * "". */
int agree_save_fail(struct agree *agree, uint64_t n, const struct manifest_part *parts,
	uint32_t parts_n, const char *part, const struct pawl_err *why, struct pawl_err *err);
/* Rank 0's host, which is in the run, has no part in save n of another host: tells all hosts
 * why. */
int agree_save_refuse(struct agree *agree, uint64_t n, const char *why, struct pawl_err *err);
/* The directory is gone: rank 0's host removed it, since the save failed. Returns the reason that
 * rank 0's host gives, never 0; part as above. */
int agree_save_why(struct agree *agree, uint64_t n, char *part, struct pawl_err *err);

#endif
