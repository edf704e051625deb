/* What ranks of an elastic job write into the file by which others join them (docs/elastic.md),
 * read: who trains. */
#ifndef SCHED_SLURM_DOOR_H
#define SCHED_SLURM_DOOR_H

#include <stdbool.h>
#include <stdint.h>

#define SLURM_LAUNCHER_RANKS 64u /* numbers of the ranks of one launcher, as `pawl run` has it */

/* Whether others can join there. ranks: how many of the launcher of that number train. */
bool slurm_door_read(const char *path, uint32_t number, uint32_t *ranks);
/* It, and what lies beside it; none is fine. */
void slurm_door_remove(const char *path);

#endif
