/* What the kernel tells of another process. */
#ifndef BASE_PROC_H
#define BASE_PROC_H

#include <stdbool.h>
#include <stdint.h>

struct pawl_err;

/* A process, as proc(5) has it. */
struct proc_facts {
	char state;           /* 'Z': a zombie */
	uint32_t parent;      /* pid; 0: none that can be seen */
	uint64_t start_ticks; /* when it began: tells it from a later one with its pid */
};

/* False: there is no such process, or that cannot be told. */
bool proc_look(uint32_t pid, struct proc_facts *facts);
/* Whether it was stopped by a signal, and waits for SIGCONT; false if that cannot be told. */
bool proc_is_stopped(uint32_t pid);
/* Whether it is a child of the caller's process, a zombie included. */
bool proc_is_child(uint32_t pid);
/* Whether it came of the caller's process, by any number of forks; zombies on the way included.
 * Where an ancestor dies meanwhile, it is asked again. */
bool proc_descends(uint32_t pid);
/* The process that made, or connected, the other end of a Unix socket: a pidfd of it, which the
 * caller closes, and its pid. By the kernel's own reference, where it gives that (Linux 6.5), so it
 * is never another one that got its pid. -1 and errno: ESRCH: it has ended; others: that cannot be
 * told, and *pid is 0 if not even that is known. */
int proc_peer(int socket_fd, uint32_t *pid);
/* Its real user id: of who started it, whatever a set-user-ID program makes of the others.
 * PAWL_ENOENT: there is no such process; PAWL_EIO and others of reading: that cannot be told. */
int proc_user(uint32_t pid, uint32_t *uid, struct pawl_err *err);

#define PROC_BOOT_ID 40u /* bytes of it, terminator included */

/* Of the kernel's life since it was booted, another one each time; false: it cannot be told, "". */
bool proc_boot_id(char id[PROC_BOOT_ID]);

#endif
