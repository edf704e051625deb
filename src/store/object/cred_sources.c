/*
 * Asks the sources of credentials: see cred_sources.h.
 *
 * Whatever holds a secret or a token, which is requests, bodies and answers, is wiped by the
 * function that made or got it, on each way out.
 */
#include "store/object/cred_sources.h"

#include "base/err.h"
#include "base/fault.h"
#include "io/http_request.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ASKS_MAX         2u    /* how often a request is sent, at most */
#define PROBE_TIMEOUT_MS 1000  /* first request to a metadata service, which may not exist */
#define NEAR_TIMEOUT_MS  5000  /* a request on this machine */
#define STS_TIMEOUT_MS   10000 /* a request to STS */

#define CONTAINER_ENDPOINT "http://169.254.170.2"
#define MACHINE_ENDPOINT   "http://169.254.169.254"
#define MACHINE_ROLES      "/latest/meta-data/iam/security-credentials/"
#define MACHINE_TOKEN_S    "21600" /* how long a token of the metadata service lives */
#define MACHINE_TOKEN_MAX  512u    /* bytes of such a token, terminator included */
#define ROLE_NAME_MAX      129u    /* bytes of the name of a machine's role, terminator included */
#define FORM_MAX           131072u /* bytes of a form; a token grows threefold at most */

const char *cred_env(const struct cred_io *io, const char *name)
{
	const char *value = io->env(io->user, name);

	return value != NULL && value[0] != '\0' ? value : NULL;
}

bool cred_env_is_true(const struct cred_io *io, const char *name)
{
	const char *value = cred_env(io, name);

	return value != NULL && strcasecmp(value, "true") == 0;
}

bool cred_home_path(const struct cred_io *io, const char *path, char *out, size_t size_bytes)
{
	const char *home = cred_env(io, "HOME");
	int n;

	if (strncmp(path, "~/", 2) != 0) {
		n = snprintf(out, size_bytes, "%s", path);
	} else if (home != NULL) {
		n = snprintf(out, size_bytes, "%s/%s", home, path + 2);
	} else {
		return false;
	}
	return n >= 0 && (size_t)n < size_bytes;
}

int cred_send(const struct cred_io *io, const struct http_request *request, const char *body,
	int timeout_ms, int *status, char **text, struct pawl_err *err)
{
	if (request->full) {
		return pawl_err_set(err, PAWL_ELIMIT, "the request does not fit in its limits");
	}
	for (unsigned asks = 1;; asks++) {
		int rv = io->fetch(io->user, request, body, timeout_ms, status, text, err);

		if (asks == ASKS_MAX || (rv == 0 && *status < 500)) {
			return rv;
		}
		if (rv == 0) {
			cred_wipe(*text);
			*text = NULL;
		}
	}
}

/* Cuts white space off the end. */
static void trim_end(char *text)
{
	size_t len_bytes = strlen(text);

	while (len_bytes > 0 && isspace((unsigned char)text[len_bytes - 1])) {
		text[--len_bytes] = '\0';
	}
}

int cred_read_token(const struct cred_io *io, const char *path, char **token, struct pawl_err *err)
{
	char *text;
	int rv = io->read_file(io->user, path, CRED_TOKEN_FILE_MAX, &text, err);

	if (rv != 0) {
		rv = rv == PAWL_ENOENT ? PAWL_EIO : rv; /* the source is there, but broken */
		return pawl_err_prefix(err, rv, "token file");
	}
	trim_end(text);
	if (text[0] != '\0' && !cred_has_control(text)) {
		*token = text;
		return 0;
	}
	rv = pawl_err_set(err, PAWL_EIO, "token file %s %s", path,
		text[0] == '\0' ? "is empty" : "holds more than one line");
	cred_wipe(text);
	return rv;
}

/* ---- forms ---- */

struct cred_form cred_form_begin(void)
{
	return (struct cred_form){.text = FAULT_MEM("cred.form", calloc(1, FORM_MAX))};
}

