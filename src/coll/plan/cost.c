/* What an all-reduce costs: see cost.h for the model. Pure. */
#include "coll/plan/cost.h"

#include "base/assert.h"

#include <stdio.h>

/* Share of direct's cost that another algorithm must beat: direct has the least of what the model
 * leaves out. */
#define MARGIN 0.9

const struct coll_link coll_link_default = {125e6, 85e-6, 42.6e-6};

bool coll_link_valid(const struct coll_link *link)
{
	return link->bytes_per_s >= 1e3 && link->bytes_per_s <= 1e13 && link->latency_s >= 0 &&
		link->latency_s <= 10 && link->message_s >= 0 && link->message_s <= 1;
}

bool coll_link_parse(const char *text, struct coll_link *link)
{
	struct coll_link read;
	int n = 0;

	if (sscanf(text, "%lf:%lf:%lf%n", &read.bytes_per_s, &read.latency_s, &read.message_s,
		    &n) != 3 ||
		text[n] != '\0' || !coll_link_valid(&read)) {
		return false;
	}
	*link = read;
	return true;
}

void coll_link_print(const struct coll_link *link, char *text)
{
	snprintf(text, COLL_LINK_TEXT, "%.4g:%.3g:%.3g", link->bytes_per_s, link->latency_s,
		link->message_s);
}

/* Returns the bytes through the busiest host, in each direction, per byte of the vector. */
static double least_share(const struct coll_hosts *hosts)
{
	double n = hosts->n;
	double k = hosts->servers;

	ASSERT(hosts->n >= 1);
	if (n == 1) {
		return 0;
	}
	return k < n ? 2 * n * (n - 1) / (n * n + k * n - 2 * k) : 1;
}

/* log2(n), rounded up */
static uint32_t count_rounds(uint32_t n)
{
	return n > 1 ? 32 - (uint32_t)__builtin_clz(n - 1) : 0;
}

/* Returns how many messages of the whole vector recursive doubling sends one after another: the
 * larger count of the tree's two halves. The left half is a power of two and sends one more
 * message. The right half sends as many more as it needs to serve the whole left half. */
static uint32_t count_doubling(uint32_t n)
{
	uint32_t left_n = n > 1 ? coll_tree_left(n) : n;
	uint32_t right_n = n - left_n;
	uint32_t left = count_rounds(left_n) + 1;
	uint32_t right;

	if (right_n == 0) {
		return 0;
	}
	right = count_doubling(right_n) + (left_n + right_n - 1) / right_n;
	return left > right ? left : right;
}

double coll_cost_s(const struct coll_link *link, const struct coll_hosts *hosts,
	enum coll_algorithm algorithm, uint64_t len_bytes)
{
	double n = hosts->n;
	double rounds = count_rounds(hosts->n);
	double hops = 2 * rounds; /* hops of COLL_HALVING */
	double sends = hops;
	double share = least_share(&(struct coll_hosts){hosts->n, 0});

	ASSERT(coll_algorithm_fits(algorithm, hosts->n));
	if (n == 1) {
		return 0;
	}
	switch (algorithm) {
	case COLL_DIRECT:
		hops = 2;
		sends = 2 * (n - 1) + hosts->servers;
		share = least_share(hosts);
		break;
	case COLL_DOUBLING:
		hops = rounds;
		share = sends = count_doubling(hosts->n);
		break;
	case COLL_TREE: /* unless n is a power of two, the last hosts are nearer to the first */
		share = hops;
		hops = 2 * (rounds - (1u << (uint32_t)rounds > hosts->n));
		break;
	case COLL_RING:
		hops = sends = 2 * (n - 1);
		break;
	default:
		break;
	}
	return hops * link->latency_s + sends * link->message_s +
		share * (double)len_bytes / link->bytes_per_s;
}

double coll_bound_s(const struct coll_link *link, const struct coll_hosts *hosts,
	uint64_t len_bytes)
{
	return least_share(hosts) * (double)len_bytes / link->bytes_per_s;
}

enum coll_algorithm coll_choose_algorithm(const struct coll_link *link,
	const struct coll_hosts *hosts, uint64_t len_bytes)
{
	enum coll_algorithm best = COLL_DIRECT;
	double least_s = MARGIN * coll_cost_s(link, hosts, COLL_DIRECT, len_bytes);

	for (enum coll_algorithm algorithm = COLL_DOUBLING; algorithm < COLL_RING; algorithm++) {
		double cost_s = coll_algorithm_fits(algorithm, hosts->n)
			? coll_cost_s(link, hosts, algorithm, len_bytes)
			: least_s;

		if (cost_s < least_s) {
			best = algorithm;
			least_s = cost_s;
		}
	}
	return best;
}

const char *coll_algorithm_name(enum coll_algorithm algorithm)
{
	static const char *const names[COLL_ALGORITHMS] = {[COLL_DIRECT] = "direct",
		[COLL_DOUBLING] = "doubling",
		[COLL_HALVING] = "halving",
		[COLL_TREE] = "tree",
		[COLL_RING] = "ring"};

	return names[algorithm];
}
