/* JSON Web Tokens, signed with RS256 (RFC 7519, RFC 7518 3.3). Pure; any thread. No key gets into a
 * message. */
#ifndef STORE_GOOGLE_JWT_H
#define STORE_GOOGLE_JWT_H

#include <stdint.h>

struct pawl_err;

struct jwt {
	const char *key_id;   /* id of the key; NULL, "": none */
	const char *issuer;   /* service account that signs */
	const char *scope;    /* access that is requested */
	const char *audience; /* address of the service that is asked */
	int64_t begin_s;      /* seconds since 1970 */
	int64_t end_s;
};

/* Signs a token with a private RSA key in PEM. *text is the caller's to wipe and free. PAWL_EINVAL:
 * it is no such key, or has less than 2048 bits, or a password; PAWL_ENOMEM. */
int jwt_sign(const struct jwt *jwt, const char *pem, char **text, struct pawl_err *err);

#endif
