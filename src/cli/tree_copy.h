/*
 * Copies a file, or a directory, of somebody who is not trusted.
 *
 * What is read is opened with its owner's rights (as_user.h), below directories that are open; what
 * is written is the caller's, and never seen half done under its name. Modes lose the set-user-ID,
 * set-group-ID and sticky bits and what the caller's umask takes; times are kept. Copied are plain
 * files, directories, and symbolic links that are the caller's own or lead to a place within what
 * is copied. The rest is left out, and told.
 */
#ifndef CLI_TREE_COPY_H
#define CLI_TREE_COPY_H

#include "cli/as_user.h"

#include <limits.h>
#include <sys/stat.h>

/* Zero-initialise; set the first four. */
struct tree_copy {
	const struct as_user *as; /* whose rights reading has */
	uid_t uid;                /* of who ran the job; without root, their rights are not taken */
	/* Of what is not copied; failed: it could not be read, and was to be. */
	void (*left_out)(void *user, const char *path, const char *why, bool failed);
	void *user;
	char path[PATH_MAX]; /* of what is being copied, for messages */
	struct stat top;     /* directory that is copied to: it is not copied into itself */
	mode_t mask;         /* umask */
};

/*
 * from may be, or be below, a link. to: a directory, in which it gets from's own name; or the name
 * of the copy; a file of that name is replaced. PAWL_ENOENT, PAWL_EINVAL: it is neither file nor
 * directory; PAWL_ECANCELED (interrupt.h); PAWL_EIO and its like. What was copied before stays.
 */
int tree_copy(struct tree_copy *copy, const char *from, const char *to, struct pawl_err *err);

#endif
