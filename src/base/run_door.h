/*
 * The files by which ranks of an elastic run, pawl.elastic's, say what `pawl run` must know of
 * them: DOOR, where others join, and the numbers of those that train; or "over" in its place, which
 * tells those that wait there that nobody will be let in any more, and the code to end with if that
 * is not 0; and DOOR.imports, what modules they have imported. docs/elastic.md has the first one.
 *
 * Several `pawl run`, launchers, may share them, on a file system of several hosts. Each then has a
 * file of its own beside them, DOOR.aliveK, by which others see which of its ranks live.
 *
 * In all: path: of DOOR; "": the run is not elastic, and there are no files.
 */
#ifndef BASE_RUN_DOOR_H
#define BASE_RUN_DOOR_H

#include <stdbool.h>
#include <stdint.h>

struct pawl_err;

#define RUN_DOOR_IMPORTS   ".imports"
#define RUN_DOOR_ALIVE     ".alive"
#define RUN_DOOR_RANKS_MAX 4096u /* numbers that are looked at */
#define RUN_DOOR_LAUNCHER                                                                          \
	64u /* numbers that the ranks of launcher K may have, from K times that on */

enum run_door_state {
	RUN_DOOR_NONE, /* nobody has written it yet */
	RUN_DOOR_DARK, /* it cannot be read now, as of a file server that is away */
	RUN_DOOR_OPEN, /* others join there */
	RUN_DOOR_OVER, /* not any more */
};

/* What DOOR says. */
struct run_door {
	enum run_door_state state;            /* says which of the others count */
	int64_t written_ns;                   /* by the clock of the file system; none: 0 */
	int status;                           /* over: the code to end with */
	uint32_t n;                           /* open: how many train */
	uint32_t numbers[RUN_DOOR_RANKS_MAX]; /* theirs */
};

/* What DOOR.aliveK says. */
struct run_door_alive {
	uint64_t beat;  /* another one each time; 0: nothing is said */
	uint64_t ranks; /* a bit for each number that those of K may have: it lives */
};

void run_door_read(struct run_door *door, const char *path);
bool run_door_lists(const struct run_door *door, uint32_t number);
/* How many ranks of a launcher train. */
uint32_t run_door_ranks(const struct run_door *door, uint32_t launcher);
/* Whether any of another one does. */
bool run_door_has_others(const struct run_door *door, uint32_t launcher);
/* Says that it is over, and the code to end with; one that is not 0 only if nobody has said so. */
void run_door_close(const char *path, int status);
/* Newline-separated names of modules, to be freed; NULL: not told yet, or too many. */
char *run_door_imports(const char *path);
/* DOOR and DOOR.imports; none is fine. */
void run_door_remove(const char *path);
/* DOOR.aliveK of all launchers, none of which lives any more: who was killed has left its. */
void run_door_remove_alive(const char *path);

/* Of launcher, as NFS has it since run_door_read. One that cannot be read says nothing. */
void run_door_read_alive(struct run_door_alive *alive, const char *path, uint32_t launcher);
/* No ranks: the file is removed. PAWL_EIO and its like. */
int run_door_tell_alive(const struct run_door_alive *alive, const char *path, uint32_t launcher,
	struct pawl_err *err);

#endif
