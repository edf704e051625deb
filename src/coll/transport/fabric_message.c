/* Messages between ranks over libfabric: see fabric_impl.h and docs/protocol.md. */
#include "base/assert.h"
#include "coll/transport/fabric_impl.h"

#include <endian.h>
#include <string.h>

/* The bytes that follow headers: little endian, like all others. */
struct hello {
	uint32_t version, message_bytes, window_bytes, zero;
};

struct credit {
	uint64_t room; /* bytes, ever, that may be written to the stream */
	uint32_t next; /* number of the first message that is missing */
	uint32_t zero;
};

_Static_assert(FABRIC_HEAD + COLL_STREAMS * sizeof(struct credit) <= FABRIC_CONTROL,
	"no room for what is told of streams");

/* ---- heads ---- */

void fabric_encode_head(uint8_t *bytes, const struct fabric_head *head)
{
	uint64_t key = htole64(head->key);
	uint32_t numbers[4] = {htole32(head->from),
		htole32(head->kind | (uint32_t)head->stream << 8), htole32(head->number),
		htole32(head->len_bytes)};
	uint64_t off = htole64(head->off_bytes);

	memcpy(bytes, &key, sizeof(key));
	memcpy(bytes + 8, numbers, sizeof(numbers));
	memcpy(bytes + 24, &off, sizeof(off));
}

int fabric_decode_head(const uint8_t *bytes, size_t len_bytes, struct fabric_head *head)
{
	uint64_t key;
	uint32_t numbers[4];
	uint64_t off;

	if (len_bytes < FABRIC_HEAD) {
		return -1;
	}
	memcpy(&key, bytes, sizeof(key));
	memcpy(numbers, bytes + 8, sizeof(numbers));
	memcpy(&off, bytes + 24, sizeof(off));
	*head = (struct fabric_head){.key = le64toh(key),
		.from = le32toh(numbers[0]),
		.kind = (uint8_t)le32toh(numbers[1]),
		.stream = (uint8_t)(le32toh(numbers[1]) >> 8),
		.number = le32toh(numbers[2]),
		.len_bytes = le32toh(numbers[3]),
		.off_bytes = le64toh(off)};
	return head->len_bytes == len_bytes - FABRIC_HEAD ? 0 : -1;
}

/* ---- control ---- */

static uint32_t write_hello(const struct fabric *fabric, uint8_t *bytes)
{
	struct hello hello = {.version = htole32(FABRIC_VERSION),
		.message_bytes = htole32(FABRIC_MESSAGE),
		.window_bytes = htole32(fabric->window)};

	memcpy(bytes, &hello, sizeof(hello));
	return sizeof(hello);
}

/* Writes how much a peer may send now, which then need not be told again. */
static uint32_t write_credit(const struct fabric *fabric, struct fabric_peer *peer, uint8_t *bytes)
{
	struct credit credits[COLL_STREAMS] = {{0}};

	for (uint32_t s = 0; s < COLL_STREAMS; s++) {
		struct fabric_in *in = &peer->in[s];

		in->told = in->read;
		in->told_next = in->next;
		credits[s].room = htole64(in->read + fabric->window);
		credits[s].next = htole32(in->next);
	}
	memcpy(bytes, credits, sizeof(credits));
	return sizeof(credits);
}

static uint32_t write_bye(const struct fabric_peer *peer, uint8_t *bytes)
{
	uint32_t last[COLL_STREAMS];

	for (uint32_t s = 0; s < COLL_STREAMS; s++) {
		last[s] = htole32(peer->out[s].begun);
	}
	memcpy(bytes, last, sizeof(last));
	return sizeof(last);
}

void fabric_write_control(struct fabric *fabric, struct fabric_peer *peer)
{
	struct fabric_head head = {.key = peer->key, .from = fabric->rank};
	uint8_t *bytes = peer->control.bytes + FABRIC_HEAD;

	ASSERT(peer->want != 0);
	peer->saying = peer->want & (0u - peer->want); /* lowest bit */
	peer->want &= (uint8_t)~peer->saying;
	if (peer->saying == WANT_HELLO) {
		head.kind = FABRIC_HELLO;
		head.len_bytes = write_hello(fabric, bytes);
	} else if (peer->saying == WANT_CREDIT) {
		head.kind = FABRIC_CREDIT;
		head.len_bytes = write_credit(fabric, peer, bytes);
	} else {
		head.kind = FABRIC_BYE;
		head.len_bytes = write_bye(peer, bytes);
	}
	fabric_encode_head(peer->control.bytes, &head);
	peer->control.len_bytes = FABRIC_HEAD + head.len_bytes;
}

/* ---- what comes ---- */

