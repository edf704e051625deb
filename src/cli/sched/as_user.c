/* See as_user.h. The real user stays root: other users can neither trace us nor signal us. */
#include "cli/sched/as_user.h"

#include "base/assert.h"
#include "base/err.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#define NOBODY_GID   65534 /* group of a user without a passwd entry */
#define GROUPS_FIRST 64    /* groups that the first call has room for */

static int find_user_groups(struct as_user *as, struct pawl_err *err)
{
	const struct passwd *user = getpwuid(as->uid);

	as->gid = user ? user->pw_gid : NOBODY_GID;
	as->groups_n = user ? GROUPS_FIRST : 0;
	as->groups = calloc(GROUPS_FIRST, sizeof(*as->groups));
	while (user && as->groups &&
		getgrouplist(user->pw_name, user->pw_gid, as->groups, &as->groups_n) < 0) {
		free(as->groups); /* getgrouplist has set groups_n to the number it needs */
		as->groups = calloc((size_t)as->groups_n, sizeof(*as->groups));
	}
	return as->groups ? 0 : pawl_err_set(err, PAWL_ENOMEM, "no memory for a user's groups");
}

static int find_root_groups(struct as_user *as, struct pawl_err *err)
{
	as->root_groups_n = getgroups(0, NULL);
	as->root_groups = as->root_groups_n >= 0
		? calloc((size_t)as->root_groups_n + 1, sizeof(*as->root_groups))
		: NULL;
	if (!as->root_groups) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for root's groups");
	}
	as->root_groups_n = getgroups(as->root_groups_n, as->root_groups);
	return as->root_groups_n >= 0 ? 0 : pawl_err_sys(err, "root's groups");
}

int as_user_init(struct as_user *as, uid_t uid, struct pawl_err *err)
{
	int rv;

	*as = (struct as_user){.other = geteuid() == 0 && uid != 0,
		.uid = uid,
		.root_gid = getegid()};
	if (!as->other) {
		return 0;
	}
	rv = find_user_groups(as, err);
	rv = rv == 0 ? find_root_groups(as, err) : rv;
	if (rv != 0) {
		as_user_deinit(as);
	}
	return rv;
}

void as_user_deinit(struct as_user *as)
{
	free(as->groups);
	free(as->root_groups);
	*as = (struct as_user){.other = false};
}

int as_user_begin(const struct as_user *as, struct pawl_err *err)
{
	if (as->other &&
		(setgroups((size_t)as->groups_n, as->groups) != 0 || setegid(as->gid) != 0 ||
			seteuid(as->uid) != 0)) {
		int rv = pawl_err_sys(err,
			"become user %u, who owns the files (give root CAP_SETUID and "
			"CAP_SETGID, or run the command as that user)",
			(unsigned)as->uid);

		as_user_end(as);
		return rv;
	}
	return 0;
}

void as_user_end(const struct as_user *as)
{
	int sys = errno;
	int rv;

	if (as->other) {
		rv = seteuid(0);
		ASSERT(rv == 0); /* the saved user id is root's */
		rv = setegid(as->root_gid);
		ASSERT(rv == 0);
		/* on failure: fewer rights than before */
		setgroups((size_t)as->root_groups_n, as->root_groups);
	}
	errno = sys;
}
