/*
 * Finds credentials and keeps a key fresh: see cred_aws.h.
 *
 * The chain is walked anew for each key, as files may have changed: choose() decides by environment
 * and files where the key is to come from, and ask_source() gets it. A key is asked for again when
 * its end is near, but an old key that still works is not given up for a source that fails.
 */
#include "store/object/cred_aws.h"

#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "store/object/cred_fresh.h"
#include "store/object/cred_profile.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum source {
	SOURCE_NONE,
	SOURCE_ENV,       /* keys in the environment */
	SOURCE_WEB,       /* a role, named in the environment */
	SOURCE_PROFILE,   /* a profile of the files */
	SOURCE_CONTAINER, /* the endpoint of the container */
	SOURCE_MACHINE,   /* the metadata service */
};

struct cred_aws {
	struct cred_io io;             /* the outside */
	struct cred_files files;       /* where profiles are */
	char profile[OBJECT_NAME_MAX]; /* the profile that is used */
	bool by_address;     /* the address names it: the environment's keys are not used */
	bool by_name;        /* address or environment name it: it must exist */
	char *region;        /* owned; "": not set */
	char *endpoint;      /* owned; "": not set */
	struct cred_key key; /* the key in use, if fresh.is_there */
	struct cred_fresh fresh;
	bool is_file_warned; /* the log has that a file cannot be read */
};

/* What is known of a source before it is asked. */
struct choice {
	enum source source;          /* where the key comes from */
	struct cred_profile profile; /* settings from the files; whoever has the choice clears it */
};

/* ---- the chain ---- */

/* Reads the profile. Files that are not needed may be broken: that is logged, and no error. */
static int load_profile(struct cred_aws *c, bool is_needed, struct cred_profile *profile,
	struct pawl_err *err)
{
	struct pawl_err why = {0};
	int rv = cred_profile_load(&c->io, &c->files, c->profile, profile, &why);

	if (rv == 0 && c->by_name && !profile->found) {
		return pawl_err_set(err, PAWL_EINVAL,
			"profile \"%s\" is neither in %s nor in %s: add it there, or name another "
			"by ?profile= or AWS_PROFILE",
			c->profile, c->files.credentials, c->files.config);
	}
	if (rv == 0) {
		return 0;
	}
	if (c->by_name || (is_needed && rv != PAWL_EIO)) {
		return pawl_err_set(err, rv == PAWL_ENOMEM ? rv : PAWL_EINVAL, "profile \"%s\": %s",
			c->profile, why.msg);
	}
	if (!c->is_file_warned) {
		log_line(LOG_WARNING, "settings of profile \"%s\" are not used: %s", c->profile,
			why.msg);
		c->is_file_warned = true;
	}
	return 0;
}

static bool has_env_keys(const struct cred_aws *c)
{
	return !c->by_name &&
		(cred_env(&c->io, "AWS_ACCESS_KEY_ID") != NULL ||
			cred_env(&c->io, "AWS_SECRET_ACCESS_KEY") != NULL);
}

static bool has_env_role(const struct cred_aws *c)
{
	return !c->by_address && cred_env(&c->io, "AWS_WEB_IDENTITY_TOKEN_FILE") != NULL &&
		cred_env(&c->io, "AWS_ROLE_ARN") != NULL;
}

/* Decides where the key comes from. On error there is nothing to clear. */
static int choose(struct cred_aws *c, struct choice *choice, struct pawl_err *err)
{
	bool is_in_env = has_env_keys(c) || has_env_role(c);
	int rv = load_profile(c, !is_in_env, &choice->profile, err);

	if (rv != 0) {
		cred_profile_clear(&choice->profile);
		return rv;
	}
	if (has_env_keys(c)) {
		choice->source = SOURCE_ENV;
	} else if (has_env_role(c)) {
		choice->source = SOURCE_WEB;
	} else if (cred_profile_has_source(&choice->profile)) {
		choice->source = SOURCE_PROFILE;
	} else if (cred_has_container(&c->io)) {
		choice->source = SOURCE_CONTAINER;
	} else if (!cred_env_is_true(&c->io, "AWS_EC2_METADATA_DISABLED")) {
		choice->source = SOURCE_MACHINE;
	} else {
		choice->source = SOURCE_NONE;
	}
	return 0;
}