static bool take_hello(const struct fabric *fabric, struct fabric_peer *peer, const uint8_t *bytes,
	size_t len_bytes)
{
	struct hello hello;

	if (len_bytes < sizeof(hello)) {
		return false;
	}
	memcpy(&hello, bytes, sizeof(hello));
	peer->heard = true;
	peer->other_version = le32toh(hello.version) != FABRIC_VERSION ||
		le32toh(hello.message_bytes) != FABRIC_MESSAGE ||
		le32toh(hello.window_bytes) != fabric->window;
	return true;
}

/* Puts bytes where they belong in the ring, wrapping around its end. */
static void put_bytes(const struct fabric *fabric, struct fabric_in *in, uint64_t off,
	const uint8_t *bytes, size_t len)
{
	size_t at = off % fabric->window;
	size_t first = len < fabric->window - at ? len : fabric->window - at;

	memcpy(in->ring + at, bytes, first);
	memcpy(in->ring, bytes + first, len - first);
}

/* Takes bytes of a stream. False: its writer may not send these now. */
static bool take_data(struct fabric *fabric, struct fabric_peer *peer,
	const struct fabric_head *head, const uint8_t *bytes)
{
	struct fabric_in *in = &peer->in[head->stream];
	uint32_t *len = &in->ahead_len[head->number % FABRIC_AHEAD];
	uint64_t end = in->read + fabric->window;

	if (head->number - in->next >= FABRIC_AHEAD || *len != 0 || head->len_bytes == 0 ||
		head->off_bytes < in->came || head->off_bytes > end ||
		head->len_bytes > end - head->off_bytes ||
		(head->number == in->next && head->off_bytes != in->came)) {
		return false;
	}
	put_bytes(fabric, in, head->off_bytes, bytes, head->len_bytes);
	*len = head->len_bytes;
	for (len = &in->ahead_len[in->next % FABRIC_AHEAD]; *len != 0;
		len = &in->ahead_len[in->next % FABRIC_AHEAD]) {
		in->came += *len;
		in->next++;
		*len = 0;
		fabric->seen++;
	}
	if (in->next - in->told_next >= FABRIC_AHEAD / 2) {
		peer->want |= WANT_CREDIT;
	}
	return in->came <= end; /* false: messages that came early were longer than allowed */
}

/* Takes credits, which overtake each other: an older one changes nothing. */
static bool take_credit(struct fabric *fabric, struct fabric_peer *peer, const uint8_t *bytes,
	size_t len_bytes)
{
	struct credit credits[COLL_STREAMS];

	if (len_bytes != sizeof(credits)) {
		return false;
	}
	memcpy(credits, bytes, sizeof(credits));
	for (uint32_t s = 0; s < COLL_STREAMS; s++) {
		struct fabric_out *out = &peer->out[s];
		uint64_t room = le64toh(credits[s].room);
		uint32_t more = le32toh(credits[s].next) - out->owned;
		bool newer = (int32_t)more > 0;

		if (room > out->sent + fabric->window ||
			(newer && more > out->begun - out->owned)) {
			return false;
		}
		out->room = room > out->room ? room : out->room;
		out->owned += newer ? more : 0;
		fabric->seen += out->refused;
		out->refused = false;
	}
	return true;
}

static bool take_bye(struct fabric *fabric, struct fabric_peer *peer, const uint8_t *bytes,
	size_t len_bytes)
{
	if (len_bytes != sizeof(peer->last)) {
		return false;
	}
	memcpy(peer->last, bytes, sizeof(peer->last));
	for (uint32_t s = 0; s < COLL_STREAMS; s++) {
		peer->last[s] = le32toh(peer->last[s]);
	}
	peer->left = true;
	fabric->seen++;
	return true;
}

void fabric_take_message(struct fabric *fabric, const uint8_t *bytes, size_t len_bytes)
{
	struct fabric_head head;
	struct fabric_peer *peer;
	const uint8_t *rest = bytes + FABRIC_HEAD;
	bool sane = false;

	if (fabric_decode_head(bytes, len_bytes, &head) != 0 || head.key != fabric->key ||
		head.from >= fabric->ranks || !fabric->peers[head.from].meets) {
		return;
	}
	peer = &fabric->peers[head.from];
	if (peer->broken) {
		return;
	}
	if (head.kind == FABRIC_HELLO) {
		sane = take_hello(fabric, peer, rest, head.len_bytes);
	} else if (head.kind == FABRIC_DATA) {
		sane = head.stream < COLL_STREAMS && take_data(fabric, peer, &head, rest);
	} else if (head.kind == FABRIC_CREDIT) {
		sane = take_credit(fabric, peer, rest, head.len_bytes);
	} else if (head.kind == FABRIC_BYE) {
		sane = take_bye(fabric, peer, rest, head.len_bytes);
	}
	if (!sane) {
		peer->broken = "it sends nonsense";
		fabric->seen++;
	}
}
