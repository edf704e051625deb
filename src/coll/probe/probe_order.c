/* Orders: see probe_impl.h for the contract. Pure. */
#include "coll/probe/probe_impl.h"

#include "base/assert.h"
#include "coll/plan/fold.h"

#include <endian.h>
#include <string.h>

static void put_double(uint8_t *bytes, double number)
{
	uint64_t bits;

	memcpy(&bits, &number, sizeof(bits));
	bits = htole64(bits);
	memcpy(bytes, &bits, sizeof(bits));
}

static double get_double(const uint8_t *bytes)
{
	uint64_t bits;
	double number;

	memcpy(&bits, bytes, sizeof(bits));
	bits = le64toh(bits);
	memcpy(&number, &bits, sizeof(number));
	return number;
}

void probe_encode(uint8_t *bytes, const struct probe_order *order)
{
	uint32_t numbers[6] = {htole32(order->kind), htole32(order->a), htole32(order->b),
		htole32(order->rounds), htole32(order->dtype), 0};
	uint64_t len_bytes = htole64(order->len_bytes);

	_Static_assert(sizeof(numbers) + sizeof(len_bytes) + 3 * sizeof(double) == ORDER_BYTES,
		"the offsets below");
	memcpy(bytes, numbers, sizeof(numbers));
	memcpy(bytes + 24, &len_bytes, sizeof(len_bytes));
	put_double(bytes + 32, order->link.bytes_per_s);
	put_double(bytes + 40, order->link.latency_s);
	put_double(bytes + 48, order->link.message_s);
}

/* Returns whether a and b are valid. */
static bool fits_ranks(const struct probe_order *order, uint32_t ranks)
{
	switch (order->kind) {
	case PROBE_PING:
	case PROBE_PAIR:
		return order->a < ranks && order->b < ranks && order->a != order->b;
	case PROBE_PAIRS:
		return order->a < ranks && order->b <= 1;
	default:
		return order->a == 0 && order->b == 0;
	}
}

static bool fits_bytes(const struct probe_order *order, uint32_t ranks)
{
	if (order->kind == PROBE_SUM) {
		return coll_type_is_float(order->dtype) && order->len_bytes <= SURVEY_VECTOR_MAX &&
			order->len_bytes % coll_type_bytes(order->dtype) == 0;
	}
	return order->dtype == PAWL_UINT8 && order->len_bytes <= ORDER_STREAM_MAX / (ranks - 1);
}

int probe_decode(const uint8_t *bytes, uint32_t ranks, struct probe_order *order)
{
	uint32_t numbers[6];

	ASSERT(ranks >= 2);
	memcpy(numbers, bytes, sizeof(numbers));
	memcpy(&order->len_bytes, bytes + 24, sizeof(order->len_bytes));
	order->kind = (enum probe_kind)le32toh(numbers[0]);
	order->a = le32toh(numbers[1]);
	order->b = le32toh(numbers[2]);
	order->rounds = le32toh(numbers[3]);
	order->dtype = (enum pawl_dtype)le32toh(numbers[4]);
	order->len_bytes = le64toh(order->len_bytes);
	order->link = (struct coll_link){get_double(bytes + 32), get_double(bytes + 40),
		get_double(bytes + 48)};
	return order->kind < PROBE_KINDS && order->dtype < PAWL_DTYPES && numbers[5] == 0 &&
			order->rounds >= 4 && order->rounds <= ORDER_ROUNDS_MAX &&
			order->len_bytes > 0 && fits_ranks(order, ranks) &&
			fits_bytes(order, ranks) && coll_link_valid(&order->link)
		? 0
		: -1;
}

/* Uses the circle method: all hosts but the last stand on a circle of m. Each meets the host whose
 * number and its own add up to the round, modulo m. A host that would meet itself meets the
 * last. */
uint32_t probe_partner(uint32_t n, uint32_t round, uint32_t host)
{
	uint32_t last = n % 2 == 0 ? n - 1 : n; /* if n is odd: nobody */
	uint32_t m = last;
	uint32_t peer;

	ASSERT(n >= 2 && host < n);
	round %= m;
	if (host == last) {
		return (uint32_t)((uint64_t)round * ((m + 1) / 2) % m);
	}
	peer = (round + m - host) % m;
	peer = peer == host ? last : peer;
	return peer < n ? peer : host;
}

uint64_t probe_bytes(const struct probe_order *order, uint32_t ranks, uint32_t from, uint32_t to)
{
	bool sends;

	ASSERT(from < ranks && to < ranks);
	switch (order->kind) {
	case PROBE_PING:
	case PROBE_PAIR:
		sends = from == order->a && to == order->b;
		break;
	case PROBE_PAIRS:
		sends = probe_partner(ranks, order->a, from) == to &&
			(from < to) == (order->b == 0);
		break;
	default:
		sends = true;
		break;
	}
	return sends && from != to ? order->len_bytes : 0;
}
