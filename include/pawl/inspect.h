/* Looking at checkpoints without a job: the tags of a root, and the tensor table of a partition. */
#ifndef PAWL_INSPECT_H
#define PAWL_INSPECT_H

#include "pawl/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define PAWL_TENSOR_NAME_MAX                                                                       \
	512u /* bytes, terminator included; longer names are cut by whoever encodes */
#define PAWL_TENSOR_DTYPE_MAX 24u  /* "float8_e4m3fn" */
#define PAWL_TENSOR_DIMS_MAX  64u  /* as in torch */
#define PAWL_TAG_MAX          128u /* bytes of a tag, terminator included */

/* A row of a tensor table: what a person wants to know about a tensor without unpickling it. */
struct pawl_tensor {
	char name[PAWL_TENSOR_NAME_MAX];      /* path inside the partition:
						 "transformer.h.0.ln_1.weight", "state.3.exp_avg" */
	char dtype[PAWL_TENSOR_DTYPE_MAX];    /* torch's name without "torch." */
	uint32_t storage;                     /* index of its storage in the file */
	uint64_t offset_bytes;                /* of its first element in the storage */
	uint32_t ndim;                        /* dimensions */
	uint64_t shape[PAWL_TENSOR_DIMS_MAX]; /* elements */
	bool sharded; /* it is a box of a larger tensor, row-major; else the next two are undefined
		       */
	uint64_t global[PAWL_TENSOR_DIMS_MAX]; /* shape of that tensor */
	uint64_t start[PAWL_TENSOR_DIMS_MAX];  /* the box's first element in it; start + shape is
						  at most global */
};

/* Appends a row to *table (malloc'ed, grown by realloc; start with NULL and 0). The caller frees
 * it. PAWL_ENOMEM; then the table is as it was. */
int pawl_tensor_append(void **table, size_t *table_bytes, const struct pawl_tensor *tensor,
	struct pawl_err *err);
/* Decodes the row at *off of a table and moves *off behind it. 1 = one was decoded, 0 = end of
 * table, negative = PAWL_ECORRUPT. Any bytes are safe. */
int pawl_tensor_decode(const void *table, size_t table_bytes, size_t *off,
	struct pawl_tensor *tensor, struct pawl_err *err);

/* A checkpoint in a root. */
struct pawl_tag {
	char tag[PAWL_TAG_MAX]; /* directory */
	uint64_t step;          /* training step */
	bool complete; /* complete.txt, manifest and the files' sizes are right; payload is not read
			*/
	bool pinned;   /* never deleted by retention */
	uint64_t size_bytes; /* of all files; 0 if not complete */
	int64_t created_ns;  /* wall clock since 1970; 0 if not complete */
	uint32_t world;      /* ranks that saved; 0 if not complete */
	char why[160];       /* what is wrong, if not complete */
};

/* All tags of a root, ascending by step and then by age. The caller frees *tags. PAWL_ENOENT if
 * there is no such root. */
int pawl_tags_list(const char *root, struct pawl_tag **tags, size_t *n, struct pawl_err *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
