/*
 * What held.c, held_in.c and held_sum.c share.
 *
 * Locks: held.lock guards the lists and the counts of references. held.spare_lock guards the memory
 * that is kept; it is taken last, with or without others. held_in.lock guards the memory of
 * a replica under way; it is taken with held.lock held, or alone, and held for the copy of one
 * block at most, or while a piece is added to a sum. held_sum.lock guards the memory of a sum
 * between those who add to it; it is taken with held_in.lock held. Memory is freed with no lock
 * held, except that of a replica that is canceled, or of a sum that is dropped before it is
 * complete: then nobody adds to it, as all who did were canceled before.
 */
#ifndef AGENT_PEER_HELD_IMPL_H
#define AGENT_PEER_HELD_IMPL_H

#include "agent/peer/held.h"
#include "agent/peer/parity.h"

#include <pthread.h>
#include <stdatomic.h>

#define HELD_RANKS_MAX  1024u /* ranks of one part, as many as an agent serves */
#define HELD_SPARES_MAX 16u   /* replicas that were dropped whose memory is kept, at most */

/* Memory of a replica; zeroed: none. */
struct held_memory {
	uint8_t *map;           /* made by pages_map */
	uint64_t size_bytes;    /* size of the mapping */
	uint64_t present_bytes; /* bytes, from its beginning, whose pages are present */
};

/* One rank of a part. */
struct held_entry {
	struct held_rank held; /* owned; a replica has no arena */
	uint64_t arena_bytes;  /* size of the rank's arena, here or at its own host */
	struct record record; /* decoded from held.blob; zeroed: the rank has no part in the save */
};

/* A part of a sum, a data row. */
struct held_row {
	bool begun;           /* the records have come */
	uint32_t records_crc; /* checksum of the records; equal whenever they come */
	uint64_t added_bytes; /* bytes of the image that are in the sum; whole pieces, from 0 on */
};

/* A sum. Its parts are listed once all of them have ended. */
struct held_sum {
	struct held *held;     /* constant, like the next three */
	uint64_t root;         /* number of the root */
	struct peer_part info; /* the part that came first: save, step, tag, and the group */
	struct parity code;
	/* held.lock: */
	struct held_sum *next; /* in held.sums */
	uint32_t refs;         /* parts, and replicas under way, that use it */
	uint64_t size_bytes;   /* length of its longest image, for which there is room */
	bool dropped;          /* nobody wants it any more */
	/* All k parts are in it, and listed: its bytes never change. Set with lock, too. */
	bool complete;
	uint32_t ended_n; /* parts that have ended */
	/* Parts that have ended, until the sum is complete; owned. */
	struct held_part *ended[PARITY_DATA_MAX];
	/* lock; map constant once the sum is complete: */
	pthread_mutex_t lock;
	uint8_t *map;                   /* memory (base/pages.h); NULL: no part has bytes */
	uint64_t mapped_bytes;          /* size of the memory */
	_Atomic uint64_t present_bytes; /* bytes of it whose pages are present; any thread reads */
	struct held_row rows[PARITY_DATA_MAX];
};

/* A part: complete, or being built. Only refs and next change once it is listed. */
struct held_part {
	struct held *held;      /* list that the part is for */
	struct held_part *next; /* in held.parts, or of those to be freed */
	uint64_t root;          /* number of the root */
	struct peer_part info;
	bool own;                      /* has arenas; else a replica, with an image */
	uint32_t refs;                 /* references, that of the list included */
	struct held_entry *ranks;      /* info.ranks entries */
	const struct record **records; /* pointers to the records of ranks, for the image */
	struct image image;            /* lists where all pieces lie */
	struct held_memory memory;     /* a replica's, owned */
	struct held_sum *sum;          /* the sum in which it is, a reference; NULL: none */
};

struct held {
	pthread_mutex_t lock;
	struct held_part *parts;    /* complete ones */
	struct held_in *receiving;  /* replicas under way; a canceled one is in no list */
	struct held_sum *sums;      /* newest first; dropped ones while somebody uses them */
	pthread_mutex_t spare_lock; /* guards what follows */
	struct held_memory spares[HELD_SPARES_MAX]; /* for replicas to come; owned, newest last */
	uint32_t spares_n;                          /* number of spares */
};

/* A replica under way. Its thread alone uses what no lock guards. */
struct held_in {
	struct held *held;
	struct held_in *next;      /* in held.receiving */
	struct held_part *part;    /* owned; NULL: it is listed */
	struct held_sum *sum;      /* the sum to which it is added, a reference; NULL: none */
	uint64_t image_bytes;      /* size of the image, as promised */
	uint32_t records_n;        /* records that came */
	_Atomic uint64_t received; /* bytes of the image that came; written by its thread */
	bool failed;               /* something was wrong: nothing more is taken */
	struct image_at at;        /* place behind the piece under way */
	struct image_piece piece;  /* piece under way */
	uint32_t piece_bytes;      /* bytes of that piece that came */
	uint32_t crc;              /* checksum of these bytes */
	uint32_t records_crc;      /* checksum of the records that came */
	uint8_t *buffer;           /* with sum: CKPT_CHUNK bytes, those of the piece; owned */
	pthread_mutex_t lock;      /* guards part->memory and canceled */
	bool canceled;             /* nobody wants it any more, its memory is gone; under lock */
};

