/* Merges the manifests of several hosts, each about the files that its ranks wrote. Pure. */
#ifndef CKPT_FORMAT_MERGE_H
#define CKPT_FORMAT_MERGE_H

#include "ckpt/format/manifest.h"

/* The part of a tag that one host wrote. */
struct merge_host {
	const struct manifest *manifest; /* manifest of its files; the caller's */
	uint32_t first;                  /* lowest rank on the host */
	uint32_t ranks;                  /* number of ranks, consecutive from first */
};

/*
 * Merges the manifests into one for the tag that all hosts wrote together. The caller frees
 * into->parts and into->folders; what the parts point to stays the hosts'. Partitions that all
 * ranks share are taken from the host with rank 0. PAWL_EMISMATCH, naming file and ranks: the
 * manifests are not of one tag, step and world, or do not have the same folders in the same order,
 * or two have a file of the same name, or one has a file of a rank on another host.
 */
int manifest_merge(const struct merge_host *hosts, uint32_t n, struct manifest *into,
	struct pawl_err *err);

#endif
