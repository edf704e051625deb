/*
 * Two checkpoints side by side: which partitions and tensors are in both, and how far the values of
 * those went. What `pawl ckpt diff` shows.
 */
#ifndef CLI_CKPT_PAIR_H
#define CLI_CKPT_PAIR_H

#include "ckpt/delta.h"
#include "ckpt/manifest.h"
#include "cli/progress.h"
#include "pawl/inspect.h"

struct reader;

enum pair_state {
	PAIR_SAME,     /* every byte */
	PAIR_CHANGED,  /* delta says how far */
	PAIR_ADDED,    /* only in the second */
	PAIR_REMOVED,  /* only in the first */
	PAIR_RESHAPED, /* as many dimensions or elements as before it has not */
	PAIR_RETYPED,  /* another dtype */
	PAIR_UNCLEAR,  /* the table does not say where its elements lie: why says more */
	PAIR_STATES,
};

/* "same", "changed", … in the order above. */
extern const char *const pair_words[PAIR_STATES];

/* A tensor in one checkpoint or both. */
struct pair_tensor {
	struct pawl_tensor *sides[2];    /* in the table of each; NULL: not there */
	enum pair_state state;           /* what became of it */
	const struct delta_dtype *dtype; /* of both sides; NULL: not known, or not alike */
	uint64_t bytes;                  /* of its elements, on each side */
	struct delta delta;              /* filled if it is PAIR_SAME or PAIR_CHANGED */
	const char *why;                 /* of PAIR_UNCLEAR; static */
};

/* A file in one checkpoint or both. */
struct pair_part {
	const struct manifest_part *sides[2]; /* in the manifests; NULL: not there */
	struct pawl_tensor *tables[2];        /* owned: all tensors of each side */
	size_t tables_n[2];                   /* of them */
	struct pair_tensor *tensors;          /* owned: by name, those of both sides together */
	size_t tensors_n;                     /* of them */
	bool others_changed; /* the bytes of what is no tensor (the pickle) differ */
};

/* Two checkpoints. */
struct pair {
	struct pair_part *parts; /* owned: by file name */
	size_t parts_n;          /* of them */
};

/* Puts side by side what the manifests say; they must outlive the pair, which is the caller's,
 * zeroed or done, to deinit. PAWL_ECORRUPT for a damaged tensor table, PAWL_ENOMEM. */
int pair_init(struct pair *pair, const struct manifest *first, const struct manifest *second,
	struct pawl_err *err);
void pair_deinit(struct pair *pair);
/* Bytes that pair_compare will look at, on both sides. */
uint64_t pair_bytes(const struct pair *pair);
/* Reads, verifies and compares the values of all tensors that both sides have alike, on all cores,
 * in little memory. Errors as part_image_need. */
int pair_compare(struct pair *pair, struct reader *reader, const char *const tags[2],
	struct progress *progress, struct pawl_err *err);

#endif
