/*
 * Fuzzes what credentials are read from: profile files, what a credential_process prints, answers
 * of STS, of a container's endpoint, of metadata services and of Azure's authority, and Azure's
 * settings. The first byte says which source, the second the status of all answers; behind them
 * stand a file or a setting, a NUL, and an answer. A key that is accepted can be a header.
 */
#include "fuzz.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/log.h"
#include "io/http_request.h"
#include "store/object/cred_aws.h"
#include "store/object/cred_azure.h"

#include <stdlib.h>
#include <string.h>

#define NOW 1700000000 /* 2023-11-14T22:13:20Z */

enum source {
	SOURCE_PROFILE,
	SOURCE_WEB,
	SOURCE_CONTAINER,
	SOURCE_MACHINE,
	SOURCE_CONNECTION,
	SOURCE_AZURE_KEY,
	SOURCE_SAS,
	SOURCE_WORKLOAD,
	SOURCE_AZURE_MACHINE,
	SOURCES_N,
};

static const int statuses[] = {200, 400, 403, 500};

/* The outside of a run. */
struct outside {
	enum source source;
	int status;
	const char *setting; /* a file, or a variable */
	const char *answer;
};

/* ---- the outside ---- */

static const char *get_env(void *user, const char *name)
{
	const struct outside *o = user;
	static const struct {
		enum source source;
		const char *name;
		const char *value; /* NULL: the setting */
	} variables[] = {
		{SOURCE_PROFILE, "AWS_PROFILE", "p"},
		{SOURCE_WEB, "AWS_WEB_IDENTITY_TOKEN_FILE", "/token"},
		{SOURCE_WEB, "AWS_ROLE_ARN", "arn:aws:iam::1:role/r"},
		{SOURCE_CONTAINER, "AWS_CONTAINER_CREDENTIALS_FULL_URI", NULL},
		{SOURCE_CONNECTION, "AZURE_STORAGE_CONNECTION_STRING", NULL},
		{SOURCE_AZURE_KEY, "AZURE_STORAGE_KEY", NULL},
		{SOURCE_SAS, "AZURE_STORAGE_SAS_TOKEN", NULL},
		{SOURCE_WORKLOAD, "AZURE_FEDERATED_TOKEN_FILE", "/token"},
		{SOURCE_WORKLOAD, "AZURE_CLIENT_ID", "client"},
		{SOURCE_WORKLOAD, "AZURE_TENANT_ID", "tenant"},
	};

	for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++) {
		if (variables[i].source == o->source && strcmp(variables[i].name, name) == 0) {
			return variables[i].value ? variables[i].value : o->setting;
		}
	}
	return strcmp(name, "HOME") == 0 ? "/home/u" : NULL;
}

static int give(const char *given, char **text)
{
	*text = strdup(given);
	ASSERT(*text);
	return 0;
}

/* Tokens, and the files of profiles. */
static int read_file(void *user, const char *path, size_t max_bytes, char **text,
	struct pawl_err *err)
{
	const struct outside *o = user;
	bool used = o->source == SOURCE_PROFILE || strcmp(path, "/token") == 0;

	ASSERT(max_bytes >= strlen(o->setting) || o->source == SOURCE_WEB ||
		o->source == SOURCE_WORKLOAD);
	return used ? give(o->setting, text) : pawl_err_set(err, PAWL_ENOENT, "open %s", path);
}

static int run(void *user, const char *command, char **text, struct pawl_err *err)
{
	const struct outside *o = user;

	ASSERT(command[0] != '\0');
	return give(o->answer, text);
}

static int fetch(void *user, const struct http_request *request, const char *body, int timeout_ms,
	int *status, char **text, struct pawl_err *err)
{
	const struct outside *o = user;
	bool role = strstr(request->path, "security-credentials") != NULL &&
		request->path[strlen(request->path) - 1] == '/';

	ASSERT(!request->full && timeout_ms > 0);
	for (uint32_t i = 0; i < request->headers_n; i++) {
		ASSERT(!strpbrk(request->headers[i].value, "\r\n"));
	}
	*status = o->status;
	if (strstr(request->path, "api/token")) { /* the first of a machine's questions */
		*status = 200;
		return give("token", text);
	}
	return give(role ? o->setting : o->answer, text);
}

/* ---- keys ---- */

static void check_visible(const char *text, bool needed)
{
	ASSERT(!needed || text[0] != '\0');
	for (; *text != '\0'; text++) {
		ASSERT(*text > ' ' && *text < 0x7f);
	}
}

static void try_aws(const struct cred_io *io)
{
	struct object_url url = {.service = OBJECT_S3, .bucket = "bucket"};
	struct cred_aws *cred;
	struct sign_aws_key key;
	struct pawl_err err;

	if (cred_aws_open(&url, io, &cred, &err) != 0) {
		return;
	}
	if (cred_aws_get(cred, NOW, &key, &err) == 0) {
		check_visible(key.id, true);
		check_visible(key.token, false);
		ASSERT(key.secret[0] != '\0' && !strpbrk(key.secret, "\r\n"));
	}
	cred_aws_refused(cred);
	cred_aws_get(cred, NOW + 1, &key, &err);
	cred_aws_close(cred);
}

static void check_secret(const struct cred_secret *secret)
{
	switch (secret->kind) {
	case CRED_KEY:
		ASSERT(secret->bytes_n > 0 && secret->bytes_n <= sizeof(secret->bytes));
		break;
	case CRED_SAS:
		check_visible(secret->sas, true);
		break;
	case CRED_TOKEN:
		check_visible(secret->token.token, true);
		ASSERT(secret->token.end_s > NOW);
		break;
	}
}

