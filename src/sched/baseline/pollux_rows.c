/*
 * How allocations mutate, which are allowed, and what they cost, as defined by the authors of
 * Pollux (Qiao; what the paper leaves open is as in their published simulator). Pure.
 *
 * Nearly all time is spent here: ten thousand solutions a round. Most cells are 0, so rows are read
 * in words.
 */
#include "base/assert.h"
#include "sched/baseline/pollux_impl.h"

#include <math.h>
#include <string.h>

#define DRAWS    4294967296.0 /* number of different draws of 32 bits */
#define TENTH    429496730u   /* a tenth of the draws */
#define FAIRNESS 1e-3         /* added to each speedup, so that none is 0 */

_Static_assert(POLLUX_SLOTS_MAX == UINT8_MAX, "a cell is a byte");

/* ---- rows ---- */

static uint64_t load_word(const uint8_t *row)
{
	uint64_t word;

	memcpy(&word, row, sizeof(word));
	return word;
}

static uint32_t sum_bytes(uint64_t word)
{
	const uint64_t even = 0x00ff00ff00ff00ffu;

	word = (word & even) + (word >> 8 & even);
	return (uint32_t)(word * 0x0001000100010001u >> 48);
}

static uint32_t count_bytes(uint64_t word)
{
	const uint64_t low = 0x7f7f7f7f7f7f7f7fu;

	word = (((word & low) + low) | word) & ~low; /* a high bit for each byte that is not 0 */
	return (uint32_t)((word >> 7) * 0x0101010101010101u >> 56);
}

static void count_row(const uint8_t *row, uint32_t row_bytes, uint32_t *nodes, uint32_t *replicas)
{
	*nodes = 0;
	*replicas = 0;
	for (uint32_t i = 0; i < row_bytes; i += sizeof(uint64_t)) {
		uint64_t word = load_word(row + i);

		*nodes += count_bytes(word);
		*replicas += sum_bytes(word);
	}
}

/* ---- mutation ---- */

static void thin_row(struct rng *rng, uint8_t *row, uint32_t nodes_n)
{
	for (uint32_t n = 0; n < nodes_n; n++) {
		if (row[n] != 0 && (uint32_t)rng_u64(rng) < TENTH) {
			row[n] = 0;
		}
	}
}

static void take_room(uint8_t *room, const uint8_t *row, uint32_t row_bytes)
{
	for (uint32_t i = 0; i < row_bytes; i += sizeof(uint64_t)) {
		if (load_word(row + i) == 0) {
			continue;
		}
		for (uint32_t n = i; n < i + sizeof(uint64_t); n++) {
			room[n] = room[n] > row[n] ? room[n] - row[n] : 0;
		}
	}
}

/* Lets some jobs grow on a node with room, by a random number, up to all slots of the node. On
 * average one of all jobs grows, and one of those on the node. */
static void grow_column(const struct pollux_round *round, struct rng *rng, uint8_t *cells,
	uint8_t slots)
{
	size_t end = (size_t)round->rows_n * round->row_bytes;
	double any = 1.0 / round->rows_n;
	double there;
	uint32_t filled = 0;
	uint64_t odds[2];

	for (size_t at = 0; at < end; at += round->row_bytes) {
		filled += cells[at] != 0;
	}
	there = filled > 0 ? 1.0 / filled : 0;
	odds[0] = (uint64_t)(any * DRAWS);
	odds[1] = (uint64_t)((any + there - any * there) * DRAWS);
	for (size_t at = 0; at < end; at += round->row_bytes) {
		uint64_t draw = rng_u64(rng);

		if ((uint32_t)draw < odds[cells[at] != 0]) {
			uint64_t choices = slots - cells[at] + 1u;

			cells[at] = (uint8_t)(cells[at] + ((draw >> 32) * choices >> 32));
		}
	}
}

void pollux_mutate(void *of, struct rng *rng, uint8_t *matrix)
{
	const struct pollux_round *round = of;

	memcpy(round->room, round->slots, round->row_bytes);
	for (uint32_t r = 0; r < round->rows_n; r++) {
		uint8_t *row = matrix + (size_t)r * round->row_bytes;
		uint64_t draw = rng_u64(rng);

		if ((uint32_t)draw < TENTH) {
			memcpy(row, round->base + (size_t)r * round->row_bytes, round->row_bytes);
		}
		if (draw >> 32 < TENTH) {
			thin_row(rng, row, round->nodes_n);
		}
		take_room(round->room, row, round->row_bytes);
	}
	for (uint32_t n = 0; n < round->nodes_n; n++) {
		if (round->room[n] > 0) {
			grow_column(round, rng, matrix + n, round->slots[n]);
		}
	}
}

/* ---- repair ---- */

/* Takes a distributed job off nodes where an earlier one is, and marks the others as taken. */
static void separate_row(uint8_t *row, uint8_t *taken, uint32_t row_bytes)
{
	for (uint32_t i = 0; i < row_bytes; i += sizeof(uint64_t)) {
		if (load_word(row + i) == 0) {
			continue;
		}
		for (uint32_t n = i; n < i + sizeof(uint64_t); n++) {
			bool here = row[n] != 0;

			row[n] = taken[n] ? 0 : row[n];
			taken[n] |= here;
		}
	}
}

