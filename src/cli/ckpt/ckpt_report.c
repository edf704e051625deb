/* Reports what a command did to a root: see ckpt_report.h. */
#include "cli/ckpt/ckpt_report.h"

#include "cli/cli.h"

#include <jansson.h>
#include <stdio.h>

/* The words for an act: in JSON, in a report of an act that was done, and in a dry run. */
static const struct {
	const char *word, *did, *would;
} acts[] = {
	[REPORT_REMOVE] = {"remove", "removed", "would remove"},
	[REPORT_PUT_BACK] = {"put back", "put back", "would put back"},
	[REPORT_COMPLETE] = {"complete", "completed", "would complete"},
	[REPORT_ADD] = {"add", "added", "would add"},
	[REPORT_COPY] = {"copy", "copied", "would copy"},
	[REPORT_KEEP] = {"keep", "kept", "would keep"},
	[REPORT_LEAVE] = {"leave", "left", "would leave"},
};

void report_add(struct report *report, enum report_act act, const char *name, uint64_t bytes,
	const char *why)
{
	char size[CLI_TEXT_MAX];

	*(act == REPORT_LEAVE ? &report->left : &report->done) += 1;
	report->freed_bytes += act == REPORT_REMOVE ? bytes : 0;
	if (!report->json) {
		cli_print(stdout, "%s %s%s%s%s%s\n", report->dry ? acts[act].would : acts[act].did,
			name, bytes > 0 ? ", " : "", bytes > 0 ? cli_size(size, bytes) : "",
			why != NULL ? ": " : "", why != NULL ? why : "");
		fflush(stdout); /* what follows may fail, or take long */
		return;
	}
	if (report->rows == NULL) {
		report->rows = json_array();
	}
	json_array_append_new(report->rows,
		json_pack("{s:s, s:o, s:I, s:o}", "act", acts[act].word, "name",
			cli_json_text(name), "bytes", (json_int_t)bytes, "why",
			why != NULL ? cli_json_text(why) : json_null()));
}

int report_end(struct report *report)
{
	char size[CLI_TEXT_MAX];
	int rv = CLI_OK;

	if (report->json) {
		rv = cli_json(json_pack("{s:b, s:o, s:I}", "dry_run", (int)report->dry, "acts",
			report->rows != NULL ? report->rows : json_array(), "freed_bytes",
			(json_int_t)report->freed_bytes));
		report->rows = NULL;
	} else if (report->freed_bytes > 0) {
		cli_print(stdout, "%s %s\n", report->dry ? "would free" : "freed",
			cli_size(size, report->freed_bytes));
	} else if (report->done == 0 && report->left == 0) {
		cli_print(stdout, "nothing to do\n");
	}
	return rv == CLI_OK && report->left > 0 ? CLI_DAMAGED : rv;
}
