/* Reads profiles of the vendor's files: see cred_ini.h. The text is looked at in place; only values
 * that are wanted are copied. */
#include "store/object/cred_ini.h"

#include "base/err.h"
#include "base/fault.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A piece of the text, without its own terminator. */
struct span {
	const char *at;   /* first byte */
	size_t len_bytes; /* 0: empty */
};

/* Where the reader stands. */
struct reader {
	const char *name;             /* profile that is wanted */
	struct cred_profile *profile; /* takes its settings */
	size_t line;                  /* number of the line, from 1 */
	size_t indent;                /* white space in front of the section's last key */
	bool config;                  /* sections are those of config */
	bool in_section;              /* any section has begun */
	bool wanted;                  /* this section is the profile's */
	bool has_key;                 /* this section has had a key */
};

static const char *const keys[] = {
#define X(name, key) [name] = key,
	CRED_SETTINGS(X)
#undef X
};

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static struct span trim(struct span s)
{
	while (s.len_bytes > 0 && is_blank(s.at[0])) {
		s.at++;
		s.len_bytes--;
	}
	while (s.len_bytes > 0 && is_blank(s.at[s.len_bytes - 1])) {
		s.len_bytes--;
	}
	return s;
}

static bool is_comment(char c)
{
	return c == '#' || c == ';';
}

/* Cuts off a comment that stands behind a space. */
static struct span cut_comment(struct span s)
{
	for (size_t i = 1; i < s.len_bytes; i++) {
		if (is_comment(s.at[i]) && is_blank(s.at[i - 1])) {
			s.len_bytes = i;
		}
	}
	return trim(s);
}

static bool span_is(struct span s, const char *text)
{
	return s.len_bytes == strlen(text) && memcmp(s.at, text, s.len_bytes) == 0;
}

/* Returns the name in "profile NAME" or "profile \"NAME\"", empty if it is none. */
static struct span after_profile(struct span s)
{
	static const char word[] = "profile";
	size_t len_bytes = strlen(word);

	if (s.len_bytes <= len_bytes || memcmp(s.at, word, len_bytes) != 0 ||
		!is_blank(s.at[len_bytes])) {
		return (struct span){s.at, 0};
	}
	s = trim((struct span){s.at + len_bytes, s.len_bytes - len_bytes});
	if (s.len_bytes >= 2 && s.at[0] == '"' && s.at[s.len_bytes - 1] == '"') {
		s = (struct span){s.at + 1, s.len_bytes - 2};
	}
	return s;
}

static int begin_section(struct reader *r, struct span line, struct pawl_err *err)
{
	const char *end = memchr(line.at, ']', line.len_bytes);
	struct span name;

	if (end == NULL) {
		return pawl_err_set(err, PAWL_EINVAL, "line %zu: the section has no ]", r->line);
	}
	name = trim((struct span){line.at + 1, (size_t)(end - line.at) - 1});
	r->in_section = true;
	r->has_key = false;
	r->wanted = span_is(name, r->name) && (!r->config || strcmp(r->name, "default") == 0);
	r->wanted = r->wanted || (r->config && span_is(after_profile(name), r->name));
	r->profile->found = r->profile->found || r->wanted;
	return 0;
}

static int set_value(struct reader *r, size_t setting, struct span value, struct pawl_err *err)
{
	cred_profile_drop(r->profile, (enum cred_setting)setting);
	if (value.len_bytes == 0) {
		return 0;
	}
	r->profile->values[setting] = FAULT_MEM("cred.ini", strndup(value.at, value.len_bytes));
	return r->profile->values[setting] != NULL
		? 0
		: pawl_err_set(err, PAWL_ENOMEM, "line %zu: out of memory", r->line);
}

/* Takes "key = value", if it is wanted. */
static int read_setting(struct reader *r, struct span line, struct pawl_err *err)
{
	const char *equals = memchr(line.at, '=', line.len_bytes);
	struct span key;
	struct span value;

	if (!r->in_section || equals == NULL || equals == line.at) {
		return pawl_err_set(err, PAWL_EINVAL,
			"line %zu is neither [section] nor key = value%s", r->line,
			r->in_section ? "" : " of a section");
	}
	key = trim((struct span){line.at, (size_t)(equals - line.at)});
	value = (struct span){equals + 1, (size_t)(line.at + line.len_bytes - equals) - 1};
	for (size_t i = 0; r->wanted && i < CRED_SETTINGS_N; i++) {
		if (key.len_bytes == strlen(keys[i]) &&
			strncasecmp(key.at, keys[i], key.len_bytes) == 0) {
			/* In a command ; is no comment, and the shell knows of #. */
			value = i == CRED_PROCESS ? trim(value) : cut_comment(value);
			return set_value(r, i, value, err);
		}
	}
	return 0;
}

static int read_line(struct reader *r, struct span raw, struct pawl_err *err)
{
	struct span line = trim(raw);
	size_t indent = (size_t)(line.at - raw.at);

	if (raw.len_bytes > INI_LINE_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "line %zu has %zu bytes: at most %u", r->line,
			raw.len_bytes, INI_LINE_MAX);
	}
	if (line.len_bytes == 0 || is_comment(line.at[0])) {
		return 0;
	}
	if (r->has_key && indent > r->indent) {
		return 0; /* belongs to the key above */
	}
	if (line.at[0] == '[') {
		return begin_section(r, line, err);
	}
	r->has_key = true;
	r->indent = indent;
	return read_setting(r, line, err);
}

int cred_ini_read(const char *text, bool config, const char *name, struct cred_profile *profile,
	struct pawl_err *err)
{
	static const char mark[] = "\xef\xbb\xbf"; /* byte order mark of UTF-8 */
	struct reader r = {.name = name, .profile = profile, .config = config};
	int rv = 0;

	text += strncmp(text, mark, strlen(mark)) == 0 ? strlen(mark) : 0;
	while (rv == 0 && text[0] != '\0') {
		struct span line = {text, strcspn(text, "\n")};

		r.line++;
		rv = read_line(&r, line, err);
		text += line.len_bytes + (text[line.len_bytes] == '\n');
	}
	return rv;
}

void cred_profile_drop(struct cred_profile *profile, enum cred_setting setting)
{
	char *value = profile->values[setting];

	if (value != NULL) {
		explicit_bzero(value, strlen(value));
		free(value);
		profile->values[setting] = NULL;
	}
}

void cred_profile_clear(struct cred_profile *profile)
{
	for (size_t i = 0; i < CRED_SETTINGS_N; i++) {
		cred_profile_drop(profile, (enum cred_setting)i);
	}
	profile->found = false;
}
