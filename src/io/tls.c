/*
 * TLS 1.3 by OpenSSL, with a key instead of certificates: see tls.h.
 *
 * OpenSSL makes records of at most 16 KiB, and would send each by itself: a call of the system, and
 * packets of its own, for each. So what it writes goes into a buffer, by a BIO of this file, and
 * the records of one write are sent together. Until all of them are, the caller repeats the write,
 * as it must with OpenSSL's own.
 */
#include "io/tls.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define KEY_BYTES 32u
/* A key encrypts so many bytes and is then replaced: far fewer than RFC 8446 allows (section 5.5,
 * 2^24.5 records), so that a test comes there, too. */
#define KEYED_BYTES_MAX ((uint64_t)64 << 20)
#define IDENTITY        "pawl-run"
#define BATCH           (256u << 10) /* bytes that are encrypted before any are sent */
/* Room for the records of a batch, each longer than its content, and for handshakes. */
#define OUT_BYTES (BATCH + BATCH / 64 + (16u << 10))

struct tls {
	SSL_CTX *context;             /* owned */
	BIO_METHOD *to_buffer;        /* owned; how OpenSSL writes */
	unsigned char key[KEY_BYTES]; /* key made of the token */
};

struct tls_session {
	SSL *ssl;             /* owned */
	int fd;               /* socket; the caller's */
	uint64_t keyed_bytes; /* encrypted with the current key */
	size_t taken_bytes;   /* encrypted, not all sent: the caller repeats its write of them */
	uint8_t *out;         /* OUT_BYTES bytes, owned */
	size_t out_bytes;     /* bytes in out */
	size_t sent_bytes;    /* bytes of them that were sent */
};

/* ---- what OpenSSL writes ---- */

/* Sends what is in the buffer. Returns 1 if all of it was sent, 0 if the socket takes no more now,
 * -1 and errno on failure. */
static int send_out(struct tls_session *session)
{
	while (session->sent_bytes < session->out_bytes) {
		ssize_t n = send(session->fd, session->out + session->sent_bytes,
			session->out_bytes - session->sent_bytes, MSG_NOSIGNAL);

		if (n < 0 && errno != EINTR) {
			return errno == EAGAIN ? 0 : -1;
		}
		session->sent_bytes += n > 0 ? (size_t)n : 0;
	}
	session->sent_bytes = 0;
	session->out_bytes = 0;
	return 1;
}

static int write_bio(BIO *bio, const char *bytes, int len_bytes)
{
	struct tls_session *session = BIO_get_data(bio);
	size_t len = (size_t)len_bytes;
	int rv;

	BIO_clear_retry_flags(bio);
	ASSERT(len <= OUT_BYTES);
	rv = len > OUT_BYTES - session->out_bytes ? send_out(session) : 1;
	if (rv <= 0) {
		if (rv == 0) {
			BIO_set_retry_write(bio);
		}
		return -1;
	}
	memcpy(session->out + session->out_bytes, bytes, len);
	session->out_bytes += len;
	return len_bytes;
}

/* OpenSSL flushes its own messages, and not what a caller writes. What the socket does not take now
 * stays in the buffer, in order, and the callers of this file send it. */
static long control_bio(BIO *bio, int what, long number, void *pointer)
{
	return what == BIO_CTRL_FLUSH && send_out(BIO_get_data(bio)) >= 0;
}

static int init_bio(BIO *bio)
{
	BIO_set_init(bio, 1);
	return 1;
}

/* Makes the way in which OpenSSL writes. NULL: there is no memory. */
static BIO_METHOD *make_method(void)
{
	BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "buffer");

	if (method == NULL || BIO_meth_set_create(method, init_bio) != 1 ||
		BIO_meth_set_write(method, write_bio) != 1 ||
		BIO_meth_set_ctrl(method, control_bio) != 1) {
		BIO_meth_free(method);
		return NULL;
	}
	return method;
}

/* ---- the key ---- */

/* Copies the key of the context, for either end; there is only one identity. */
static unsigned int copy_key(const SSL *ssl, unsigned char *key, unsigned int cap_bytes)
{
	const struct tls *tls = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));

	if (cap_bytes < KEY_BYTES) {
		return 0;
	}
	memcpy(key, tls->key, KEY_BYTES);
	return KEY_BYTES;
}

