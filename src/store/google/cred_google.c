/* Finds credentials for Google Cloud Storage and keeps them fresh: see cred_google.h. The chain is
 * walked anew for each token. Whatever holds a secret is wiped by the function that made or got
 * it. */
#include "store/google/cred_google.h"

#include "base/err.h"
#include "base/fault.h"
#include "io/http_request.h"
#include "store/google/google_file.h"
#include "store/google/jwt.h"
#include "store/object/cred_fresh.h"
#include "store/object/cred_sources.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROBE_TIMEOUT_MS   1000  /* a request to a metadata service, which may not exist */
#define MACHINE_TIMEOUT_MS 10000 /* a request for a token of the machine, which may be new */
#define TOKEN_TIMEOUT_MS   10000
#define JWT_LIFE_S         3600 /* the longest that Google takes */

#define ID_NAME          "GS_ACCESS_KEY_ID"
#define SECRET_NAME      "GS_SECRET_ACCESS_KEY"
#define FILE_NAME        "GOOGLE_APPLICATION_CREDENTIALS"
#define EMULATOR_NAME    "STORAGE_EMULATOR_HOST"
#define HOST_NAME        "GCE_METADATA_HOST"
#define WELL_KNOWN       "application_default_credentials.json"
#define SCOPE            "https://www.googleapis.com/auth/devstorage.read_write"
#define IAM_SCOPE        "https://www.googleapis.com/auth/cloud-platform"
#define MACHINE_ENDPOINT "http://169.254.169.254"
#define MACHINE_PATH     "computeMetadata/v1/instance/service-accounts/default/token"
#define FILE_MAX         65536u /* bytes of a file with credentials */
#define FILE_PATH_MAX    4096u  /* bytes of its path, terminator included */

enum source {
	SOURCE_HMAC,    /* the key in the environment */
	SOURCE_NONE,    /* an emulator */
	SOURCE_FILE,    /* a file with credentials */
	SOURCE_MACHINE, /* the metadata service */
};

struct cred_google {
	struct cred_io io;                  /* the outside */
	char bucket[OBJECT_NAME_MAX];       /* bucket of the address */
	char endpoint[OBJECT_ENDPOINT_MAX]; /* endpoint of the emulator; "": none */
	struct google_secret secret;        /* secret in use, if fresh.is_there */
	struct cred_fresh fresh;
};

/* ---- tokens ---- */

/* Asks for a token. tells: as in cred_key_read_oauth. *status is 0 if no answer came. */
static int ask_token(const struct cred_google *c, const struct http_request *request,
	const char *body, int timeout_ms, bool tells, int64_t now_s, struct cred_key *key,
	int *status, struct pawl_err *err)
{
	char *text = NULL;
	int rv;

	*status = 0;
	rv = cred_send(&c->io, request, body, timeout_ms, status, &text, err);
	if (rv == 0) {
		rv = cred_key_read_oauth(key, *status, text, tells, now_s, err);
	}
	cred_wipe(text);
	return rv;
}

/* Adds what proves who the service account is. */
static int add_assertion(const struct google_file *file, int64_t now_s, struct cred_form *form,
	struct pawl_err *err)
{
	const struct jwt jwt = {file->key_id, file->email, SCOPE, file->token.text, now_s,
		now_s + JWT_LIFE_S};
	char *text = NULL;
	int rv = jwt_sign(&jwt, file->key, &text, err);

	if (rv == 0) {
		cred_form_add(form, "grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer");
		cred_form_add(form, "assertion", text);
	}
	cred_wipe(text);
	return rv;
}

static void add_refresh(const struct google_file *file, struct cred_form *form)
{
	cred_form_add(form, "grant_type", "refresh_token");
	cred_form_add(form, "client_id", file->client_id);
	cred_form_add(form, "client_secret", file->client_secret);
	cred_form_add(form, "refresh_token", file->refresh);
}

/* Adds the token of another provider. Its file may be replaced at any time. Whoever only asks for
 * the token of a service account needs the scope of that. */
static int add_subject(const struct cred_io *io, const struct google_file *file,
	struct cred_form *form, struct pawl_err *err)
{
	char *text = NULL;
	char *token = NULL;
	int rv;

	if (file->field == NULL) {
		rv = cred_read_token(io, file->subject, &token, err);
	} else {
		rv = io->read_file(io->user, file->subject, CRED_TOKEN_FILE_MAX, &text, err);
		rv = rv == PAWL_ENOENT ? PAWL_EIO : rv; /* the source is there, but broken */
		rv = rv != 0 ? pawl_err_prefix(err, rv, "token file")
			     : google_file_subject(file, text, &token, err);
	}
	cred_wipe(text);
	if (rv == 0) {
		cred_form_add(form, "grant_type",
			"urn:ietf:params:oauth:grant-type:token-exchange");
		cred_form_add(form, "requested_token_type",
			"urn:ietf:params:oauth:token-type:access_token");
		cred_form_add(form, "scope",
			file->impersonation.text[0] != '\0' ? IAM_SCOPE : SCOPE);
		cred_form_add(form, "audience", file->audience);
		cred_form_add(form, "subject_token_type", file->subject_type);
		cred_form_add(form, "subject_token", token);
	}
	cred_wipe(token);
	return rv;
}

