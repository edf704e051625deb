/*
 * The directory through which the engine slurm and its pilots communicate, on a file system that
 * all nodes see, as the home directories of a Slurm cluster are:
 *
 *   id                 names this scheduler's pilots in Slurm
 *   pilot.sh           what sbatch is given
 *   jobs/<job>         a slurm_record, the engine's
 *   pilots/<node>/     made by the pilot; in it the newest of
 *     want.<number>    a slurm_want, written by the engine
 *     have.<number>    a slurm_have, written by the pilot
 *   log/               what pilots print
 *
 * A file is written aside, synced and renamed, so any reader sees all of it. Newer files have
 * higher numbers and other names: an NFS client that lists the directory sees them, while one that
 * opens a name again may be given an old copy.
 */
#ifndef ENGINE_SLURM_SLURM_SPOOL_H
#define ENGINE_SLURM_SLURM_SPOOL_H

#include "base/wire.h"
#include "sched/core/core.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pawl_err;

#define SLURM_SPOOL_MAX 3072u /* bytes of the spool's path, terminator included */
#define SLURM_PATH_MAX  (SLURM_SPOOL_MAX + 256u)
#define SLURM_ID_CHARS  8u /* characters of the id, without terminator */

/* Makes what is missing in the spool; id has room for SLURM_ID_CHARS and a NUL. PAWL_EINVAL: the
 * directory is not this user's alone, or its name would mean something else to Slurm; PAWL_EIO and
 * its like. */
int slurm_spool_open(const char *spool, char *id, struct pawl_err *err);

/* Writes directory/name durably. */
int slurm_spool_put(const char *directory, const char *name, const struct wire_out *out,
	struct pawl_err *err);
/* Writes directory/kind.<number> durably and removes the ones before. */
int slurm_spool_put_newer(const char *directory, const char *kind, uint64_t number,
	const struct wire_out *out, struct pawl_err *err);
/* Renames directory/kind.<number> to the next number. That needs no room on the disk. */
int slurm_spool_renew(const char *directory, const char *kind, uint64_t number,
	struct pawl_err *err);
/* Finds the number of the newest directory/kind.<number>; 0: there is none. PAWL_ENOENT: there is
 * no such directory. */
int slurm_spool_newest(const char *directory, const char *kind, uint64_t *number,
	struct pawl_err *err);
/* Reads all bytes of directory/name, which the caller frees. */
int slurm_spool_get(const char *directory, const char *name, uint8_t **bytes, size_t *len_bytes,
	struct pawl_err *err);
/* Calls seen with each name that does not begin with '.', in any order, until it returns false. */
int slurm_spool_list(const char *directory, bool (*seen)(void *user, const char *name), void *user,
	struct pawl_err *err);
/* Removes a pilot's directory and what is in it. What cannot be removed stays. */
void slurm_spool_remove(const char *directory);

#endif
