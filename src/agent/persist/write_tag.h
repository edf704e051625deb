/* Makes a tag of what the ranks staged: writes files from their arenas and the manifest, then
 * publishes them. For the storage thread. */
#ifndef AGENT_PERSIST_WRITE_TAG_H
#define AGENT_PERSIST_WRITE_TAG_H

#include "agent/persist/persist.h"

struct agree;
struct tag_draft;
struct tags_root;
struct writer;

/* The size of a finished save, for the history. */
struct write_tag_result {
	uint64_t size_bytes; /* bytes of all files */
	uint32_t files;      /* number of files, one a partition */
};

/* How to write a save. */
struct write_tag_options {
	const char *job;     /* job id */
	const char *tag;     /* name of the tag */
	const char *base;    /* newest durable tag, to share equal chunks with; "": none */
	uint32_t full_every; /* one of so many saves of a file shares nothing; 0 or 1: every save */
	/* What the ranks have written the files into, if this host alone writes the tag; NULL: a
	 * draft is begun */
	const struct tag_draft *draft;
	struct agree *agree; /* with ranks on other hosts, else NULL */
	uint64_t round;      /* with agree: number of the save among all hosts */
};

/*
 * Writes and publishes a tag, with the other hosts if there are any. On error, removes the draft.
 * diverged_part (CKPT_NAME_MAX bytes, "" before) gets the partition's name if the error is that
 * hosts hold a partition differently. Errors of the store and of agree.h; PAWL_ECORRUPT: bytes in
 * an arena changed since they were staged; PAWL_EMISMATCH: ranks or hosts differ; PAWL_ENOMEM.
 */
int write_tag_publish(struct tags_root *root, struct writer *writer,
	const struct persist_save *save, const struct write_tag_options *options,
	struct write_tag_result *result, char *diverged_part, struct pawl_err *err);

/*
 * Checks that the records of all ranks here, from rank first on, fit together. Shared partitions
 * must be the same files, the ranks' shares must cover them once, and checksums, where taken, must
 * be equal. Returns 0; or PAWL_EMISMATCH with the partition's name in part (CKPT_NAME_MAX bytes),
 * and the tensor and ranks in err. Pure.
 */
int write_tag_check(const struct record *const *records, uint32_t world, uint32_t first, char *part,
	struct pawl_err *err);

#endif
