/*
 * The files by which the ranks of an elastic run (pawl.elastic) and their `pawl run` agree on who
 * trains. DOOR, the membership file, has the name of the socket where newcomers ask to join, and
 * the numbers of the ranks that train. Or it says "over", and the exit code if that is not 0: ranks
 * that wait to join then end. DOOR.imports lists the modules that the ranks have imported.
 * docs/elastic.md describes DOOR.
 *
 * Several `pawl run` (launchers) may share these files, on a file system of several hosts. Launcher
 * K then has a file of its own beside them, DOOR.aliveK, which shows the others which of its ranks
 * live.
 *
 * In all functions path is the path of DOOR; "": the run is not elastic, and there are no files.
 */
#ifndef LAUNCH_MEMBERSHIP_MEMBERSHIP_H
#define LAUNCH_MEMBERSHIP_MEMBERSHIP_H

#include <stdbool.h>
#include <stdint.h>

struct pawl_err;

#define MEMBERSHIP_IMPORTS_SUFFIX ".imports"
#define MEMBERSHIP_ALIVE_SUFFIX   ".alive"
#define MEMBERSHIP_RANKS_MAX      4096u /* ranks of one run that are read from DOOR */
#define MEMBERSHIP_LAUNCHER_RANKS                                                                  \
	64u /* numbers of one launcher's ranks; launcher K's begin at K times this */

enum membership_state {
	MEMBERSHIP_NONE,       /* not written yet */
	MEMBERSHIP_UNREADABLE, /* not readable now, for example because a file server is away */
	MEMBERSHIP_OPEN,       /* ranks can join */
	MEMBERSHIP_CLOSED,     /* no rank can join any more */
};

/* The content of DOOR. */
struct membership {
	enum membership_state state; /* tells which of the other fields count */
	int64_t written_ns;          /* modification time by the file system's clock; 0: none */
	int status;                  /* if closed: the exit code */
	uint32_t n;                  /* if open: number of ranks that train */
	uint32_t numbers[MEMBERSHIP_RANKS_MAX]; /* if open: numbers of the ranks that train */
};

/* The content of DOOR.aliveK. */
struct membership_alive {
	uint64_t heartbeat; /* changes with every write; 0: no file */
	uint64_t ranks; /* a bit for each number that launcher K's ranks may have: the rank lives */
	bool leaves;    /* all ranks there leave, and are not replaced */
};

void membership_read(struct membership *membership, const char *path);
bool membership_has(const struct membership *membership, uint32_t number);
/* Returns how many ranks of a launcher train. */
uint32_t membership_count_ranks(const struct membership *membership, uint32_t launcher);
/* Whether any rank of another launcher trains. */
bool membership_has_others(const struct membership *membership, uint32_t launcher);
/* Writes that the run is over, and its exit code. A code other than 0 is written only if the
 * membership is not closed yet. */
void membership_close(const char *path, int status);
/* Returns the newline-separated names of modules, which the caller frees; NULL: not written yet, or
 * too many. */
char *membership_read_imports(const char *path);
/* Removes DOOR and DOOR.imports, if they exist. */
void membership_remove(const char *path);
/* Removes DOOR.aliveK of all launchers, none of which may live any more: a killed launcher leaves
 * its file behind. */
void membership_remove_alive(const char *path);

/* Reads a launcher's file, as NFS shows it since membership_read. A file that cannot be read counts
 * as empty. */
void membership_read_alive(struct membership_alive *alive, const char *path, uint32_t launcher);
/* Writes a launcher's file, or removes it if no rank lives. PAWL_EIO and the like. */
int membership_write_alive(const struct membership_alive *alive, const char *path,
	uint32_t launcher, struct pawl_err *err);

#endif
