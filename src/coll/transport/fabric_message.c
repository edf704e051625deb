/* The messages between ranks over libfabric: see fabric_impl.h and docs/protocol.md. */
#include "base/assert.h"
#include "coll/transport/fabric_impl.h"

#include <endian.h>
#include <string.h>

/* Bodies of messages: little endian, like all other bytes. */
struct hello {
	uint32_t version, message_bytes, window_bytes, zero;
};

struct credit {
	uint64_t limit; /* number of bytes, ever, that may be written to the stream */
	uint32_t next;  /* number of the first missing message */
	uint32_t zero;
};

_Static_assert(sizeof(struct hello) == 16 && sizeof(struct credit) == 16,
	"messages have no padding");
_Static_assert(FABRIC_HEADER + COLL_STREAMS * sizeof(struct credit) <= FABRIC_CONTROL,
	"FABRIC_CONTROL is too small for a credit message");

/* ---- headers ---- */

void fabric_encode_header(uint8_t *bytes, const struct fabric_header *header)
{
	uint64_t key = htole64(header->key);
	uint32_t numbers[4] = {htole32(header->from),
		htole32(header->kind | (uint32_t)header->stream << 8), htole32(header->number),
		htole32(header->len_bytes)};
	uint64_t off = htole64(header->off_bytes);

	memcpy(bytes, &key, sizeof(key));
	memcpy(bytes + 8, numbers, sizeof(numbers));
	memcpy(bytes + 24, &off, sizeof(off));
}

