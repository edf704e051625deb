/* The file_mounts of a job: symbolic links at paths that the job names. */
#ifndef ENGINE_MOUNTS_H
#define ENGINE_MOUNTS_H

struct pawl_err;

/*
 * Makes at a symbolic link to from. from is an absolute path, or HOST:/PATH, which this machine
 * must have mounted. at is an absolute path. A link that already leads to the same file is left as
 * it is. PAWL_ENOENT: from does not exist, or is not mounted. PAWL_EEXIST: something else exists at
 * at. PAWL_EIO and other errors: the link could not be created.
 */
int mounts_link(const char *at, const char *from, struct pawl_err *err);

#endif
