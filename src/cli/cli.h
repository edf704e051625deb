/* What the commands of `pawl` share: the table's row, options, exit codes, and printing. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct json_t;
struct pawl_err;

/* Exit codes of every command; docs/exit-codes.md has them in words. */
enum cli_exit {
	CLI_OK = 0,
	CLI_FAILURE = 1, /* of the system, or whatever has no code of its own */
	CLI_USAGE = 2,   /* the command line, or the environment it is given */
	CLI_NOTHING = 3, /* what was asked for is not there */
	CLI_DAMAGED = 4, /* stored bytes are not what was written */
	CLI_BUSY = 75,   /* somebody else has it: try again later (EX_TEMPFAIL) */
};

/* One option of a command. A table of them ends with a zero one. */
struct cli_option {
	const char *name;  /* "--max-restarts" */
	char letter;       /* also "-n"; 0: none */
	const char *value; /* what it takes, as help shows it; NULL: nothing */
	const char *help;  /* one line */
};

struct cli_command {
	const char *name;                 /* "ckpt ls" */
	const char *args;                 /* "ROOT [STEP]", as help shows them; "" if none */
	const char *summary;              /* one line, without a full stop */
	const char *details;              /* more for --help, lines of at most 80; NULL: nothing */
	const struct cli_option *options; /* beside --help; NULL: none */
	/* argv[0] is the command's name; returns an exit code */
	int (*main)(const struct cli_command *command, int argc, char **argv);
};

/* ---- options (opt.c) ---- */

/* Where reading the command line is. Zero-initialise, set the first three. */
struct cli_reader {
	const struct cli_command *command; /* whose options they are */
	int argc;                          /* words, the command's name included */
	char **argv;                       /* of them */
	int at;                            /* last word read; 0: none yet */
	const char *value; /* of the option or the argument that cli_read returned */
	bool only_args;    /* "--" was read */
};

#define CLI_ARG  -1 /* an argument, in value */
#define CLI_END  -2 /* no more */
#define CLI_HELP -3 /* --help was asked for, and given: exit with CLI_OK */
#define CLI_BAD  -4 /* the user was told what is wrong: exit with CLI_USAGE */

/* The next word: index of an option (its argument in value), or one of the above. */
int cli_read(struct cli_reader *reader);
/* The exit code for CLI_HELP and CLI_BAD. */
int cli_leave(int what);
/* A whole decimal number between least and most; tells the user and returns false otherwise. */
bool cli_number(const struct cli_command *command, const char *what, const char *text,
	uint64_t least, uint64_t most, uint64_t *number);
/* Seconds, decimals allowed, at most most_s. */
bool cli_seconds(const struct cli_command *command, const char *what, const char *text,
	double most_s, int64_t *ns);
/* "pawl ckpt ls: <message>; see pawl ckpt ls --help". Returns CLI_USAGE. */
int cli_usage(const struct cli_command *command, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void cli_help(const struct cli_command *command);

/* ---- printing (print.c) ---- */

/* As fprintf, for people: what others have chosen (names, paths, reasons) cannot steer a terminal
 * or look like another line, for all but the line ends that fmt itself begins and ends with is
 * shown as base/text.h says. So fmt has none in between. One write to an unbuffered stream. */
void cli_print(FILE *to, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Several lines, of somebody who may write lines: the scheduler's explanations. */
void cli_print_lines(FILE *to, const char *text);
/* "pawl ckpt ls: <message>" on stderr. Returns the exit code for the error's code. */
int cli_fail(const struct cli_command *command, const struct pawl_err *err);
int cli_exit_code(int pawl_code);
/* Prints a JSON document, all of it ASCII, and a newline to stdout and releases it; NULL is "out of
 * memory". Returns CLI_OK or CLI_FAILURE. */
int cli_json(struct json_t *document);

/* A JSON string; bytes that are no UTF-8 (a name cut in mid-character, a foreign path) become
 * '?'. */
struct json_t *cli_json_text(const char *text);

#define CLI_TEXT_MAX 40u /* bytes of a size or a time, terminator included */

/* "1.2 GiB", "17 bytes". Returns buf, of CLI_TEXT_MAX bytes. */
const char *cli_size(char *buf, uint64_t bytes);
/* "2026-11-20T12:34:56Z". Returns buf, of CLI_TEXT_MAX bytes. */
const char *cli_time(char *buf, int64_t wall_ns);

/* ---- the commands, a file each ---- */

extern const struct cli_command cli_run;
extern const struct cli_command cli_scale;
extern const struct cli_command cli_sched;
extern const struct cli_command cli_submit;
extern const struct cli_command cli_ls;
extern const struct cli_command cli_show;
extern const struct cli_command cli_logs;
extern const struct cli_command cli_top;
extern const struct cli_command cli_cancel;
extern const struct cli_command cli_pause;
extern const struct cli_command cli_resume;
extern const struct cli_command cli_cp;
extern const struct cli_command cli_drain;
extern const struct cli_command cli_shepherd;
extern const struct cli_command cli_ckpt_ls;
extern const struct cli_command cli_ckpt_show;
extern const struct cli_command cli_ckpt_verify;
extern const struct cli_command cli_ckpt_diff;
extern const struct cli_command cli_ckpt_export;
extern const struct cli_command cli_ckpt_import;
extern const struct cli_command cli_ckpt_rm;
extern const struct cli_command cli_ckpt_gc;
extern const struct cli_command cli_ckpt_repair;
extern const struct cli_command cli_ckpt_watch;
extern const struct cli_command cli_compat;
extern const struct cli_command cli_report;
extern const struct cli_command cli_agent;
extern const struct cli_command cli_serve;
extern const struct cli_command cli_net;
extern const struct cli_command cli_env;
extern const struct cli_command cli_pilot;
extern const struct cli_command cli_explain;
extern const struct cli_command cli_sim;
extern const struct cli_command cli_version;

#endif
