/* Signs JSON Web Tokens: see jwt.h. A token has a header, claims, each as JSON in the base64 of
 * addresses, and the signature of both. */
#include "store/google/jwt.h"

#include "base/err.h"
#include "base/fault.h"

#include <jansson.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BITS_MIN 2048
#define KEY_BITS_MAX 16384
#define SIGNED_MAX   (KEY_BITS_MAX / 8) /* bytes of a signature */

/* ---- base64 ---- */

/* Returns bytes in the base64 of addresses, without padding, malloc'ed; NULL: no memory. */
static char *encode(const void *bytes, size_t len_bytes)
{
	char *text = FAULT_MEM("jwt.base64", malloc(len_bytes / 3 * 4 + 5));

	if (text == NULL) {
		return NULL;
	}
	EVP_EncodeBlock((unsigned char *)text, bytes, (int)len_bytes);
	for (char *c = text; *c != '\0'; c++) {
		if (*c == '+') {
			*c = '-';
		} else if (*c == '/') {
			*c = '_';
		}
	}
	text[strcspn(text, "=")] = '\0';
	return text;
}

/* Encodes an object, whose reference is taken. Returns NULL if there is no memory. */
static char *encode_json(json_t *object)
{
	char *json = json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS);
	char *text = json != NULL ? encode(json, strlen(json)) : NULL;

	free(json);
	json_decref(object);
	return text;
}

/* Returns what is signed, malloc'ed, with room for a signature behind it; NULL: no memory. */
static char *write_claims(const struct jwt *jwt, size_t *size_bytes)
{
	bool has_id = jwt->key_id != NULL && jwt->key_id[0] != '\0';
	char *header = encode_json(json_pack("{ss, ss, ss*}", "alg", "RS256", "typ", "JWT", "kid",
		has_id ? jwt->key_id : NULL));
	char *claims = encode_json(json_pack("{ss, ss, ss, sI, sI}", "iss", jwt->issuer, "scope",
		jwt->scope, "aud", jwt->audience, "iat", (json_int_t)jwt->begin_s, "exp",
		(json_int_t)jwt->end_s));
	char *text = NULL;

	if (header != NULL && claims != NULL) {
		*size_bytes = strlen(header) + strlen(claims) + SIGNED_MAX / 3 * 4 + 8;
		text = FAULT_MEM("jwt.text", malloc(*size_bytes));
	}
	if (text != NULL) {
		snprintf(text, *size_bytes, "%s.%s", header, claims);
	}
	free(header);
	free(claims);
	return text;
}

/* ---- the key ---- */

/* Has no password. Without this, OpenSSL would ask for one at the terminal. */
static int refuse_password(char *text, int size, int writes, void *user)
{
	return -1;
}

/* Reads a key; NULL: it is none that can sign. */
static EVP_PKEY *read_key(const char *pem)
{
	BIO *bio = BIO_new_mem_buf(pem, -1);
	EVP_PKEY *key =
		bio != NULL ? PEM_read_bio_PrivateKey(bio, NULL, refuse_password, NULL) : NULL;

	BIO_free(bio);
	if (key != NULL &&
		(EVP_PKEY_get_base_id(key) != EVP_PKEY_RSA ||
			EVP_PKEY_get_bits(key) < KEY_BITS_MIN ||
			EVP_PKEY_get_bits(key) > KEY_BITS_MAX)) {
		EVP_PKEY_free(key);
		key = NULL;
	}
	return key;
}

/* Returns the signature of a text as text, malloc'ed; NULL: there is no memory. */
static char *sign(EVP_PKEY *key, const char *text)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	unsigned char signature[SIGNED_MAX];
	size_t n = sizeof(signature);
	bool done = ctx != NULL && EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, key) == 1 &&
		EVP_DigestSign(ctx, signature, &n, (const unsigned char *)text, strlen(text)) == 1;

	EVP_MD_CTX_free(ctx);
	return done ? encode(signature, n) : NULL;
}

int jwt_sign(const struct jwt *jwt, const char *pem, char **text, struct pawl_err *err)
{
	EVP_PKEY *key = read_key(pem);
	bool has_key = key != NULL;
	size_t size_bytes = 0;
	char *made = has_key ? write_claims(jwt, &size_bytes) : NULL;
	char *signature = made != NULL ? sign(key, made) : NULL;

	EVP_PKEY_free(key);
	ERR_clear_error(); /* others on this thread would take these errors for theirs */
	if (signature != NULL) {
		size_t n = strlen(made);

		snprintf(made + n, size_bytes - n, ".%s", signature);
		free(signature);
		*text = made;
		return 0;
	}
	free(made);
	return has_key ? pawl_err_set(err, PAWL_ENOMEM, "no memory to sign a token")
		       : pawl_err_set(err, PAWL_EINVAL,
				 "its private_key is no RSA key of 2048 bits or more in PEM, "
				 "without password");
}