static unsigned int client_key(SSL *ssl, const char *hint, char *identity,
	unsigned int identity_cap, unsigned char *key, unsigned int cap_bytes)
{
	if (identity_cap < sizeof(IDENTITY)) {
		return 0;
	}
	memcpy(identity, IDENTITY, sizeof(IDENTITY));
	return copy_key(ssl, key, cap_bytes);
}

static unsigned int server_key(SSL *ssl, const char *identity, unsigned char *key,
	unsigned int cap_bytes)
{
	return identity != NULL && strcmp(identity, IDENTITY) == 0 ? copy_key(ssl, key, cap_bytes)
								   : 0;
}

/* ---- life ---- */

static bool set_up(struct tls *tls, const char *token, const char *label)
{
	unsigned int len = KEY_BYTES;
	SSL_CTX *context = FAULT_MEM("tls.open", SSL_CTX_new(TLS_method()));

	tls->context = context;
	tls->to_buffer = make_method();
	if (context == NULL || tls->to_buffer == NULL ||
		HMAC(EVP_sha256(), token != NULL ? token : "",
			token != NULL ? (int)strlen(token) : 0, (const unsigned char *)label,
			strlen(label), tls->key, &len) == NULL) {
		return false;
	}
	SSL_CTX_set_app_data(context, tls);
	SSL_CTX_set_psk_client_callback(context, client_key);
	SSL_CTX_set_psk_server_callback(context, server_key);
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_read_ahead(context, 1); /* a record and its header with one call */
	SSL_CTX_set_mode(context,
		SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	/* A key from these callbacks works with this cipher suite alone. */
	return SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
		SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") == 1 &&
		SSL_CTX_set_num_tickets(context, 0) == 1;
}

int tls_open(struct tls **out, const char *token, const char *label, struct pawl_err *err)
{
	struct tls *tls = FAULT_MEM("tls.open", calloc(1, sizeof(*tls)));

	if (tls == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "TLS: out of memory");
	}
	if (!set_up(tls, token, label)) {
		tls_close(tls);
		ERR_clear_error();
		return pawl_err_set(err, PAWL_EIO,
			"TLS: OpenSSL does not offer TLS 1.3 with a pre-shared key");
	}
	*out = tls;
	return 0;
}

void tls_close(struct tls *tls)
{
	if (tls == NULL) {
		return;
	}
	SSL_CTX_free(tls->context);
	BIO_meth_free(tls->to_buffer);
	OPENSSL_cleanse(tls->key, sizeof(tls->key));
	free(tls);
}

/* Has OpenSSL read from the socket, and write to the buffer. */
static bool set_bios(struct tls_session *session, const struct tls *tls)
{
	BIO *from = BIO_new_socket(session->fd, BIO_NOCLOSE);
	BIO *to = BIO_new(tls->to_buffer);

	if (from == NULL || to == NULL) {
		BIO_free(from);
		BIO_free(to);
		return false;
	}
	BIO_set_data(to, session);
	SSL_set_bio(session->ssl, from, to);
	return true;
}

struct tls_session *tls_session_open(struct tls *tls, int fd, bool accept)
{
	struct tls_session *session = FAULT_MEM("tls.session", calloc(1, sizeof(*session)));

	if (session == NULL) {
		return NULL;
	}
	session->fd = fd;
	session->out = FAULT_MEM("tls.session", malloc(OUT_BYTES));
	session->ssl = SSL_new(tls->context);
	if (session->out == NULL || session->ssl == NULL || !set_bios(session, tls)) {
		tls_session_close(session);
		ERR_clear_error();
		return NULL;
	}
	if (accept) {
		SSL_set_accept_state(session->ssl);
	} else {
		SSL_set_connect_state(session->ssl);
	}
	return session;
}

void tls_session_close(struct tls_session *session)
{
	if (session != NULL) {
		SSL_free(session->ssl);
		free(session->out);
		free(session);
	}
}

/* ---- transfer ---- */

/* Explains a call that did not succeed. Returns 0 if it has to be repeated later, else PAWL_EPEER
 * with the reason. */
