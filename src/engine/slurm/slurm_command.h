/* Runs Slurm's commands one after the other, without blocking and without a shell. For the loop's
 * thread. Other code must not wait for these child processes. */
#ifndef ENGINE_SLURM_SLURM_COMMAND_H
#define ENGINE_SLURM_SLURM_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

struct loop;
struct pawl_err;
struct slurm_commands;

#define SLURM_COMMANDS_MAX 1024u       /* commands in the queue, at most */
#define SLURM_OUTPUT_MAX   (64u << 20) /* bytes a command may print; more is an error */

/* The outcome of a command. */
struct slurm_done {
	bool ok;                /* the command exited with 0 and its output is whole */
	bool late;              /* the command took too long, and was killed */
	const char *out;        /* standard output; valid until the callback returns */
	const char *error_text; /* last line on stderr, or why the command failed; valid as out */
	uint64_t tag;
};

typedef void slurm_done_fn(void *user, const struct slurm_done *done);

int slurm_commands_open(struct slurm_commands **commands, struct loop *loop, struct pawl_err *err);
/* Kills the running command, and drops the queue; calls no callback. NULL is allowed. */
void slurm_commands_close(struct slurm_commands *commands);
/* Queues a command. Copies argv. done is called once, later, from the loop, with user and tag.
 * PAWL_ENOMEM, PAWL_ELIMIT: done is not called. */
int slurm_commands_add(struct slurm_commands *commands, const char *const *argv,
	slurm_done_fn *done, void *user, uint64_t tag, struct pawl_err *err);

#endif
