/* TLS with a shared key: see io/tls.h. Ends that meet, and do not, are in test_node_net.c and
 * test_peers.c. */
#include "base/rng.h"
#include "io/tls.h"
#include "pawl/err.h"
#include "seed.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#define BLOCK ((size_t)1 << 20)

static struct tls *tls;
static int fds[2];
static struct tls_session *ends[2];

static void meet(void)
{
	struct pawl_err err;
	bool write;
	int done = 0;

	assert_int_equal(tls_open(&tls, "a token of the tests", "label", &err), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
		0);
	ends[0] = tls_session_open(tls, fds[0], false);
	ends[1] = tls_session_open(tls, fds[1], true);
	for (int i = 0; done != 3; i = 1 - i) {
		int rv = tls_session_handshake(ends[i], &write, &err);

		assert_true(rv >= 0);
		done |= rv << i;
	}
}

static void part(void)
{
	for (int i = 0; i < 2; i++) {
		tls_session_close(ends[i]);
		close(fds[i]);
	}
	tls_close(tls);
}

/* Sends blocks from one end to the other, which compares them. */
static void move(int from, unsigned blocks)
{
	uint8_t *sent = malloc(BLOCK), *got = malloc(BLOCK);
	struct pawl_err err;
	bool write;

	for (unsigned b = 0; b < blocks; b++) {
		size_t out = 0, in = 0;

		memset(sent, (int)(b * 7 + 1), BLOCK);
		sent[b % BLOCK] ^= 0x55;
		while (in < BLOCK) {
			ssize_t n = out < BLOCK ? tls_session_write(ends[from], sent + out,
							  BLOCK - out, &write, &err)
						: 0;

			assert_true(n >= 0);
			out += (size_t)n;
			n = tls_session_read(ends[1 - from], got + in, BLOCK - in, &write, &err);
			assert_true(n >= 0);
			in += (size_t)n;
		}
		assert_memory_equal(got, sent, BLOCK);
	}
	free(sent);
	free(got);
}

#define SOURCE (3 * BLOCK + 17)  /* bytes that are sent over and over */
#define TOTAL  (140 * BLOCK + 1) /* bytes sent: two new keys */

/* Reads what has come, up to most bytes, which is the source from byte in on. Returns how much. */
static size_t read_source(const uint8_t *source, size_t in, size_t most)
{
	static uint8_t got[BLOCK];
	struct pawl_err err;
	bool write;
	size_t read = 0;

	while (read < most) {
		size_t at = (in + read) % SOURCE;
		size_t cap = most - read < BLOCK ? most - read : BLOCK;
		ssize_t n;

		cap = cap < SOURCE - at ? cap : SOURCE - at;
		n = tls_session_read(ends[1], got, cap, &write, &err);
		assert_true(n >= 0);
		if (n == 0) {
			break;
		}
		assert_memory_equal(got, source + at, n);
		read += (size_t)n;
	}
	return read;
}

/* Writes of any length, over a socket with little room: what a write says was sent is there, and
 * what it said was not is there once when it is repeated. */
static void what_a_write_returns_was_sent(void **state)
{
	static uint8_t source[SOURCE];
	static uint8_t copy[BLOCK];
	struct rng rng = {test_seed()};
	const int room = 20000;
	size_t out = 0, in = 0, most = 0, waits = 0;

	for (size_t i = 0; i < SOURCE; i++) {
		source[i] = (uint8_t)rng_u64(&rng);
	}
	meet();
	assert_int_equal(setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
	while (out < TOTAL) {
		size_t at = out % SOURCE;
		struct pawl_err err;
		bool write = false;
		ssize_t n;

		if (most == 0) {
			most = 1 + rng_below(&rng, rng_below(&rng, 4) == 0 ? 3000 : BLOCK);
			most = most < SOURCE - at ? most : SOURCE - at;
			most = most < TOTAL - out ? most : TOTAL - out;
		}
		memcpy(copy, source + at, most); /* a repeated write may be from elsewhere */
		n = tls_session_write(ends[0], copy, most, &write, &err);
		assert_in_range(n, 0, most);
		memset(copy, 0, most);
		out += (size_t)n;
		if (n > 0) {
			in += read_source(source, in, out - in);
			assert_int_equal(in, out);
			most = 0;
			continue;
		}
		assert_true(write);
		waits++;
		in += read_source(source, in, 1 + rng_below(&rng, BLOCK));
	}
	assert_int_equal(in, TOTAL);
	assert_true(waits > 100);
	part();
}

static void a_write_to_an_end_that_is_gone_fails(void **state)
{
	static const uint8_t bytes[100000];
	const struct sigaction plain = {.sa_handler = SIG_DFL};
	struct pawl_err err;
	bool write;

	assert_int_equal(sigaction(SIGPIPE, &plain, NULL), 0);
	meet();
	close(fds[1]);
	fds[1] = -1;
	assert_int_equal(tls_session_write(ends[0], bytes, sizeof(bytes), &write, &err),
		PAWL_EPEER);
	assert_non_null(strstr(err.msg, "its connection broke"));
	tls_session_end(ends[0]);
	part();
}

static void keys_are_replaced_on_the_way(void **state)
{
	meet();
	move(0, 140); /* two new keys */
	move(1, 70);  /* one for the other direction */
	move(0, 3);
	part();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_are_replaced_on_the_way),
		cmocka_unit_test(what_a_write_returns_was_sent),
		cmocka_unit_test(a_write_to_an_end_that_is_gone_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