static int read_env_keys(const struct cred_aws *c, int64_t now_s, struct cred_key *key,
	struct pawl_err *err)
{
	const struct cred_given given = {.id = cred_env(&c->io, "AWS_ACCESS_KEY_ID"),
		.secret = cred_env(&c->io, "AWS_SECRET_ACCESS_KEY"),
		.token = cred_env(&c->io, "AWS_SESSION_TOKEN")};
	int rv;

	if (given.id == NULL || given.secret == NULL) {
		return pawl_err_set(err, PAWL_EINVAL, "of %s and %s only the first is set",
			given.id != NULL ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
			given.id != NULL ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID");
	}
	rv = cred_key_set(key, &given, now_s, err);
	return rv == 0 ? 0
		       : pawl_err_prefix(err, rv == PAWL_EIO ? PAWL_EINVAL : rv,
				 "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN");
}

static int read_env_role(const struct cred_ask *ask, struct cred_key *key, struct pawl_err *err)
{
	const struct cred_role role = {.arn = cred_env(ask->io, "AWS_ROLE_ARN"),
		.session = cred_env(ask->io, "AWS_ROLE_SESSION_NAME")};
	const char *path = cred_env(ask->io, "AWS_WEB_IDENTITY_TOKEN_FILE");
	int rv = cred_from_web_identity(ask, &role, path, key, err);

	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "AWS_WEB_IDENTITY_TOKEN_FILE");
}

/* Says where credentials were looked for, and why the last place had none. */
static int refuse_all(const struct cred_aws *c, const char *why, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_ENOENT,
		"no credentials: %s%sAWS_CONTAINER_CREDENTIALS_*_URI not set, profile \"%s\" of %s "
		"and %s has none, and %s",
		c->by_name ? "" : "AWS_ACCESS_KEY_ID, ",
		c->by_address ? "" : "AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN, ", c->profile,
		c->files.credentials, c->files.config, why);
}

/* Asks the machine. That it is none of Amazon's is no failure, unless it was one before. */
static int ask_machine(const struct cred_aws *c, const struct cred_ask *ask, struct cred_key *key,
	struct pawl_err *err)
{
	struct pawl_err why = {0};
	int rv = cred_from_machine(ask, key, &why);

	if (rv == PAWL_ENOENT && !c->fresh.is_there) {
		return refuse_all(c, why.msg, err);
	}
	return rv == 0 ? 0 : pawl_err_set(err, rv == PAWL_ENOENT ? PAWL_EIO : rv, "%s", why.msg);
}

static int ask_source(const struct cred_aws *c, const struct choice *choice,
	const struct cred_ask *ask, struct cred_key *key, struct pawl_err *err)
{
	switch (choice->source) {
	case SOURCE_ENV:
		return read_env_keys(c, ask->now_s, key, err);
	case SOURCE_WEB:
		return read_env_role(ask, key, err);
	case SOURCE_PROFILE:
		return cred_profile_key(ask, &c->files, &choice->profile, c->profile, key, err);
	case SOURCE_CONTAINER:
		return cred_from_container(ask, key, err);
	case SOURCE_MACHINE:
		return ask_machine(c, ask, key, err);
	default:
		return refuse_all(c, "AWS_EC2_METADATA_DISABLED is true", err);
	}
}

/* ---- open and close ---- */

/* Returns the first of two variables that is set, else the profile's setting, else "". */
static char *copy_setting(const struct cred_aws *c, const char *first, const char *second,
	const char *setting)
{
	const char *value = cred_env(&c->io, first);

	value = value != NULL ? value : cred_env(&c->io, second);
	value = value != NULL ? value : setting;
	return FAULT_MEM("cred.open", strdup(value != NULL ? value : ""));
}