void cred_form_add(struct cred_form *form, const char *name, const char *value)
{
	int n;

	if (form->text == NULL || value == NULL || value[0] == '\0' || form->is_cut) {
		return;
	}
	n = snprintf(form->text + form->n, FORM_MAX - form->n, "%s%s=", form->n > 0 ? "&" : "",
		name);
	form->is_cut = (size_t)n >= FORM_MAX - form->n;
	if (!form->is_cut) {
		form->n += (size_t)n;
		form->is_cut =
			!request_encode(value, false, form->text + form->n, FORM_MAX - form->n);
		form->n += strlen(form->text + form->n);
	}
}

void cred_form_end(struct cred_form *form)
{
	if (form->text != NULL) {
		explicit_bzero(form->text, FORM_MAX);
		free(form->text);
		form->text = NULL;
	}
}

/* ---- STS ---- */

/* Begins the form that asks for a role. */
static struct cred_form ask_for_role(const char *action, const struct cred_role *role)
{
	struct cred_form form = cred_form_begin();
	bool has_session = role->session != NULL && role->session[0] != '\0';

	cred_form_add(&form, "Action", action);
	cred_form_add(&form, "Version", "2011-06-15");
	cred_form_add(&form, "RoleArn", role->arn);
	cred_form_add(&form, "RoleSessionName", has_session ? role->session : "pawl");
	cred_form_add(&form, "DurationSeconds", role->duration_s);
	cred_form_add(&form, "ExternalId", role->external_id);
	return form;
}

/* Returns whether a region can be part of a host's name. */
static bool is_region(const char *region)
{
	size_t len_bytes = strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-");

	return len_bytes > 0 && len_bytes < 64 && region[len_bytes] == '\0' && region[0] != '-';
}

/* Finds out where STS is. */
static int find_sts(const struct cred_ask *ask, char endpoint[OBJECT_ENDPOINT_MAX],
	struct pawl_err *err)
{
	static const char *const names[] = {"AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL"};
	bool ignored = cred_env_is_true(ask->io, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");

	for (size_t i = 0; i < 2 && !ignored; i++) {
		const char *value = cred_env(ask->io, names[i]);

		if (value != NULL) {
			return object_endpoint_parse(value, names[i], endpoint, err);
		}
	}
	if (!ignored && ask->endpoint[0] != '\0') {
		return object_endpoint_parse(ask->endpoint, "endpoint_url", endpoint, err);
	}
	if (ask->region[0] != '\0' && !is_region(ask->region)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"region \"%.64s\" is no name such as us-east-1: see AWS_REGION",
			ask->region);
	}
	snprintf(endpoint, OBJECT_ENDPOINT_MAX, "https://sts%s%s.amazonaws.com%s",
		ask->region[0] != '\0' ? "." : "", ask->region,
		strncmp(ask->region, "cn-", 3) == 0 ? ".cn" : "");
	return 0;
}

/* Sends a form to STS, signed with by (NULL: not signed), and wipes and frees it. */
static int ask_sts(const struct cred_ask *ask, struct cred_form *form, const struct cred_key *by,
	struct cred_key *key, struct pawl_err *err)
{
	struct http_request request;
	char endpoint[OBJECT_ENDPOINT_MAX];
	char sum[65];
	char *text = NULL;
	int status = 0;
	int rv = find_sts(ask, endpoint, err);

	if (rv == 0 && (form->text == NULL || form->is_cut)) {
		rv = pawl_err_set(err, form->is_cut ? PAWL_ELIMIT : PAWL_ENOMEM, "ask STS: %s",
			form->is_cut ? "a setting is too long" : "out of memory");
	}
	if (rv != 0) {
		cred_form_end(form);
		return rv;
	}
	request_init(&request, "POST", endpoint);
	snprintf(request.path, sizeof(request.path), "/");
	request_add_header(&request, "content-type", "application/x-www-form-urlencoded");
	if (by != NULL) {
		const struct sign_aws_key sign = {by->id, by->secret, by->token};

		sign_sha256(form->text, form->n, sum);
		sign_aws(&request, &sign, ask->region[0] != '\0' ? ask->region : "us-east-1", "sts",
			sum, ask->now_s);
	}
	rv = cred_send(ask->io, &request, form->text, STS_TIMEOUT_MS, &status, &text, err);
	rv = rv != 0 ? rv : cred_key_read_sts(key, status, text, ask->now_s, err);
	cred_wipe(text);
	explicit_bzero(&request, sizeof(request));
	cred_form_end(form);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "STS at %s", endpoint);
}

