/* The devices that workers see, in a job of the scheduler, which may change them. A file has the
 * newest list. */
#ifndef LAUNCH_RUN_DEVICES_H
#define LAUNCH_RUN_DEVICES_H

#include "base/wire.h"

#define RUN_DEVICES_VAR "PAWL_RUN_DEVICES" /* variable with the file's path */

/* Adds CUDA_VISIBLE_DEVICES, as the file has it now, to set; nothing if there is no file. */
void run_devices_put(struct wire_out *set);

#endif
