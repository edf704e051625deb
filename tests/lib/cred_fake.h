/*
 * The outside as credentials for S3 see it, in tables: variables, files, what a command prints, and
 * answers to requests. Every secret in it has "hush" in it, which no message may.
 */
#ifndef TEST_CRED_FAKE_H
#define TEST_CRED_FAKE_H

#include "base/err.h"
#include "io/http_request.h"
#include "store/object/cred_aws.h"

#include "expect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define ITEMS_MAX 24u
#define USED_UP   2u
#define NOW       1700000000LL /* 2023-11-14T22:13:20Z */
#define CRED      "/home/u/.aws/credentials"
#define CONFIG    "/home/u/.aws/config"
#define IMDS      "http://169.254.169.254/latest/"
#define ROLES     IMDS "meta-data/iam/security-credentials/"

/* A variable, or a file. */
struct item {
	const char *name;  /* NULL: unused */
	const char *value; /* text */
	int rv;            /* files: the error that reading gives */
};

/* What is answered to a request. */
struct answer {
	const char *to;   /* "GET http://HOST/PATH?QUERY" */
	int rv;           /* nonzero: there is no answer */
	int status;       /* status of HTTP */
	const char *text; /* body */
	unsigned times;   /* 0: always; 1: once; USED_UP: never again */
};

static struct item env[ITEMS_MAX];
static struct item files[ITEMS_MAX];
static struct answer answers[ITEMS_MAX];
static struct item command;      /* output of the command, or its error */
static char trace[16384];        /* requests and commands so far, a line each */
static char body[8192];          /* body of the last request */
static struct http_request last; /* the last request */
static int last_timeout_ms;
static struct cred_aws *cred;
static struct sign_aws_key key;
static struct object_url url;
static struct pawl_err err;

/* ---- the outside ---- */

static inline void set(struct item *items, const char *name, const char *value)
{
	size_t i = 0;

	while (items[i].name != NULL && strcmp(items[i].name, name) != 0) {
		i++;
	}
	assert_true(i < ITEMS_MAX - 1);
	items[i] = (struct item){name, value, 0};
}

static inline void set_answer(const char *to, int status, const char *text, unsigned times)
{
	size_t i = 0;

	while (answers[i].to != NULL) {
		i++;
	}
	assert_true(i < ITEMS_MAX - 1);
	answers[i] = (struct answer){to, 0, status, text, times};
}

static inline void drop_answers(void)
{
	memset(answers, 0, sizeof(answers));
	trace[0] = '\0';
}

static inline const struct item *find(const struct item *items, const char *name)
{
	while (items->name != NULL && strcmp(items->name, name) != 0) {
		items++;
	}
	return items->name != NULL ? items : NULL;
}

static inline const char *get_env(void *user, const char *name)
{
	const struct item *item = find(env, name);

	return item != NULL ? item->value : NULL;
}

static inline int read_file(void *user, const char *path, size_t max_bytes, char **text,
	struct pawl_err *e)
{
	const struct item *file = find(files, path);

	if (file == NULL || file->rv != 0) {
		return pawl_err_set(e, file == NULL ? PAWL_ENOENT : file->rv, "open %s", path);
	}
	if (strlen(file->value) > max_bytes) {
		return pawl_err_set(e, PAWL_ELIMIT, "%s: more than %zu bytes", path, max_bytes);
	}
	*text = strdup(file->value);
	return 0;
}

static inline void note(const char *what)
{
	size_t n = strlen(trace);

	snprintf(trace + n, sizeof(trace) - n, "%s\n", what);
}

static inline int run(void *user, const char *text, char **out, struct pawl_err *e)
{
	note(text);
	if (command.rv != 0) {
		return pawl_err_set(e, command.rv, "credential_process: it failed");
	}
	*out = strdup(command.value);
	return 0;
}

static inline int fetch(void *user, const struct http_request *request, const char *bytes,
	int timeout_ms, int *status, char **text, struct pawl_err *e)
{
	char to[sizeof(request->host) + sizeof(request->path) + sizeof(request->query) + 16];

	assert_false(request->full);
	snprintf(to, sizeof(to), "%s %s://%s%s%s%s", request->method,
		request->tls ? "https" : "http", request->host, request->path,
		request->query[0] != '\0' ? "?" : "", request->query);
	snprintf(body, sizeof(body), "%s", bytes != NULL ? bytes : "(none)");
	last = *request;
	for (uint32_t i = 0; i < last.headers_n; i++) { /* the request is wiped when it was sent */
		last.headers[i].value = last.text + (request->headers[i].value - request->text);
	}
	last_timeout_ms = timeout_ms;
	note(to);
	for (struct answer *a = answers; a->to != NULL; a++) {
		if (strcmp(a->to, to) != 0 || a->times == USED_UP) {
			continue;
		}
		a->times = a->times == 1 ? USED_UP : a->times;
		if (a->rv != 0) {
			return pawl_err_set(e, a->rv, "connection lost");
		}
		*status = a->status;
		*text = strdup(a->text);
		return 0;
	}
	return pawl_err_set(e, PAWL_ETIMEDOUT, "no answer within %d ms", timeout_ms);
}

