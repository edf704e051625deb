/* One manifest out of those of several hosts, each of the files that its ranks wrote. Pure. */
#ifndef CKPT_MERGE_H
#define CKPT_MERGE_H

#include "ckpt/manifest.h"

/* What one host wrote of a tag. */
struct merge_host {
	const struct manifest *manifest; /* its files; the caller's */
	uint32_t first;                  /* its lowest rank */
	uint32_t ranks;                  /* of them, consecutive */
};

/*
 * The tag that all hosts wrote together. into->parts is to be freed, what it points to stays the
 * hosts'. PAWL_EMISMATCH, naming file and ranks, if they are not of one tag, step and world, if two
 * have a file of one name, or one has a file of a rank that it does not have; what all ranks hold
 * alike is the host's with rank 0.
 */
int manifest_merge(const struct merge_host *hosts, uint32_t n, struct manifest *into,
	struct pawl_err *err);

#endif
