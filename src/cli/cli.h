/* Shared by the commands of `pawl`: their table row, options, exit codes, and printing. */
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
	CLI_FAILURE = 1, /* an error of the system, or one without its own code */
	CLI_USAGE = 2,   /* the command line or the environment is wrong */
	CLI_NOTHING = 3, /* a thing that the user named does not exist */
	CLI_DAMAGED = 4, /* stored bytes are not what was written */
	CLI_BUSY = 75,   /* in use by another process: try again later (EX_TEMPFAIL) */
};

/* One option of a command. A zeroed one ends a table of them. */
struct cli_option {
	const char *name;  /* long form: "--max-restarts" */
	char letter;       /* short form, the n of "-n"; 0: none */
	const char *value; /* name of the option's argument, as help shows it; NULL: none */
	const char *help;  /* one line */
};

struct cli_command {
	const char *name;    /* "ckpt ls" */
	const char *args;    /* "ROOT [STEP]", as help shows them; "" if none */
	const char *summary; /* one line, without a full stop */
	const char *details; /* more for --help, lines of at most 80 columns; NULL: nothing */
	const struct cli_option *options; /* options besides --help; NULL: none */
	/* argv[0] is the command's name. Returns an exit code. */
	int (*main)(const struct cli_command *command, int argc, char **argv);
};

/* ---- options (opt.c) ---- */

/* State of reading the command line. Zero-initialise; the caller sets command, argc and argv. */
struct cli_reader {
	const struct cli_command *command; /* command whose options are read */
	int argc;                          /* number of words, the command's name included */
	char **argv;                       /* the words; the first is the command's name */
	int at;                            /* index of the last word read; 0: none yet */
	const char *value; /* value of the option or the argument that cli_read returned */
	bool only_args;    /* "--" was read */
};

#define CLI_ARG  -1 /* an argument, in value */
#define CLI_END  -2 /* no more words */
#define CLI_HELP -3 /* --help was printed: exit with CLI_OK */
#define CLI_BAD  -4 /* the error was printed: exit with CLI_USAGE */

/* Reads the next word. Returns the index of an option (its argument in value), or one of the
 * above. */
int cli_read(struct cli_reader *reader);
/* Returns the exit code for CLI_HELP and CLI_BAD. */
int cli_read_exit_code(int what);
/* Reads a whole decimal number between least and most. False: text is no such number; the error is
 * printed. */
bool cli_number(const struct cli_command *command, const char *what, const char *text,
	uint64_t least, uint64_t most, uint64_t *number);
/* Reads seconds, decimals allowed, at most most_s. False: text is no such time; the error is
 * printed. */
bool cli_seconds(const struct cli_command *command, const char *what, const char *text,
	double most_s, int64_t *ns);
/* Reads a number from 1 to most with a suffix that multiplies it: "25M", "7B", "64MiB". False: text
 * is no such number; the error is printed. */
bool cli_scaled(const struct cli_command *command, const char *what, const char *text, double most,
	double *number);
/* Prints "pawl ckpt ls: <message>; see pawl ckpt ls --help". Returns CLI_USAGE. */
int cli_usage(const struct cli_command *command, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void cli_help(const struct cli_command *command);

/* ---- printing (print.c) ---- */

/* Prints as fprintf does, for people. Foreign text (names, paths, reasons) cannot control a
 * terminal or look like another line: base/text.h escapes the output, except for the line ends at
 * the beginning and the end of fmt. Therefore fmt has no line end in between. An unbuffered stream
 * gets one write. */
void cli_print(FILE *to, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints several lines from a source that may write lines: the scheduler's explanations. */
void cli_print_lines(FILE *to, const char *text);
/* Prints "pawl ckpt ls: <message>" on stderr. Returns the exit code for the error's code. */
int cli_fail(const struct cli_command *command, const struct pawl_err *err);
int cli_exit_code(int pawl_code);
/* Prints a JSON document, all of it ASCII, and a newline on stdout, and releases the document; NULL
 * means "out of memory". Returns CLI_OK or CLI_FAILURE. */
int cli_json(struct json_t *document);

/* Returns a JSON string; bytes that are no UTF-8 (a name cut in mid-character, a foreign path)
 * become '?'. */
struct json_t *cli_json_text(const char *text);

#define CLI_TEXT_MAX 40u /* bytes of a size or a time, terminator included */

/* Formats a size: "1.2 GiB", "17 bytes". Returns buf, of CLI_TEXT_MAX bytes. */
const char *cli_size(char *buf, uint64_t bytes);
/* Formats a time: "2026-11-20T12:34:56Z". Returns buf, of CLI_TEXT_MAX bytes. */
const char *cli_time(char *buf, int64_t wall_ns);

/* ---- Python (python.c) ---- */

/* Becomes a Python interpreter that takes no module from the working directory. python: as
 * run_python_find takes it (launch/run_plan.h). words: its argument vector, which NULL ends; the
 * interpreter's path becomes the first word. Returns only if it cannot be run: a PAWL_E code. */
int cli_python_become(const char *python, const char **words, struct pawl_err *err);

/* ---- the commands, a file each ---- */

extern const struct cli_command cli_run;
extern const struct cli_command cli_notice;
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
extern const struct cli_command cli_ckpt_copy;
extern const struct cli_command cli_ckpt_rm;
extern const struct cli_command cli_ckpt_gc;
extern const struct cli_command cli_ckpt_repair;
extern const struct cli_command cli_ckpt_watch;
extern const struct cli_command cli_mirror;
extern const struct cli_command cli_mirror_status;
extern const struct cli_command cli_mirror_flush;
extern const struct cli_command cli_compat;
extern const struct cli_command cli_report;
extern const struct cli_command cli_agent;
extern const struct cli_command cli_serve;
extern const struct cli_command cli_net;
extern const struct cli_command cli_pipe_show;
extern const struct cli_command cli_pipe_verify;
extern const struct cli_command cli_pipe_predict;
extern const struct cli_command cli_pipe_draw;
extern const struct cli_command cli_env;
extern const struct cli_command cli_pilot;
extern const struct cli_command cli_explain;
extern const struct cli_command cli_sim;
extern const struct cli_command cli_version;

#endif
