/*
 * Ships a unit: uploads a set of local files into a root of objects, and publishes them as one tag,
 * whole or not at all. An upload that an earlier process left unfinished is gone on with: what the
 * service has already, with the bytes that the files have now, is not sent again.
 *
 * For one thread, which waits for the network; the caller owns the root (tags_root_lock).
 */
#ifndef MIRROR_SHIP_H
#define MIRROR_SHIP_H

#include "ckpt/copy.h"
#include "ckpt/format/manifest.h"

struct pawl_err;
struct tags_root;

/* A file of a unit. Its bytes must not change until ship_unit returns. */
struct ship_file {
	char name[CKPT_NAME_MAX]; /* path in the unit, valid by ckpt_name_valid */
	int fd;                   /* open for reading; the caller's */
	uint64_t size_bytes;
};

struct ship_unit {
	char tag[CKPT_TAG_MAX]; /* name, valid by tag_valid */
	uint64_t step;          /* orders the units */
	char job[CKPT_JOB_MAX]; /* job that made it */
	uint32_t attempt;
	struct ship_file *files; /* sorted by name, no two equal; at least one */
	uint32_t files_n;
};

/*
 * Uploads the files of a unit and publishes it, in place of a tag of that name. Returns 0 once the
 * tag is durable. PAWL_EBUSY: another process has taken the root, or has just published the tag.
 * PAWL_EMISMATCH: a file is shorter than it was. Any other error: the tag is as it was before, and
 * the call may be tried again; what was uploaded is then used.
 *
 * watch may be NULL. Its go_on is asked once more after the last piece: bytes that change are not
 * published if the caller knows of the change by then.
 */
int ship_unit(struct tags_root *root, const struct ship_unit *unit, const struct copy_watch *watch,
	struct pawl_err *err);
/* Removes what earlier calls, also of other processes, left unfinished, but for that of the tags in
 * keep; without any, their unfinished uploads are dropped, too. Call it when nothing is being
 * shipped. */
int ship_recover(struct tags_root *root, const char *const *keep, uint32_t keep_n,
	struct pawl_err *err);

#endif
