/*
 * What the engine has to do for a list of pieces: which memory it watches, and the units of work in
 * which it copies. Made once and kept while the pieces stay the same. Pure.
 */
#ifndef CKPT_SNAP_LIST_H
#define CKPT_SNAP_LIST_H

#include "ckpt/plan.h"
#include "ckpt/snap_watch.h"

#define SNAP_UNIT                                                                                  \
	(2u << 20) /* bytes and alignment of a unit: a huge page, so that lifting its protection   \
		      leaves it whole */
#define SNAP_GAP_MAX (64u << 10) /* bytes between watched pieces that are watched along */

/* A piece as it was when the list was made. */
struct snap_key {
	const uint8_t *src; /* of it */
	uint64_t groups;    /* of it */
	uint32_t len_bytes; /* of it */
	int device;         /* of it */
};

enum snap_kind {
	SNAP_EAGER,   /* copied before begin returns */
	SNAP_GUARDED, /* copied later, watched by the kernel */
	SNAP_DEVICE,  /* copied later, on a CUDA device, watched by nobody */
};

/* What one thread copies in one go. */
struct snap_unit {
	enum snap_kind kind;     /* of all its pieces */
	struct snap_range range; /* guarded: the memory, within one multiple of SNAP_UNIT */
	uint32_t first, end;     /* its pieces are order[first, end); guarded: as far as in range */
	uint64_t groups;         /* of its pieces, together; 0 if eager */
	bool taken;              /* the engine's */
};

/* Zero-initialise. */
struct snap_list {
	struct snap_key *keys; /* of the pieces it was made from */
	uint32_t *order;       /* indices of pieces: guarded ones by address, device, eager; as many
				  again are scratch */
	struct snap_range *extents; /* memory to register and protect, ascending; covers the watched
				       pieces */
	struct snap_unit *units;    /* eager, guarded by address, device */
	size_t n;                   /* keys, order */
	size_t extents_n;           /* of extents */
	size_t units_n;             /* of units */
	size_t eager_n;             /* units that are eager */
	uint64_t eager_bytes;       /* of their pieces when the list was made */
	size_t guarded_n;           /* pieces guarded; for the making only */
	size_t late_n;              /* pieces guarded or on a device; likewise */
	bool valid;                 /* made, as opposed to failed half-way */
};

void snap_list_deinit(struct snap_list *list);
/* Whether the list is right for these pieces, too. Those without groups may be anything: they are
 * often of this save alone, and where they lie is not in the list. */
bool snap_list_matches(const struct snap_list *list, const struct ckpt_piece *pieces, size_t n);

/*
 * First half: remembers the pieces and finds the extents, which hold every piece that has groups
 * and lies in ranges (ascending, as from watch_ranges). The caller may then drop extents that
 * cannot be watched, keeping the order. ranges may be NULL: then everything is eager. PAWL_ENOMEM,
 * PAWL_ELIMIT (CKPT_PIECES_MAX).
 */
int snap_list_extents(struct snap_list *list, const struct ckpt_piece *pieces, size_t n,
	const struct snap_range *ranges, size_t ranges_n, struct pawl_err *err);
/* Second half: the units; host memory outside of all extents becomes eager. PAWL_ENOMEM. */
int snap_list_units(struct snap_list *list, struct pawl_err *err);

#endif