/* Writes the form that is exchanged for a token. End the form, whatever comes back. */
static int write_form(const struct cred_google *c, const struct google_file *file, int64_t now_s,
	struct cred_form *form, struct pawl_err *err)
{
	int rv = 0;

	*form = cred_form_begin();
	if (file->kind == GOOGLE_SERVICE) {
		rv = add_assertion(file, now_s, form, err);
	} else if (file->kind == GOOGLE_USER) {
		add_refresh(file, form);
	} else {
		rv = add_subject(&c->io, file, form, err);
	}
	if (rv == 0 && (form->text == NULL || form->is_cut)) {
		rv = pawl_err_set(err, form->is_cut ? PAWL_ELIMIT : PAWL_ENOMEM,
			form->is_cut ? "a text in it is too long" : "out of memory");
	}
	return rv;
}

/* ---- files ---- */

/* Finds the path of the file. Returns false if there is none to look at. */
static bool find_path(const struct cred_io *io, char path[FILE_PATH_MAX])
{
	const char *set = cred_env(io, FILE_NAME);
	const char *config = cred_env(io, "CLOUDSDK_CONFIG");
	int n;

	if (set != NULL) {
		n = snprintf(path, FILE_PATH_MAX, "%s", set);
	} else if (config != NULL) {
		n = snprintf(path, FILE_PATH_MAX, "%s/" WELL_KNOWN, config);
	} else {
		return cred_home_path(io, "~/.config/gcloud/" WELL_KNOWN, path, FILE_PATH_MAX);
	}
	return (size_t)n < FILE_PATH_MAX;
}

/* Reads the file with credentials. PAWL_ENOENT: the one that need not be there is not. */
static int read_file(const struct cred_io *io, struct google_file *file, struct pawl_err *err)
{
	bool is_set = cred_env(io, FILE_NAME) != NULL;
	char path[FILE_PATH_MAX];
	char *text = NULL;
	int rv;

	if (!find_path(io, path)) {
		return is_set ? pawl_err_set(err, PAWL_ELIMIT, FILE_NAME ": the path is too long")
			      : PAWL_ENOENT;
	}
	rv = io->read_file(io->user, path, FILE_MAX, &text, err);
	if (rv == PAWL_ENOENT && !is_set) {
		return rv;
	}
	if (rv != 0) {
		rv = rv == PAWL_ENOENT ? PAWL_EINVAL : rv;
	} else {
		rv = google_file_read(file, text, err);
		rv = rv != 0 ? pawl_err_prefix(err, rv, "%s", path) : 0;
	}
	cred_wipe(text);
	return rv != 0 && is_set ? pawl_err_prefix(err, rv, FILE_NAME) : rv;
}

/* Replaces the token of a principal in key by that of the service account that it acts for. */
static int impersonate(const struct cred_google *c, const struct google_file *file, int64_t now_s,
	struct cred_key *key, struct pawl_err *err)
{
	static const char body[] = "{\"scope\":[\"" SCOPE "\"],\"lifetime\":\"3600s\"}";
	struct http_request request;
	char *text = NULL;
	int status;
	int rv;

	request_init(&request, "POST", file->impersonation.endpoint);
	memcpy(request.path, file->impersonation.path, sizeof(file->impersonation.path));
	request_add_header(&request, "authorization", "Bearer %s", key->token);
	request_add_header(&request, "content-type", "application/json");
	rv = cred_send(&c->io, &request, body, TOKEN_TIMEOUT_MS, &status, &text, err);
	rv = rv == 0 ? cred_key_read_impersonated(key, status, text, now_s, err) : rv;
	cred_wipe(text);
	explicit_bzero(&request, sizeof(request));
	return rv == 0 ? 0
		       : pawl_err_prefix(err, rv, "impersonate a service account at %s",
				 file->impersonation.endpoint);
}

static int ask_file(const struct cred_google *c, const struct google_file *file, int64_t now_s,
	struct cred_key *key, struct pawl_err *err)
{
	struct http_request request;
	struct cred_form form;
	int status = 0;
	int rv = write_form(c, file, now_s, &form, err);

