/*
 * The directory through which the engine slurm and its pilots communicate, on a file system that
 * all nodes see, as the home directories of a Slurm cluster are:
 *
 *   id                 names this scheduler's pilots in Slurm
 *   pilot.sh           the script for sbatch
 *   jobs/<job>         a slurm_record, written by the engine
 *   pilots/<node>/     made by the pilot; contains the newest
 *     want.<number>    a slurm_want, written by the engine
 *     have.<number>    a slurm_have, written by the pilot
 *   log/               the output of the pilots
 *
 * A file is written under another name, synced and renamed, so a reader always sees a whole file. A
 * newer file has a higher number, and so a new name: an NFS client that lists the directory finds
 * it, while a client that opens the same name again may get an old copy.
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

/* Makes what is missing in the spool, and returns its id in id, which has room for SLURM_ID_CHARS
 * and a NUL. PAWL_EINVAL: others can access the directory, or its path is not absolute or has
 * characters that are special to Slurm; PAWL_ECORRUPT: the id; PAWL_EIO and other errors of the
 * file system. */
int slurm_spool_open(const char *spool, char *id, struct pawl_err *err);

/* Writes directory/name durably. PAWL_ENOMEM: out has failed; PAWL_EINVAL: the path is too long;
 * PAWL_EIO and other errors of writing. */
int slurm_spool_put(const char *directory, const char *name, const struct wire_out *out,
	struct pawl_err *err);
/* Writes directory/kind.<number> durably and removes the earlier files of that kind. Errors as of
 * slurm_spool_put. */
int slurm_spool_put_newer(const char *directory, const char *kind, uint64_t number,
	const struct wire_out *out, struct pawl_err *err);
/* Renames directory/kind.<number> to the next number, which needs no space on the disk. */
int slurm_spool_renew(const char *directory, const char *kind, uint64_t number,
	struct pawl_err *err);
/* Finds the number of the newest directory/kind.<number>; 0: there is none. PAWL_ENOENT: there is
 * no such directory. */
int slurm_spool_newest(const char *directory, const char *kind, uint64_t *number,
	struct pawl_err *err);
/* Reads directory/name into *bytes, which the caller frees. PAWL_ENOENT: there is none;
 * PAWL_ELIMIT: it is too large; PAWL_ENOMEM; PAWL_EIO and other errors of reading. */
int slurm_spool_get(const char *directory, const char *name, uint8_t **bytes, size_t *len_bytes,
	struct pawl_err *err);
/* Calls seen with each name that does not start with '.', in any order, until seen returns
 * false. */
int slurm_spool_list(const char *directory, bool (*seen)(void *user, const char *name), void *user,
	struct pawl_err *err);
/* Removes a pilot's directory with its files. What cannot be removed stays. */
void slurm_spool_remove(const char *directory);

#endif
