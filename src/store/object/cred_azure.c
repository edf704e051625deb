/* Finds credentials for Azure's storage and keeps them fresh: see cred_azure.h. The chain is walked
 * anew for each token. Whatever holds a secret is wiped by the function that made or got it. */
#include "store/object/cred_azure.h"

#include "base/err.h"
#include "base/fault.h"
#include "io/http_request.h"
#include "store/object/cred_fresh.h"
#include "store/object/cred_sources.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROBE_TIMEOUT_MS     1000  /* a request to a metadata service, which may not exist */
#define MACHINE_TIMEOUT_MS   10000 /* a request for a token of the machine, which may be new */
#define AUTHORITY_TIMEOUT_MS 10000

#define CONNECTION_NAME   "AZURE_STORAGE_CONNECTION_STRING"
#define KEY_NAME          "AZURE_STORAGE_KEY"
#define SAS_NAME          "AZURE_STORAGE_SAS_TOKEN"
#define FILE_NAME         "AZURE_FEDERATED_TOKEN_FILE"
#define AUTHORITY_NAME    "AZURE_AUTHORITY_HOST"
#define AUTHORITY_DEFAULT "https://login.microsoftonline.com"
#define SCOPE             "https://storage.azure.com/.default"
#define RESOURCE          "https://storage.azure.com/"
#define MACHINE_ENDPOINT  "http://169.254.169.254"
#define MACHINE_PATH      "metadata/identity/oauth2/token"
#define MACHINE_VERSION   "2018-02-01"

enum source {
	SOURCE_CONNECTION, /* the connection string */
	SOURCE_KEY,        /* the key of the account */
	SOURCE_SAS,        /* a shared access signature */
	SOURCE_WORKLOAD,   /* exchanges the token in a file */
	SOURCE_MACHINE,    /* the metadata service */
};

struct cred_azure {
	struct cred_io io;                  /* the outside */
	char account[OBJECT_NAME_MAX];      /* account of the address */
	char endpoint[OBJECT_ENDPOINT_MAX]; /* endpoint of the connection string; "": none */
	struct cred_secret secret;          /* secret in use, if fresh.is_there */
	struct cred_fresh fresh;
};

/* ---- tokens ---- */

/* Asks for a token. tells: as in cred_key_read_oauth. *status is 0 if no answer came. */
static int ask_token(const struct cred_azure *c, const struct http_request *request,
	const char *body, int timeout_ms, bool tells, int64_t now_s, struct cred_secret *secret,
	int *status, struct pawl_err *err)
{
	char *text = NULL;
	int rv;

	*status = 0;
	rv = cred_send(&c->io, request, body, timeout_ms, status, &text, err);
	if (rv == 0) {
		rv = cred_key_read_oauth(&secret->token, *status, text, tells, now_s, err);
	}
	cred_wipe(text);
	secret->kind = CRED_TOKEN;
	return rv;
}

/* The identity of a workload. */
struct workload {
	const char *file;                    /* path of its token */
	const char *client;                  /* id of the application */
	const char *tenant;                  /* id of the directory that has it */
	char authority[OBJECT_ENDPOINT_MAX]; /* gives the token for storage */
};

static int find_workload(const struct cred_io *io, struct workload *w, struct pawl_err *err)
{
	const char *authority = cred_env(io, AUTHORITY_NAME);
	int rv;

	w->file = cred_env(io, FILE_NAME);
	w->client = cred_env(io, "AZURE_CLIENT_ID");
	w->tenant = cred_env(io, "AZURE_TENANT_ID");
	if (w->file == NULL || w->client == NULL || w->tenant == NULL) {
		return pawl_err_set(err, PAWL_EINVAL, FILE_NAME " is set, but not %s: set it",
			w->client == NULL ? "AZURE_CLIENT_ID" : "AZURE_TENANT_ID");
	}
	if (w->tenant[strspn(w->tenant,
		    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
		    "0123456789-.")] != '\0') {
		return pawl_err_set(err, PAWL_EINVAL,
			"AZURE_TENANT_ID is no id of a directory, nor its domain");
	}
	rv = object_endpoint_parse(authority != NULL ? authority : AUTHORITY_DEFAULT,
		AUTHORITY_NAME, w->authority, err);
	if (rv == 0 && strncmp(w->authority, "http:", 5) == 0 && !cred_is_near(w->authority)) {
		rv = pawl_err_set(err, PAWL_EINVAL, AUTHORITY_NAME " must begin with https://");
	}
	return rv;
}

