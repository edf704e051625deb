/* Symbolic links for file_mounts: see mounts.h. */
#include "engine/mounts.h"

#include "base/err.h"

#include <errno.h>
#include <limits.h>
#include <mntent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Finds the directory on which this machine has mounted HOST:/PATH. PAWL_ENOENT: none. */
static int find_nfs(const char *from, char full[PATH_MAX], struct pawl_err *err)
{
	FILE *mounts = setmntent("/proc/self/mounts", "re");
	const struct mntent *mount;
	bool found = false;

	while (mounts && !found && (mount = getmntent(mounts))) {
		found = strcmp(mount->mnt_fsname, from) == 0;
		if (found) {
			snprintf(full, PATH_MAX, "%s", mount->mnt_dir);
		}
	}
	if (mounts) {
		endmntent(mounts);
	}
	return found ? 0
		     : pawl_err_set(err, PAWL_ENOENT, "%s is not mounted on this machine", from);
}

int mounts_link(const char *at, const char *from, struct pawl_err *err)
{
	char found[PATH_MAX];
	struct stat there;
	struct stat wanted;
	int why;

	if (from[0] != '/') {
		int rv = find_nfs(from, found, err);

		if (rv != 0) {
			return rv;
		}
		from = found;
	}
	if (stat(from, &wanted) != 0) {
		return pawl_err_sys(err, "%s", from);
	}
	if (symlink(from, at) == 0) {
		return 0;
	}
	why = errno;
	if (stat(at, &there) == 0 && there.st_dev == wanted.st_dev &&
		there.st_ino == wanted.st_ino) {
		return 0;
	}
	if (why == EEXIST) {
		return pawl_err_set(err, PAWL_EEXIST,
			"cannot link %s to %s: something else is there. Remove it, or create the "
			"link yourself",
			at, from);
	}
	return pawl_err_set(err, pawl_err_from_sys(why),
		"cannot link %s to %s: %s. Create the link yourself, or use a path in a "
		"directory that you can write to, such as ~/",
		at, from, strerror(why));
}
