/*
 * Permissions over HTTP, where the kernel does not report the user. A job authenticates by a secret
 * in its URL: HMAC-SHA256 of its number, with a random key that only the scheduler's user can read.
 * An operator authenticates by a token in a file. Both are compared in constant time.
 */
#ifndef DAEMON_HTTP_HTTP_KEY_H
#define DAEMON_HTTP_HTTP_KEY_H

#include "daemon/http/http_route.h"

struct pawl_err;

#define HTTP_TOKEN_MIN 16u /* bytes of a token: fewer could be guessed */
#define HTTP_TOKEN_MAX 4096u

struct http_key {
	unsigned char key[32];   /* key of jobs' secrets */
	unsigned char token[32]; /* SHA-256 of the token */
	bool has_token;
};

/* Loads the key of the scheduler's directory, made if there is none, and the token; token_file may
 * be NULL. PAWL_EINVAL: a token is too short, or others may read it; PAWL_ECORRUPT: the key has a
 * wrong size; PAWL_EIO and others of files. */
int http_key_load(struct http_key *key, const char *root, const char *token_file,
	struct pawl_err *err);
void http_key_secret(const struct http_key *key, uint64_t job, char secret[HTTP_SECRET_CHARS + 1u]);
bool http_key_is_secret(const struct http_key *key, uint64_t job, const char *secret);
bool http_key_is_token(const struct http_key *key, const char *token);

#endif
