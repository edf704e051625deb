/* What the kernel tells of another process. */
#ifndef BASE_PROC_H
#define BASE_PROC_H

#include <stdbool.h>
#include <stdint.h>

/* Its state, as in proc(5), and its parent; false: there is none such, or that cannot be told. */
bool proc_look(uint32_t pid, char *state, uint32_t *parent);
/* Whether it was stopped by a signal, and waits for SIGCONT; false if that cannot be told. */
bool proc_is_stopped(uint32_t pid);

#define PROC_BOOT_ID 40u /* bytes of it, terminator included */

/* Of the kernel's life since it was booted, another one each time; false: it cannot be told, "". */
bool proc_boot_id(char id[PROC_BOOT_ID]);

#endif
