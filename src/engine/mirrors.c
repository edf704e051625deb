/* See mirrors.h. */
#include "engine/mirrors.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/wire.h"
#include "engine/submission.h"

#include <inttypes.h>

/* Share of the grace period in which a mirror uploads the rest; the job's own commands get their
 * signal at the same time. */
#define GRACE_PART 0.9

bool mirrors_is_bucket(const struct sched_mount *mount)
{
	return mount->kind == SCHED_MOUNT_MIRROR || mount->kind == SCHED_MOUNT_FETCH;
}

int mirrors_put(struct wire_out *list, const struct mirrors_node *node,
	const struct sched_spec *spec, bool setup, struct pawl_err *err)
{
	char dir[PATH_MAX];
	int rv = 0;

	for (uint32_t i = 0; i < spec->mounts_n && rv == 0; i++) {
		const struct sched_mount *mount = &spec->mounts[i];

		if (!mirrors_is_bucket(mount)) {
			continue;
		}
		rv = submission_path(node->home, "/", mount->at, dir, err);
		wire_put_text(list, "%s", node->pawl);
		wire_put_text(list, "mirror");
		if (setup || mount->kind == SCHED_MOUNT_FETCH) {
			wire_put_text(list, "--fetch-only");
		} else if (mount->local_max_bytes > 0) {
			wire_put_text(list, "--max-local");
			wire_put_text(list, "%" PRIu64, mount->local_max_bytes);
		}
		wire_put_text(list, "--grace");
		wire_put_text(list, "%.3f", (double)node->grace_ns / NS_PER_S * GRACE_PART);
		wire_put_text(list, "%s", dir);
		wire_put_text(list, "%s", mount->from);
		wire_put_text(list, "--");
	}
	return rv == 0 && list->failed ? pawl_err_set(err, PAWL_ENOMEM, "no memory for a command")
				       : rv;
}