/* ---- parts; held.c ---- */

/* Makes a part without records, of one reference. Refuses numbers that cannot be: PAWL_ECORRUPT. */
int held_part_make(struct held_part **out, struct held *held, uint64_t root,
	const struct peer_part *info, bool own, struct pawl_err *err);
/* Frees a part that is not listed, with all that it owns; NULL is fine. */
void held_part_free(struct held_part *part);
/* Decodes the blob of an entry and checks that it is the record of that rank of the part, and that
 * all pieces lie in the arena. PAWL_ECORRUPT. */
int held_entry_decode(struct held_part *part, uint32_t index, struct pawl_err *err);
/* Lists a part in place of one of the same save and first rank, which goes where held_unlist puts
 * it. A replica replaces no own part. With held.lock. */
void held_list_part(struct held_part *part, struct held_part **dead);
/* Takes the part at *at out of the list, and puts it in front of *dead if nobody uses it. With
 * held.lock. */
void held_unlist(struct held_part **at, struct held_part **dead);
/* Frees what held_unlist has put there. Without held.lock. */
void held_free_all(struct held_part *dead);

/* ---- memory of replicas; held_memory.c; with or without held.lock ---- */

/* Takes memory that was given back, if there is some, or makes new memory. What is in it is
 * undefined. PAWL_ENOMEM. */
int held_memory_take(struct held *held, uint64_t size_bytes, struct held_memory *memory,
	struct pawl_err *err);
/* Takes memory back, which is kept for replicas to come; zeroed is fine, and what is left. */
void held_memory_give(struct held *held, struct held_memory *memory);
/* Returns the bytes of memory that are kept. */
uint64_t held_memory_spare(struct held *held);

/* ---- replicas under way; held_in.c ---- */

/* Cancels the replica at *at, and takes it out of the list; its memory is free on return. With
 * held.lock. */
void held_in_cancel(struct held_in **at);
/* Whether a part is of no more use when another comes, since all of global, perhaps of an earlier
 * run, is at its peers. Runs have no order, but that the run of what comes is the newest. */
bool held_is_older(const struct peer_part *info, const struct peer_part *comes,
	const struct peer_save *global);
/* Whether a part goes rather than another, if too many are complete when a third one comes; neither
 * is global. A part of the run of what comes is of a save that was given up: it goes first, and of
 * two, the older one. Parts of earlier runs are from before the ranks began anew, and nobody knows
 * which is at all peers: the newer one goes, which less likely is. Steps order saves of different
 * runs; their numbers do not. */
bool held_goes_before(const struct peer_part *part, const struct peer_part *other,
	const struct peer_part *comes);

/* ---- sums; held_sum.c ---- */

/* Makes the sum of a part, which is not listed and has no reference. */
int held_sum_make(struct held_sum **out, struct held *held, const struct held_part *part,
	struct pawl_err *err);
/* Gives a reference back, or frees a sum that has none. Without held.lock. */
void held_sum_release(struct held_sum *sum);

/* The next four: with held.lock. */

/* Finds the sum of a part's save, group and row. NULL: there is none. */
struct held_sum *held_sum_find(const struct held *held, const struct held_part *part);
/* Drops what is of no more use when a part for a sum comes. PAWL_ECANCELED: the part's save was
 * given up; PAWL_ECORRUPT: its sum has other numbers. */
int held_sum_make_room(struct held *held, const struct held_part *comes,
	const struct peer_save *global, struct held_part **dead, struct pawl_err *err);
/* Cancels who adds to a sum, and takes its parts out of all lists; see held_unlist. */
void held_sum_drop(struct held_sum *sum, struct held_part **dead);
/* All of a part is in the sum; takes the part over. The last one of the sum makes it complete. */
void held_sum_end(struct held_sum *sum, struct held_part *part, struct held_part **dead);

/* The next three: without held.lock. */

/* The records of a part have come. PAWL_ECORRUPT: they are not those that came before. */
int held_sum_begin(struct held_sum *sum, uint32_t index, uint32_t records_crc,
	struct pawl_err *err);
/* Makes memory for an image of this size. With held_in.lock of one that is not canceled, as for
 * held_sum_add. */
int held_sum_map(struct held_sum *sum, uint64_t size_bytes, struct pawl_err *err);
/* Adds a piece of a part, verified, unless it is in the sum already. */
int held_sum_add(struct held_sum *sum, uint32_t index, uint64_t off, const uint8_t *bytes,
	uint32_t len_bytes, struct pawl_err *err);

#endif
