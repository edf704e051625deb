/* Secrets and tokens: see http_key.h. */
#include "daemon/http/http_key.h"

#include "base/err.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_FILE "http.key"

static int make_key(struct http_key *key, const char *path, struct pawl_err *err)
{
	if (RAND_bytes(key->key, sizeof(key->key)) != 1) {
		return pawl_err_set(err, PAWL_EIO, "%s: no random bytes", path);
	}
	return file_put(path, key->key, sizeof(key->key), 0600, true, err);
}

static int load_key(struct http_key *key, const char *root, struct pawl_err *err)
{
	unsigned char bytes[sizeof(key->key) + 1];
	char path[PATH_MAX];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%.4000s/" KEY_FILE, root);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0) {
		return errno == ENOENT ? make_key(key, path, err) : pawl_err_sys(err, "%s", path);
	}
	n = read(fd, bytes, sizeof(bytes));
	close(fd);
	if (n != (ssize_t)sizeof(key->key)) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"%s does not have the 32 bytes of a key: remove it, and jobs that start "
			"afterwards get URLs with a new key",
			path);
	}
	memcpy(key->key, bytes, sizeof(key->key));
	return 0;
}

static void digest(const char *text, unsigned char hash[32])
{
	unsigned int len = 32;

	EVP_Digest(text, strlen(text), hash, &len, EVP_sha256(), NULL);
}

static int load_token(struct http_key *key, const char *path, struct pawl_err *err)
{
	char text[HTTP_TOKEN_MAX + 2];
	struct stat st;
	ssize_t n;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		return pawl_err_sys(err, "token file %s", path);
	}
	n = fstat(fd, &st) == 0 ? read(fd, text, sizeof(text) - 1) : -1;
	close(fd);
	if (n < 0) {
		return pawl_err_sys(err, "token file %s", path);
	}
	if ((st.st_mode & 077) != 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"token file %s: others may read it (mode %03o): run chmod 600 on it, and "
			"make a new token if others could read this one",
			path, (unsigned)st.st_mode & 0777u);
	}
	text[n] = '\0';
	text[strcspn(text, "\r\n")] = '\0';
	if (strlen(text) < HTTP_TOKEN_MIN || strlen(text) > HTTP_TOKEN_MAX) {
		return pawl_err_set(err, PAWL_EINVAL,
			"token file %s: its first line must have %u to %u characters", path,
			HTTP_TOKEN_MIN, HTTP_TOKEN_MAX);
	}
	digest(text, key->token);
	OPENSSL_cleanse(text, sizeof(text));
	key->has_token = true;
	return 0;
}

int http_key_load(struct http_key *key, const char *root, const char *token_file,
	struct pawl_err *err)
{
	int rv;

	*key = (struct http_key){.has_token = false};
	rv = load_key(key, root, err);
	return rv == 0 && token_file ? load_token(key, token_file, err) : rv;
}

void http_key_secret(const struct http_key *key, uint64_t job, char secret[HTTP_SECRET_CHARS + 1u])
{
	unsigned char hash[32] = {0};
	unsigned int len = sizeof(hash);
	char text[40];
	int n = snprintf(text, sizeof(text), "pawl job %llu", (unsigned long long)job);

	HMAC(EVP_sha256(), key->key, sizeof(key->key), (const unsigned char *)text, (size_t)n, hash,
		&len);
	for (size_t i = 0; i < sizeof(hash); i++) {
		snprintf(secret + 2 * i, 3, "%02x", hash[i]);
	}
}

bool http_key_is_secret(const struct http_key *key, uint64_t job, const char *secret)
{
	char right[HTTP_SECRET_CHARS + 1u];

	http_key_secret(key, job, right);
	return strlen(secret) == HTTP_SECRET_CHARS &&
		CRYPTO_memcmp(secret, right, HTTP_SECRET_CHARS) == 0;
}

bool http_key_is_token(const struct http_key *key, const char *token)
{
	unsigned char hash[32];

	digest(token, hash);
	return key->has_token && CRYPTO_memcmp(hash, key->token, sizeof(hash)) == 0;
}
