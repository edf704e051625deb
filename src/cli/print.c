/* How commands say things: errors, JSON, sizes and times.
 */
#include "cli/cli.h"

#include "base/clock.h"
#include "cli/interrupt.h"
#include "cli/visible.h"
#include "daemon/talk_json.h"
#include "pawl/err.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int cli_exit_code(int pawl_code)
{
	switch (pawl_code) {
	case PAWL_OK:
		return CLI_OK;
	case PAWL_EINVAL:
		return CLI_USAGE;
	case PAWL_ENOENT:
		return CLI_NOTHING;
	case PAWL_ECORRUPT:
		return CLI_DAMAGED;
	case PAWL_EBUSY:
		return CLI_BUSY;
	case PAWL_ECANCELED:
		return interrupt_signal() != 0 ? 128 + interrupt_signal() : CLI_FAILURE;
	default:
		return CLI_FAILURE;
	}
}

int cli_fail(const struct cli_command *command, const struct pawl_err *err)
{
	fprintf(stderr, "pawl %s: ", command->name);
	visible_print(stderr, err->msg); /* which names files that others have named */
	fprintf(stderr, "\n");
	return cli_exit_code(err->code);
}

int cli_json(json_t *document)
{
	int rv = document != NULL ? json_dumpf(document, stdout, JSON_INDENT(2)) : -1;

	json_decref(document);
	if (rv != 0 || putchar('\n') == EOF || fflush(stdout) != 0) {
		fprintf(stderr, "pawl: cannot write the JSON document\n");
		return CLI_FAILURE;
	}
	return CLI_OK;
}

json_t *cli_json_text(const char *text)
{
	return talk_text_json(text);
}

const char *cli_size(char *buf, uint64_t bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes / 1024;
	size_t unit = 0;

	if (bytes < 1024) {
		snprintf(buf, CLI_TEXT_MAX, "%u B", (unsigned)bytes);
		return buf;
	}
	while (value >= 1023.95) { /* what would be shown as 1024.0 */
		value /= 1024;
		unit++;
	}
	snprintf(buf, CLI_TEXT_MAX, "%.1f %s", value, units[unit]);
	return buf;
}

const char *cli_time(char *buf, int64_t wall_ns)
{
	time_t seconds = (time_t)(wall_ns / NS_PER_S);
	struct tm parts;

	if (gmtime_r(&seconds, &parts) == NULL ||
		strftime(buf, CLI_TEXT_MAX, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0) {
		snprintf(buf, CLI_TEXT_MAX, "-");
	}
	return buf;
}
