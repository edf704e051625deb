/* Checks keys, and reads the answers that bring them: see cred_key.h. */
#include "store/object/cred_key.h"

#include "base/clock.h"
#include "base/date.h"
#include "base/err.h"
#include "base/text.h"
#include "store/object/object_xml.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CODE_MAX       128u      /* bytes of the name of an error, terminator included */
#define MESSAGE_MAX    256u      /* bytes of its message that are shown, terminator included */
#define END_MAX        64u       /* bytes of a time, terminator included */
#define LIFE_MAX_S     315360000 /* seconds that a token lives, at most: ten years */
#define SECONDS_DIGITS 10u
#define CLOCK_HINT     "(if it looks right, this machine's clock is wrong)"

void cred_wipe(char *text)
{
	if (text != NULL) {
		explicit_bzero(text, strlen(text));
		free(text);
	}
}

static bool is_visible(unsigned char c)
{
	return c > ' ' && c < 0x7f;
}

bool cred_is_visible(const char *text)
{
	const char *at = text;

	while (is_visible((unsigned char)*at)) {
		at++;
	}
	return at > text && *at == '\0';
}

bool cred_has_control(const char *text)
{
	while (*text != '\0' && !iscntrl((unsigned char)*text)) {
		text++;
	}
	return *text != '\0';
}

/* ---- time ---- */

/* Reads a time of ISO 8601, 0 if it is too late to matter. */
static bool read_end(const char *text, int64_t *end_s)
{
	int64_t wall_ns;

	if (!date_read(text, &wall_ns)) {
		return false;
	}
	*end_s = wall_ns / NS_PER_S;
	if (wall_ns == INT64_MAX) {
		*end_s = 0;
	} else if (*end_s <= 0) {
		*end_s = 1; /* long ago; 0 is never */
	}
	return true;
}

/* ---- keys ---- */

static int copy(char *to, size_t size_bytes, const char *from, const char *what,
	struct pawl_err *err)
{
	size_t len_bytes = strlen(from);

	if (len_bytes >= size_bytes) {
		return pawl_err_set(err, PAWL_ELIMIT, "its %s has %zu bytes: at most %zu", what,
			len_bytes, size_bytes - 1);
	}
	memcpy(to, from, len_bytes + 1);
	return 0;
}

static int check_texts(const char *id, const char *secret, const char *token, struct pawl_err *err)
{
	const char *bad = NULL;

	if (id[0] == '\0' || secret[0] == '\0') {
		return pawl_err_set(err, PAWL_EIO, "its %s is missing",
			id[0] == '\0' ? "access key's id" : "secret access key");
	}
	if (!cred_is_visible(id)) {
		bad = "access key's id";
	} else if (cred_has_control(secret)) {
		bad = "secret access key";
	} else if (token[0] != '\0' && !cred_is_visible(token)) {
		bad = "session token";
	}
	return bad == NULL
		? 0
		: pawl_err_set(err, PAWL_EIO,
			  "its %s has characters that no key has: is a line's end among them?",
			  bad);
}

static const char *or_empty(const char *text)
{
	return text != NULL ? text : "";
}

int cred_key_set(struct cred_key *key, const struct cred_given *given, int64_t now_s,
	struct pawl_err *err)
{
	const char *end = or_empty(given->end);
	const char *token = or_empty(given->token);
	int64_t end_s = 0;
	int rv = check_texts(or_empty(given->id), or_empty(given->secret), token, err);

	if (rv != 0) {
		return rv;
	}
	if (end[0] != '\0' && !read_end(end, &end_s)) {
		return pawl_err_set(err, PAWL_EIO, "its time of expiry is no time of ISO 8601");
	}
	if (end_s != 0 && end_s <= now_s) {
		return pawl_err_set(err, PAWL_EIO, "its key expired %lld s ago " CLOCK_HINT,
			(long long)(now_s - end_s));
	}
	rv = copy(key->id, sizeof(key->id), given->id, "access key's id", err);
	rv = rv != 0 ? rv : copy(key->secret, sizeof(key->secret), given->secret, "secret", err);
	rv = rv != 0 ? rv : copy(key->token, sizeof(key->token), token, "session token", err);
	key->end_s = end_s;
	return rv;
}

/* ---- JSON ---- */

static const char *text_of(const json_t *all, const char *name)
{
	return json_string_value(json_object_get(all, name));
}