static const struct cred_io outside = {.env = get_env,
	.read_file = read_file,
	.run = run,
	.fetch = fetch};

static inline int begin(void **state)
{
	memset(env, 0, sizeof(env));
	memset(files, 0, sizeof(files));
	drop_answers();
	command = (struct item){0};
	body[0] = '\0';
	url = (struct object_url){0};
	cred = NULL;
	set(env, "HOME", "/home/u");
	return 0;
}

static inline int end(void **state)
{
	cred_aws_close(cred);
	cred = NULL;
	return 0;
}

/* ---- what is expected ---- */

static inline void reopen(void)
{
	cred_aws_close(cred);
	cred = NULL;
	OK(cred_aws_open(&url, &outside, &cred, &err));
}

/* Expects an error that says this, and no secret. */
#define REFUSES(want, call, says)                                                                  \
	do {                                                                                       \
		FAILS(want, call);                                                                 \
		SAYS(says);                                                                        \
		assert_null(strstr(err.msg, "hush"));                                              \
	} while (0)

#define OPEN_REFUSES(want, says) REFUSES(want, cred_aws_open(&url, &outside, &cred, &err), says)
#define GET_REFUSES(want, says)  REFUSES(want, cred_aws_get(cred, NOW, &key, &err), says)

/* Expects a key with this id, and that its parts belong together. */
static inline void assert_key(int64_t now_s, const char *id, const char *token)
{
	char secret[64];

	OK(cred_aws_get(cred, now_s, &key, &err));
	assert_string_equal(key.id, id);
	snprintf(secret, sizeof(secret), "hush-%s", id);
	assert_string_equal(key.secret, secret);
	assert_string_equal(key.token, token);
}

#define JSON(id, end)                                                                              \
	"{\"Code\": \"Success\", \"AccessKeyId\": \"" id "\", \"SecretAccessKey\": \"hush-" id     \
	"\", \"Token\": \"hush-t\", \"Expiration\": \"" end "\"}"
#define PRINTED(id, end)                                                                           \
	"{\"Version\": 1, \"AccessKeyId\": \"" id "\", \"SecretAccessKey\": \"hush-" id            \
	"\", \"SessionToken\": \"hush-t\", \"Expiration\": \"" end "\"}\n"
#define STS_XML(action, id, end)                                                                   \
	"<" action "Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><" action         \
	"Result><AssumedRoleUser><Arn>arn:x</Arn></AssumedRoleUser><Credentials><AccessKeyId>" id  \
	"</AccessKeyId><SecretAccessKey>hush-" id "</SecretAccessKey><SessionToken>hush-t"         \
	"</SessionToken><Expiration>" end "</Expiration></Credentials></" action                   \
	"Result></" action "Response>"
#define STS_ERROR(code, message)                                                                   \
	"<ErrorResponse><Error><Type>Sender</Type><Code>" code "</Code><Message>" message          \
	"</Message></Error></ErrorResponse>"
#define WEB     "AssumeRoleWithWebIdentity"
#define HOUR    "2023-11-14T23:13:20Z" /* an hour after NOW */
#define STS     "POST https://sts.amazonaws.com/"
#define KEYS(x) "aws_access_key_id = " x "\naws_secret_access_key = hush-" x "\n"

static inline void set_env_keys(void)
{
	set(env, "AWS_ACCESS_KEY_ID", "ENV");
	set(env, "AWS_SECRET_ACCESS_KEY", "hush-ENV");
}

static inline void set_env_role(void)
{
	set(env, "AWS_WEB_IDENTITY_TOKEN_FILE", "/token");
	set(env, "AWS_ROLE_ARN", "arn:aws:iam::1:role/r");
	set(files, "/token", "hush/jwt\n");
	set_answer(STS, 200, STS_XML(WEB, "WEB", HOUR), 0);
}

static inline void set_container(void)
{
	set(env, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/id?x=1");
	set_answer("GET http://169.254.170.2/v2/id?x=1", 200, JSON("BOX", HOUR), 0);
}

static inline void set_machine(const char *text)
{
	set_answer("PUT " IMDS "api/token", 200, "hush-imds\n", 0);
	set_answer("GET " ROLES, 200, "the-role\nanother\n", 0);
	set_answer("GET " ROLES "the-role", 200, text, 0);
}

#endif
