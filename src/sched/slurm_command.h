/* Slurm's commands, one after the other, without waiting for any. No shell is there to read the
 * words. For the loop's thread; whoever else waits for children must leave these alone. */
#ifndef SCHED_SLURM_COMMAND_H
#define SCHED_SLURM_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

struct loop;
struct pawl_err;
struct slurm_commands;

#define SLURM_COMMANDS_MAX 1024u       /* waiting; another one fails at once */
#define SLURM_OUTPUT_MAX   (64u << 20) /* bytes that one may print; more, and it fails */

/* What became of one. */
struct slurm_done {
	bool ok;          /* it exited with 0 */
	bool late;        /* it did not exit in time, and was killed */
	const char *out;  /* what it printed; until the call returns */
	const char *said; /* its last line on stderr, or why it was not run */
	uint64_t tag;
};

typedef void slurm_done_fn(void *user, const struct slurm_done *done);

int slurm_commands_open(struct slurm_commands **commands, struct loop *loop, struct pawl_err *err);
/* What runs is killed; nobody is told. NULL is fine. */
void slurm_commands_close(struct slurm_commands *commands);
/* argv is copied. done is called once, later, never from within. PAWL_ENOMEM, PAWL_ELIMIT:
 * never. */
int slurm_commands_add(struct slurm_commands *commands, const char *const *argv,
	slurm_done_fn *done, void *user, uint64_t tag, struct pawl_err *err);

#endif
