/* The file_mounts of a job: symbolic links at paths that the job names. */
#ifndef ENGINE_MOUNTS_H
#define ENGINE_MOUNTS_H

struct pawl_err;

/*
 * Makes at a link to from: a path, or HOST:/PATH, which this machine has mounted somewhere. A link
 * that is there already is fine. Both paths are absolute, but for HOST:/PATH. PAWL_ENOENT: there is
 * no from; PAWL_EEXIST: something else is at; PAWL_EIO and the like.
 */
int mounts_link(const char *at, const char *from, struct pawl_err *err);

#endif
