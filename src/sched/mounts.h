/* file_mounts of a job: what it finds at paths of its own, by symbolic links. */
#ifndef SCHED_MOUNTS_H
#define SCHED_MOUNTS_H

struct pawl_err;

/*
 * Makes at a link to from: a path, or HOST:/PATH, which this machine has mounted somewhere. One
 * that is there already is fine. Both are from / on but for HOST:/PATH. PAWL_ENOENT: there is no
 * from; PAWL_EEXIST: something else is at; PAWL_EIO and its like.
 */
int mounts_link(const char *at, const char *from, struct pawl_err *err);

#endif
