/* Makes a tag out of what the ranks staged: files from their arenas, then the manifest, then
 * publishing. Runs on the storage thread. */
#ifndef AGENT_PERSIST_WRITE_TAG_H
#define AGENT_PERSIST_WRITE_TAG_H

#include "agent/persist/storage_thread.h"

struct store;
struct writer;

/* The size of a finished save, for the history. */
struct write_tag_result {
	uint64_t size_bytes; /* bytes of all files */
	uint32_t files;      /* number of files, one a partition */
};

/* How to write a save. */
struct write_tag_options {
	const char *job;     /* job id */
	const char *base;    /* newest durable tag, to share equal chunks with; "": none */
	uint32_t full_every; /* one of so many saves of a file shares nothing; at most 1: all */
	bool streamed;       /* the files are there already */
};

/* Writes and publishes the tag of job->step, with the other hosts if there are any (then
 * job->differs may be set). The tag's directory under construction is removed on error. */
int write_tag_publish(struct store *store, struct writer *writer, struct persist_job *job,
	const struct write_tag_options *options, struct write_tag_result *result,
	struct pawl_err *err);

/*
 * Checks that the records of the ranks from first on, all that are here, fit together. Shared
 * partitions must be the same files, their shares must cover them once, and where sums were taken
 * they must be equal. Returns 0; or PAWL_EMISMATCH with the partition's name in part (CKPT_NAME_MAX
 * bytes) and the tensor and ranks in err. Pure.
 */
int write_tag_check(const struct record *const *records, uint32_t world, uint32_t first, char *part,
	struct pawl_err *err);

#endif