	if (rv == 0) {
		request_init(&request, "POST", file->token.endpoint);
		memcpy(request.path, file->token.path, sizeof(file->token.path));
		request_add_header(&request, "content-type", "application/x-www-form-urlencoded");
		rv = ask_token(c, &request, form.text, TOKEN_TIMEOUT_MS, false, now_s, key, &status,
			err);
	}
	cred_form_end(&form);
	if (rv == 0 && file->impersonation.text[0] != '\0') {
		return impersonate(c, file, now_s, key, err);
	}
	return rv == 0 ? 0
		       : pawl_err_prefix(err, rv, "get a token from %s%s", file->token.endpoint,
				 file->kind == GOOGLE_SERVICE && status == 400
					 ? " (is this machine's clock right?)"
					 : "");
}

_Static_assert(GOOGLE_PATH_MAX <= REQUEST_PATH_MAX, "every path fits into a request");

/* ---- the machine ---- */

/* Says where credentials were looked for, and why the last place had none. */
static int refuse_all(const struct cred_google *c, const char *endpoint, const char *why,
	struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_EINVAL,
		"no credentials for bucket %s: " ID_NAME " and " FILE_NAME
		" are not set, gcloud has left no " WELL_KNOWN
		", and the metadata service at %s: %s",
		c->bucket, endpoint, why);
}

static int find_machine(const struct cred_io *io, char endpoint[OBJECT_ENDPOINT_MAX],
	struct pawl_err *err)
{
	const char *host = cred_env(io, HOST_NAME);
	char text[OBJECT_ENDPOINT_MAX];

	if (host == NULL) {
		snprintf(endpoint, OBJECT_ENDPOINT_MAX, MACHINE_ENDPOINT);
		return 0;
	}
	if ((size_t)snprintf(text, sizeof(text), "http://%s", host) >= sizeof(text)) {
		return pawl_err_set(err, PAWL_EINVAL, HOST_NAME " is too long");
	}
	return object_endpoint_parse(text, "http:// and " HOST_NAME, endpoint, err);
}

static void begin_machine_request(const char *endpoint, const char *path,
	struct http_request *request)
{
	request_init(request, "GET", endpoint);
	request_add_path(request, path);
	request_add_header(request, "metadata-flavor", "Google");
}

/* Returns whether the service is there. It answers this at once, while it may take long for a
 * token. */
static bool is_machine_there(const struct cred_google *c, const char *endpoint)
{
	struct http_request request;
	char *text = NULL;
	int status;
	int rv;

	begin_machine_request(endpoint, "", &request);
	rv = cred_send(&c->io, &request, NULL, PROBE_TIMEOUT_MS, &status, &text, NULL);
	cred_wipe(text);
	return rv == 0;
}

/* Asks the metadata service. A machine that has never given a token may be none of Google's. */
static int ask_machine(const struct cred_google *c, int64_t now_s, struct cred_key *key,
	struct pawl_err *err)
{
	char endpoint[OBJECT_ENDPOINT_MAX];
	struct http_request request;
	struct pawl_err why = {0};
	int status;
	int rv = find_machine(&c->io, endpoint, err);

	if (rv != 0) {
		return rv;
	}
	if (!c->fresh.is_there && !is_machine_there(c, endpoint)) {
		return refuse_all(c, endpoint, "it does not answer", err);
	}
	begin_machine_request(endpoint, MACHINE_PATH, &request);
	rv = ask_token(c, &request, NULL, MACHINE_TIMEOUT_MS, true, now_s, key, &status, &why);
	if (rv == PAWL_EIO && !c->fresh.is_there && status / 100 == 4 && status != 429) {
		return refuse_all(c, endpoint, why.msg, err);
	}
	return rv == 0 ? 0
		       : pawl_err_set(err, rv, "the metadata service at %s: %s", endpoint, why.msg);
}

/* ---- the chain ---- */

/* Chooses the source. With SOURCE_FILE, file is read: close it. */
static int choose(const struct cred_google *c, enum source *source, struct google_file *file,
	struct pawl_err *err)
{
	const char *id = cred_env(&c->io, ID_NAME);
	const char *secret = cred_env(&c->io, SECRET_NAME);
	int rv;

	if (id != NULL || secret != NULL) {
		*source = SOURCE_HMAC;
		return id != NULL && secret != NULL
			? 0
			: pawl_err_set(err, PAWL_EINVAL, "%s is set, but not %s: set both or none",
				  id != NULL ? ID_NAME : SECRET_NAME,
				  id != NULL ? SECRET_NAME : ID_NAME);
	}
	if (c->endpoint[0] != '\0') {
		*source = SOURCE_NONE;
		return 0;
	}
	rv = read_file(&c->io, file, err);
	*source = rv == 0 ? SOURCE_FILE : SOURCE_MACHINE;
	return rv == PAWL_ENOENT ? 0 : rv;
}

