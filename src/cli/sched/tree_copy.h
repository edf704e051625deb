/*
 * Copies a file, or a directory, of a user that is not trusted.
 *
 * Sources are opened with their owner's rights (as_user.h), below directories that are open. Copies
 * belong to the caller, and no half-written file ever has its name. Modes lose the set-user-ID,
 * set-group-ID and sticky bits and what the caller's umask removes; times are kept. Plain files and
 * directories are copied, and symbolic links that are the caller's own or lead to a place within
 * what is copied. All else is left out, and reported.
 */
#ifndef CLI_SCHED_TREE_COPY_H
#define CLI_SCHED_TREE_COPY_H

#include "cli/sched/as_user.h"

#include <limits.h>
#include <sys/stat.h>

/* Zero-initialise; the caller sets as, uid, left_out and user. */
struct tree_copy {
	const struct as_user *as; /* user with whose rights sources are read */
	uid_t uid;                /* user that ran the job; only root takes that user's rights */
	/* Reports a path that is not copied. failed: its source could not be opened. */
	void (*left_out)(void *user, const char *path, const char *why, bool failed);
	void *user;
	char path[PATH_MAX]; /* path of what is being copied, for messages */
	struct stat top;     /* destination directory, which is not copied into itself */
	mode_t mask;         /* umask of the caller */
};

/*
 * Copies from, which may be a link, or be below one. to: a directory, in which the copy gets the
 * last name of from; or the path of the copy, which replaces a file there. PAWL_ENOENT;
 * PAWL_EINVAL: from is neither file nor directory; PAWL_ECANCELED (interrupt.h); PAWL_EIO and its
 * like. What was copied before an error stays.
 */
int tree_copy(struct tree_copy *copy, const char *from, const char *to, struct pawl_err *err);

#endif
