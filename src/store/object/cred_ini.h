/*
 * The files of the vendor's tools, ~/.aws/credentials and ~/.aws/config: what they say about one
 * profile. Pure; any thread.
 *
 *   [NAME]                  a section of credentials, and [default] of both files
 *   [profile NAME]          a section of config; all other sections are skipped
 *   key = value             keys in any case; the last one wins, in a section that comes twice, too
 *       deeper = value      a line further in than the key above it belongs to that; skipped
 *   # or ;                  begin a comment, at the start of a line or behind a space
 *
 * Lines may end in CR LF, and the file may begin with a byte order mark.
 */
#ifndef STORE_OBJECT_CRED_INI_H
#define STORE_OBJECT_CRED_INI_H

#include <stdbool.h>
#include <stddef.h>

struct pawl_err;

#define INI_FILE_MAX (1u << 20) /* bytes of a file that is read */
#define INI_LINE_MAX 16384u     /* bytes of a line; a session token may have 4 KiB */

/* The settings of a profile that matter, with their keys. */
#define CRED_SETTINGS(X)                                                                           \
	X(CRED_KEY_ID, "aws_access_key_id")                                                        \
	X(CRED_KEY_SECRET, "aws_secret_access_key")                                                \
	X(CRED_KEY_TOKEN, "aws_session_token")                                                     \
	X(CRED_PROCESS, "credential_process")                                                      \
	X(CRED_ROLE_ARN, "role_arn")                                                               \
	X(CRED_ROLE_SESSION, "role_session_name")                                                  \
	X(CRED_ROLE_EXTERNAL_ID, "external_id")                                                    \
	X(CRED_ROLE_DURATION, "duration_seconds")                                                  \
	X(CRED_ROLE_MFA, "mfa_serial")                                                             \
	X(CRED_ROLE_SOURCE, "source_profile")                                                      \
	X(CRED_ROLE_ELSEWHERE, "credential_source")                                                \
	X(CRED_TOKEN_FILE, "web_identity_token_file")                                              \
	X(CRED_SSO_SESSION, "sso_session")                                                         \
	X(CRED_SSO_URL, "sso_start_url")                                                           \
	X(CRED_REGION, "region")                                                                   \
	X(CRED_ENDPOINT, "endpoint_url")

enum cred_setting {
#define X(name, key) name,
	CRED_SETTINGS(X) CRED_SETTINGS_N,
#undef X
};

struct cred_profile {
	bool found;                    /* a section of the profile was seen */
	char *values[CRED_SETTINGS_N]; /* owned; NULL: not set, or empty */
};

/*
 * Adds to profile what the text of a file says about the profile of this name. config: the text has
 * the sections of config. PAWL_EINVAL: a line is neither section nor setting; PAWL_ELIMIT: it is
 * too long; PAWL_ENOMEM. err has the number of the line, and nothing of its text, which may be a
 * secret. After an error profile holds some of the settings: clear it as well.
 */
int cred_ini_read(const char *text, bool config, const char *name, struct cred_profile *profile,
	struct pawl_err *err);
/* Wipes and frees all settings; profile is then as if zeroed. */
void cred_profile_clear(struct cred_profile *profile);
/* Wipes and frees one setting. */
void cred_profile_drop(struct cred_profile *profile, enum cred_setting setting);

#endif