/* Writes the form that exchanges the token in the file. */
static int write_form(const struct cred_io *io, const struct workload *w, struct cred_form *form,
	struct pawl_err *err)
{
	char *token;
	int rv = cred_read_token(io, w->file, &token, err);

	if (rv != 0) {
		return pawl_err_prefix(err, rv, FILE_NAME);
	}
	*form = cred_form_begin();
	cred_form_add(form, "client_id", w->client);
	cred_form_add(form, "grant_type", "client_credentials");
	cred_form_add(form, "scope", SCOPE);
	cred_form_add(form, "client_assertion_type",
		"urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
	cred_form_add(form, "client_assertion", token);
	cred_wipe(token);
	if (form->text == NULL || form->is_cut) {
		rv = pawl_err_set(err, form->is_cut ? PAWL_ELIMIT : PAWL_ENOMEM,
			form->is_cut ? FILE_NAME ": the token is too long"
				     : FILE_NAME ": out of memory");
		cred_form_end(form);
	}
	return rv;
}

static int ask_workload(const struct cred_azure *c, int64_t now_s, struct cred_secret *secret,
	struct pawl_err *err)
{
	struct http_request request;
	struct workload w;
	struct cred_form form;
	int status;
	int rv = find_workload(&c->io, &w, err);

	rv = rv != 0 ? rv : write_form(&c->io, &w, &form, err);
	if (rv != 0) {
		return rv;
	}
	request_init(&request, "POST", w.authority);
	request_add_path(&request, w.tenant);
	request_add_path(&request, "oauth2/v2.0/token");
	request_add_header(&request, "content-type", "application/x-www-form-urlencoded");
	rv = ask_token(c, &request, form.text, AUTHORITY_TIMEOUT_MS, false, now_s, secret, &status,
		err);
	cred_form_end(&form);
	return rv == 0 ? 0
		       : pawl_err_prefix(err, rv, "exchange the token of " FILE_NAME " at %s",
				 w.authority);
}

/* ---- the machine ---- */

/* Says where credentials were looked for, and why the last place had none. */
static int refuse_all(const struct cred_azure *c, const char *why, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_EINVAL,
		"no credentials for account %s: " CONNECTION_NAME ", " KEY_NAME ", " SAS_NAME
		" and " FILE_NAME " are not set, and the metadata service at " MACHINE_ENDPOINT
		": %s (az login is not asked)",
		c->account, why);
}

static void begin_machine_request(const struct cred_azure *c, struct http_request *request)
{
	const char *client = cred_env(&c->io, "AZURE_CLIENT_ID");

	request_init(request, "GET", MACHINE_ENDPOINT);
	request_add_path(request, MACHINE_PATH);
	request_add_query(request, "api-version", MACHINE_VERSION);
	if (client != NULL) {
		request_add_query(request, "client_id", client);
	}
	request_add_query(request, "resource", RESOURCE);
}

/* Returns whether the service is there. It answers at once what lacks its header, while it may take
 * long for a token. */
static bool is_machine_there(const struct cred_azure *c)
{
	struct http_request request;
	char *text = NULL;
	int status;
	int rv;

	begin_machine_request(c, &request);
	rv = cred_send(&c->io, &request, NULL, PROBE_TIMEOUT_MS, &status, &text, NULL);
	cred_wipe(text);
	return rv == 0;
}

/* Asks the metadata service. A machine that has never given a token may be none of Azure's. */
static int ask_machine(const struct cred_azure *c, int64_t now_s, struct cred_secret *secret,
	struct pawl_err *err)
{
	struct http_request request;
	struct pawl_err why = {0};
	int status;
	int rv;

	if (!c->fresh.is_there && !is_machine_there(c)) {
		return refuse_all(c, "it does not answer", err);
	}
	begin_machine_request(c, &request);
	request_add_header(&request, "metadata", "true");
	rv = ask_token(c, &request, NULL, MACHINE_TIMEOUT_MS, true, now_s, secret, &status, &why);
	if (rv == PAWL_EIO && !c->fresh.is_there &&
		(status == 400 || status == 403 || status == 404)) {
		return refuse_all(c, why.msg, err);
	}
	return rv == 0 ? 0
		       : pawl_err_set(err, rv, "the metadata service at " MACHINE_ENDPOINT ": %s",
				 why.msg);
}

/* ---- the chain ---- */

