/* The command line of a command: --name value, --name=value, -n value, -nvalue, --, --help. */
#include "cli/cli.h"

#include "base/clock.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELP_COLUMN 26 /* column at which the help of an option begins */

/* Counts the characters of a text of ours: of UTF-8, all bytes but those that go on with one. */
static int count_characters(const char *text)
{
	int n = 0;

	for (; *text != '\0'; text++) {
		n += ((unsigned char)*text & 0xc0) != 0x80;
	}
	return n;
}

static void print_option(const struct cli_option *option)
{
	char left[64];
	char letter[8] = "    ";
	int used;

	if (option->letter != 0) {
		snprintf(letter, sizeof(letter), "-%c, ", option->letter);
	}
	snprintf(left, sizeof(left), "  %s%s%s%s", letter, option->name,
		option->value != NULL ? " " : "", option->value != NULL ? option->value : "");
	used = count_characters(left);
	printf("%s%*s%s\n", left, used < HELP_COLUMN ? HELP_COLUMN - used : 1, "", option->help);
}

void cli_help(const struct cli_command *command)
{
	static const struct cli_option help = {"--help", 'h', NULL, "show this help"};

	printf("usage: pawl %s%s%s%s\n\n%s.\n", command->name,
		command->options != NULL ? " [options]" : "", command->args[0] != '\0' ? " " : "",
		command->args, command->summary);
	if (command->details != NULL) {
		printf("\n%s", command->details);
	}
	printf("\noptions:\n");
	for (const struct cli_option *o = command->options; o != NULL && o->name != NULL; o++) {
		print_option(o);
	}
	print_option(&help);
}

int cli_usage(const struct cli_command *command, const char *fmt, ...)
{
	char *text = NULL;
	va_list args;

	va_start(args, fmt);
	if (vasprintf(&text, fmt, args) >= 0) {
		cli_print(stderr, "pawl %s: %s; see pawl %s --help\n", command->name, text,
			command->name);
		free(text);
	}
	va_end(args);
	return CLI_USAGE;
}

int cli_read_exit_code(int what)
{
	return what == CLI_HELP ? CLI_OK : CLI_USAGE;
}

/* Finds the option that word names; *value: the value in the same word, or NULL. */
static int find_option(const struct cli_option *options, const char *word, const char **value)
{
	bool is_long = word[1] == '-';
	size_t len = is_long ? strcspn(word, "=") : 2;

	for (int i = 0; options != NULL && options[i].name != NULL; i++) {
		bool same = is_long
			? strlen(options[i].name) == len && strncmp(options[i].name, word, len) == 0
			: options[i].letter == word[1];

		if (same) {
			*value = word[len] == '\0' ? NULL : word + len + is_long;
			return i;
		}
	}
	return CLI_BAD;
}

static int read_option(struct cli_reader *reader, const char *word)
{
	const struct cli_option *options = reader->command->options;
	const char *value = NULL;
	int found = find_option(options, word, &value);

	if (found == CLI_BAD) {
		cli_usage(reader->command, "unknown option %s", word);
		return CLI_BAD;
	}
	if (options[found].value == NULL && value != NULL) {
		cli_usage(reader->command, "%s takes no value", options[found].name);
		return CLI_BAD;
	}
	if (options[found].value != NULL && value == NULL) {
		if (reader->at + 1 == reader->argc) {
			cli_usage(reader->command, "%s needs a value, %s", word,
				options[found].value);
			return CLI_BAD;
		}
		value = reader->argv[++reader->at];
	}
	reader->value = value;
	return found;
}

int cli_read(struct cli_reader *reader)
{
	const char *word;

	reader->value = NULL;
	if (reader->at + 1 >= reader->argc) {
		return CLI_END;
	}
	word = reader->argv[++reader->at];
	if (!reader->only_args && strcmp(word, "--") == 0) {
		reader->only_args = true;
		return cli_read(reader);
	}
	if (reader->only_args || word[0] != '-' || word[1] == '\0') {
		reader->value = word;
		return CLI_ARG;
	}
	if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
		cli_help(reader->command);
		return CLI_HELP;
	}
	return read_option(reader, word);
}

bool cli_number(const struct cli_command *command, const char *what, const char *text,
	uint64_t least, uint64_t most, uint64_t *number)
{
	unsigned long long value;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < least ||
		value > most) {
		if (most == UINT64_MAX) {
			cli_usage(command, "%s %s: a whole number is needed", what, text);
		} else {
			cli_usage(command, "%s %s: a whole number from %llu to %llu is needed",
				what, text, (unsigned long long)least, (unsigned long long)most);
		}
		return false;
	}
	*number = value;
	return true;
}

bool cli_seconds(const struct cli_command *command, const char *what, const char *text,
	double most_s, int64_t *ns)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end != '\0' || !(value >= 0 && value <= most_s)) {
		cli_usage(command, "%s %s: seconds from 0 to %.0f are needed", what, text, most_s);
		return false;
	}
	*ns = clock_ns_of(value);
	return true;
}

bool cli_scaled(const struct cli_command *command, const char *what, const char *text, double most,
	double *number)
{
	static const struct {
		const char *suffix;
		double times;
	} scales[] = {{"", 1}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"B", 1e9}, {"T", 1e12},
		{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1ull << 40}};
	char *end;
	double read = strtod(text, &end);

	for (size_t i = 0; i < sizeof(scales) / sizeof(*scales) && end != text; i++) {
		if (strcmp(end, scales[i].suffix) == 0 && read * scales[i].times >= 1 &&
			read * scales[i].times <= most) {
			*number = read * scales[i].times;
			return true;
		}
	}
	cli_usage(command, "%s %s: a number is needed, such as 25M, 7B or 64MiB", what, text);
	return false;
}
