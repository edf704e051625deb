/*
 * Files that are to appear in a directory whole, or not at all.
 *
 * They are written into a hidden directory, beside the destination or, if that exists already, in
 * it; then synced; then put in place: by one rename of the directory, or file by file. What a
 * killed command left hidden is removed by the next one to the same destination. The destination
 * may be in another user's directory: no link there is followed.
 */
#ifndef CLI_CKPT_STAGE_H
#define CLI_CKPT_STAGE_H

#include <limits.h>
#include <stdbool.h>

struct pawl_err;

/* Zero-initialise. */
struct stage {
	char dest[PATH_MAX];   /* as given, without slashes at its end */
	char parent[PATH_MAX]; /* parent of the hidden directory: dest, or the parent of dest */
	char name[NAME_MAX];   /* name of the hidden directory in parent */
	char path[PATH_MAX + NAME_MAX + 1]; /* path of the hidden directory: parent and name */
	char access_path[PATH_MAX + NAME_MAX +
		1];    /* hidden directory's path for our other processes */
	int parent_fd; /* descriptor of parent */
	int fd;        /* descriptor of the hidden directory, locked: one command at a time */
	bool open;     /* parent_fd and fd are open */
	bool foreign;  /* parent is another user's */
	bool fresh;    /* dest is not there yet */
	bool force;    /* files of the same name are replaced */
};

/* Makes the hidden directory, empty. PAWL_ENOENT if dest has no parent, PAWL_EBUSY if another
 * command is at work there. */
int stage_open(struct stage *stage, const char *dest, bool force, struct pawl_err *err);
/* Checks, before the work is done, whether a file of that name would replace one: PAWL_EEXIST. */
int stage_check(const struct stage *stage, const char *name, struct pawl_err *err);
/*
 * Syncs what is in the hidden directory, folders too, and puts it in place, durably. The name last,
 * if it is there, comes last: its file makes the others valid, and a former one is removed first.
 * NULL: there is no such file. Unless all can be put in place (PAWL_EEXIST) none is, but for files
 * that replaced others before an error of the system.
 */
int stage_place(struct stage *stage, const char *last, struct pawl_err *err);
/* Removes what was not put in place. Zeroed is fine. */
void stage_close(struct stage *stage);

#endif
