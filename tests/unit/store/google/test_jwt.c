/* JSON Web Tokens: what they say, that the key's owner has signed them, and keys that are none. */
#include "base/err.h"
#include "each_fault.h"
#include "expect.h"
#include "rsa.h"
#include "store/google/jwt.h"

#include <errno.h>
#include <openssl/ec.h>
#include <openssl/rsa.h>

#define JWT_MAX 4096u

static const struct jwt about = {"key \"1\"", "me@p.iam", "s1", "https://h/t", 1700000000,
	1700003600};
static EVP_PKEY *key;
static char pem[RSA_PEM_MAX];
static struct pawl_err err;

static int make_key(void **state)
{
	key = EVP_RSA_gen(2048);
	rsa_write(key, NULL, pem);
	return 0;
}

static int drop_key(void **state)
{
	EVP_PKEY_free(key);
	return 0;
}

static void tokens_are_signed(void **state)
{
	struct jwt without = about;
	char header[JWT_MAX];
	char claims[JWT_MAX];
	char *text;

	OK(jwt_sign(&about, pem, &text, &err));
	assert_true(rsa_check(key, text, header, claims, JWT_MAX));
	assert_string_equal(header,
		"{\"alg\":\"RS256\",\"kid\":\"key \\\"1\\\"\",\"typ\":\"JWT\"}");
	assert_string_equal(claims,
		"{\"aud\":\"https://h/t\",\"exp\":1700003600,\"iat\":1700000000,"
		"\"iss\":\"me@p.iam\",\"scope\":\"s1\"}");
	text[0] = text[0] == 'e' ? 'f' : 'e'; /* the check is one */
	assert_false(rsa_check(key, text, header, claims, JWT_MAX));
	free(text);
	without.key_id = NULL;
	OK(jwt_sign(&without, pem, &text, &err));
	assert_true(rsa_check(key, text, header, claims, JWT_MAX));
	assert_string_equal(header, "{\"alg\":\"RS256\",\"typ\":\"JWT\"}");
	free(text);
}

/* Lengths around the groups of three bytes that base64 has. */
static void tokens_may_have_any_length(void **state)
{
	static char scope[513];
	char header[JWT_MAX];
	char claims[JWT_MAX];
	char *text;

	for (size_t n = 0; n < sizeof(scope) - 1; n += n < 8 ? 1 : 101) {
		struct jwt jwt = about;

		memset(scope, 's', n);
		scope[n] = '\0';
		jwt.scope = scope;
		OK(jwt_sign(&jwt, pem, &text, &err));
		assert_true(rsa_check(key, text, header, claims, JWT_MAX));
		assert_non_null(strstr(claims, scope));
		free(text);
	}
}

static void assert_refused(const char *bad)
{
	char *text = (char *)"unset";

	FAILS(PAWL_EINVAL, jwt_sign(&about, bad, &text, &err));
	SAYS("its private_key is no RSA key of 2048 bits or more in PEM, without password");
	assert_string_equal(text, "unset");
}

static void other_keys_are_refused(void **state)
{
	EVP_PKEY *small = EVP_RSA_gen(1024);
	EVP_PKEY *curve = EVP_EC_gen("P-256");
	char bad[RSA_PEM_MAX];

	assert_refused("");
	assert_refused("hush");
	rsa_write(small, NULL, bad);
	assert_refused(bad);
	rsa_write(curve, NULL, bad);
	assert_refused(bad);
	rsa_write(key, "hush", bad); /* must not ask the terminal for it */
	assert_refused(bad);
	snprintf(bad, sizeof(bad), "%.*s", (int)strlen(pem) / 2, pem);
	assert_refused(bad);
	memcpy(bad, pem, sizeof(bad));
	bad[100] = '*';
	assert_refused(bad);
	EVP_PKEY_free(small);
	EVP_PKEY_free(curve);
}

static void memory_may_be_out(void **state)
{
	for (uint64_t nth = 1; each_fault(nth); nth++) {
		char *text = NULL;
		int rv;

		fault_arm("jwt.", nth, ENOMEM, false);
		rv = jwt_sign(&about, pem, &text, &err);
		fault_disarm();
		assert_int_equal(rv, fault_reached(nth) ? PAWL_ENOMEM : 0);
		free(text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tokens_are_signed),
		cmocka_unit_test(tokens_may_have_any_length),
		cmocka_unit_test(other_keys_are_refused),
		cmocka_unit_test(memory_may_be_out),
	};

	return cmocka_run_group_tests(tests, make_key, drop_key);
}
