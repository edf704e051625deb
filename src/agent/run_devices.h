/* Which devices workers see, where a scheduler gives them and may change them: the newest list is
 * in a file. */
#ifndef AGENT_RUN_DEVICES_H
#define AGENT_RUN_DEVICES_H

#include "base/wire.h"

#define RUN_DEVICES_VAR "PAWL_RUN_DEVICES" /* the file's path */

/* CUDA_VISIBLE_DEVICES, as the file has it now; nothing if there is none. */
void run_devices_put(struct wire_out *set);

#endif
