/* Plans as JSON documents, as `pawl pipe show --json` prints them and `pawl pipe verify` reads
 * them; docs/pipeline.md has the format. */
#ifndef CLI_PIPE_DOCUMENT_H
#define CLI_PIPE_DOCUMENT_H

#include "pawl/pipe.h"

#include <stddef.h>

#define DOCUMENT_VERSION 1 /* version of the format */

struct json_t;
struct pipe_model;

/* Returns a plan of a model with its report, and the options that were considered; NULL: out of
 * memory. The caller owns the document. */
struct json_t *pipe_document_encode(const struct pipe_model *model,
	const struct pawl_pipe_plan *plan, const struct pawl_pipe_report *report,
	const struct pawl_pipe_options *options);

/* Returns what a report says of a plan, for a document; NULL: out of memory. */
struct json_t *pipe_report_encode(const struct pawl_pipe_report *report);
/* Returns an option that was considered; NULL: out of memory. */
struct json_t *pipe_option_encode(const struct pawl_pipe_option *option);

/* Decodes what pawl_pipe_verify needs of a plan. PAWL_ECORRUPT: the document is not valid; the
 * message names the place; PAWL_ENOMEM. On error the plan is zeroed. */
int pipe_document_decode(struct pawl_pipe_plan *plan, const char *text, size_t len_bytes,
	struct pawl_err *err);

#endif
