/* Numbers that worker and agent share about the memory tier. */
#ifndef IPC_TIER_SLOTS_H
#define IPC_TIER_SLOTS_H

#define ARENA_SLOTS 3 /* generations of the memory tier that a rank may have */

#endif