static void try_azure(const struct cred_io *io)
{
	struct object_url url = {.service = OBJECT_AZURE,
		.bucket = "container",
		.account = "account"};
	struct cred_azure *cred;
	const struct cred_secret *secret;
	struct pawl_err err;

	if (cred_azure_open(&url, io, &cred, &err) != 0) {
		return;
	}
	check_visible(cred_azure_endpoint(cred), false);
	if (cred_azure_get(cred, NOW, &secret, &err) == 0) {
		check_secret(secret);
	}
	cred_azure_close(cred);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	struct outside outside = {0};
	const struct cred_io io = {.user = &outside,
		.env = get_env,
		.read_file = read_file,
		.run = run,
		.fetch = fetch};
	char *setting, *answer;
	size_t setting_bytes;

	log_set_level(LOG_ERROR); /* unused profiles are warned of */
	if (len_bytes < 2) {
		return 0;
	}
	outside.source = (enum source)(bytes[0] % SOURCES_N);
	outside.status = statuses[bytes[1] % 4];
	setting_bytes = strnlen((const char *)bytes + 2, len_bytes - 2);
	setting = strndup((const char *)bytes + 2, setting_bytes);
	len_bytes -= 2 + setting_bytes;
	answer = len_bytes > 0 ? strndup((const char *)bytes + 3 + setting_bytes, len_bytes - 1)
			       : strdup("");
	ASSERT(setting && answer);
	outside.setting = setting;
	outside.answer = answer;
	if (outside.source < SOURCE_CONNECTION) {
		try_aws(&io);
	} else {
		try_azure(&io);
	}
	free(setting);
	free(answer);
	return 0;
}

/* ---- seeds ---- */

#define JSON                                                                                       \
	"{\"Code\": \"Success\", \"Version\": 1, \"AccessKeyId\": \"A\", \"SecretAccessKey\": "    \
	"\"s\", \"Token\": \"t\", \"SessionToken\": \"t\", \"Expiration\": "                       \
	"\"2023-11-14T23:13:20.5+01:30\"}"
#define STS                                                                                        \
	"<R xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Credentials><AccessKeyId>A"       \
	"</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>"         \
	"<Expiration>2023-11-14T23:13:20Z</Expiration></Credentials></R>"
#define OAUTH "{\"access_token\": \"t\", \"expires_in\": \"3600\", \"token_type\": \"Bearer\"}"
#define KEYS  "aws_access_key_id = A\r\naws_secret_access_key=s ; comment\n"

static const struct {
	enum source source;
	uint8_t status; /* place in statuses */
	const char *setting;
	const char *answer;
} seeds[] = {
	{SOURCE_PROFILE, 0, "\xef\xbb\xbf[p]\n" KEYS "region = eu-west-1\ns3 =\n  deeper = 1\n",
		""},
	{SOURCE_PROFILE, 0, "[profile p]\ncredential_process = /bin/x \"a b\"\n[p]\n", JSON},
	{SOURCE_PROFILE, 0,
		"# roles\n[p]\nrole_arn = arn:x\nsource_profile = q\nduration_seconds = 900\n"
		"external_id = e\nrole_session_name = n\n[q]\n" KEYS "[profile q]\n" KEYS,
		STS},
	{SOURCE_PROFILE, 0,
		"[p]\nrole_arn = arn:x\nweb_identity_token_file = ~/t\n[profile p]\n"
		"sso_start_url = u\nendpoint_url = http://127.0.0.1:1\n",
		STS},
	{SOURCE_WEB, 0, "jwt\n", STS},
	{SOURCE_WEB, 2, "jwt",
		"<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error>"
		"</ErrorResponse>"},
	{SOURCE_CONTAINER, 0, "http://127.0.0.1:80/v2/id?x=1", JSON},
	{SOURCE_CONTAINER, 0, "http://[fd00:ec2::23]/", JSON},
	{SOURCE_MACHINE, 0, "the-role\nanother", JSON},
	{SOURCE_CONNECTION, 0,
		"DefaultEndpointsProtocol=https;AccountName=account;AccountKey=c2VjcmV0;"
		"EndpointSuffix=core.windows.net;",
		""},
	{SOURCE_CONNECTION, 0,
		"BlobEndpoint=http://127.0.0.1:10000/account;SharedAccessSignature=sv=1&sig=a%2Fb",
		""},
	{SOURCE_AZURE_KEY, 0, "c2VjcmV0c2VjcmV0", ""},
	{SOURCE_SAS, 0, "?sv=2021-12-02&se=2023-11-15T00%3A00%3A00Z&sig=a%2Fb", ""},
	{SOURCE_WORKLOAD, 0, "jwt\n", OAUTH},
	{SOURCE_WORKLOAD, 1, "jwt",
		"{\"error\": \"invalid_grant\", \"error_description\": \"AADSTS70021: no\"}"},
	{SOURCE_AZURE_MACHINE, 0, "", OAUTH},
};

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	size_t setting_bytes, answer_bytes;

	if (i >= sizeof(seeds) / sizeof(*seeds)) {
		return 0;
	}
	setting_bytes = strlen(seeds[i].setting) + 1;
	answer_bytes = strlen(seeds[i].answer);
	buf[0] = (uint8_t)seeds[i].source;
	buf[1] = seeds[i].status;
	memcpy(buf + 2, seeds[i].setting, setting_bytes);
	memcpy(buf + 2 + setting_bytes, seeds[i].answer, answer_bytes);
	return 2 + setting_bytes + answer_bytes;
}
