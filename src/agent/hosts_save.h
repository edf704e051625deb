/*
 * A checkpoint that several hosts write together: see hosts.h. Their files are written into one
 * directory of the run and the save, .pawl.hosts-<run>-<n>.new, which no reader looks at and
 * whoever has the root next removes; rank 0's host makes a tag of it, once it has all hosts' notes
 * on what they wrote and synced. For the storage thread.
 */
#ifndef AGENT_HOSTS_SAVE_H
#define AGENT_HOSTS_SAVE_H

#include "agent/hosts.h"
#include "ckpt/record.h"

/* Where this host's files of save n go, made if need be. PAWL_EPEER: the run is over, and this host
 * must begin anew; PAWL_ETIMEDOUT: there is none yet. */
int hosts_save_begin(struct hosts *hosts, uint64_t n, char *dir, size_t dir_cap_bytes,
	struct pawl_err *err);
/*
 * They are written and synced: manifest lists them. record is that of this host's lowest rank: what
 * it shares must be alike on all hosts. 0: the tag is durable, with the files of all hosts (on rank
 * 0's host, *files and *size_bytes are of all of them). PAWL_EMISMATCH with a name in part
 * (CKPT_NAME_MAX bytes): a partition that is not alike.
 */
int hosts_save_end(struct hosts *hosts, uint64_t n, const struct manifest *manifest,
	const struct record *record, uint32_t *files, uint64_t *size_bytes, char *part,
	struct pawl_err *err);
/* This host's part will not come, or hosts_save_end failed: all hosts are told why, unless they
 * know. parts_n of parts may have been written; part: as above, or "". PAWL_EPEER,
 * PAWL_ETIMEDOUT: as above. */
int hosts_save_fail(struct hosts *hosts, uint64_t n, const struct manifest_part *parts,
	uint32_t parts_n, const char *part, const struct pawl_err *why, struct pawl_err *err);
/* Rank 0's, which is in the run and has no part in this save of another's: all are told why. */
int hosts_save_refuse(struct hosts *hosts, uint64_t n, const char *why, struct pawl_err *err);
/* The directory is gone: rank 0's host has removed it, since the save failed, and says why. part as
 * above. Never 0. */
int hosts_save_why(struct hosts *hosts, uint64_t n, char *part, struct pawl_err *err);

#endif
