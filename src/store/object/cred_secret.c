/* Reads settings that authorize requests to Azure's storage: see cred_secret.h. */
#include "store/object/cred_secret.h"

#include "base/err.h"
#include "base/fault.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SHOWN_MAX 64u /* bytes of a name in a message, terminator included */

/* ---- the parts of a secret ---- */

int cred_secret_check_account(const char *given, const char *account, const char *name,
	struct pawl_err *err)
{
	char shown[SHOWN_MAX];

	if (strcmp(given, account) == 0) {
		return 0;
	}
	text_escape(shown, sizeof(shown), given);
	return pawl_err_set(err, PAWL_EINVAL,
		"%s says account \"%s\", but the address \"%s\": change one of them", name, shown,
		account);
}

int cred_secret_set_key(struct cred_secret *secret, const char *key, const char *name,
	struct pawl_err *err)
{
	secret->kind = CRED_KEY;
	return sign_azure_decode(key, secret->bytes, &secret->bytes_n)
		? 0
		: pawl_err_set(err, PAWL_EINVAL,
			  "%s is no key in base64: copy it as az storage account keys list "
			  "prints it; is a line's end in it?",
			  name);
}

int cred_secret_set_sas(struct cred_secret *secret, const char *sas, const char *name,
	struct pawl_err *err)
{
	const char *sig;

	sas += sas[0] == '?';
	sig = strstr(sas, "sig=");
	secret->kind = CRED_SAS;
	if (!cred_is_visible(sas) || strpbrk(sas, "#?") != NULL || sig == NULL ||
		(sig > sas && sig[-1] != '&')) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%s is no SAS: it looks like sv=...&sig=..., without an address before it",
			name);
	}
	if ((size_t)snprintf(secret->sas, sizeof(secret->sas), "%s", sas) >= sizeof(secret->sas)) {
		return pawl_err_set(err, PAWL_ELIMIT, "%s has %zu bytes: at most %u", name,
			strlen(sas), CRED_SAS_MAX - 1);
	}
	return 0;
}

/* ---- the connection string ---- */

/* Parts of the string, each NULL if it is missing or empty. */
struct connection {
	const char *account;     /* AccountName */
	const char *key;         /* AccountKey */
	const char *sas;         /* SharedAccessSignature */
	const char *endpoint;    /* BlobEndpoint */
	const char *suffix;      /* EndpointSuffix */
	const char *protocol;    /* DefaultEndpointsProtocol */
	const char *development; /* UseDevelopmentStorage */
};

/* Divides "NAME=VALUE;NAME=VALUE" in place. Parts for other services than blobs are left out. */
static int split_connection(char *text, struct connection *c, struct pawl_err *err)
{
	const struct {
		const char *name;   /* name of a part, in any case */
		const char **value; /* takes the value */
	} parts[] = {
		{"AccountName", &c->account},
		{"AccountKey", &c->key},
		{"SharedAccessSignature", &c->sas},
		{"BlobEndpoint", &c->endpoint},
		{"EndpointSuffix", &c->suffix},
		{"DefaultEndpointsProtocol", &c->protocol},
		{"UseDevelopmentStorage", &c->development},
	};
	char *next = text;
	char *at;

	while ((at = strsep(&next, ";")) != NULL) {
		char *equals = strchr(at, '=');

		if (at[0] == '\0') {
			continue;
		}
		if (equals == NULL) {
			return pawl_err_set(err, PAWL_EINVAL,
				"a part of it is no NAME=VALUE: parts are divided by ;");
		}
		*equals = '\0';
		for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
			if (strcasecmp(at, parts[i].name) == 0 && equals[1] != '\0') {
				*parts[i].value = equals + 1;
			}
		}
	}
	return 0;
}

/* Reads BlobEndpoint, which names the account in its host or in its path. */
static int read_endpoint(const char *account, const char *text, char endpoint[OBJECT_ENDPOINT_MAX],
	struct pawl_err *err)
{
	const char *host = strstr(text, "://");
	const char *path = host != NULL ? host + 3 + strcspn(host + 3, "/") : text + strlen(text);
	size_t account_n = strlen(account);
	char first[OBJECT_ENDPOINT_MAX];
	bool in_host;
	int rv;

