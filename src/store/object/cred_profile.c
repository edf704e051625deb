/* Follows profiles to keys: see cred_profile.h. */
#include "store/object/cred_profile.h"

#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DURATION_MIN_S 900
#define DURATION_MAX_S 43200

/* How a profile gives a key. */
enum way {
	WAY_NONE,
	WAY_WEB,     /* a role, by a token in a file */
	WAY_ROLE,    /* a role, with the key of another profile */
	WAY_KEYS,    /* a key */
	WAY_PROCESS, /* a command prints it */
};

/* ---- files ---- */

static int find_file(const struct cred_io *io, const char *variable, const char *usual,
	char path[CRED_PATH_MAX], struct pawl_err *err)
{
	const char *given = cred_env(io, variable);

	if (cred_home_path(io, given != NULL ? given : usual, path, CRED_PATH_MAX)) {
		return 0;
	}
	path[0] = '\0';
	return given == NULL ? 0
			     : pawl_err_set(err, PAWL_ELIMIT,
				       "%s: a path has at most %u bytes, and ~ needs HOME",
				       variable, CRED_PATH_MAX - 1);
}

int cred_files_find(const struct cred_io *io, struct cred_files *files, struct pawl_err *err)
{
	int rv = find_file(io, "AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials",
		files->credentials, err);

	return rv != 0 ? rv : find_file(io, "AWS_CONFIG_FILE", "~/.aws/config", files->config, err);
}

static int read_file(const struct cred_io *io, const char *path, bool config, const char *name,
	struct cred_profile *profile, struct pawl_err *err)
{
	struct pawl_err why = {0};
	char *text;
	int rv = path[0] == '\0' ? PAWL_ENOENT
				 : io->read_file(io->user, path, INI_FILE_MAX, &text, &why);

	if (rv != 0) {
		return rv == PAWL_ENOENT ? 0 : pawl_err_set(err, rv, "%s", why.msg);
	}
	rv = cred_ini_read(text, config, name, profile, err);
	cred_wipe(text);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "%s", path);
}

static bool is_of_key(size_t setting)
{
	return setting == CRED_KEY_ID || setting == CRED_KEY_SECRET || setting == CRED_KEY_TOKEN;
}

/* Takes from other what is not set. */
static void take_missing(struct cred_profile *profile, struct cred_profile *other)
{
	bool has_key = profile->values[CRED_KEY_ID] != NULL;

	for (size_t i = 0; i < CRED_SETTINGS_N; i++) {
		if (profile->values[i] == NULL && !(has_key && is_of_key(i))) {
			profile->values[i] = other->values[i];
			other->values[i] = NULL;
		}
	}
	profile->found = profile->found || other->found;
}

int cred_profile_load(const struct cred_io *io, const struct cred_files *files, const char *name,
	struct cred_profile *profile, struct pawl_err *err)
{
	struct cred_profile config = {0};
	int rv;

	*profile = (struct cred_profile){0};
	rv = read_file(io, files->credentials, false, name, profile, err);
	rv = rv != 0 ? rv : read_file(io, files->config, true, name, &config, err);
	if (rv == 0) {
		take_missing(profile, &config);
	} else {
		cred_profile_clear(profile);
	}
	cred_profile_clear(&config);
	return rv;
}

/* ---- what a profile offers ---- */

static bool is_sso(const struct cred_profile *p)
{
	return p->values[CRED_SSO_SESSION] != NULL || p->values[CRED_SSO_URL] != NULL;
}

static bool has_keys(const struct cred_profile *p)
{
	return p->values[CRED_KEY_ID] != NULL || p->values[CRED_KEY_SECRET] != NULL;
}

static enum way find_way(const struct cred_profile *p)
{
	if (p->values[CRED_ROLE_ARN] != NULL) {
		return p->values[CRED_TOKEN_FILE] != NULL ? WAY_WEB : WAY_ROLE;
	}
	if (has_keys(p)) {
		return WAY_KEYS;
	}
	return p->values[CRED_PROCESS] != NULL ? WAY_PROCESS : WAY_NONE;
}

bool cred_profile_has_source(const struct cred_profile *profile)
{
	return find_way(profile) != WAY_NONE || is_sso(profile);
}

static int check_role(const struct cred_profile *p, struct pawl_err *err)
{
	const char *duration = p->values[CRED_ROLE_DURATION];

	if (p->values[CRED_ROLE_MFA] != NULL) {
		return pawl_err_set(err, PAWL_EINVAL,
			"mfa_serial: nobody is here to type a code; use a role without it");
	}
	if (duration != NULL) {
		char *end;
		long s = strtol(duration, &end, 10);

		if (*end != '\0' || s < DURATION_MIN_S || s > DURATION_MAX_S) {
			return pawl_err_set(err, PAWL_EINVAL,
				"duration_seconds must be a number from %d to %d", DURATION_MIN_S,
				DURATION_MAX_S);
		}
	}
	if (p->values[CRED_ROLE_SOURCE] != NULL || p->values[CRED_TOKEN_FILE] != NULL) {
		return 0;
	}
	return pawl_err_set(err, PAWL_EINVAL,
		p->values[CRED_ROLE_ELSEWHERE] != NULL
			? "credential_source is not supported: use source_profile"
			: "role_arn needs a source_profile or a web_identity_token_file");
}

