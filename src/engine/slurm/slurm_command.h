/* Runs Slurm's commands, one after the other, without waiting for any. No shell reads the words.
 * For the loop's thread; other code that waits for children must leave these alone. */
#ifndef ENGINE_SLURM_SLURM_COMMAND_H
#define ENGINE_SLURM_SLURM_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

struct loop;
struct pawl_err;
struct slurm_commands;

#define SLURM_COMMANDS_MAX 1024u       /* commands that wait, at most; another one fails at once */
#define SLURM_OUTPUT_MAX   (64u << 20) /* bytes a command may print; one that prints more fails */

/* The outcome of a command. */
struct slurm_done {
	bool ok;                /* the command exited with 0 */
	bool late;              /* the command did not exit in time, and was killed */
	const char *out;        /* standard output; valid until the call returns */
	const char *error_text; /* last line on stderr, or why the command was not run */
	uint64_t tag;
};

typedef void slurm_done_fn(void *user, const struct slurm_done *done);

int slurm_commands_open(struct slurm_commands **commands, struct loop *loop, struct pawl_err *err);
/* Kills the command that runs; no callback is called. NULL is fine. */
void slurm_commands_close(struct slurm_commands *commands);
/* Queues a command. argv is copied. done is called once, later, never from within. PAWL_ENOMEM,
 * PAWL_ELIMIT: done is never called. */
int slurm_commands_add(struct slurm_commands *commands, const char *const *argv,
	slurm_done_fn *done, void *user, uint64_t tag, struct pawl_err *err);

#endif
