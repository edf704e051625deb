/*
 * The engine's work for a list of pieces: which memory it watches, and the units of work in which
 * it copies. Made once and kept while the pieces stay the same. Pure.
 */
#ifndef CKPT_SNAP_SNAP_LIST_H
#define CKPT_SNAP_SNAP_LIST_H

#include "ckpt/format/pieces.h"
#include "ckpt/snap/snap_watch.h"

#define SNAP_UNIT                                                                                  \
	(2u << 20) /* bytes and alignment of a unit: a huge page, so that lifting its protection   \
		      leaves it whole */
#define SNAP_GAP_MAX (64u << 10) /* largest gap between watched pieces that is watched as well */

/* A piece as it was when the list was made. */
struct snap_key {
	const uint8_t *src; /* address of the piece */
	uint64_t groups;    /* groups of the piece */
	uint32_t len_bytes; /* length of the piece */
	int device;         /* device of the piece, as in struct ckpt_piece */
};

enum snap_kind {
	SNAP_EAGER,   /* copied before begin returns */
	SNAP_GUARDED, /* copied later, watched by the kernel */
	SNAP_DEVICE,  /* copied later, on a CUDA device, watched by nobody */
};

/* The unit that one thread copies in one go. */
struct snap_unit {
	enum snap_kind kind;     /* kind of all its pieces */
	struct snap_range range; /* guarded: its memory, within one multiple of SNAP_UNIT */
	uint32_t first, end; /* pieces are order[first, end); guarded: only their parts in range */
	uint64_t groups;     /* union of its pieces' groups; 0 if eager */
	bool taken;          /* used by the engine */
};

/* A list; zero-initialise. */
struct snap_list {
	struct snap_key *keys; /* the pieces it was made from */
	/* Indices of pieces: guarded ones by address, device, eager. As many entries again are
	 * scratch space. */
	uint32_t *order;
	/* Memory to register and protect, ascending; covers the watched pieces. */
	struct snap_range *extents;
	struct snap_unit *units; /* eager units, then guarded ones by address, then device ones */
	size_t n;                /* number of keys, and of indices in order */
	size_t extents_n;        /* number of extents */
	size_t units_n;          /* number of units */
	size_t eager_n;          /* number of eager units */
	uint64_t eager_bytes;    /* bytes of the eager pieces when the list was made */
	size_t guarded_n;        /* number of guarded pieces; only for making the list */
	size_t late_n; /* number of pieces guarded or on a device; only for making the list */
	bool valid;    /* made completely, as opposed to failed half-way */
};

void snap_list_deinit(struct snap_list *list);
/* Returns whether the list fits these pieces, too. Pieces without groups may be any: they often
 * belong to one save only, and the list does not contain their addresses. */
bool snap_list_matches(const struct snap_list *list, const struct ckpt_piece *pieces, size_t n);

/*
 * First half: stores the pieces and finds the extents, which cover every piece that has groups and
 * lies in ranges (ascending, as from watch_ranges). The caller may then drop extents that cannot be
 * watched, keeping the order. ranges may be NULL: then everything is eager. PAWL_ENOMEM,
 * PAWL_ELIMIT (CKPT_PIECES_MAX).
 */
int snap_list_extents(struct snap_list *list, const struct ckpt_piece *pieces, size_t n,
	const struct snap_range *ranges, size_t ranges_n, struct pawl_err *err);
/* Second half: makes the units; host memory outside of all extents becomes eager. PAWL_ENOMEM. */
int snap_list_units(struct snap_list *list, struct pawl_err *err);

#endif