/* Takes replicas off nodes, in random order: at most most replicas are left, on at most
 * POLLUX_NODES_MAX nodes. */
static void trim_row(const struct pollux_round *round, struct rng *rng, uint8_t *row, uint32_t most)
{
	uint32_t *filled = round->filled;
	uint32_t nodes = 0;
	uint32_t left = most;

	for (uint32_t n = 0; n < round->nodes_n; n++) {
		if (row[n] != 0) {
			filled[nodes++] = n;
		}
	}
	for (uint32_t i = 0; i < nodes; i++) {
		uint32_t other = i + (uint32_t)rng_below(rng, nodes - i);
		uint32_t n = filled[other];

		filled[other] = filled[i];
		if (i >= POLLUX_NODES_MAX) {
			row[n] = 0;
		}
		row[n] = row[n] < left ? row[n] : (uint8_t)left;
		left -= row[n];
	}
}

static void fit_row(uint8_t *row, uint8_t *room, uint32_t row_bytes)
{
	for (uint32_t i = 0; i < row_bytes; i += sizeof(uint64_t)) {
		if (load_word(row + i) == 0) {
			continue;
		}
		for (uint32_t n = i; n < i + sizeof(uint64_t); n++) {
			row[n] = row[n] < room[n] ? row[n] : room[n];
			room[n] -= row[n];
		}
	}
}

/* Makes a row allowed, with the room that earlier rows left. */
static void repair_row(const struct pollux_round *round, struct rng *rng,
	const struct pollux_row *of, uint8_t *row)
{
	uint32_t nodes;
	uint32_t replicas;

	count_row(row, round->row_bytes, &nodes, &replicas);
	if (replicas == 0) {
		return;
	}
	if (nodes > 1) {
		separate_row(row, round->taken, round->row_bytes);
		count_row(row, round->row_bytes, &nodes, &replicas);
	}
	if (replicas > of->most || nodes > POLLUX_NODES_MAX) {
		trim_row(round, rng, row, of->most);
	}
	fit_row(row, round->room, round->row_bytes);
	if (of->least > 1) {
		count_row(row, round->row_bytes, &nodes, &replicas);
		if (replicas < of->least) {
			memset(row, 0, round->row_bytes);
		}
	}
}

void pollux_repair(void *of, struct rng *rng, uint8_t *matrix)
{
	const struct pollux_round *round = of;

	memcpy(round->room, round->slots, round->row_bytes);
	memset(round->taken, 0, round->row_bytes);
	for (uint32_t r = 0; r < round->rows_n; r++) {
		size_t at = (size_t)r * round->row_bytes;
		uint32_t nodes;
		uint32_t replicas;

		if (!round->rows[r].pinned) {
			repair_row(round, rng, &round->rows[r], matrix + at);
			continue;
		}
		memcpy(matrix + at, round->base + at, round->row_bytes);
		count_row(matrix + at, round->row_bytes, &nodes, &replicas);
		for (uint32_t n = 0; n < round->nodes_n; n++) {
			round->taken[n] |= nodes > 1 && matrix[at + n] != 0;
			round->room[n] -= matrix[at + n];
		}
	}
}

/* ---- cost ---- */

/* Returns a row's speedup over its fair share; sets whether the row changes. Marks its nodes as
 * taken. */
static double row_speedup(const struct pollux_round *round, uint32_t r, const uint8_t *row,
	bool *changes)
{
	const struct pollux_row *of = &round->rows[r];
	const uint8_t *base = round->base + (size_t)r * round->row_bytes;
	uint64_t differs = 0;
	uint32_t nodes = 0;
	uint32_t replicas = 0;

	for (uint32_t i = 0; i < round->row_bytes; i += sizeof(uint64_t)) {
		uint64_t word = load_word(row + i);
		uint64_t taken = load_word(round->taken + i) | word;

		differs |= word ^ load_word(base + i);
		memcpy(round->taken + i, &taken, sizeof(taken));
		nodes += count_bytes(word);
		replicas += sum_bytes(word);
	}
	*changes = differs != 0;
	return replicas == 0
		? 0
		: pollux_worth_goodput(of->worth, nodes > 1, replicas) * of->per_goodput;
}

/*
 * Finds both costs. The first is Qiao's fitness, negative, with its power p = -1: the harmonic mean
 * of speedups, each scaled to shares of nodes, and less by its factor where the job would restart.
 * The second is the cluster's utility, negative: speedups over the slots of nodes that are in
 * use.
 */
void pollux_evaluate(void *of, const uint8_t *matrix, double *costs)
{
	const struct pollux_round *round = of;
	double inverse = 0;
	double speedups = 0;
	uint32_t slots = 0;

	memset(round->taken, 0, round->row_bytes);
	for (uint32_t r = 0; r < round->rows_n; r++) {
		const uint8_t *row = matrix + (size_t)r * round->row_bytes;
		bool changes;
		double speedup = row_speedup(round, r, row, &changes);
		double factor = changes ? round->rows[r].factor : 1;

		speedups += speedup;
		inverse += 1 / (speedup * round->scale * factor + FAIRNESS);
	}
	for (uint32_t n = 0; n < round->nodes_n; n++) {
		slots += round->taken[n] != 0 ? round->slots[n] : 0;
	}
	costs[0] = -(round->rows_n / inverse);
	costs[1] = slots > 0 ? -(speedups / slots) : 0;
}
