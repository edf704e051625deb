/*
 * Root reads another user's files with that user's rights. So a link, or a directory that replaced
 * another one, leads no further than its owner could go. For commands, which have one thread.
 */
#ifndef CLI_SCHED_AS_USER_H
#define CLI_SCHED_AS_USER_H

#include <stdbool.h>
#include <sys/types.h>

struct pawl_err;

struct as_user {
	bool other;    /* the command runs as root, and uid is not root */
	uid_t uid;     /* user that owns the files */
	gid_t gid;     /* primary group; nobody's if the user has no passwd entry */
	gid_t *groups; /* owned; all groups */
	int groups_n;
	gid_t root_gid;     /* effective group of root, restored by as_user_end */
	gid_t *root_groups; /* owned; all of root's groups */
	int root_groups_n;
};

/* Looks up the groups of uid. Unless the command is root's and uid is not root, as_user_begin then
 * changes nothing. PAWL_ENOMEM, PAWL_EIO. */
int as_user_init(struct as_user *as, uid_t uid, struct pawl_err *err);
void as_user_deinit(struct as_user *as); /* zeroed is fine */

/* Opens files as that user from here on. PAWL_EIO: root may not change its user here. */
int as_user_begin(const struct as_user *as, struct pawl_err *err);
/* Becomes root again. Keeps errno. */
void as_user_end(const struct as_user *as);

#endif
