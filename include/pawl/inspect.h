/* Inspects checkpoints without a job: the tags of a root, and the tensor table of a partition. */
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
	512u /* bytes, terminator included; longer names are cut when they are encoded */
#define PAWL_TENSOR_DTYPE_MAX 24u   /* "float8_e4m3fn" */
#define PAWL_TENSOR_DIMS_MAX  64u   /* limit of torch */
#define PAWL_TAG_MAX          128u  /* bytes of a tag, terminator included */
#define PAWL_BUCKET_NAME_MAX  4096u /* bytes of a bucket's address, terminator included */

/* A row of a tensor table: describes a tensor, so that nobody has to unpickle it. */
struct pawl_tensor {
	/* Path inside the partition: "transformer.h.0.ln_1.weight", "state.3.exp_avg". */
	char name[PAWL_TENSOR_NAME_MAX];
	char dtype[PAWL_TENSOR_DTYPE_MAX];    /* torch's name without "torch." */
	uint32_t storage;                     /* index of the tensor's storage in the file */
	uint64_t offset_bytes;                /* offset of the first element in the storage */
	uint32_t ndim;                        /* number of dimensions */
	uint64_t shape[PAWL_TENSOR_DIMS_MAX]; /* elements in each dimension */
	/* The tensor is a box of a larger one, row-major; else the next two are undefined. */
	bool sharded;
	uint64_t global[PAWL_TENSOR_DIMS_MAX]; /* shape of the larger tensor */
	/* First element of the box in the larger tensor; start + shape is at most global. */
	uint64_t start[PAWL_TENSOR_DIMS_MAX];
};

/* Appends a row to *table (malloc'ed, grown by realloc; start with NULL and 0). The caller frees
 * *table. PAWL_ENOMEM: the table is as it was. */
int pawl_tensor_append(void **table, size_t *table_bytes, const struct pawl_tensor *tensor,
	struct pawl_err *err);
/* Decodes the row at *off of a table, and moves *off behind it. Returns 1 if there was one, 0 at
 * the end of the table; PAWL_ECORRUPT (negative) if the table is malformed. Safe for any bytes. */
int pawl_tensor_decode(const void *table, size_t table_bytes, size_t *off,
	struct pawl_tensor *tensor, struct pawl_err *err);

/* A checkpoint in a root. */
struct pawl_tag {
	char tag[PAWL_TAG_MAX]; /* name of the directory */
	uint64_t step;          /* training step */
	/* The files complete.txt and manifest, and all sizes, are right; the payload was not
	 * read. */
	bool complete;
	bool pinned;         /* never deleted by retention */
	uint64_t size_bytes; /* size of all files; 0 if not complete */
	int64_t created_ns;  /* wall clock, ns since 1970; 0 if not complete */
	uint32_t world;      /* ranks that saved; 0 if not complete */
	char why[160];       /* why the tag is not complete; "" if it is */
};

/* Writes the address of a bucket in the one form that all spellings of it share, and returns 1.
 * Returns 0 if root is a path, and no address. PAWL_EINVAL, PAWL_ELIMIT: the address is wrong. */
int pawl_bucket_name(const char *root, char name[PAWL_BUCKET_NAME_MAX], struct pawl_err *err);
/* Reads a small file beside the tags of a root, such as checkpointHistories.csv. The caller frees
 * *bytes, which has a NUL behind it. PAWL_ENOENT: there is no such root, or file. */
int pawl_root_read(const char *root, const char *file, void **bytes, size_t *len_bytes,
	struct pawl_err *err);
/* Lists all tags of a root, ascending by step and then by time of creation. The caller frees *tags.
 * PAWL_ENOENT if there is no such root. */
int pawl_tags_list(const char *root, struct pawl_tag **tags, size_t *n, struct pawl_err *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
