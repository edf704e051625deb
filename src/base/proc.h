/* Facts about other processes, from the kernel. */
#ifndef BASE_PROC_H
#define BASE_PROC_H

#include <stdbool.h>
#include <stdint.h>

struct pawl_err;

/* Facts about a process, as in proc(5). */
struct proc_facts {
	char state;           /* 'Z': a zombie */
	uint32_t parent;      /* pid; 0: none that is visible */
	uint64_t start_ticks; /* start time; tells the process from a later one with its pid */
};

/* Reads the facts. Returns false if there is no such process, or they cannot be read. */
bool proc_read_facts(uint32_t pid, struct proc_facts *facts);
/* Whether the process was stopped by a signal, and waits for SIGCONT; false if that cannot be
 * read. */
bool proc_is_stopped(uint32_t pid);
/* Whether the process is a child of the caller's process, a zombie included. */
bool proc_is_child(uint32_t pid);
/* Whether the process descends from the caller's process, by any number of forks, zombies
 * included. Searches again if an ancestor dies meanwhile. */
bool proc_is_descendant(uint32_t pid);
/* Finds the process that made, or connected, the other end of a Unix socket. Returns a pidfd of it,
 * which the caller closes, and its pid. Where the kernel keeps its own reference (Linux 6.5), the
 * result is never another process that got the same pid. On failure returns -1 and errno: ESRCH:
 * the process has ended; others: it cannot be found, and *pid is 0 if not even the pid is known. */
int proc_peer(int socket_fd, uint32_t *pid);
/* Gets the real user id: that of the user who started the process, whatever a set-user-ID program
 * changes. PAWL_ENOENT: there is no such process; PAWL_EIO and the like: it cannot be read. */
int proc_user(uint32_t pid, uint32_t *uid, struct pawl_err *err);

#define PROC_BOOT_ID 40u /* bytes of a boot id, terminator included */

/* Gets the id of this boot of the kernel, which differs from one boot to the next. Returns false,
 * and "", if it cannot be read. */
bool proc_boot_id(char id[PROC_BOOT_ID]);

#endif
