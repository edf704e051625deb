/* Reads files with Google's credentials: see google_file.h. */
#include "store/google/google_file.h"

#include "base/err.h"
#include "base/fault.h"
#include "base/text.h"
#include "store/object/cred_key.h"
#include "store/object/cred_sources.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_MAX     64u /* bytes of a name in a message, terminator included */
#define TOKEN_DEFAULT "https://oauth2.googleapis.com/token"

/* ---- JSON ---- */

/* Returns a text of an object that has some; else NULL. */
static const char *text_of(const json_t *all, const char *name)
{
	const char *text = json_string_value(json_object_get(all, name));

	return text != NULL && text[0] != '\0' ? text : NULL;
}

/* Wipes the texts of an object and of those in it, and drops it. */
static void wipe(json_t *all)
{
	const char *name;
	json_t *value;

	json_object_foreach(all, name, value)
	{
		if (json_is_string(value)) {
			explicit_bzero((char *)json_string_value(value), json_string_length(value));
		} else if (json_is_object(value)) {
			wipe(json_incref(value));
		}
	}
	json_decref(all);
}

void google_file_close(struct google_file *file)
{
	wipe(file->all);
	explicit_bzero(file, sizeof(*file));
}

/* Gets texts that a file must have. */
struct wanted {
	const char *name;
	const char **to;
};

static int take_all(const json_t *all, const struct wanted *wanted, size_t n, struct pawl_err *err)
{
	for (size_t i = 0; i < n; i++) {
		*wanted[i].to = text_of(all, wanted[i].name);
		if (*wanted[i].to == NULL) {
			return pawl_err_set(err, PAWL_EINVAL, "it has no \"%s\": is it cut off?",
				wanted[i].name);
		}
	}
	return 0;
}

#define TAKE(all, wanted, err) take_all(all, wanted, sizeof(wanted) / sizeof((wanted)[0]), err)

/* ---- addresses ---- */

/* Reads the address of a service that is told secrets. */
static int read_address(const char *text, const char *name, struct google_address *address,
	struct pawl_err *err)
{
	const char *host = strstr(text, "://");
	const char *path = host != NULL ? strchr(host + 3, '/') : NULL;
	char first[OBJECT_ENDPOINT_MAX];
	int rv;

	if (path == NULL || !cred_is_visible(text) || strpbrk(path, "?#") != NULL) {
		return pawl_err_set(err, PAWL_EINVAL, "its \"%s\" must look like https://HOST/PATH",
			name);
	}
	if ((size_t)snprintf(first, sizeof(first), "%.*s", (int)(path - text), text) >=
			sizeof(first) ||
		(size_t)snprintf(address->path, sizeof(address->path), "%s", path) >=
			sizeof(address->path)) {
		return pawl_err_set(err, PAWL_EINVAL, "its \"%s\" is too long", name);
	}
	rv = object_endpoint_parse(first, name, address->endpoint, err);
	if (rv == 0 && strncmp(address->endpoint, "http:", 5) == 0 &&
		!cred_is_near(address->endpoint)) {
		rv = pawl_err_set(err, PAWL_EINVAL, "its \"%s\" must begin with https://", name);
	}
	snprintf(address->text, sizeof(address->text), "%s", text);
	return rv;
}

/* ---- kinds ---- */

static int read_service(struct google_file *file, const json_t *all, struct pawl_err *err)
{
	const struct wanted wanted[] = {
		{"client_email", &file->email},
		{"private_key", &file->key},
	};
	const char *uri = text_of(all, "token_uri");
	int rv = TAKE(all, wanted, err);

	file->key_id = text_of(all, "private_key_id");
	return rv != 0
		? rv
		: read_address(uri != NULL ? uri : TOKEN_DEFAULT, "token_uri", &file->token, err);
}

