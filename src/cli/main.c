/* The program: a table of commands, each in a file of its own. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#define NAME_COLUMN 14 /* width of the names in the list */

static const struct cli_command *const commands[] = {
	&cli_run,
	&cli_scale,
	&cli_notice,
	&cli_sched,
	&cli_submit,
	&cli_ls,
	&cli_show,
	&cli_logs,
	&cli_top,
	&cli_cancel,
	&cli_pause,
	&cli_resume,
	&cli_cp,
	&cli_drain,
	&cli_ckpt_ls,
	&cli_ckpt_show,
	&cli_ckpt_verify,
	&cli_ckpt_diff,
	&cli_ckpt_export,
	&cli_ckpt_import,
	&cli_ckpt_copy,
	&cli_ckpt_rm,
	&cli_ckpt_gc,
	&cli_ckpt_repair,
	&cli_ckpt_watch,
	&cli_mirror,
	&cli_mirror_status,
	&cli_mirror_flush,
	&cli_compat,
	&cli_report,
	&cli_explain,
	&cli_pipe_show,
	&cli_pipe_verify,
	&cli_pipe_predict,
	&cli_pipe_draw,
	&cli_sim,
	&cli_env,
	&cli_serve,
	&cli_net,
	&cli_agent,
	&cli_pilot,
	&cli_shepherd,
	&cli_version,
};

#define COMMANDS_N (sizeof(commands) / sizeof(commands[0]))

/* Prints the commands whose names begin with group; "" prints all. */
static void print_commands(FILE *to, const char *group)
{
	fprintf(to, "usage: pawl %s%sCOMMAND …\n\n", group, group[0] != '\0' ? " " : "");
	for (size_t i = 0; i < COMMANDS_N; i++) {
		if (strncmp(commands[i]->name, group, strlen(group)) == 0) {
			fprintf(to, "  %-*s%s\n", NAME_COLUMN, commands[i]->name,
				commands[i]->summary);
		}
	}
	fprintf(to,
		"\nSee pawl COMMAND --help for details, and docs/exit-codes.md for exit codes.\n");
}

/* Returns whether a word alone is no command, but begins some. */
static bool is_group(const char *word)
{
	size_t len = strlen(word);
	bool begins = false;

	for (size_t i = 0; i < COMMANDS_N; i++) {
		if (strcmp(commands[i]->name, word) == 0) {
			return false;
		}
		begins = begins ||
			(strncmp(commands[i]->name, word, len) == 0 &&
				commands[i]->name[len] == ' ');
	}
	return begins;
}

/* Runs the command that the first words of argv name; CLI_BAD if there is none. */
static int run_command(int argc, char **argv)
{
	char name[64];

	for (int words = argc > 2 ? 2 : 1; words > 0; words--) {
		snprintf(name, sizeof(name), "%s%s%s", argv[1], words == 2 ? " " : "",
			words == 2 ? argv[2] : "");
		for (size_t i = 0; i < COMMANDS_N; i++) {
			if (strcmp(commands[i]->name, name) == 0) {
				return commands[i]->main(commands[i], argc - words, argv + words);
			}
		}
	}
	return CLI_BAD;
}

static bool is_help(const char *word)
{
	return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
}

int main(int argc, char **argv)
{
	bool group = argc > 1 && is_group(argv[1]);
	int rv;

	if (argc == 1 || is_help(argv[1])) {
		print_commands(argc == 1 ? stderr : stdout, "");
		return argc == 1 ? CLI_USAGE : CLI_OK;
	}
	if (group && (argc == 2 || is_help(argv[2]))) {
		print_commands(argc == 2 ? stderr : stdout, argv[1]);
		return argc == 2 ? CLI_USAGE : CLI_OK;
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
		return cli_version.main(&cli_version, 1, argv + 1);
	}
	rv = run_command(argc, argv);
	if (rv == CLI_BAD) {
		cli_print(stderr, "pawl: unknown command %s%s%s; see pawl%s%s --help\n", argv[1],
			group ? " " : "", group ? argv[2] : "", group ? " " : "",
			group ? argv[1] : "");
		return CLI_USAGE;
	}
	return rv;
}
