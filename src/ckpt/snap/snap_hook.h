/* A hook by which tests stop the engine at critical moments. */
#ifndef CKPT_SNAP_SNAP_HOOK_H
#define CKPT_SNAP_SNAP_HOOK_H

#include "ckpt/snap/snap_watch.h"

/* The latest stage of a watched unit. */
enum snap_stage {
	SNAP_UNIT_TAKEN,  /* taken; none of it was read yet */
	SNAP_UNIT_COPIED, /* copied; still watched */
	SNAP_UNIT_LIFTED, /* no longer watched; threads that wait for it do not know yet */
};

/* Called on the copying thread when not NULL. To be set between snapshots. */
extern void (*snap_hook)(enum snap_stage stage, struct snap_range range);

#endif
