/*
 * Two checkpoints side by side: which partitions and tensors are in both, and how far their values
 * changed. `pawl ckpt diff` shows the result.
 */
#ifndef CLI_CKPT_CKPT_PAIR_H
#define CLI_CKPT_CKPT_PAIR_H

#include "ckpt/format/delta.h"
#include "ckpt/format/manifest.h"
#include "cli/progress.h"
#include "pawl/inspect.h"

struct reader;

enum pair_state {
	PAIR_SAME,     /* every byte is equal */
	PAIR_CHANGED,  /* delta has the difference */
	PAIR_ADDED,    /* only in the second checkpoint */
	PAIR_REMOVED,  /* only in the first checkpoint */
	PAIR_RESHAPED, /* the shape changed */
	PAIR_RETYPED,  /* the dtype changed */
	PAIR_UNCLEAR,  /* values cannot be compared: why gives the reason */
	PAIR_STATES,
};

/* "same", "changed", … in the order above. */
extern const char *const pair_words[PAIR_STATES];

/* A tensor in one checkpoint or both. */
struct pair_tensor {
	struct pawl_tensor *sides[2];    /* rows of the two tables; NULL: not on that side */
	enum pair_state state;           /* result of the comparison */
	const struct delta_dtype *dtype; /* dtype of both sides; NULL: unknown, or they differ */
	uint64_t bytes;                  /* bytes of the elements, on each side */
	struct delta delta;              /* filled if state is PAIR_SAME or PAIR_CHANGED */
	const char *why;                 /* reason for PAIR_UNCLEAR; static */
};

/* A file in one checkpoint or both. */
struct pair_part {
	/* Entries of both manifests; NULL: not on that side. */
	const struct manifest_part *sides[2];
	struct pawl_tensor *tables[2]; /* owned: all tensors of each side */
	size_t tables_n[2];            /* number of entries in each table */
	struct pair_tensor *tensors;   /* owned: by name, the tensors of both sides together */
	size_t tensors_n;              /* number of entries in tensors */
	bool others_changed;           /* bytes other than tensors (the pickle) differ */
};

/* Two checkpoints. */
struct pair {
	struct pair_part *parts; /* owned: by file name */
	size_t parts_n;          /* number of entries in parts */
};

/* Pairs what two manifests contain. The manifests must outlive the pair. The caller deinits the
 * pair, also after an error. PAWL_ECORRUPT for a damaged tensor table, PAWL_ENOMEM. */
int pair_init(struct pair *pair, const struct manifest *first, const struct manifest *second,
	struct pawl_err *err);
void pair_deinit(struct pair *pair);
/* Returns the bytes that pair_compare reads, on both sides together. */
uint64_t pair_bytes(const struct pair *pair);
/* Reads, verifies and compares the values of all tensors of the same dtype and shape on both sides,
 * on all cores, in little memory. sides: the manifests of pair_init. Errors as of
 * part_image_read. */
int pair_compare(struct pair *pair, struct reader *reader, const struct manifest *const sides[2],
	struct progress *progress, struct pawl_err *err);

#endif