static int set_hmac(const struct cred_google *c, int64_t now_s, struct cred_key *key,
	struct pawl_err *err)
{
	const struct cred_given given = {.id = cred_env(&c->io, ID_NAME),
		.secret = cred_env(&c->io, SECRET_NAME)};
	int rv = cred_key_set(key, &given, now_s, err);

	if (rv == PAWL_EIO) {
		rv = PAWL_EINVAL; /* no source has failed: the variables are wrong */
	}
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, ID_NAME " and " SECRET_NAME);
}

/* Gets a new secret. On error the old one stays. */
static int refresh(struct cred_google *c, int64_t now_s, struct pawl_err *err)
{
	struct google_secret secret = {.kind = GOOGLE_SECRET_TOKEN};
	struct google_file file;
	enum source source;
	int rv;

	c->fresh.asked_s = now_s;
	rv = choose(c, &source, &file, err);
	if (rv != 0) {
		return rv;
	}
	if (source == SOURCE_NONE) {
		secret.kind = GOOGLE_SECRET_NONE;
	} else if (source == SOURCE_HMAC) {
		secret.kind = GOOGLE_SECRET_HMAC;
		rv = set_hmac(c, now_s, &secret.key, err);
	} else if (source == SOURCE_MACHINE) {
		rv = ask_machine(c, now_s, &secret.key, err);
	} else {
		rv = ask_file(c, &file, now_s, &secret.key, err);
		google_file_close(&file);
	}
	if (rv == 0) {
		c->secret = secret;
		cred_fresh_renew(&c->fresh, secret.key.end_s);
	}
	explicit_bzero(&secret, sizeof(secret));
	return rv;
}

int cred_google_get(struct cred_google *cred, int64_t now_s, const struct google_secret **secret,
	struct pawl_err *err)
{
	struct pawl_err why = {0};
	int rv = cred_fresh_is_due(&cred->fresh, now_s) ? refresh(cred, now_s, &why) : 0;

	rv = rv != 0 ? cred_fresh_fail(&cred->fresh, rv, now_s, &why, err) : 0;
	if (rv != 0) {
		return rv;
	}
	*secret = &cred->secret;
	return 0;
}

void cred_google_refused(struct cred_google *cred)
{
	cred->fresh.is_refused = true;
}

const char *cred_google_endpoint(const struct cred_google *cred)
{
	return cred->endpoint;
}

/* ---- open and close ---- */

/* Reads the emulator's endpoint, which may lack its "http://". */
static int find_emulator(struct cred_google *c, const struct object_url *url, struct pawl_err *err)
{
	const char *host = cred_env(&c->io, EMULATOR_NAME);
	char text[OBJECT_ENDPOINT_MAX];

	if (host == NULL || url->endpoint[0] != '\0') {
		return 0;
	}
	if ((size_t)snprintf(text, sizeof(text), "%s%s",
		    strstr(host, "://") == NULL ? "http://" : "", host) >= sizeof(text)) {
		return pawl_err_set(err, PAWL_EINVAL, EMULATOR_NAME " is too long");
	}
	return object_endpoint_parse(text, EMULATOR_NAME, c->endpoint, err);
}

/* Finds out all that can be found out without asking anyone. */
static int find_all(struct cred_google *c, const struct object_url *url, struct pawl_err *err)
{
	char endpoint[OBJECT_ENDPOINT_MAX];
	struct google_file file;
	enum source source;
	int rv;

	if (url->profile[0] != '\0') {
		return pawl_err_set(err, PAWL_EINVAL,
			"address: ?profile= is of S3: Google's credentials come from the "
			"environment");
	}
	rv = find_emulator(c, url, err);
	rv = rv != 0 ? rv : choose(c, &source, &file, err);
	if (rv != 0) {
		return rv;
	}
	if (source == SOURCE_FILE) {
		google_file_close(&file);
	} else if (source == SOURCE_HMAC) {
		c->secret.kind = GOOGLE_SECRET_HMAC;
		rv = set_hmac(c, 0, &c->secret.key, err);
		cred_fresh_renew(&c->fresh, 0);
	} else if (source == SOURCE_MACHINE) {
		rv = find_machine(&c->io, endpoint, err);
	}
	return rv;
}

int cred_google_open(const struct object_url *url, const struct cred_io *io,
	struct cred_google **cred, struct pawl_err *err)
{
	struct cred_google *c = FAULT_MEM("cred.open", calloc(1, sizeof(*c)));
	int rv;

	if (c == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "find credentials: out of memory");
	}
	c->io = *io;
	snprintf(c->bucket, sizeof(c->bucket), "%s", url->bucket);
	rv = find_all(c, url, err);
	if (rv != 0) {
		cred_google_close(c);
		return rv;
	}
	*cred = c;
	return 0;
}

void cred_google_close(struct cred_google *cred)
{
	if (cred != NULL) {
		explicit_bzero(cred, sizeof(*cred));
		free(cred);
	}
}