int cred_from_web_identity(const struct cred_ask *ask, const struct cred_role *role,
	const char *token_file, struct cred_key *key, struct pawl_err *err)
{
	struct cred_form form;
	char *token;
	int rv = cred_read_token(ask->io, token_file, &token, err);

	if (rv != 0) {
		return rv;
	}
	form = ask_for_role("AssumeRoleWithWebIdentity", role);
	cred_form_add(&form, "WebIdentityToken", token);
	cred_wipe(token);
	return ask_sts(ask, &form, NULL, key, err);
}

int cred_from_role(const struct cred_ask *ask, const struct cred_role *role,
	const struct cred_key *by, struct cred_key *key, struct pawl_err *err)
{
	struct cred_form form = ask_for_role("AssumeRole", role);

	return ask_sts(ask, &form, by, key, err);
}

/* ---- a command ---- */

int cred_from_process(const struct cred_ask *ask, const char *command, struct cred_key *key,
	struct pawl_err *err)
{
	char *text = NULL;
	int rv = ask->io->run(ask->io->user, command, &text, err);

	if (rv != 0) {
		return rv; /* err names it already */
	}
	rv = cred_key_read_json(key, text, true, ask->now_s, err);
	cred_wipe(text);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "credential_process");
}

/* ---- the endpoint of a container ---- */

/* An address in its parts. */
struct place {
	char endpoint[OBJECT_ENDPOINT_MAX]; /* "http[s]://HOST[:PORT]" */
	char path[REQUEST_PATH_MAX];        /* begins with '/' */
	char query[REQUEST_QUERY_MAX];      /* behind the '?', or "" */
};

