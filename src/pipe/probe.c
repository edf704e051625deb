/* Probes of a search: which positions can end a part if no part exceeds a value. See partition.h
 * for the method. Pure. */
#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "pipe/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SLACK 1e-9 /* relative; sums of costs are rounded by less */

void pipe_search_deinit(struct pipe_search *search)
{
	free(search->least);
	free(search->most);
	free(search->rows);
	free(search->window);
	free(search->key);
	free(search->speeds);
	*search = (struct pipe_search){0};
}

/* Returns the value from which on each single unit can be any part; infinity if memory forbids it,
 * or if cuts cost something. */
static double find_even_from(const struct pipe_chain *chain)
{
	double speed_least = PIPE_INFINITE;
	double link_most = 0;

	for (uint32_t i = 1; i <= chain->n; i++) {
		link_most = fmax(link_most, chain->link[i]);
	}
	for (uint32_t k = 0; k < chain->parts_n; k++) {
		const struct pipe_part *part = &chain->parts[k];

		speed_least = fmin(speed_least, part->speed);
		for (uint32_t i = 0; i < chain->n && part->cap_bytes != PAWL_PIPE_NO_CAP; i++) {
			if (pipe_part_bytes(chain, k, i, i + 1) > part->cap_bytes) {
				return PIPE_INFINITE;
			}
		}
	}
	return chain->even ? fmax(chain->cost_max / speed_least, link_most) : PIPE_INFINITE;
}

int pipe_search_init(struct pipe_search *search, const struct pipe_chain *chain,
	struct pawl_err *err)
{
	size_t n = (size_t)chain->n + 1;
	size_t parts = chain->parts_n;

	*search = (struct pipe_search){.chain = chain};
	search->least = FAULT_MEM("pipe.search", calloc(parts, sizeof(*search->least)));
	search->most = FAULT_MEM("pipe.search", calloc(parts, sizeof(*search->most)));
	search->rows = FAULT_MEM("pipe.search", malloc(parts * n));
	search->window = FAULT_MEM("pipe.search", malloc(n * sizeof(*search->window)));
	search->key = FAULT_MEM("pipe.search", malloc(n * sizeof(*search->key)));
	search->speeds = FAULT_MEM("pipe.search", calloc(parts + 1, sizeof(*search->speeds)));
	if (!search->least || !search->most || !search->rows || !search->window || !search->key ||
		!search->speeds) {
		pipe_search_deinit(search);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to cut %u units into %u parts",
			chain->n, chain->parts_n);
	}
	for (uint32_t k = 0; k < chain->parts_n; k++) {
		search->speeds[k + 1] = search->speeds[k] + chain->parts[k].speed;
	}
	search->even_from = find_even_from(chain);
	return 0;
}

/* ---- where a part's end can lie ---- */

/* Returns the first position at or behind from that has at least sum before it, or more than sum if
 * more; to + 1 if there is none. */
static uint32_t find_sum(const struct pipe_chain *chain, uint32_t from, uint32_t to, double sum,
	bool more)
{
	uint32_t end = to + 1;

	while (from < end) {
		uint32_t mid = from + (end - from) / 2;

		if (more ? chain->cost[mid] > sum : chain->cost[mid] >= sum) {
			end = mid;
		} else {
			from = mid + 1;
		}
	}
	return from;
}

static void lower_next(struct pipe_search *search, double value)
{
	search->next = fmin(search->next, value);
}

/* Sets the range in which part k can end: by its limits, by what fits the parts up to k, and by
 * what the rest can take. Returns false if it is empty. */
static bool set_range(struct pipe_search *search, uint32_t k, double value)
{
	const struct pipe_chain *chain = search->chain;
	const struct pipe_part *part = &chain->parts[k];
	double total = chain->cost[chain->n];
	double rest = search->speeds[chain->parts_n] - search->speeds[k + 1];
	double before = search->speeds[k + 1] * value * (1 + SLACK);
	double behind = rest > 0 ? total - rest * value * (1 + SLACK) : total;
	uint32_t least;
	uint32_t most;

	if (part->end_least > part->end_most) {
		return false;
	}
	least = find_sum(chain, part->end_least, part->end_most, behind - total * SLACK, false);
	most = find_sum(chain, part->end_least, part->end_most, before + total * SLACK, true) - 1;
	if (least > part->end_least && rest > 0) {
		lower_next(search, (total - chain->cost[least - 1]) / rest);
	}
	if (most < part->end_most) {
		lower_next(search, chain->cost[most + 1] / search->speeds[k + 1]);
	}
	search->least[k] = least;
	search->most[k] = most;
	return most >= part->end_least && least <= most;
}

/* ---- intervals ---- */

/* Returns the last position at which part k can end if it begins at begin. */
static uint32_t find_farthest(struct pipe_search *search, uint32_t k, uint32_t begin, double value)
{
	const struct pipe_chain *chain = search->chain;
	uint64_t cap = chain->parts[k].cap_bytes;
	uint32_t end = begin;
	uint32_t over = chain->n + 1;

	while (over - end > 1) {
		uint32_t mid = end + (over - end) / 2;
		bool fits = pipe_part_cost(chain, k, begin, mid) <= value &&
			(cap == PAWL_PIPE_NO_CAP || pipe_part_bytes(chain, k, begin, mid) <= cap);

		if (fits) {
			end = mid;
		} else {
			over = mid;
		}
	}
	if (over <= chain->n && pipe_part_cost(chain, k, begin, over) > value) {
		lower_next(search, pipe_part_cost(chain, k, begin, over));
	}
	return end;
}