static int read_user(struct google_file *file, const json_t *all, struct pawl_err *err)
{
	const struct wanted wanted[] = {
		{"client_id", &file->client_id},
		{"client_secret", &file->client_secret},
		{"refresh_token", &file->refresh},
	};
	const char *uri = text_of(all, "token_uri");
	int rv = TAKE(all, wanted, err);

	return rv != 0
		? rv
		: read_address(uri != NULL ? uri : TOKEN_DEFAULT, "token_uri", &file->token, err);
}

/* Reads where the other provider's token is. */
static int read_source(struct google_file *file, const json_t *source, struct pawl_err *err)
{
	const json_t *format = json_object_get(source, "format");
	const char *type = text_of(format, "type");

	file->subject = text_of(source, "file");
	if (file->subject == NULL) {
		return pawl_err_set(err, PAWL_EINVAL,
			"its \"credential_source\" is no file: Pawl takes tokens of other "
			"providers from a file only");
	}
	if (type == NULL || strcmp(type, "text") == 0) {
		return 0;
	}
	file->field = text_of(format, "subject_token_field_name");
	return strcmp(type, "json") == 0 && file->field != NULL
		? 0
		: pawl_err_set(err, PAWL_EINVAL,
			  "its \"format\" must be text, or json with a subject_token_field_name");
}

static int read_external(struct google_file *file, const json_t *all, struct pawl_err *err)
{
	static const char impersonation[] = "service_account_impersonation_url";
	const char *account = text_of(all, impersonation);
	const char *url = NULL;
	const struct wanted wanted[] = {
		{"audience", &file->audience},
		{"subject_token_type", &file->subject_type},
		{"token_url", &url},
	};
	int rv = TAKE(all, wanted, err);

	if (rv == 0 && account != NULL) {
		rv = read_address(account, impersonation, &file->impersonation, err);
	}
	rv = rv != 0 ? rv : read_source(file, json_object_get(all, "credential_source"), err);
	return rv != 0 ? rv : read_address(url, "token_url", &file->token, err);
}

int google_file_read(struct google_file *file, const char *text, struct pawl_err *err)
{
	static const struct {
		const char *type;      /* type that the file says */
		enum google_kind kind; /* kind that it is */
		int (*read)(struct google_file *file, const json_t *all, struct pawl_err *err);
	} kinds[] = {
		{"service_account", GOOGLE_SERVICE, read_service},
		{"authorized_user", GOOGLE_USER, read_user},
		{"external_account", GOOGLE_EXTERNAL, read_external},
	};
	json_t *all = json_loads(text, 0, NULL);
	const char *type = text_of(all, "type");
	char shown[SHOWN_MAX];
	int rv;

	*file = (struct google_file){.all = all};
	for (size_t i = 0; type != NULL && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(type, kinds[i].type) == 0) {
			file->kind = kinds[i].kind;
			rv = kinds[i].read(file, all, err);
			if (rv != 0) {
				google_file_close(file);
			}
			return rv;
		}
	}
	rv = pawl_err_set(err, PAWL_EINVAL, "it is no JSON of one object with a \"type\"");
	if (type != NULL) {
		text_escape(shown, sizeof(shown), type);
		rv = pawl_err_set(err, PAWL_EINVAL,
			"its type is \"%s\": use one of service_account, authorized_user or "
			"external_account",
			shown);
	}
	google_file_close(file);
	return rv;
}

int google_file_subject(const struct google_file *file, const char *text, char **token,
	struct pawl_err *err)
{
	json_t *all = file->field != NULL ? json_loads(text, 0, NULL) : NULL;
	const char *found = file->field != NULL ? text_of(all, file->field) : text;
	int rv = 0;

	if (found == NULL || !cred_is_visible(found)) {
		rv = pawl_err_set(err, PAWL_EIO, "token file %s holds no token%s", file->subject,
			file->field != NULL ? " under its subject_token_field_name" : "");
	} else {
		*token = FAULT_MEM("google.subject", strdup(found));
		rv = *token != NULL ? 0 : pawl_err_set(err, PAWL_ENOMEM, "no memory for a token");
	}
	wipe(all);
	return rv;
}
