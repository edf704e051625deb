/*
 * What this host holds of saves besides the agent's slots: parts of its own ranks, kept when the
 * ranks began anew (own); parts of other hosts' ranks (replicas); and sums of such parts
 * (parity.h). A part is whole, verified, and never changes. All functions may be called by any
 * thread.
 *
 * Memory: an own part keeps the arenas that it had as a slot. A replica has memory of the size of
 * its image, and the parts of one sum have one together, of the size of the longest image. Nobody
 * else maps it, so it is no memfd: of anonymous memory the system makes huge pages unless it is
 * told not to, and a small page costs more than the encryption of what comes into it. The memory of
 * a replica that is dropped is kept for the next one, until held_trim.
 */
#ifndef AGENT_PEER_HELD_H
#define AGENT_PEER_HELD_H

#include "agent/peer/image.h"
#include "agent/peer/peer_msg.h"
#include "ipc/tier.h"

struct held;
struct held_in;   /* a replica that is being received; for one thread */
struct held_part; /* counted references; released by held_release */

/* One rank of an own part. */
struct held_rank {
	struct arena arena;   /* zeroed: the rank has no part in the save */
	struct wire_out blob; /* encoded record; empty: none */
};

int held_open(struct held **out, struct pawl_err *err);
void held_close(struct held *held); /* NULL is fine; no part may be in use */

/* Adds an own part. Takes over the arenas and blobs of part->ranks entries, also if it fails. A
 * part of the same save and first rank is replaced. PAWL_ECORRUPT: a record is not that of its
 * rank. */
int held_add(struct held *held, uint64_t root, const struct peer_part *part,
	struct held_rank *ranks, struct pawl_err *err);

/*
 * Receives a replica: begin, a record for each rank in order, all bytes of the image in order, end.
 * global: the newest save, perhaps of an earlier run, that is known to be at all peers; run 0:
 * none. Parts of the same first rank that are older than global are dropped first, and so is what
 * was being received of that first rank (its thread gets PAWL_ECANCELED). If two others would stay,
 * one that is not global goes, too. PAWL_ENOMEM: it does not fit the memory that replicas may have,
 * half of what is available; the text names both sizes. PAWL_ECORRUPT: the part's numbers cannot
 * be.
 *
 * A part with parity is added to the sum of its save, group and row, to which others are added at
 * the same time. The sum is complete, and its parts are listed, once k parts have ended. Any part
 * may be sent again, whether it has ended or not: what of it is in the sum is not added twice. The
 * bytes must be the same then, else PAWL_ECORRUPT. Sums of one group and row are kept and dropped
 * as replicas of one first rank are; PAWL_ECANCELED: a sum of a newer save of the run is there, or
 * begun.
 */
int held_in_open(struct held_in **out, struct held *held, uint64_t root,
	const struct peer_part *part, const struct peer_save *global, uint64_t image_bytes,
	struct pawl_err *err);
/* crc: CRC-32C of the blob. PAWL_ECORRUPT: the record is not what was sent, or not of that rank,
 * or does not decode. An empty blob: the rank has no part in the save. */
int held_in_record(struct held_in *in, uint32_t rank, uint64_t arena_bytes, uint32_t crc,
	const void *blob, size_t blob_bytes, struct pawl_err *err);
/* Takes bytes of the image, the next ones in order. PAWL_ECORRUPT: a piece that they complete is
 * not what its checksum says; the text names partition, rank and bytes. */
int held_in_bytes(struct held_in *in, uint64_t off, const void *bytes, size_t len_bytes,
	struct pawl_err *err);
/* All is there: the part can be found from now on. PAWL_ECORRUPT: something is missing. */
int held_in_end(struct held_in *in, struct pawl_err *err);
void held_in_close(struct held_in *in); /* drops what did not end; NULL is fine */

/* Lists the parts of a root; returns their number, at most cap. */
uint32_t held_list(struct held *held, uint64_t root, struct peer_part *parts, uint32_t cap);
/* Finds the part of a save that has this rank; an own one before a replica. NULL: there is none. */
struct held_part *held_find(struct held *held, uint64_t root, const struct peer_save *save,
	uint32_t rank);
/* Finds the part with this first rank in a complete sum, by the sum's group and row. NULL: there is
 * none. */
struct held_part *held_find_sum(struct held *held, uint64_t root, const struct peer_save *save,
	const struct peer_parity *parity, uint32_t first_rank);
void held_release(struct held_part *part); /* NULL is fine */
/* Drops the parts of a root, except those of the save keep and replicas of newer saves of its run;
 * all parts if keep is NULL; none if keep is no save. Parts in use go with their last release. What
 * is being received is dropped by the same rule, but for what comes in another run than keep's. */
void held_drop_others(struct held *held, uint64_t root, const struct peer_save *keep);
/* Drops all parts of one save, since one of them is damaged or all are outdated, and what is being
 * received of that save. */
void held_drop(struct held *held, uint64_t root, const struct peer_save *save);
/* Drops the parts of saves with a lower step, and what is being received of these. */
void held_drop_below(struct held *held, uint64_t root, uint64_t step);
/* Bytes of memory in use, by all parts and what is being received; not what is kept. */
uint64_t held_used_bytes(struct held *held);
/* Frees memory that is kept for replicas to come until it is most_bytes at most. Returns whether
 * there was any to be freed. */
bool held_trim(struct held *held, uint64_t most_bytes);

/* ---- a part; what is returned stays valid until held_release ---- */

const struct peer_part *held_part_info(const struct held_part *part);
const struct image *held_part_image(const struct held_part *part);
/* Returns the number of bytes that can be read: those of the image, or of the sum. */
uint64_t held_part_size(const struct held_part *part);
/* Gives a rank's record, encoded, and the size of its arena. An empty blob: no part in the save. */
void held_part_record(const struct held_part *part, uint32_t rank, const uint8_t **blob,
	uint32_t *blob_bytes, uint64_t *arena_bytes);
/* Reads bytes of the image, or of the sum, any of them. PAWL_EINVAL: it does not have them. */
int held_part_read(const struct held_part *part, uint64_t off, void *bytes, size_t len_bytes,
	struct pawl_err *err);

#endif