/* Raises the first ends of parts to where the rest of the chain fits the parts behind. */
static void leave_rest(struct pipe_search *search, double value)
{
	const struct pipe_chain *chain = search->chain;
	double total = chain->cost[chain->n];

	for (uint32_t k = 0; k + 1 < chain->parts_n; k++) {
		double rest = search->speeds[chain->parts_n] - search->speeds[k + 1];

		search->least[k] = find_sum(chain, search->least[k], search->most[k],
			total - rest * value * (1 + SLACK) - total * SLACK, false);
		ASSERT(search->least[k] <= search->most[k]);
	}
}

/* Each single unit can be a part, and no cut costs anything: what ends a part is an interval, from
 * just behind its first begin to the farthest end of its last begin. */
static bool probe_intervals(struct pipe_search *search, double value)
{
	const struct pipe_chain *chain = search->chain;
	uint32_t first = 0; /* positions at which part k can begin */
	uint32_t last = 0;

	for (uint32_t k = 0; k < chain->parts_n; k++) {
		const struct pipe_part *part = &chain->parts[k];
		uint32_t farthest = find_farthest(search, k, last, value);

		first = first + 1 > part->end_least ? first + 1 : part->end_least;
		last = farthest < part->end_most ? farthest : part->end_most;
		search->least[k] = first;
		search->most[k] = last;
		if (first > last) {
			search->failed = k;
			return false;
		}
	}
	search->all = true;
	ASSERT(last == chain->n);
	leave_rest(search, value);
	return true;
}

/* ---- windows ---- */

/* The begins of a part that may be the best for some end: ascending, and the less one offers, the
 * later it is. What a begin offers is the cost before it, less the cost of cutting there. */
struct window {
	uint32_t head; /* index of the best in search->window */
	uint32_t tail; /* index behind the last */
	uint32_t next; /* first begin that has not been considered */
	uint32_t
		fits; /* begins before this need too much memory, or have a unit of another stage */
	uint32_t seen; /* units before this have been looked at */
};

static void add_begin(struct pipe_search *search, struct window *window, uint32_t k, uint32_t begin)
{
	const struct pipe_chain *chain = search->chain;
	double offers = chain->cost[begin] / chain->parts[k].speed - chain->cut[begin];

	while (window->tail > window->head && search->key[window->tail - 1] <= offers) {
		window->tail--;
	}
	search->window[window->tail] = begin;
	search->key[window->tail++] = offers;
}

/* Moves the window to the begins that part k can have if it ends at end. Returns false if it has
 * none. */
static bool move_window(struct pipe_search *search, struct window *window, uint32_t k, uint32_t end)
{
	const struct pipe_chain *chain = search->chain;
	uint64_t cap = chain->parts[k].cap_bytes;
	uint32_t last = k > 0 ? search->most[k - 1] : 0;

	for (; window->next < chain->begins[end] && window->next <= last; window->next++) {
		if (k == 0 || pipe_search_ends(search, k - 1, window->next)) {
			add_begin(search, window, k, window->next);
		}
	}
	for (; window->seen < end; window->seen++) {
		if (!pipe_may_have(chain, k, window->seen)) {
			window->fits = window->seen + 1;
		}
	}
	while (cap != PAWL_PIPE_NO_CAP && window->fits < end &&
		pipe_part_bytes(chain, k, window->fits, end) > cap) {
		window->fits++;
	}
	while (window->head < window->tail && search->window[window->head] < window->fits) {
		window->head++;
	}
	return window->head < window->tail;
}

/* Computes which positions can end part k. Returns false if there is none. */
static bool fill_row(struct pipe_search *search, uint32_t k, double value)
{
	const struct pipe_chain *chain = search->chain;
	uint8_t *row = search->rows + (size_t)k * (chain->n + 1);
	uint32_t first = k > 0 ? search->least[k - 1] : 0;
	struct window window = {.next = first, .fits = first, .seen = first};
	bool any = false;

	if (!set_range(search, k, value)) {
		return false;
	}
	for (uint32_t end = search->least[k]; end <= search->most[k]; end++) {
		double cost = chain->link[end];

		row[end] = 0;
		if (!move_window(search, &window, k, end)) {
			continue;
		}
		cost = fmax(cost, pipe_part_cost(chain, k, search->window[window.head], end));
		if (cost <= value) {
			row[end] = 1;
			any = true;
		} else {
			lower_next(search, cost);
		}
	}
	return any;
}

static bool probe_windows(struct pipe_search *search, double value)
{
	const struct pipe_chain *chain = search->chain;

	search->all = false;
	for (uint32_t k = 0; k < chain->parts_n; k++) {
		if (!fill_row(search, k, value)) {
			search->failed = k;
			return false;
		}
	}
	return true; /* the last part's only end is the chain's */
}

bool pipe_search_probe(struct pipe_search *search, double value)
{
	bool found;

	search->next = PIPE_INFINITE;
	found = value >= search->even_from ? probe_intervals(search, value)
					   : probe_windows(search, value);
	if (!found && search->next <= value) { /* within the slack of a range */
		search->next = nextafter(value, PIPE_INFINITE);
	}
	return found;
}