/* Wipes the strings of an object, which is about to be freed. */
static void wipe_strings(json_t *all)
{
	const char *name;
	json_t *value;

	json_object_foreach(all, name, value)
	{
		if (json_is_string(value)) {
			explicit_bzero((char *)json_string_value(value), json_string_length(value));
		}
	}
}

static int check_json(const json_t *all, bool process, struct pawl_err *err)
{
	const char *code = text_of(all, "Code");
	char shown[CODE_MAX];

	if (!json_is_object(all)) {
		return pawl_err_set(err, PAWL_EIO, "its answer is no JSON of one object");
	}
	if (process && json_integer_value(json_object_get(all, "Version")) != 1) {
		return pawl_err_set(err, PAWL_EIO, "its \"Version\" is not 1");
	}
	if (!process && code != NULL && strcmp(code, "Success") != 0) {
		text_escape(shown, sizeof(shown), code);
		return pawl_err_set(err, PAWL_EIO, "it says \"%s\"", shown);
	}
	return 0;
}

int cred_key_read_json(struct cred_key *key, const char *text, bool process, int64_t now_s,
	struct pawl_err *err)
{
	json_t *all = json_loads(text, 0, NULL);
	int rv = check_json(all, process, err);

	if (rv == 0) {
		const struct cred_given given = {.id = text_of(all, "AccessKeyId"),
			.secret = text_of(all, "SecretAccessKey"),
			.token = text_of(all, process ? "SessionToken" : "Token"),
			.end = text_of(all, "Expiration")};

		rv = cred_key_set(key, &given, now_s, err);
	}
	wipe_strings(all);
	json_decref(all);
	return rv;
}

/* Returns a number of seconds, which may be a text; 0: there is none. */
static int64_t seconds_of(const json_t *all, const char *name)
{
	const json_t *value = json_object_get(all, name);
	const char *text = json_string_value(value);
	size_t digits = text != NULL ? strspn(text, "0123456789") : 0;

	if (text == NULL) {
		return json_integer_value(value);
	}
	return text[digits] == '\0' && digits > 0 && digits <= SECONDS_DIGITS
		? strtoll(text, NULL, 10)
		: 0;
}

/* Says what an error of OAuth is. Microsoft's numbers, "AADSTS70021: ...", are always shown. */
static int refuse_oauth(const json_t *all, int status, bool tells, struct pawl_err *err)
{
	const char *error = text_of(all, "error");
	const char *why = or_empty(text_of(all, "error_description"));
	bool numbered = strncmp(why, "AADSTS", 6) == 0;
	char code[CODE_MAX];
	char cut[MESSAGE_MAX];
	char message[MESSAGE_MAX];

	if (tells) {
		snprintf(cut, sizeof(cut), "%s", why);
	} else {
		snprintf(cut, sizeof(cut), "%.*s",
			numbered ? 6 + (int)strspn(why + 6, "0123456789") : 0, why);
	}
	text_escape(code, sizeof(code), error != NULL ? error : "no error's name");
	text_escape(message, sizeof(message), cut);
	return pawl_err_set(err, PAWL_EIO, "it answered %d, %s%s%s", status, code,
		message[0] != '\0' ? ": " : "", message);
}

static int set_token(struct cred_key *key, const json_t *all, int64_t now_s, struct pawl_err *err)
{
	const char *token = or_empty(text_of(all, "access_token"));
	int64_t life_s = seconds_of(all, "expires_in");

	if (!json_is_object(all)) {
		return pawl_err_set(err, PAWL_EIO, "its answer is no JSON of one object");
	}
	if (!cred_is_visible(token)) {
		return pawl_err_set(err, PAWL_EIO, "its access_token is %s",
			token[0] == '\0' ? "missing" : "none: it has characters that no token has");
	}
	if (life_s <= 0 || life_s > LIFE_MAX_S) {
		return pawl_err_set(err, PAWL_EIO, "its expires_in is no number of seconds");
	}
	key->id[0] = '\0';
	key->secret[0] = '\0';
	key->end_s = now_s + life_s;
	return copy(key->token, sizeof(key->token), token, "access_token", err);
}

int cred_key_read_oauth(struct cred_key *key, int status, const char *text, bool tells,
	int64_t now_s, struct pawl_err *err)
{
	json_t *all = json_loads(text, 0, NULL);
	int rv = status == 200 ? set_token(key, all, now_s, err)
			       : refuse_oauth(all, status, tells, err);

	wipe_strings(all);
	json_decref(all);
	return rv;
}

