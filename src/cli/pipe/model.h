/* Models for `pawl pipe`: a JSON document with a row for each unit; docs/pipeline.md has the
 * format. */
#ifndef CLI_PIPE_MODEL_H
#define CLI_PIPE_MODEL_H

#include "pawl/pipe.h"

#include <stddef.h>

#define MODEL_VERSION   1           /* version of the format */
#define MODEL_NAME_MAX  200u        /* bytes of a name of a model, unit or tied set */
#define MODEL_BYTES_MAX (64u << 20) /* bytes of a document */

struct json_t;
struct field_reader;

/* A model; names belong to document. */
struct pipe_model {
	struct json_t *document;
	const char *name;                         /* "model" if the document has none */
	struct pawl_pipe_unit *units;             /* n entries, in order of execution */
	uint32_t n;                               /* number of units */
	const char *tied[PAWL_PIPE_TIED_MAX + 1]; /* name of each tied set, from 1 on */
	uint32_t tied_n;                          /* number of tied sets */
	double state_factor;                      /* 4 if the document has none */
	struct pawl_pipe_link link;               /* free transfers if the document has none */
};

/* Decodes a document. PAWL_ECORRUPT: it is not valid; the message names unit and field;
 * PAWL_ENOMEM. On error the model is zeroed. */
int pipe_model_decode(struct pipe_model *model, const char *text, size_t len_bytes,
	struct pawl_err *err);
void pipe_model_deinit(struct pipe_model *model);

/* Reads a link, which a model and a plan have. */
void pipe_link_decode(struct field_reader *reader, const struct json_t *object,
	struct pawl_pipe_link *link);

/* Reads a whole file, or stdin if path is "-". PAWL_ENOENT and the like; PAWL_ELIMIT: it has over
 * MODEL_BYTES_MAX. text: the caller frees it. */
int pipe_file_read(const char *path, char **text, size_t *len_bytes, struct pawl_err *err);

#endif