/* Keeps region and endpoint. */
static int keep_settings(struct cred_aws *c, const struct cred_profile *profile,
	struct pawl_err *err)
{
	c->region =
		copy_setting(c, "AWS_REGION", "AWS_DEFAULT_REGION", profile->values[CRED_REGION]);
	c->endpoint = cred_env_is_true(&c->io, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")
		? strdup("")
		: copy_setting(c, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL",
			  profile->values[CRED_ENDPOINT]);
	return c->region != NULL && c->endpoint != NULL
		? 0
		: pawl_err_set(err, PAWL_ENOMEM, "find credentials: out of memory");
}

/* Decides which profile is used. */
static int find_profile(struct cred_aws *c, const struct object_url *url, struct pawl_err *err)
{
	const char *env = cred_env(&c->io, "AWS_PROFILE");
	const char *name = url->profile[0] != '\0' ? url->profile : env;

	c->by_address = url->profile[0] != '\0';
	c->by_name = name != NULL;
	if (name != NULL && strlen(name) >= sizeof(c->profile)) {
		return pawl_err_set(err, PAWL_EINVAL, "AWS_PROFILE: a name has at most %zu bytes",
			sizeof(c->profile) - 1);
	}
	snprintf(c->profile, sizeof(c->profile), "%s", name != NULL ? name : "default");
	return 0;
}

/* Finds out all that can be found out without asking anyone. */
static int find_all(struct cred_aws *c, const struct object_url *url, struct pawl_err *err)
{
	struct choice choice = {0};
	int rv = find_profile(c, url, err);

	rv = rv != 0 ? rv : cred_files_find(&c->io, &c->files, err);
	rv = rv != 0 ? rv : choose(c, &choice, err);
	rv = rv != 0 ? rv : keep_settings(c, &choice.profile, err);
	if (rv == 0 && choice.source == SOURCE_PROFILE) {
		const struct cred_ask ask = {&c->io, c->region, c->endpoint, 0};

		rv = cred_profile_key(&ask, &c->files, &choice.profile, c->profile, NULL, err);
	}
	if (rv == 0 && choice.source == SOURCE_ENV) {
		rv = read_env_keys(c, 0, &c->key, err);
	}
	cred_profile_clear(&choice.profile);
	return rv;
}

int cred_aws_open(const struct object_url *url, const struct cred_io *io, struct cred_aws **cred,
	struct pawl_err *err)
{
	struct cred_aws *c = FAULT_MEM("cred.open", calloc(1, sizeof(*c)));
	int rv;

	if (c == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "find credentials: out of memory");
	}
	c->io = *io;
	rv = find_all(c, url, err);
	if (rv != 0) {
		cred_aws_close(c);
		return rv;
	}
	*cred = c;
	return 0;
}

void cred_aws_close(struct cred_aws *cred)
{
	if (cred != NULL) {
		free(cred->region);
		free(cred->endpoint);
		explicit_bzero(cred, sizeof(*cred));
		free(cred);
	}
}

/* ---- the key ---- */

/* Gets a new key. On error the old one stays. */
static int refresh(struct cred_aws *c, int64_t now_s, struct pawl_err *err)
{
	const struct cred_ask ask = {&c->io, c->region, c->endpoint, now_s};
	struct choice choice = {0};
	struct cred_key key = {0};
	int rv = choose(c, &choice, err);

	c->fresh.asked_s = now_s;
	if (rv != 0) {
		return rv;
	}
	rv = ask_source(c, &choice, &ask, &key, err);
	if (rv == 0) {
		c->key = key;
		cred_fresh_renew(&c->fresh, key.end_s);
	}
	explicit_bzero(&key, sizeof(key));
	cred_profile_clear(&choice.profile);
	return rv;
}

int cred_aws_get(struct cred_aws *cred, int64_t now_s, struct sign_aws_key *key,
	struct pawl_err *err)
{
	struct pawl_err why = {0};
	int rv = cred_fresh_is_due(&cred->fresh, now_s) ? refresh(cred, now_s, &why) : 0;

	rv = rv != 0 ? cred_fresh_fail(&cred->fresh, rv, now_s, &why, err) : 0;
	if (rv != 0) {
		return rv;
	}
	*key = (struct sign_aws_key){cred->key.id, cred->key.secret, cred->key.token};
	return 0;
}

void cred_aws_refused(struct cred_aws *cred)
{
	cred->fresh.is_refused = true;
}

const char *cred_aws_region(const struct cred_aws *cred)
{
	return cred->region;
}

const char *cred_aws_endpoint(const struct cred_aws *cred)
{
	return cred->endpoint;
}
