/*
 * Reduces several vectors to one: see fold.h for the contract. Pure.
 *
 * The terms are processed in blocks that fit the first-level cache, so that memory is read and
 * written once, however many terms there are. Inside a block, pairs are added in the order of the
 * tree.
 */
#include "coll/plan/fold.h"

#include "base/assert.h"
#include "coll/plan/fold_impl.h"
#include "coll/plan/topo.h"

#include <string.h>

#define BLOCK_BYTES 2048u /* bytes of a block of sums; a multiple of all vector lengths */
#define LEVELS      13    /* one more than the levels of the tree over COLL_RANKS_MAX terms */

_Static_assert(COLL_RANKS_MAX == 1u << (LEVELS - 1), "one scratch block per level of the tree");
_Static_assert(BLOCK_BYTES % COLL_GRANULE == 0, "blocks begin where cache lines do");
_Static_assert(PAWL_BFLOAT16 == PAWL_FLOAT16 + 1, "load and store are indexed from PAWL_FLOAT16");
_Static_assert(PAWL_FLOAT32 == PAWL_INT64 + 1, "integers come first, then floats");

struct folding {
	const void *const *terms; /* the caller's */
	size_t at_bytes;          /* offset of the block in each term */
	size_t n;                 /* elements of the block */
	fold_pair_fn *pair;       /* combines two vectors of sums */
	fold_load_fn *load;       /* converts elements to the type of sums; NULL: they have it */
	_Alignas(64) uint8_t scratch[LEVELS][BLOCK_BYTES]; /* sums in the tree, one per level */
};

/* Reduces terms [lo, lo + n) of the block. Returns the result, which is one of the terms or is in
 * out. */
static const void *fold_terms(struct folding *f, uint32_t lo, uint32_t n, uint32_t level, void *out)
{
	const uint8_t *term = (const uint8_t *)f->terms[lo] + f->at_bytes;
	const void *left;
	const void *right;
	uint32_t left_n;

	if (n == 1 && f->load != NULL) {
		f->load(out, (const uint16_t *)(const void *)term, f->n);
		return out;
	}
	if (n == 1) {
		return term;
	}
	left_n = coll_tree_left(n);
	left = fold_terms(f, lo, left_n, level, f->scratch[level]);
	right = fold_terms(f, lo + left_n, n - left_n, level + 1, f->scratch[level + 1]);
	f->pair(out, left, right, f->n);
	return out;
}

size_t coll_type_bytes(enum pawl_dtype type)
{
	static const uint8_t sizes[PAWL_DTYPES] = {
#define X(name, c_type, bytes, torch_name) [PAWL_##name] = bytes,
		COLL_TYPES(X)
#undef X
	};

	ASSERT(type < PAWL_DTYPES);
	return sizes[type];
}

const char *coll_type_name(enum pawl_dtype type)
{
	static const char *const names[PAWL_DTYPES] = {
#define X(name, c_type, bytes, torch_name) [PAWL_##name] = torch_name,
		COLL_TYPES(X)
#undef X
	};

	ASSERT(type < PAWL_DTYPES);
	return names[type];
}

bool coll_type_is_float(enum pawl_dtype type)
{
	return type > PAWL_INT64;
}

static bool is_half(enum pawl_dtype type)
{
	return type == PAWL_FLOAT16 || type == PAWL_BFLOAT16;
}

bool coll_fold_fits(enum pawl_reduce_op fold, enum pawl_dtype type)
{
	return fold < PAWL_REDUCE_OPS && type < PAWL_DTYPES &&
		(fold < PAWL_BAND || type <= PAWL_INT64);
}

void coll_fold(enum coll_kernel kernel, enum pawl_reduce_op fold, enum pawl_dtype type, void *dst,
	const void *const *terms, uint32_t terms_n, size_t n)
{
	const struct fold_kernels *k = fold_kernels_of(kernel);
	enum pawl_dtype sums = is_half(type) ? PAWL_FLOAT32 : type;
	size_t size = coll_type_bytes(type);
	size_t block = BLOCK_BYTES / coll_type_bytes(sums);
	struct folding f = {.terms = terms, .pair = fold_pair_of(kernel, fold, sums)};

	ASSERT(coll_fold_fits(fold, type) && terms_n > 0 && terms_n <= COLL_RANKS_MAX);
	ASSERT(f.pair != NULL); /* for every operation that fits a type */
	if (is_half(type)) {
		f.load = k->load[type - PAWL_FLOAT16];
	}
	for (size_t i = 0; i < n; i += block) {
		uint8_t *to = (uint8_t *)dst + i * size;
		const void *made;

		f.at_bytes = i * size;
		f.n = n - i < block ? n - i : block;
		made = fold_terms(&f, 0, terms_n, 0, f.load ? f.scratch[0] : to);
		if (f.load) {
			k->store[type - PAWL_FLOAT16]((uint16_t *)(void *)to, made, f.n);
		} else if (made != to) {
			memcpy(to, made, f.n * size);
		}
	}
}

static void divide_halves(enum pawl_dtype type, uint16_t *numbers, size_t n, float by)
{
	const struct fold_kernels *k = fold_kernels_of(COLL_PLAIN);
	float sums[BLOCK_BYTES / sizeof(float)];
	size_t block = BLOCK_BYTES / sizeof(float);

	for (size_t i = 0; i < n; i += block) {
		size_t m = n - i < block ? n - i : block;

		k->load[type - PAWL_FLOAT16](sums, numbers + i, m);
		for (size_t j = 0; j < m; j++) {
			sums[j] /= by;
		}
		k->store[type - PAWL_FLOAT16](numbers + i, sums, m);
	}
}

void coll_divide(enum pawl_dtype type, void *numbers, size_t n, uint32_t by)
{
	float *floats = numbers;
	double *doubles = numbers;

	ASSERT(coll_type_is_float(type) && type < PAWL_DTYPES && by > 0);
	if (is_half(type)) {
		divide_halves(type, numbers, n, (float)by);
		return;
	}
	for (size_t i = 0; i < n && type == PAWL_FLOAT32; i++) {
		floats[i] /= (float)by;
	}
	for (size_t i = 0; i < n && type == PAWL_FLOAT64; i++) {
		doubles[i] /= by;
	}
}
