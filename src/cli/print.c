/* Printing for commands: errors, JSON, sizes and times. */
#include "cli/cli.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/interrupt.h"
#include "daemon/sched_msg_json.h"
#include "pawl/err.h"

#include <jansson.h>
#include <stdarg.h>
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

/* Returns how many line ends text begins with; count_last, how many it ends with. */
static size_t count_first(const char *text)
{
	return strspn(text, "\n");
}

static size_t count_last(const char *text)
{
	size_t len = strlen(text);
	size_t n = 0;

	while (n < len && text[len - 1 - n] == '\n') {
		n++;
	}
	return n;
}

/* Prints text as text_escape shows it, but for its first and its last bytes, which are line ends of
 * ours. One write keeps a line on stderr whole beside those of other processes. */
static void put_shown(FILE *to, char *text, size_t first, size_t last)
{
	size_t len = strlen(text);
	size_t shown_bytes;
	char *all;

	ASSERT(first + last <= len);
	text[len - last] = '\0';
	shown_bytes = text_escape(NULL, 0, text + first);
	all = malloc(first + shown_bytes + last + 1);
	if (all) {
		memset(all, '\n', first);
		text_escape(all + first, shown_bytes + 1, text + first);
		memset(all + first + shown_bytes, '\n', last);
		fwrite(all, 1, first + shown_bytes + last, to);
	}
	free(all);
}

void cli_print(FILE *to, const char *fmt, ...)
{
	size_t first = count_first(fmt);
	size_t last = fmt[first] != '\0' ? count_last(fmt) : 0;
	char *text = NULL;
	va_list args;

	va_start(args, fmt);
	if (vasprintf(&text, fmt, args) >= 0) {
		put_shown(to, text, first, last);
		free(text);
	}
	va_end(args);
}

void cli_print_lines(FILE *to, const char *text)
{
	while (*text != '\0') {
		size_t len = strcspn(text, "\n");

		cli_print(to, "%.*s", (int)len, text);
		text += len;
		if (*text == '\n') {
			fputc(*text++, to);
		}
	}
}

int cli_fail(const struct cli_command *command, const struct pawl_err *err)
{
	cli_print(stderr, "pawl %s: %s\n", command->name, err->msg);
	return cli_exit_code(err->code);
}

int cli_json(json_t *document)
{
	int rv = document != NULL ? json_dumpf(document, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII)
				  : -1;

	json_decref(document);
	if (rv != 0 || putchar('\n') == EOF || fflush(stdout) != 0) {
		cli_print(stderr, "pawl: cannot write the JSON document\n");
		return CLI_FAILURE;
	}
	return CLI_OK;
}

json_t *cli_json_text(const char *text)
{
	return sched_msg_text_json(text);
}

const char *cli_size(char *buf, uint64_t bytes)
{
	return text_size(buf, bytes);
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