/* Sets the token that acts for a service account. */
static int set_impersonated(struct cred_key *key, const json_t *all, int64_t now_s,
	struct pawl_err *err)
{
	const char *token = or_empty(text_of(all, "accessToken"));
	int64_t end_s;

	if (!cred_is_visible(token)) {
		return pawl_err_set(err, PAWL_EIO,
			"its accessToken is missing, or has characters that no token has");
	}
	if (!read_end(or_empty(text_of(all, "expireTime")), &end_s) || end_s <= now_s) {
		return pawl_err_set(err, PAWL_EIO, "its expireTime is no time to come " CLOCK_HINT);
	}
	key->id[0] = '\0';
	key->secret[0] = '\0';
	key->end_s = end_s;
	return copy(key->token, sizeof(key->token), token, "accessToken", err);
}

int cred_key_read_impersonated(struct cred_key *key, int status, const char *text, int64_t now_s,
	struct pawl_err *err)
{
	json_t *all = json_loads(text, 0, NULL);
	const char *error = text_of(json_object_get(all, "error"), "status");
	char code[CODE_MAX];
	int rv;

	if (status == 200) {
		rv = set_impersonated(key, all, now_s, err);
	} else {
		text_escape(code, sizeof(code), error != NULL ? error : "no error's name");
		rv = pawl_err_set(err, PAWL_EIO, "it answered %d, %s", status, code);
	}
	wipe_strings(all);
	json_decref(all);
	return rv;
}

/* ---- XML ---- */

/* What an answer of STS says; each text is "" if it does not. */
struct sts_answer {
	char id[CRED_ID_MAX];         /* access key's id */
	char secret[CRED_SECRET_MAX]; /* secret of the key */
	char token[CRED_TOKEN_MAX];   /* session token */
	char end[END_MAX];            /* time of expiry */
	char code[CODE_MAX];          /* name of an error */
	char message[MESSAGE_MAX];    /* text of the error, cut */
};

_Static_assert(CRED_TOKEN_MAX >= XML_TEXT_MAX, "every value of XML fits");

static bool ends_in(const char *path, const char *end)
{
	size_t path_bytes = strlen(path);
	size_t end_bytes = strlen(end);

	return path_bytes >= end_bytes && strcmp(path + path_bytes - end_bytes, end) == 0;
}

static int take_element(void *user, const char *path, const char *text)
{
	struct sts_answer *a = user;
	const struct {
		const char *path;  /* how the element's path ends */
		char *to;          /* takes the element's text */
		size_t size_bytes; /* bytes that fit there */
	} wanted[] = {
		{"/Credentials/AccessKeyId", a->id, sizeof(a->id)},
		{"/Credentials/SecretAccessKey", a->secret, sizeof(a->secret)},
		{"/Credentials/SessionToken", a->token, sizeof(a->token)},
		{"/Credentials/Expiration", a->end, sizeof(a->end)},
		{"Error/Code", a->code, sizeof(a->code)},
		{"Error/Message", a->message, sizeof(a->message)},
	};

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		if (ends_in(path, wanted[i].path)) {
			snprintf(wanted[i].to, wanted[i].size_bytes, "%s", text);
		}
	}
	return 0;
}

/* An error's message may hold what was sent, the token included; only that of AccessDenied, which
 * names who may not do what, is known to be free of it. */
static int refuse(const struct sts_answer *a, int status, struct pawl_err *err)
{
	bool tells = strcmp(a->code, "AccessDenied") == 0 && a->message[0] != '\0';
	char code[CODE_MAX];
	char message[MESSAGE_MAX];

	text_escape(code, sizeof(code), a->code[0] != '\0' ? a->code : "no error's name");
	text_escape(message, sizeof(message), tells ? a->message : "");
	return pawl_err_set(err, PAWL_EIO, "it answered %d, %s%s%s", status, code,
		tells ? ": " : "", message);
}

int cred_key_read_sts(struct cred_key *key, int status, const char *text, int64_t now_s,
	struct pawl_err *err)
{
	struct sts_answer answer = {0};
	const struct cred_given given = {answer.id, answer.secret, answer.token, answer.end};
	int rv = xml_read(text, strlen(text), take_element, &answer, err);

	if (status != 200) {
		rv = refuse(&answer, status, err);
	} else if (rv != 0) {
		rv = pawl_err_prefix(err, rv, "its answer");
	} else {
		rv = cred_key_set(key, &given, now_s, err);
	}
	explicit_bzero(&answer, sizeof(answer));
	return rv;
}
