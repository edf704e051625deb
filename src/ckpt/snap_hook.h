/* Lets a test stop the engine at the instants that matter. */
#ifndef CKPT_SNAP_HOOK_H
#define CKPT_SNAP_HOOK_H

#include "ckpt/snap_watch.h"

/* What has just happened to a watched unit. */
enum snap_stage {
	SNAP_UNIT_TAKEN,  /* nothing of it was read yet */
	SNAP_UNIT_COPIED, /* all of it was read; it is still watched */
	SNAP_UNIT_LIFTED, /* it is no longer watched; who waits for it does not know yet */
};

/* Called on the copying thread when not NULL. To be set between snapshots. */
extern void (*snap_hook)(enum snap_stage stage, struct snap_range range);

#endif