static int explain(struct tls_session *session, int rv, bool *write, struct pawl_err *err)
{
	int sys = errno;
	int what = SSL_get_error(session->ssl, rv);
	unsigned long first = ERR_peek_error();
	int reason = ERR_GET_REASON(first);

	*write = what == SSL_ERROR_WANT_WRITE;
	ERR_clear_error();
	if (what == SSL_ERROR_WANT_READ || what == SSL_ERROR_WANT_WRITE) {
		return 0;
	}
	if (what == SSL_ERROR_SYSCALL && sys != 0) {
		errno = sys;
		pawl_err_sys(err, "its connection broke");
		return PAWL_EPEER;
	}
	if (what != SSL_ERROR_SSL || reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
		return pawl_err_set(err, PAWL_EPEER, "its connection ended");
	}
	if (!SSL_is_init_finished(session->ssl) &&
		(reason == SSL_R_BINDER_DOES_NOT_VERIFY ||
			reason == SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER)) {
		return pawl_err_set(err, PAWL_EPEER, "its token is a different one");
	}
	return pawl_err_set(err, PAWL_EPEER, "TLS failed, OpenSSL's reason %d", reason);
}

/* Sends what is in the buffer. Returns 1, 0 if the socket takes no more now, or PAWL_EPEER. */
static int send_buffer(struct tls_session *session, bool *write, struct pawl_err *err)
{
	int rv = send_out(session);

	if (rv < 0) {
		pawl_err_sys(err, "its connection broke");
		return PAWL_EPEER;
	}
	*write = *write || rv == 0;
	return rv;
}

int tls_session_handshake(struct tls_session *session, bool *write, struct pawl_err *err)
{
	int rv;

	errno = 0;
	*write = false;
	rv = SSL_do_handshake(session->ssl);
	rv = rv == 1 ? 1 : explain(session, rv, write, err);
	if (rv >= 0) { /* the other end waits for what is in the buffer */
		int sent = send_buffer(session, write, err);

		rv = sent > 0 ? rv : sent;
	}
	return rv;
}

ssize_t tls_session_read(struct tls_session *session, void *bytes, size_t len_bytes, bool *write,
	struct pawl_err *err)
{
	int rv;

	ASSERT(len_bytes > 0 && len_bytes <= INT_MAX);
	(void)send_out(session); /* a failure has its reason among what is read */
	errno = 0;
	rv = SSL_read(session->ssl, bytes, (int)len_bytes);
	return rv > 0 ? rv : explain(session, rv, write, err);
}

/* Makes records of bytes, until OpenSSL cannot go on. Returns what OpenSSL did last. */
static int encrypt(struct tls_session *session, const uint8_t *bytes, size_t len_bytes)
{
	int rv = 1;

	while (rv > 0 && session->taken_bytes < len_bytes) {
		rv = SSL_write(session->ssl, bytes + session->taken_bytes,
			(int)(len_bytes - session->taken_bytes));
		if (rv <= 0) {
			return rv;
		}
		session->taken_bytes += (size_t)rv;
		session->keyed_bytes += (uint64_t)rv;
		if (session->keyed_bytes >= KEYED_BYTES_MAX) {
			SSL_key_update(session->ssl,
				SSL_KEY_UPDATE_NOT_REQUESTED); /* the next write does */
			session->keyed_bytes = 0;
		}
	}
	return rv;
}

ssize_t tls_session_write(struct tls_session *session, const void *bytes, size_t len_bytes,
	bool *write, struct pawl_err *err)
{
	size_t most = len_bytes < BATCH ? len_bytes : BATCH;
	size_t taken;
	int rv;

	ASSERT(len_bytes > 0 && len_bytes <= INT_MAX && session->taken_bytes <= most);
	errno = 0;
	rv = session->taken_bytes == 0 ? encrypt(session, bytes, most) : 1;
	if (rv <= 0) {
		rv = explain(session, rv, write, err);
		if (rv < 0 || session->taken_bytes == 0) {
			return rv;
		}
	}
	*write = false;
	rv = send_buffer(session, write, err);
	if (rv <= 0) {
		return rv;
	}
	taken = session->taken_bytes;
	session->taken_bytes = 0;
	return (ssize_t)taken;
}

void tls_session_end(struct tls_session *session)
{
	if (SSL_is_init_finished(session->ssl)) {
		SSL_shutdown(session->ssl);
	}
	ERR_clear_error();
}
