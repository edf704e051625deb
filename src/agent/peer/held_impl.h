/*
 * What held.c and held_in.c share.
 *
 * Locks: held.lock guards both lists and the counts of references. held_in.lock guards the memory
 * of a replica under way; it is taken with held.lock held, or alone, and held for the copy of one
 * block at most. Memory is freed with neither held, except that of a replica that is canceled.
 */
#ifndef AGENT_PEER_HELD_IMPL_H
#define AGENT_PEER_HELD_IMPL_H

#include "agent/peer/held.h"

#include <pthread.h>
#include <stdatomic.h>

#define HELD_RANKS_MAX 1024u /* ranks of one part, as many as an agent serves */

/* One rank of a part. */
struct held_entry {
	struct held_rank held; /* owned; a replica has no arena */
	uint64_t arena_bytes;  /* size of the rank's arena, here or at its own host */
	struct record record; /* decoded from held.blob; zeroed: the rank has no part in the save */
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
	int fd;                        /* a replica's memory: a memfd; -1: none */
};

struct held {
	pthread_mutex_t lock;
	struct held_part *parts;   /* complete ones */
	struct held_in *receiving; /* replicas under way; a canceled one is in no list */
};

/* A replica under way. Its thread alone uses what no lock guards. */
struct held_in {
	struct held *held;
	struct held_in *next;      /* in held.receiving */
	struct held_part *part;    /* owned; NULL: it is listed */
	uint64_t image_bytes;      /* size of the image, as promised */
	uint32_t records_n;        /* records that came */
	_Atomic uint64_t received; /* bytes of the image that came; written by its thread */
	bool failed;               /* something was wrong: nothing more is taken */
	struct image_at at;        /* place behind the piece under way */
	struct image_piece piece;  /* piece under way */
	uint32_t piece_bytes;      /* bytes of that piece that came */
	uint32_t crc;              /* checksum of these bytes */
	uint64_t present_bytes;    /* bytes of the memory whose pages are present */
	pthread_mutex_t lock;      /* guards map, part->fd and canceled */
	uint8_t *map;              /* the memory, mapped; NULL: the image is empty */
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

/* ---- replicas under way; held_in.c ---- */

/* Cancels the replica at *at, and takes it out of the list; its memory is free on return. With
 * held.lock. */
void held_in_cancel(struct held_in **at);

#endif