int fabric_decode_header(const uint8_t *bytes, size_t len_bytes, struct fabric_header *header)
{
	uint64_t key;
	uint32_t numbers[4];
	uint64_t off;

	if (len_bytes < FABRIC_HEADER) {
		return -1;
	}
	memcpy(&key, bytes, sizeof(key));
	memcpy(numbers, bytes + 8, sizeof(numbers));
	memcpy(&off, bytes + 24, sizeof(off));
	*header = (struct fabric_header){.key = le64toh(key),
		.from = le32toh(numbers[0]),
		.kind = (uint8_t)le32toh(numbers[1]),
		.stream = (uint8_t)(le32toh(numbers[1]) >> 8),
		.number = le32toh(numbers[2]),
		.len_bytes = le32toh(numbers[3]),
		.off_bytes = le64toh(off)};
	return header->len_bytes == len_bytes - FABRIC_HEADER ? 0 : -1;
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

/* Writes the credits of all streams of a peer, and records them as sent. */
static uint32_t write_credit(const struct fabric *fabric, struct fabric_peer *peer, uint8_t *bytes)
{
	struct credit credits[COLL_STREAMS] = {{0}};

	for (uint32_t s = 0; s < COLL_STREAMS; s++) {
		struct fabric_in *in = &peer->in[s];

		in->credited = in->read;
		in->credited_next = in->next;
		credits[s].limit = htole64(in->read + fabric->window);
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
	struct fabric_header header = {.key = peer->key, .from = fabric->rank};
	uint8_t *bytes = peer->control.bytes + FABRIC_HEADER;

	ASSERT(peer->want != 0 && peer->sending == 0 && !peer->control.in_flight);
	peer->sending = peer->want & (0u - peer->want); /* lowest bit */
	peer->want &= (uint8_t)~peer->sending;
	if (peer->sending == WANT_HELLO) {
		header.kind = FABRIC_HELLO;
		header.len_bytes = write_hello(fabric, bytes);
	} else if (peer->sending == WANT_CREDIT) {
		header.kind = FABRIC_CREDIT;
		header.len_bytes = write_credit(fabric, peer, bytes);
	} else {
		header.kind = FABRIC_BYE;
		header.len_bytes = write_bye(peer, bytes);
	}
	fabric_encode_header(peer->control.bytes, &header);
	peer->control.len_bytes = FABRIC_HEADER + header.len_bytes;
}

/* ---- received messages ---- */

static bool take_hello(const struct fabric *fabric, struct fabric_peer *peer, const uint8_t *bytes,
	size_t len_bytes)
{
	struct hello hello;

	if (len_bytes < sizeof(hello)) {
		return false;
	}
	memcpy(&hello, bytes, sizeof(hello));
	peer->hello_received = true;
	peer->other_version = le32toh(hello.version) != FABRIC_VERSION ||
		le32toh(hello.message_bytes) != FABRIC_MESSAGE ||
		le32toh(hello.window_bytes) != fabric->window;
	return true;
}

/* Copies bytes into the ring, at offset off of the stream; wraps around its end. */
static void put_bytes(const struct fabric *fabric, struct fabric_in *in, uint64_t off,
	const uint8_t *bytes, size_t len)
{
	size_t at = off % fabric->window;
	size_t first = len < fabric->window - at ? len : fabric->window - at;

	ASSERT(len <= fabric->window);
	memcpy(in->ring + at, bytes, first);
	memcpy(in->ring, bytes + first, len - first);
}

/* Takes bytes of a stream. Returns false if its writer must not send them now. */
static bool take_data(struct fabric *fabric, struct fabric_peer *peer,
	const struct fabric_header *header, const uint8_t *bytes)
{
	struct fabric_in *in = &peer->in[header->stream];
	uint32_t *len = &in->ahead_len[header->number % FABRIC_AHEAD];
	uint64_t end = in->read + fabric->window;

	if (header->number - in->next >= FABRIC_AHEAD || *len != 0 || header->len_bytes == 0 ||
		header->off_bytes < in->received || header->off_bytes > end ||
		header->len_bytes > end - header->off_bytes ||
		(header->number == in->next && header->off_bytes != in->received)) {
		return false;
	}
	put_bytes(fabric, in, header->off_bytes, bytes, header->len_bytes);
	*len = header->len_bytes;
	for (len = &in->ahead_len[in->next % FABRIC_AHEAD]; *len != 0;
		len = &in->ahead_len[in->next % FABRIC_AHEAD]) {
		in->received += *len;
		in->next++;
		*len = 0;
		fabric->event_count++;
	}
	if (in->next - in->credited_next >= FABRIC_AHEAD / 2) {
		peer->want |= WANT_CREDIT;
	}
	return in->received <= end; /* false: messages received early were too long */
}

/* Takes credits. Messages overtake each other, so older credits change nothing. */
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
		uint64_t limit = le64toh(credits[s].limit);
		uint32_t more = le32toh(credits[s].next) - out->acked;
		bool newer = (int32_t)more > 0;

		if (limit > out->sent + fabric->window ||
			(newer && more > out->begun - out->acked)) {
			return false;
		}
		out->limit = limit > out->limit ? limit : out->limit;
		out->acked += newer ? more : 0;
		fabric->event_count += out->blocked;
		out->blocked = false;
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
	peer->bye_received = true;
	fabric->event_count++;
	return true;
}

void fabric_take_message(struct fabric *fabric, const uint8_t *bytes, size_t len_bytes)
{
	struct fabric_header header;
	struct fabric_peer *peer;
	const uint8_t *body = bytes + FABRIC_HEADER;
	bool valid = false;

	if (fabric_decode_header(bytes, len_bytes, &header) != 0 || header.key != fabric->key ||
		header.from >= fabric->ranks || !fabric->peers[header.from].has_streams) {
		return;
	}
	peer = &fabric->peers[header.from];
	if (peer->broken) {
		return;
	}
	if (header.kind == FABRIC_HELLO) {
		valid = take_hello(fabric, peer, body, header.len_bytes);
	} else if (header.kind == FABRIC_DATA) {
		valid = header.stream < COLL_STREAMS && take_data(fabric, peer, &header, body);
	} else if (header.kind == FABRIC_CREDIT) {
		valid = take_credit(fabric, peer, body, header.len_bytes);
	} else if (header.kind == FABRIC_BYE) {
		valid = take_bye(fabric, peer, body, header.len_bytes);
	}
	if (!valid) {
		peer->broken = "it sent an invalid message";
		fabric->event_count++;
	}
}
