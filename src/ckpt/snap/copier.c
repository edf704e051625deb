/* Copies of memory that stays in use: the snapshot engine without a checkpoint. See pawl/copier.h
 * for the contract. */
#include "pawl/copier.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "ckpt/snap/cuda.h"
#include "ckpt/snap/snap.h"

#include <stdlib.h>

struct pawl_copier {
	struct snap *snap;         /* the engine */
	struct ckpt_pieces pieces; /* pieces of the copy in progress, or of the last one */
	int rv;        /* result of the copy; the engine writes it before the copy is over */
	uint32_t span; /* if rv is not 0: index of the span that failed */
	bool busy;     /* atomic: a copy is in progress */
};

int pawl_copier_open(struct pawl_copier **out, bool watch, struct pawl_err *err)
{
	struct snap_options options = {.threads = 1, .watch = watch};
	struct pawl_copier *copier = FAULT_MEM("copier.open", calloc(1, sizeof(*copier)));
	int rv;

	if (!copier) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a copier");
	}
	rv = snap_open(&copier->snap, &options, err);
	if (rv != 0) {
		free(copier);
		return rv;
	}
	*out = copier;
	return 0;
}

void pawl_copier_close(struct pawl_copier *copier)
{
	if (copier) {
		snap_close(copier->snap);
		ckpt_pieces_deinit(&copier->pieces);
		free(copier);
	}
}

/* A snap_done_fn. */
static void copied(void *user, int rv, size_t piece)
{
	struct pawl_copier *copier = user;

	ASSERT(rv == 0 || piece < copier->pieces.n);
	copier->rv = rv;
	copier->span = rv == 0 ? 0 : copier->pieces.at[piece].storage;
	__atomic_store_n(&copier->busy, false, __ATOMIC_RELEASE);
}

static int list_pieces(struct pawl_copier *copier, const struct pawl_ckpt_span *from,
	void *const *to, uint32_t n, struct pawl_err *err)
{
	int rv = 0;

	copier->pieces.n = 0;
	for (uint32_t i = 0; i < n && rv == 0; i++) {
		struct ckpt_span span = {(const void *)(uintptr_t)from[i].addr, from[i].size_bytes,
			from[i].groups, (int)from[i].device};

		if (from[i].device > CUDA_DEVICES_MAX) {
			return pawl_err_set(err, PAWL_EINVAL, "device %llu: at most %d",
				(unsigned long long)from[i].device, CUDA_DEVICES_MAX);
		}
		rv = ckpt_pieces_add_span(&copier->pieces, &span, i, to[i], err);
	}
	return rv;
}

int pawl_copier_begin(struct pawl_copier *copier, const struct pawl_ckpt_span *from,
	void *const *to, uint32_t n, enum pawl_ckpt_proof *proof, struct pawl_err *err)
{
	enum snap_proof had;
	int rv;

	snap_wait(copier->snap);
	rv = list_pieces(copier, from, to, n, err);
	if (rv == 0) {
		__atomic_store_n(&copier->busy, true, __ATOMIC_RELAXED);
		rv = snap_begin(copier->snap, copier->pieces.at, copier->pieces.n, true, copied,
			copier, &had, err);
	}
	if (rv != 0) {
		__atomic_store_n(&copier->busy, false, __ATOMIC_RELAXED);
		return rv;
	}
	*proof = snap_public_proof(had);
	return 0;
}

bool pawl_copier_busy(const struct pawl_copier *copier)
{
	return __atomic_load_n(&copier->busy, __ATOMIC_ACQUIRE);
}

void pawl_copier_fence(struct pawl_copier *copier, uint64_t groups)
{
	snap_fence(copier->snap, groups);
}

int pawl_copier_wait(struct pawl_copier *copier, uint32_t *span)
{
	snap_wait(copier->snap);
	*span = copier->span;
	return copier->rv;
}