/* Finds out how a profile gives a key, and refuses what cannot be used. */
static int check_profile(const struct cred_profile *p, const char *name, enum way *way,
	struct pawl_err *err)
{
	*way = find_way(p);
	if (*way == WAY_WEB || *way == WAY_ROLE) {
		return check_role(p, err);
	}
	if (*way == WAY_NONE && is_sso(p)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"it signs in by SSO, which is not supported: run \"aws configure "
			"export-credentials --profile %s --format env\", or make it the "
			"credential_process of another profile, with --format process",
			name);
	}
	if (*way == WAY_NONE) {
		return pawl_err_set(err, PAWL_EINVAL,
			"it has no keys: set aws_access_key_id and aws_secret_access_key, "
			"credential_process or role_arn");
	}
	if (*way == WAY_KEYS &&
		(p->values[CRED_KEY_ID] == NULL || p->values[CRED_KEY_SECRET] == NULL)) {
		return pawl_err_set(err, PAWL_EINVAL, "it has no %s",
			p->values[CRED_KEY_ID] == NULL ? "aws_access_key_id"
						       : "aws_secret_access_key");
	}
	return 0;
}

/* ---- the way to the key ---- */

/* What stays the same all along the way. */
struct walk {
	const struct cred_ask *ask;     /* the outside */
	const struct cred_files *files; /* where profiles are */
	unsigned profiles_n;            /* profiles seen so far */
};

static int follow(struct walk *walk, const struct cred_profile *p, const char *name,
	struct cred_key *key, struct pawl_err *err);

static int take_keys(const struct walk *walk, const struct cred_profile *p, struct cred_key *key,
	struct pawl_err *err)
{
	const struct cred_given given = {.id = p->values[CRED_KEY_ID],
		.secret = p->values[CRED_KEY_SECRET],
		.token = p->values[CRED_KEY_TOKEN]};
	struct cred_key checked;
	int rv = cred_key_set(key != NULL ? key : &checked, &given, walk->ask->now_s, err);

	explicit_bzero(&checked, sizeof(checked));
	return rv == PAWL_EIO ? pawl_err_prefix(err, PAWL_EINVAL, "malformed") : rv;
}

/* Gets the key that a role is asked for with. A profile that names itself means its own keys. */
static int follow_source(struct walk *walk, const struct cred_profile *p, const char *name,
	struct cred_key *key, struct pawl_err *err)
{
	const char *source = p->values[CRED_ROLE_SOURCE];
	struct cred_profile other;
	int rv;

	if (strcmp(source, name) == 0) {
		return has_keys(p) ? take_keys(walk, p, key, err)
				   : pawl_err_set(err, PAWL_EINVAL,
					     "it is its own source_profile, and has no keys");
	}
	if (walk->profiles_n == CRED_CHAIN_MAX) {
		return pawl_err_set(err, PAWL_EINVAL,
			"source_profile leads from profile to profile, more than %u",
			CRED_CHAIN_MAX);
	}
	rv = cred_profile_load(walk->ask->io, walk->files, source, &other, err);
	if (rv != 0) {
		return rv;
	}
	rv = other.found ? follow(walk, &other, source, key, err)
			 : pawl_err_set(err, PAWL_EINVAL, "there is no such profile");
	rv = rv == 0 ? 0 : pawl_err_prefix(err, rv, "source_profile \"%s\"", source);
	cred_profile_clear(&other);
	return rv;
}

static int follow_role(struct walk *walk, const struct cred_profile *p, const char *name,
	const struct cred_role *role, struct cred_key *key, struct pawl_err *err)
{
	struct cred_key by;
	int rv = follow_source(walk, p, name, key != NULL ? &by : NULL, err);

	if (rv == 0 && key != NULL) {
		rv = cred_from_role(walk->ask, role, &by, key, err);
	}
	explicit_bzero(&by, sizeof(by));
	return rv;
}

static int follow_web(const struct cred_ask *ask, const struct cred_profile *p,
	const struct cred_role *role, struct cred_key *key, struct pawl_err *err)
{
	char path[CRED_PATH_MAX];

	if (!cred_home_path(ask->io, p->values[CRED_TOKEN_FILE], path, sizeof(path))) {
		return pawl_err_set(err, PAWL_EINVAL,
			"web_identity_token_file: a path has at most %u bytes, and ~ needs HOME",
			CRED_PATH_MAX - 1);
	}
	return key == NULL ? 0 : cred_from_web_identity(ask, role, path, key, err);
}

static int follow(struct walk *walk, const struct cred_profile *p, const char *name,
	struct cred_key *key, struct pawl_err *err)
{
	const struct cred_role role = {.arn = p->values[CRED_ROLE_ARN],
		.session = p->values[CRED_ROLE_SESSION],
		.external_id = p->values[CRED_ROLE_EXTERNAL_ID],
		.duration_s = p->values[CRED_ROLE_DURATION]};
	enum way way;
	int rv = check_profile(p, name, &way, err);

	walk->profiles_n++;
	if (rv != 0) {
		return rv;
	}
	switch (way) {
	case WAY_ROLE:
		return follow_role(walk, p, name, &role, key, err);
	case WAY_WEB:
		return follow_web(walk->ask, p, &role, key, err);
	case WAY_PROCESS:
		return key == NULL
			? 0
			: cred_from_process(walk->ask, p->values[CRED_PROCESS], key, err);
	default:
		return take_keys(walk, p, key, err);
	}
}

int cred_profile_key(const struct cred_ask *ask, const struct cred_files *files,
	const struct cred_profile *profile, const char *name, struct cred_key *key,
	struct pawl_err *err)
{
	struct walk walk = {.ask = ask, .files = files};
	int rv = follow(&walk, profile, name, key, err);

	return rv == 0 ? 0
		       : pawl_err_prefix(err, rv, "profile \"%s\" of %s and %s", name,
				 files->credentials, files->config);
}
