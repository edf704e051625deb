/* Private keys for tests, made by them, and the signatures of such keys. */
#ifndef TEST_RSA_H
#define TEST_RSA_H

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define RSA_PEM_MAX 8192u /* bytes of a key in PEM, terminator included */

/* Writes a key in PEM (PKCS #8), encrypted if there is a password. */
static inline void rsa_write(EVP_PKEY *pair, const char *password, char pem[RSA_PEM_MAX])
{
	BIO *bio = BIO_new(BIO_s_mem());
	int n;

	assert_non_null(pair);
	assert_int_equal(PEM_write_bio_PKCS8PrivateKey(bio, pair,
				 password != NULL ? EVP_aes_128_cbc() : NULL, password,
				 password != NULL ? (int)strlen(password) : 0, NULL, NULL),
		1);
	n = BIO_read(bio, pem, RSA_PEM_MAX - 1);
	assert_true(n > 0 && n < (int)RSA_PEM_MAX - 1);
	pem[n] = '\0';
	BIO_free(bio);
}

/* Decodes the base64 of addresses, up to any of the ends, with a NUL behind it. Returns the number
 * of bytes. */
static inline size_t rsa_decode(const char *text, const char *ends, unsigned char *out, size_t size)
{
	char padded[8192];
	size_t len = strcspn(text, ends);
	size_t n = 0;

	assert_true(len + 4 < sizeof(padded) && size > len);
	assert_int_equal(strspn(text,
				 "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				 "0123456789-_"),
		len);
	for (; n < len; n++) {
		padded[n] = text[n];
		if (text[n] == '-') {
			padded[n] = '+';
		} else if (text[n] == '_') {
			padded[n] = '/';
		}
	}
	while (n % 4 != 0) {
		padded[n++] = '=';
	}
	n = (size_t)EVP_DecodeBlock(out, (const unsigned char *)padded, (int)n);
	n -= (4 - len % 4) % 4;
	out[n] = '\0';
	return n;
}

/* Checks the signature of a JSON Web Token by RS256, and gets its header and claims. */
static inline bool rsa_check(EVP_PKEY *pair, const char *jwt, char *header, char *claims,
	size_t size)
{
	const char *second = strchr(jwt, '.');
	const char *third = second != NULL ? strchr(second + 1, '.') : NULL;
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	unsigned char signature[4096];
	size_t n;
	bool good;

	if (third == NULL) {
		EVP_MD_CTX_free(ctx);
		return false;
	}
	rsa_decode(jwt, ".", (unsigned char *)header, size);
	rsa_decode(second + 1, ".", (unsigned char *)claims, size);
	n = rsa_decode(third + 1, "&", signature, sizeof(signature));
	good = EVP_DigestVerifyInit(ctx, NULL, EVP_sha256(), NULL, pair) == 1 &&
		EVP_DigestVerify(ctx, signature, n, (const unsigned char *)jwt,
			(size_t)(third - jwt)) == 1;
	EVP_MD_CTX_free(ctx);
	return good;
}

#endif