static enum source choose(const struct cred_azure *c)
{
	static const struct {
		const char *name;   /* a variable that must be set */
		enum source source; /* source that it chooses */
	} chain[] = {
		{CONNECTION_NAME, SOURCE_CONNECTION},
		{KEY_NAME, SOURCE_KEY},
		{SAS_NAME, SOURCE_SAS},
		{FILE_NAME, SOURCE_WORKLOAD},
	};

	for (size_t i = 0; i < sizeof(chain) / sizeof(chain[0]); i++) {
		if (cred_env(&c->io, chain[i].name) != NULL) {
			return chain[i].source;
		}
	}
	return SOURCE_MACHINE;
}

/* Reads a source that asks nobody. */
static int read_source(const struct cred_azure *c, enum source source, struct cred_secret *secret,
	char endpoint[OBJECT_ENDPOINT_MAX], struct pawl_err *err)
{
	static const char name[] = "AZURE_STORAGE_ACCOUNT";
	const char *account = cred_env(&c->io, name);
	int rv;

	if (source == SOURCE_CONNECTION) {
		rv = cred_secret_read_connection(secret, cred_env(&c->io, CONNECTION_NAME),
			c->account, endpoint, err);
		return rv == 0 ? 0 : pawl_err_prefix(err, rv, CONNECTION_NAME);
	}
	rv = account != NULL ? cred_secret_check_account(account, c->account, name, err) : 0;
	if (rv != 0) {
		return rv;
	}
	return source == SOURCE_KEY
		? cred_secret_set_key(secret, cred_env(&c->io, KEY_NAME), KEY_NAME, err)
		: cred_secret_set_sas(secret, cred_env(&c->io, SAS_NAME), SAS_NAME, err);
}

/* Finds out all that can be found out without asking anyone. */
static int find_all(struct cred_azure *c, const struct object_url *url, struct pawl_err *err)
{
	enum source source = choose(c);
	struct workload w;
	int rv = 0;

	if (url->profile[0] != '\0') {
		return pawl_err_set(err, PAWL_EINVAL,
			"address: ?profile= is of S3: Azure's credentials come from the "
			"environment");
	}
	if (source == SOURCE_WORKLOAD) {
		return find_workload(&c->io, &w, err);
	}
	if (source != SOURCE_MACHINE) {
		rv = read_source(c, source, &c->secret, c->endpoint, err);
		if (rv == 0) {
			cred_fresh_renew(&c->fresh, c->secret.token.end_s);
		}
	}
	return rv;
}

/* Gets a new secret. On error the old one stays. The endpoint is that of the beginning. */
static int refresh(struct cred_azure *c, int64_t now_s, struct pawl_err *err)
{
	enum source source = choose(c);
	char endpoint[OBJECT_ENDPOINT_MAX];
	struct cred_secret secret = {0};
	int rv;

	c->fresh.asked_s = now_s;
	if (source == SOURCE_WORKLOAD) {
		rv = ask_workload(c, now_s, &secret, err);
	} else if (source == SOURCE_MACHINE) {
		rv = ask_machine(c, now_s, &secret, err);
	} else {
		rv = read_source(c, source, &secret, endpoint, err);
	}
	if (rv == 0) {
		c->secret = secret;
		cred_fresh_renew(&c->fresh, secret.token.end_s);
	}
	explicit_bzero(&secret, sizeof(secret));
	return rv;
}

int cred_azure_get(struct cred_azure *cred, int64_t now_s, const struct cred_secret **secret,
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

void cred_azure_refused(struct cred_azure *cred)
{
	cred->fresh.is_refused = true;
}

const char *cred_azure_endpoint(const struct cred_azure *cred)
{
	return cred->endpoint;
}

/* ---- open and close ---- */

int cred_azure_open(const struct object_url *url, const struct cred_io *io,
	struct cred_azure **cred, struct pawl_err *err)
{
	struct cred_azure *c = FAULT_MEM("cred.open", calloc(1, sizeof(*c)));
	int rv;

	if (c == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "find credentials: out of memory");
	}
	c->io = *io;
	snprintf(c->account, sizeof(c->account), "%s", url->account);
	rv = find_all(c, url, err);
	if (rv != 0) {
		cred_azure_close(c);
		return rv;
	}
	*cred = c;
	return 0;
}

void cred_azure_close(struct cred_azure *cred)
{
	if (cred != NULL) {
		explicit_bzero(cred, sizeof(*cred));
		free(cred);
	}
}
