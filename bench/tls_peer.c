/*
 * The peer of replicate.py that encrypts: bytes from memory of one host into memory of another, by
 * OpenSSL as it comes, with the TLS version and the cipher of the agents' links.
 *
 *   tls_peer ADDRESS NEXT   ADDRESS: of this host, numeric; NEXT: of the host that it sends to
 *
 * Says "ready" once it is connected. For each number of bytes that it reads, it sends so many while
 * it receives as many, and prints a JSON object: monotonic seconds of begin and end, and seconds of
 * CPU.
 */
#include "base/assert.h"
#include "base/rng.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PORT      29562
#define TRIES_MAX 3000u               /* to connect, one each 20 ms */
#define MEMORY    ((size_t)256 << 20) /* bytes sent from, and received into; no cache holds them */
#define CALL      ((size_t)1 << 20)   /* bytes of a call of OpenSSL */

/* One direction: a connection, the memory at this end of it, and how many bytes are to move. */
struct way {
	SSL *ssl;
	uint8_t *memory;
	uint64_t count;
};

static void fail(const char *what)
{
	fprintf(stderr, "tls_peer: %s: %s\n", what, strerror(errno));
	ERR_print_errors_fp(stderr);
	exit(1);
}

/* ---- connections ---- */

static unsigned int client_key(SSL *ssl, const char *hint, char *identity,
	unsigned int identity_cap, unsigned char *key, unsigned int cap_bytes)
{
	ASSERT(identity_cap >= 2 && cap_bytes >= 32);
	memcpy(identity, "x", 2);
	memset(key, 1, 32);
	return 32;
}

static unsigned int server_key(SSL *ssl, const char *identity, unsigned char *key,
	unsigned int cap_bytes)
{
	ASSERT(cap_bytes >= 32);
	memset(key, 1, 32);
	return 32;
}

static SSL_CTX *make_context(void)
{
	SSL_CTX *context = SSL_CTX_new(TLS_method());

	if (context == NULL || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
		SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") != 1 ||
		SSL_CTX_set_num_tickets(context, 0) != 1) {
		fail("TLS 1.3");
	}
	SSL_CTX_set_psk_client_callback(context, client_key);
	SSL_CTX_set_psk_server_callback(context, server_key);
	return context;
}

static struct sockaddr_in address_of(const char *host)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};

	if (inet_pton(AF_INET, host, &at.sin_addr) != 1) {
		errno = EINVAL;
		fail(host);
	}
	return at;
}

static int listen_at(const char *host)
{
	const struct sockaddr_in at = address_of(host);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || bind(fd, (const struct sockaddr *)&at, sizeof(at)) != 0 ||
		listen(fd, 1) != 0) {
		fail("listen");
	}
	return fd;
}

/* Connects to a host, which may not listen yet. */
static int connect_to(const char *host)
{
	const struct sockaddr_in at = address_of(host);
	const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};

	for (unsigned i = 0; i < TRIES_MAX; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		if (fd >= 0 && connect(fd, (const struct sockaddr *)&at, sizeof(at)) == 0) {
			return fd;
		}
		close(fd);
		nanosleep(&pause, NULL);
	}
	fail("connect");
	return -1;
}

static SSL *make_session(SSL_CTX *context, int fd)
{
	const int on = 1;
	SSL *ssl = SSL_new(context);

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (ssl == NULL || SSL_set_fd(ssl, fd) != 1) {
		fail("a session");
	}
	return ssl;
}

static void *run_connect(void *user)
{
	if (SSL_connect(user) != 1) {
		fail("the handshake");
	}
	return NULL;
}

/* ---- bytes ---- */

static uint8_t *make_memory(void)
{
	uint8_t *memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	struct rng rng = {1};

	if (memory == MAP_FAILED) {
		fail("memory");
	}
	for (size_t i = 0; i < MEMORY; i += sizeof(uint64_t)) {
		uint64_t number = rng_u64(&rng);

		memcpy(memory + i, &number, sizeof(number));
	}
	return memory;
}

/* Returns how many bytes the next call moves, and from or to where. */
static int next_call(const struct way *way, uint64_t done, uint8_t **at)
{
	size_t off = done % MEMORY;
	uint64_t most = way->count - done;

	most = most < CALL ? most : CALL;
	*at = way->memory + off;
	return (int)(most < MEMORY - off ? most : MEMORY - off);
}

static void *run_send(void *user)
{
	const struct way *way = user;

	for (uint64_t done = 0; done < way->count;) {
		uint8_t *at;
		int n = next_call(way, done, &at);

		if (SSL_write(way->ssl, at, n) != n) {
			fail("send");
		}
		done += (uint64_t)n;
	}
	return NULL;
}

static void receive(const struct way *way)
{
	for (uint64_t done = 0; done < way->count;) {
		uint8_t *at;
		int n = next_call(way, done, &at);

		n = SSL_read(way->ssl, at, n);
		if (n <= 0) {
			fail("receive");
		}
		done += (uint64_t)n;
	}
}

/* ---- turns ---- */

static double mono_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double cpu_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static pthread_t start(void *(*run)(void *), void *user)
{
	pthread_t thread;

	errno = pthread_create(&thread, NULL, run, user);
	if (errno != 0) {
		fail("a thread");
	}
	return thread;
}

static void take_turn(struct way *out, struct way *in, uint64_t count)
{
	double begun = mono_s();
	double cpu = cpu_s();
	pthread_t sender;

	out->count = in->count = count;
	sender = start(run_send, out);
	receive(in);
	pthread_join(sender, NULL);
	printf("{\"begun\": %.6f, \"ended\": %.6f, \"cpu_s\": %.6f}\n", begun, mono_s(),
		cpu_s() - cpu);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	SSL_CTX *context = make_context();
	struct way out = {.memory = make_memory()};
	struct way in = {.memory = make_memory()};
	const struct sigaction ignore = {.sa_handler = SIG_IGN};
	uint64_t count;
	pthread_t connecting;
	int listener;

	if (argc != 3) {
		fprintf(stderr, "usage: tls_peer ADDRESS NEXT\n");
		return 2;
	}
	sigaction(SIGPIPE, &ignore, NULL);
	listener = listen_at(argv[1]);
	out.ssl = make_session(context, connect_to(argv[2]));
	in.ssl = make_session(context, accept(listener, NULL, NULL));
	connecting = start(run_connect, out.ssl);
	if (SSL_accept(in.ssl) != 1) {
		fail("the handshake");
	}
	pthread_join(connecting, NULL);
	printf("ready\n");
	fflush(stdout);
	while (scanf("%" SCNu64, &count) == 1) {
		take_turn(&out, &in, count);
	}
	return 0;
}
