/*
 * Credentials for S3, found as the vendor's SDKs find them, the first of:
 *
 *   1. ?profile= of the address: that profile of the files of 4
 *   2. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, unless AWS_PROFILE is set
 *   3. AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN: STS AssumeRoleWithWebIdentity (not signed)
 *   4. the profile AWS_PROFILE, else "default", of AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials)
 *      and AWS_CONFIG_FILE (~/.aws/config): web_identity_token_file with role_arn; role_arn with
 *      source_profile (STS AssumeRole); keys; credential_process. Profiles of SSO are refused by
 *      name
 *   5. AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI, with AWS_CONTAINER_AUTHORIZATION_TOKEN
 *      or _TOKEN_FILE, read anew each time; http only to loopback, 169.254.170.2, 169.254.170.23
 *      and [fd00:ec2::23]
 *   6. the role of the machine, by IMDSv2, unless AWS_EC2_METADATA_DISABLED is true
 *
 * Keys that expire are fetched again 5 minutes before their end; if that fails, the old ones are
 * used to their end. Secrets are in no message. Belongs to one thread at a time.
 */
#ifndef STORE_OBJECT_CRED_AWS_H
#define STORE_OBJECT_CRED_AWS_H

#include "store/object/object_url.h"
#include "store/object/sign_aws.h"

#include <stddef.h>
#include <stdint.h>

struct http_request;
struct pawl_err;
struct cred_aws;

/* What credentials need from outside; tests have their own. */
struct cred_io {
	void *user;
	/* Returns a variable of the environment, or NULL. */
	const char *(*env)(void *user, const char *name);
	/* Reads a whole file of at most max_bytes, malloc'ed with a NUL behind it. PAWL_ENOENT,
	 * PAWL_EIO, PAWL_ELIMIT; err names the file. */
	int (*read_file)(void *user, const char *path, size_t max_bytes, char **text,
		struct pawl_err *err);
	/* Runs a command by /bin/sh, at most 10 s, and returns its standard output, malloc'ed, at
	 * most 64 KiB. PAWL_EIO: it failed; PAWL_ETIMEDOUT; PAWL_ELIMIT. err names
	 * credential_process and its status, not the command, which may hold a secret. */
	int (*run)(void *user, const char *command, char **text, struct pawl_err *err);
	/* Sends a request, with body (or NULL), and returns status and body of the answer,
	 * malloc'ed with a NUL, at most 64 KiB. Follows no redirects. PAWL_EIO: no answer;
	 * PAWL_ETIMEDOUT. */
	int (*fetch)(void *user, const struct http_request *request, const char *body,
		int timeout_ms, int *status, char **text, struct pawl_err *err);
};

/* Finds out where the credentials are to come from; fetches none yet. PAWL_EINVAL: a profile is
 * missing, or cannot be used, or only half a key is in the environment; err names it, its file and
 * the remedy. PAWL_ELIMIT: a path is too long; PAWL_ENOMEM. io is copied. */
int cred_aws_open(const struct object_url *url, const struct cred_io *io, struct cred_aws **cred,
	struct pawl_err *err);
void cred_aws_close(struct cred_aws *cred);
/* Gets a key that is valid at now_s, fetched if there is none yet or it is about to end. key points
 * into cred until the next call. PAWL_ENOENT: there are no credentials; err lists where they were
 * looked for. PAWL_EIO, PAWL_ETIMEDOUT, PAWL_ELIMIT: the source failed, or gave no usable key.
 * PAWL_EINVAL: environment or files have become wrong; PAWL_ENOMEM. */
int cred_aws_get(struct cred_aws *cred, int64_t now_s, struct sign_aws_key *key,
	struct pawl_err *err);
/* Says that the key was refused: the next cred_aws_get asks the source again, files included. */
void cred_aws_refused(struct cred_aws *cred);
/* Returns a setting of the profile or the environment: region (AWS_REGION, AWS_DEFAULT_REGION,
 * the profile's), endpoint (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's endpoint_url, but
 * not if AWS_IGNORE_CONFIGURED_ENDPOINT_URLS is true); "" if none is set. */
const char *cred_aws_region(const struct cred_aws *cred);
const char *cred_aws_endpoint(const struct cred_aws *cred);

#endif