bool cred_has_container(const struct cred_io *io)
{
	return cred_env(io, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != NULL ||
		cred_env(io, "AWS_CONTAINER_CREDENTIALS_FULL_URI") != NULL;
}

/* Divides "http[s]://HOST[:PORT][/PATH][?QUERY]". what names it in messages. */
static int split_uri(const char *uri, const char *what, struct place *place, struct pawl_err *err)
{
	const char *host = strstr(uri, "://");
	const char *path = host == NULL ? uri : host + 3 + strcspn(host + 3, "/?");
	size_t path_bytes = strcspn(path, "?");
	char endpoint[OBJECT_ENDPOINT_MAX];

	if (!cred_is_visible(uri) || strchr(uri, '#') != NULL) {
		return pawl_err_set(err, PAWL_EINVAL, "%s has characters that no address has",
			what);
	}
	if (strlen(uri) >= sizeof(place->path) - 1 || (size_t)(path - uri) >= sizeof(endpoint)) {
		return pawl_err_set(err, PAWL_ELIMIT, "%s is too long", what);
	}
	snprintf(endpoint, sizeof(endpoint), "%.*s", (int)(path - uri), uri);
	snprintf(place->path, sizeof(place->path), "%s%.*s", path_bytes == 0 ? "/" : "",
		(int)path_bytes, path);
	path += path_bytes;
	snprintf(place->query, sizeof(place->query), "%s", path[0] == '?' ? path + 1 : "");
	return object_endpoint_parse(endpoint, what, place->endpoint, err);
}

bool cred_is_near(const char *endpoint)
{
	static const char *const hosts[] = {"localhost", "[::1]", "169.254.170.2", "169.254.170.23",
		"[fd00:ec2::23]"};
	const char *host = endpoint + strlen("http://");
	size_t len_bytes = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
	char text[INET_ADDRSTRLEN];
	struct in_addr address;

	for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
		if (len_bytes == strlen(hosts[i]) && memcmp(host, hosts[i], len_bytes) == 0) {
			return true;
		}
	}
	if (len_bytes >= sizeof(text)) {
		return false;
	}
	snprintf(text, sizeof(text), "%.*s", (int)len_bytes, host);
	return inet_pton(AF_INET, text, &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

int cred_check_private(const struct http_request *request, struct pawl_err *err)
{
	char endpoint[sizeof(request->host) + 8];

	snprintf(endpoint, sizeof(endpoint), "http://%s", request->host);
	return request->tls || cred_is_near(endpoint)
		? 0
		: pawl_err_set(err, PAWL_EINVAL, "tokens go by https only: the endpoint is %s",
			  endpoint);
}

/* Finds out where the container's endpoint is. */
static int find_container(const struct cred_io *io, struct place *place, struct pawl_err *err)
{
	static const char relative_name[] = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
	static const char full_name[] = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
	const char *relative = cred_env(io, relative_name);
	char uri[REQUEST_PATH_MAX];
	int rv;

	if (relative != NULL) {
		if (relative[0] != '/' || strlen(relative) >= sizeof(uri) / 2) {
			return pawl_err_set(err, PAWL_EINVAL, "%s is no path of at most %zu bytes",
				relative_name, sizeof(uri) / 2 - 1);
		}
		snprintf(uri, sizeof(uri), CONTAINER_ENDPOINT "%s", relative);
		return split_uri(uri, relative_name, place, err);
	}
	rv = split_uri(cred_env(io, full_name), full_name, place, err);
	if (rv == 0 && strncmp(place->endpoint, "http:", 5) == 0 &&
		!cred_is_near(place->endpoint)) {
		rv = pawl_err_set(err, PAWL_EINVAL,
			"%s: http only to loopback, 169.254.170.2, 169.254.170.23 and "
			"[fd00:ec2::23], not to %s: use https",
			full_name, place->endpoint);
	}
	return rv;
}

/* Adds the token that the endpoint asks for, if there is one. */
static int authorize(const struct cred_io *io, struct http_request *request, struct pawl_err *err)
{
	const char *path = cred_env(io, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
	const char *given = cred_env(io, "AWS_CONTAINER_AUTHORIZATION_TOKEN");
	char *token = NULL;
	int rv = path != NULL ? cred_read_token(io, path, &token, err) : 0;

	if (rv != 0) {
		return rv;
	}
	given = token != NULL ? token : given;
	if (given != NULL && cred_has_control(given)) {
		rv = pawl_err_set(err, PAWL_EINVAL,
			"AWS_CONTAINER_AUTHORIZATION_TOKEN has a control character");
	} else if (given != NULL) {
		request_add_header(request, "authorization", "%s", given);
	}
	cred_wipe(token);
	return rv;
}

int cred_from_container(const struct cred_ask *ask, struct cred_key *key, struct pawl_err *err)
{
	struct http_request request;
	struct place place;
	char *text = NULL;
	int status = 0;
	int rv = find_container(ask->io, &place, err);

	if (rv != 0) {
		return rv;
	}
	request_init(&request, "GET", place.endpoint);
	snprintf(request.path, sizeof(request.path), "%s", place.path);
	snprintf(request.query, sizeof(request.query), "%s", place.query);
	rv = authorize(ask->io, &request, err);
	rv = rv != 0 ? rv
		     : cred_send(ask->io, &request, NULL, NEAR_TIMEOUT_MS, &status, &text, err);
	if (rv == 0 && status != 200) {
		rv = pawl_err_set(err, PAWL_EIO, "it answered %d", status);
	}
	rv = rv != 0 ? rv : cred_key_read_json(key, text, false, ask->now_s, err);
	cred_wipe(text);
	explicit_bzero(&request, sizeof(request));
	return rv == 0 ? 0
		       : pawl_err_prefix(err, rv, "the container's endpoint %s", place.endpoint);
}

/* ---- the metadata service of a machine ---- */

/* A service that is being asked. */
struct machine {
	const struct cred_io *io;           /* the outside */
	char endpoint[OBJECT_ENDPOINT_MAX]; /* address of the service */
	char token[MACHINE_TOKEN_MAX];      /* goes with each question; "": none yet */
};

/* Sends one request, with the token unless it is asked for. */
static int machine_send(const struct machine *m, const char *path, bool for_token, int *status,
	char **text, struct pawl_err *err)
{
	struct http_request request;
	int rv;

	request_init(&request, for_token ? "PUT" : "GET", m->endpoint);
	snprintf(request.path, sizeof(request.path), "%s", path);
	if (for_token) {
		request_add_header(&request, "x-aws-ec2-metadata-token-ttl-seconds",
			MACHINE_TOKEN_S);
	} else {
		request_add_header(&request, "x-aws-ec2-metadata-token", "%s", m->token);
	}
	rv = cred_send(m->io, &request, for_token ? "" : NULL,
		for_token ? PROBE_TIMEOUT_MS : NEAR_TIMEOUT_MS, status, text, err);
	explicit_bzero(&request, sizeof(request));
	return rv;
}

/* Gets a token. PAWL_ENOENT: nobody answers. */
static int machine_take_token(struct machine *m, struct pawl_err *err)
{
	char *text = NULL;
	int status = 0;
	int rv = machine_send(m, "/latest/api/token", true, &status, &text, err);

	if (rv == PAWL_EIO || rv == PAWL_ETIMEDOUT) {
		return pawl_err_set(err, PAWL_ENOENT,
			"it does not answer (if this is a container on EC2, its hop limit may be "
			"1: set HttpPutResponseHopLimit to 2)");
	}
	if (rv != 0) {
		return rv;
	}
	trim_end(text);
	if (status != 200 || !cred_is_visible(text) || strlen(text) >= sizeof(m->token)) {
		rv = pawl_err_set(err, PAWL_EIO, "it gave no token (HTTP %d)", status);
	} else {
		snprintf(m->token, sizeof(m->token), "%s", text);
	}
	cred_wipe(text);
	return rv;
}

/* Reads a page, with a new token if it refuses the one that we have. */
static int machine_read(struct machine *m, const char *path, char **text, struct pawl_err *err)
{
	int status = 0;
	int rv = machine_send(m, path, false, &status, text, err);

	if (rv == 0 && status == 401) {
		cred_wipe(*text);
		rv = machine_take_token(m, err);
		rv = rv != 0 ? rv : machine_send(m, path, false, &status, text, err);
	}
	if (rv != 0 || status == 200) {
		return rv;
	}
	cred_wipe(*text);
	*text = NULL;
	return status == 404 ? pawl_err_set(err, PAWL_ENOENT, "the machine has no role")
			     : pawl_err_set(err, PAWL_EIO, "it answered %d", status);
}

/* Gets the name of the machine's role: the first line of a page. */
static int machine_find_role(struct machine *m, char role[ROLE_NAME_MAX], struct pawl_err *err)
{
	char *text;
	size_t len_bytes;
	int rv = machine_read(m, MACHINE_ROLES, &text, err);

	if (rv != 0) {
		return rv;
	}
	len_bytes = strcspn(text, "\r\n");
	if (text[0] == '\0') {
		rv = pawl_err_set(err, PAWL_ENOENT, "the machine has no role");
	} else if (len_bytes == 0 || len_bytes >= ROLE_NAME_MAX) {
		rv = pawl_err_set(err, PAWL_EIO, "what it gave is no name of a role");
	}
	for (size_t i = 0; i < len_bytes && rv == 0; i++) {
		if (!isalnum((unsigned char)text[i]) && strchr("_+=,.@-", text[i]) == NULL) {
			rv = pawl_err_set(err, PAWL_EIO, "what it gave is no name of a role");
		}
	}
	if (rv == 0) {
		snprintf(role, ROLE_NAME_MAX, "%.*s", (int)len_bytes, text);
	}
	cred_wipe(text);
	return rv;
}

int cred_from_machine(const struct cred_ask *ask, struct cred_key *key, struct pawl_err *err)
{
	static const char name[] = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
	const char *endpoint = cred_env(ask->io, name);
	struct machine m = {.io = ask->io, .endpoint = MACHINE_ENDPOINT};
	char path[sizeof(MACHINE_ROLES) + ROLE_NAME_MAX];
	char role[ROLE_NAME_MAX];
	char *text = NULL;
	int rv = endpoint == NULL ? 0 : object_endpoint_parse(endpoint, name, m.endpoint, err);

	if (rv != 0) {
		return rv;
	}
	rv = machine_take_token(&m, err);
	rv = rv != 0 ? rv : machine_find_role(&m, role, err);
	if (rv == 0) {
		snprintf(path, sizeof(path), MACHINE_ROLES "%s", role);
		rv = machine_read(&m, path, &text, err);
	}
	if (rv == 0) {
		rv = cred_key_read_json(key, text, false, ask->now_s, err);
		cred_wipe(text);
	}
	explicit_bzero(m.token, sizeof(m.token));
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "the metadata service at %s", m.endpoint);
}
