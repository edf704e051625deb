/*
 * Puts several files into a directory: all of them, or none.
 *
 * Files are written into a hidden directory, beside the destination or, if that exists, in it. Then
 * they are synced, and put in place: by one rename of the directory, or file by file. The next
 * command with the same destination removes what a killed command left hidden. The destination may
 * be in another user's directory: no link there is followed.
 */
#ifndef CLI_CKPT_STAGE_H
#define CLI_CKPT_STAGE_H

#include <limits.h>
#include <stdbool.h>

struct pawl_err;

/* Zero-initialise. */
struct stage {
	char dest[PATH_MAX];   /* destination as given, without slashes at its end */
	char parent[PATH_MAX]; /* parent of the hidden directory: dest, or the parent of dest */
	char name[NAME_MAX];   /* name of the hidden directory in parent */
	char path[PATH_MAX + NAME_MAX + 1]; /* path of the hidden directory: parent and name */
	char access_path[PATH_MAX + NAME_MAX +
		1];    /* hidden directory's path for our other processes */
	int parent_fd; /* descriptor of parent */
	int fd;        /* descriptor of the hidden directory, locked: one command at a time */
	bool open;     /* parent_fd and fd are open */
	bool foreign;  /* parent is another user's */
	bool fresh;    /* dest does not exist yet */
	bool force;    /* files of the same name are replaced */
};

/* Makes the hidden directory, empty. PAWL_ENOENT if dest has no parent, PAWL_EBUSY if another
 * command is at work there. */
int stage_open(struct stage *stage, const char *dest, bool force, struct pawl_err *err);
/* Checks, before the work is done, that name is free in dest or may be replaced. PAWL_EEXIST. */
int stage_check(const struct stage *stage, const char *name, struct pawl_err *err);
/*
 * Syncs the files and folders in the hidden directory, and puts them in place, durably. last: name
 * of the file that makes the others valid; NULL: none. It is put in place after all others, and a
 * former one is removed first. If a name is taken (PAWL_EEXIST), nothing is put in place. With
 * force, files that replaced others before an error stay.
 */
int stage_place(struct stage *stage, const char *last, struct pawl_err *err);
/* Removes what was not put in place. Zeroed is fine. */
void stage_close(struct stage *stage);

#endif
