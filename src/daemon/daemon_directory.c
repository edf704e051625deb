/* Makes the scheduler's directories, and checks that no other user can change them: see
 * daemon_impl.h. A user that may write to one could replace a socket or a job's directory, or plant
 * a link. A user that may change a directory above root's could replace all of them. */
#include "daemon/daemon_impl.h"

#include "base/err.h"
#include "base/file.h"
#include "engine/slurm/slurm_spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *daemon_shared_dir(const struct daemon *d)
{
	return d->options->spool ? d->options->spool : d->options->root;
}

/* Makes a directory, with all that are above it. */
static int make_directory(const struct daemon_options *o, const char *directory,
	struct pawl_err *err)
{
	mode_t mode = geteuid() == 0 ? 0711 : o->group ? 0710 : 0700;

	if (file_make_folders(AT_FDCWD, directory, 0755) != 0 ||
		(mkdir(directory, mode) != 0 && errno != EEXIST)) {
		return pawl_err_sys(err, "directory %s", directory);
	}
	return 0;
}

static bool is_open_to_others(const struct stat *st)
{
	return (st->st_mode & S_IWOTH) != 0 ||
		(geteuid() == 0 && st->st_gid != 0 && (st->st_mode & S_IWGRP) != 0);
}

/* Checks a directory above root's. Others may write to it if it is sticky: they cannot change our
 * files then. top: owner of "/", who can change everything anyway; not 0 in a user namespace. */
static int check_above(const char *above, uid_t top, struct pawl_err *err)
{
	struct stat st;

	if (stat(above, &st) != 0) {
		return pawl_err_sys(err, "directory %s", above);
	}
	if ((st.st_uid != 0 && st.st_uid != top) ||
		(is_open_to_others(&st) && (st.st_mode & S_ISVTX) == 0)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"others can change %s, which the scheduler's directory lies in (user %u, "
			"mode %03o): root needs a directory that they cannot replace",
			above, (unsigned)st.st_uid, (unsigned)st.st_mode & 0777u);
	}
	return 0;
}

static int check_all_above(const char *directory, struct pawl_err *err)
{
	char real[PATH_MAX];
	char above[PATH_MAX];
	struct stat top;
	int rv;

	if (!realpath(directory, real) || stat("/", &top) != 0) {
		return pawl_err_sys(err, "directory %s", directory);
	}
	rv = check_above("/", top.st_uid, err);
	for (size_t len = 0; rv == 0 && (len = file_next_folder(real, len)) > 0;) {
		snprintf(above, sizeof(above), "%.*s", (int)len, real);
		rv = check_above(above, top.st_uid, err);
	}
	return rv;
}

static int check_directory(const char *directory, struct pawl_err *err)
{
	struct stat st;

	if (stat(directory, &st) != 0) {
		return pawl_err_sys(err, "directory %s", directory);
	}
	if (st.st_uid != geteuid() && st.st_uid != 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%s belongs to user %u: the scheduler needs a directory of its own user's",
			directory, (unsigned)st.st_uid);
	}
	if (is_open_to_others(&st)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%s can be written to by others (mode %03o): check its content and run "
			"`chmod go-w` on it, or choose another directory",
			directory, (unsigned)st.st_mode & 0777u);
	}
	return geteuid() == 0 ? check_all_above(directory, err) : 0;
}

int daemon_make_root(const struct daemon_options *o, struct pawl_err *err)
{
	int rv;

	if (o->root[0] != '/' || strlen(o->root) >= ORDER_ROOT_BYTES) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%s: the directory must be an absolute path of less than %u bytes, since a "
			"socket in it has a short path",
			o->root, ORDER_ROOT_BYTES);
	}
	if (o->spool && (o->spool[0] != '/' || strlen(o->spool) >= SLURM_SPOOL_MAX / 2)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%s: the directory must be an absolute path of less than %u bytes",
			o->spool, SLURM_SPOOL_MAX / 2);
	}
	rv = make_directory(o, o->root, err);
	rv = rv == 0 ? check_directory(o->root, err) : rv;
	rv = rv == 0 && o->spool ? make_directory(o, o->spool, err) : rv;
	return rv == 0 && o->spool ? check_directory(o->spool, err) : rv;
}
