/* TLS 1.3 by OpenSSL, with a key instead of certificates: see tls.h. */
#include "io/tls.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <limits.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES 32u
/* A key encrypts so many bytes and is then replaced: far fewer than RFC 8446 allows (section 5.5,
 * 2^24.5 records), so that a test comes there, too. */
#define KEYED_BYTES_MAX ((uint64_t)64 << 20)
#define IDENTITY        "pawl-run"

struct tls {
	SSL_CTX *context;             /* owned */
	unsigned char key[KEY_BYTES]; /* key made of the token */
};

struct tls_session {
	SSL *ssl;             /* owned */
	uint64_t keyed_bytes; /* sent with the current key */
};

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

static bool set_up(struct tls *tls, const char *token, const char *label)
{
	unsigned int len = KEY_BYTES;
	SSL_CTX *context = FAULT_MEM("tls.open", SSL_CTX_new(TLS_method()));

	tls->context = context;
	if (context == NULL ||
		HMAC(EVP_sha256(), token != NULL ? token : "",
			token != NULL ? (int)strlen(token) : 0, (const unsigned char *)label,
			strlen(label), tls->key, &len) == NULL) {
		return false;
	}
	SSL_CTX_set_app_data(context, tls);
	SSL_CTX_set_psk_client_callback(context, client_key);
	SSL_CTX_set_psk_server_callback(context, server_key);
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
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
	OPENSSL_cleanse(tls->key, sizeof(tls->key));
	free(tls);
}

struct tls_session *tls_session_open(struct tls *tls, int fd, bool accept)
{
	struct tls_session *session = FAULT_MEM("tls.session", calloc(1, sizeof(*session)));

	if (session == NULL) {
		return NULL;
	}
	session->ssl = SSL_new(tls->context);
	if (session->ssl == NULL || SSL_set_fd(session->ssl, fd) != 1) {
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
		free(session);
	}
}

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

int tls_session_handshake(struct tls_session *session, bool *write, struct pawl_err *err)
{
	int rv;

	errno = 0;
	rv = SSL_do_handshake(session->ssl);
	return rv == 1 ? 1 : explain(session, rv, write, err);
}

ssize_t tls_session_read(struct tls_session *session, void *bytes, size_t len_bytes, bool *write,
	struct pawl_err *err)
{
	int rv;

	ASSERT(len_bytes > 0 && len_bytes <= INT_MAX);
	errno = 0;
	rv = SSL_read(session->ssl, bytes, (int)len_bytes);
	return rv > 0 ? rv : explain(session, rv, write, err);
}

ssize_t tls_session_write(struct tls_session *session, const void *bytes, size_t len_bytes,
	bool *write, struct pawl_err *err)
{
	int rv;

	ASSERT(len_bytes > 0 && len_bytes <= INT_MAX);
	errno = 0;
	rv = SSL_write(session->ssl, bytes, (int)len_bytes);
	if (rv <= 0) {
		return explain(session, rv, write, err);
	}
	session->keyed_bytes += (uint64_t)rv;
	if (session->keyed_bytes >= KEYED_BYTES_MAX) {
		SSL_key_update(session->ssl,
			SSL_KEY_UPDATE_NOT_REQUESTED); /* the next write does */
		session->keyed_bytes = 0;
	}
	return rv;
}

void tls_session_end(struct tls_session *session)
{
	if (SSL_is_init_finished(session->ssl)) {
		SSL_shutdown(session->ssl);
	}
	ERR_clear_error();
}
