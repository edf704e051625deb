/* TLS with a shared key: see io/tls.h. Ends that meet, and do not, are in test_node_net.c and
 * test_peers.c. */
#include "io/tls.h"
#include "pawl/err.h"

#include <setjmp.h>
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
