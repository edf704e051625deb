/* What an all-reduce costs: see cost.h for the model. Pure. */
#include "coll/cost.h"

#include "base/assert.h"

/* Bytes through the busiest host, each way, for a byte of the vector. */
static double least_share(const struct coll_hosts *hosts)
{
	double n = hosts->n;
	double k = hosts->servers;

	if (n == 1) {
		return 0;
	}
	return k < n ? 2 * n * (n - 1) / (n * n + k * n - 2 * k) : 1;
}

/* Messages of the whole vector one behind the other in recursive doubling: both halves of the tree,
 * and one more, or as many as the right half sends to serve the left one. */
static uint32_t count_doubling(uint32_t n)
{
	uint32_t left_n = n > 1 ? coll_tree_left(n) : n;
	uint32_t right_n = n - left_n;
	uint32_t left;
	uint32_t right;

	if (right_n == 0) {
		return 0;
	}
	left = count_doubling(left_n);
	right = count_doubling(right_n);
	left = (left > right ? left : right) + 1;
	right += (left_n + right_n - 1) / right_n;
	return left > right ? left : right;
}

/* log2(n), rounded up */
static uint32_t count_rounds(uint32_t n)
{
	return n > 1 ? 32 - (uint32_t)__builtin_clz(n - 1) : 0;
}

double coll_cost_s(const struct coll_link *link, const struct coll_hosts *hosts, enum coll_way way,
	uint64_t len_bytes)
{
	double n = hosts->n;
	double rounds = count_rounds(hosts->n);
	double hops = 2 * rounds; /* of halving */
	double sends = hops;
	double share = least_share(hosts);

	ASSERT(coll_way_fits(way, hosts->n));
	if (n == 1) {
		return 0;
	}
	switch (way) {
	case COLL_DIRECT:
		hops = 2;
		sends = 2 * (n - 1) + hosts->servers;
		break;
	case COLL_DOUBLING:
		hops = rounds;
		share = sends = count_doubling(hosts->n);
		break;
	case COLL_TREE: /* the last ones of an odd number are nearer to the first */
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

enum coll_way coll_choose(const struct coll_link *link, const struct coll_hosts *hosts,
	uint64_t len_bytes)
{
	enum coll_way best = COLL_DIRECT;

	for (enum coll_way way = COLL_DIRECT; way < COLL_RING && hosts->servers == 0; way++) {
		if (coll_way_fits(way, hosts->n) &&
			coll_cost_s(link, hosts, way, len_bytes) <
				coll_cost_s(link, hosts, best, len_bytes)) {
			best = way;
		}
	}
	return best;
}

const char *coll_way_name(enum coll_way way)
{
	static const char *const names[COLL_WAYS] = {[COLL_DIRECT] = "direct",
		[COLL_DOUBLING] = "doubling",
		[COLL_HALVING] = "halving",
		[COLL_TREE] = "tree",
		[COLL_RING] = "ring"};

	return names[way];
}