	if ((size_t)snprintf(first, sizeof(first), "%.*s", (int)(path - text), text) >=
		sizeof(first)) {
		return pawl_err_set(err, PAWL_ELIMIT, "its BlobEndpoint is too long");
	}
	rv = object_endpoint_parse(first, "its BlobEndpoint", endpoint, err);
	if (rv != 0) {
		return rv;
	}
	host = strstr(endpoint, "://") + 3;
	in_host = strncmp(host, account, account_n) == 0 && host[account_n] == '.';
	path += path[0] == '/';
	if (!in_host && strncmp(path, account, account_n) == 0) {
		path += account_n;
		path += path[0] == '/';
		in_host = path[0] == '\0';
	}
	return in_host && path[0] == '\0'
		? 0
		: pawl_err_set(err, PAWL_EINVAL,
			  "its BlobEndpoint does not have the address's account \"%s\": it must "
			  "look like https://%s.HOST or http://HOST/%s",
			  account, account, account);
}

/* Finds the endpoint; "": the service's own. */
static int find_endpoint(const char *account, const struct connection *c,
	char endpoint[OBJECT_ENDPOINT_MAX], struct pawl_err *err)
{
	char text[OBJECT_ENDPOINT_MAX];

	if (c->endpoint != NULL) {
		return read_endpoint(account, c->endpoint, endpoint, err);
	}
	endpoint[0] = '\0';
	if (c->suffix == NULL && c->protocol == NULL) {
		return 0;
	}
	if ((size_t)snprintf(text, sizeof(text), "%s://%s.blob.%s",
		    c->protocol != NULL ? c->protocol : "https", account,
		    c->suffix != NULL ? c->suffix : "core.windows.net") >= sizeof(text)) {
		return pawl_err_set(err, PAWL_ELIMIT, "its EndpointSuffix is too long");
	}
	return object_endpoint_parse(text,
		"what its DefaultEndpointsProtocol and EndpointSuffix make", endpoint, err);
}

static int use_connection(const char *account, const struct connection *c,
	struct cred_secret *secret, char endpoint[OBJECT_ENDPOINT_MAX], struct pawl_err *err)
{
	int rv;

	if (c->development != NULL) {
		return pawl_err_set(err, PAWL_EINVAL,
			"UseDevelopmentStorage is not supported: write AccountName, AccountKey and "
			"BlobEndpoint");
	}
	if (c->account == NULL && c->endpoint == NULL) {
		return pawl_err_set(err, PAWL_EINVAL, "it has no AccountName");
	}
	rv = c->account != NULL
		? cred_secret_check_account(c->account, account, "its AccountName", err)
		: 0;
	rv = rv != 0 ? rv : find_endpoint(account, c, endpoint, err);
	if (rv != 0) {
		return rv;
	}
	if (c->key != NULL) {
		return cred_secret_set_key(secret, c->key, "its AccountKey", err);
	}
	return c->sas != NULL
		? cred_secret_set_sas(secret, c->sas, "its SharedAccessSignature", err)
		: pawl_err_set(err, PAWL_EINVAL,
			  "it has neither AccountKey nor SharedAccessSignature");
}

int cred_secret_read_connection(struct cred_secret *secret, const char *text, const char *account,
	char endpoint[OBJECT_ENDPOINT_MAX], struct pawl_err *err)
{
	size_t len_bytes = strlen(text);
	struct connection c = {0};
	char *copy;
	int rv;

	if (cred_has_control(text)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"it has a control character: is a line's end in it?");
	}
	copy = FAULT_MEM("cred.connection", strdup(text));
	if (copy == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "out of memory");
	}
	rv = split_connection(copy, &c, err);
	rv = rv != 0 ? rv : use_connection(account, &c, secret, endpoint, err);
	explicit_bzero(copy, len_bytes);
	free(copy);
	return rv;
}
