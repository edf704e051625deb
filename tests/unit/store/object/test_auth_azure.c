/* Requests to Azure's storage, authorized: the order of the sources, connection strings, keys, SAS,
 * identities, fresh tokens in time, refused ones. The outside is cred_fake.h. */
#include "cred_fake.h"
#include "each_fault.h"
#include "store/object/auth.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define CONNECTION "AZURE_STORAGE_CONNECTION_STRING"
#define KEY_B64    "aHVzaCBrZXk=" /* "hush key" */
#define OTHER_B64  "aHVzaCB0b28=" /* "hush too" */
#define SAS        "sv=2021-12-02&sp=rwdl&sig=hush%3D"
#define STORAGE    "resource=https%3A%2F%2Fstorage.azure.com%2F"
#define IDENTITY   "GET http://169.254.169.254/metadata/identity/oauth2/token"
#define MACHINE    IDENTITY "?api-version=2018-02-01&"
#define AUTHORITY  "POST https://login.microsoftonline.com/tenant-1/oauth2/v2.0/token"
#define TOKEN(x)   "{\"token_type\":\"Bearer\",\"expires_in\":3600,\"access_token\":\"hush-" x "\"}"
#define TEXT_TOKEN(x)                                                                              \
	"{\"access_token\":\"hush-" x "\",\"expires_in\":\"3600\",\"expires_on\":\"1\"}"

static struct object_auth *auth;
static struct http_request request;

static int begin_auth(void **state)
{
	begin(state);
	url.service = OBJECT_AZURE;
	snprintf(url.account, sizeof(url.account), "acct");
	snprintf(url.bucket, sizeof(url.bucket), "box");
	auth = NULL;
	return 0;
}

static int end_auth(void **state)
{
	if (auth != NULL) {
		auth->ops->close(auth);
	}
	auth = NULL;
	return end(state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin_auth, end_auth)

static void open_auth(void)
{
	end_auth(NULL);
	OK(auth_azure_open(&url, &outside, &auth, &err));
	assert_string_equal(auth->ops->region(auth), "");
}

#define AUTH_REFUSES(want, says) REFUSES(want, auth_azure_open(&url, &outside, &auth, &err), says)

/* Signs a request for an object. */
static int sign_at(int64_t now_s, const char *endpoint)
{
	request_init(&request, "GET", endpoint);
	request_add_path(&request, "box/key");
	request_add_header(&request, "x-ms-version", "2021-12-02");
	return auth->ops->sign(auth, &request, "", 0, now_s, &err);
}

#define HOST                     "https://acct.blob.core.windows.net"
#define SIGN(now)                sign_at(now, HOST)
#define SIGN_REFUSES(want, says) REFUSES(want, SIGN(NOW), says)

/* Expects a signature by a key. Those here were computed by another implementation: see
 * test_sign_azure.c. */
static void assert_signed(const char *signature)
{
	char value[128];

	OK(SIGN(NOW));
	snprintf(value, sizeof(value), "SharedKey acct:%s", signature);
	assert_string_equal(request_header(&request, "x-ms-date"), "Tue, 14 Nov 2023 22:13:20 GMT");
	assert_string_equal(request_header(&request, "authorization"), value);
	assert_string_equal(request.query, "");
}

#define BY_KEY   "SzAi6e+FWkR0CPC2hHGg7VUCapT7ZIfrcbvhxCn3w5U="
#define BY_OTHER "ryxxq9pPCjS336It+PVIzpvaqf2jd70OuQLv+PVcJuM="

static void assert_token(int64_t now_s, const char *token)
{
	char value[128];

	OK(SIGN(now_s));
	snprintf(value, sizeof(value), "Bearer hush-%s", token);
	assert_string_equal(request_header(&request, "authorization"), value);
	assert_non_null(request_header(&request, "x-ms-date"));
	assert_string_equal(request.query, "");
}

static void assert_sas(void)
{
	OK(SIGN(NOW));
	assert_string_equal(request.query, SAS);
	assert_null(request_header(&request, "authorization"));
}

static void set_workload(void)
{
	set(env, "AZURE_FEDERATED_TOKEN_FILE", "/token");
	set(env, "AZURE_CLIENT_ID", "client 1");
	set(env, "AZURE_TENANT_ID", "tenant-1");
	set(files, "/token", "hush/jwt\n");
	set_answer(AUTHORITY, 200, TOKEN("WORK"), 0);
}

/* The metadata service answers a request without its header, and then gives a token. */
static void set_identity(int status, const char *text)
{
	set_answer(MACHINE STORAGE, 400, "{\"error\":\"bad_request_102\"}", 1);
	set_answer(MACHINE STORAGE, status, text, 0);
}

/* ---- the chain ---- */

static void sources_have_an_order(void **state)
{
	set_identity(200, TEXT_TOKEN("IMDS"));
	open_auth();
	assert_token(NOW, "IMDS");
	set_workload();
	open_auth();
	assert_token(NOW, "WORK");
	set(env, "AZURE_STORAGE_SAS_TOKEN", "?" SAS);
	open_auth();
	assert_sas();
	set(env, "AZURE_STORAGE_KEY", KEY_B64);
	open_auth();
	assert_signed(BY_KEY);
	set(env, CONNECTION, "AccountName=acct;AccountKey=" OTHER_B64);
	open_auth();
	assert_signed(BY_OTHER);
	assert_string_equal(auth->ops->endpoint(auth), "");
}

static void places_without_credentials_are_listed(void **state)
{
	open_auth();
	SIGN_REFUSES(PAWL_EINVAL, "no credentials for account acct: " CONNECTION ", ");
	SAYS("AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN and AZURE_FEDERATED_TOKEN_FILE");
	SAYS("http://169.254.169.254: it does not answer");
	assert_int_equal(last_timeout_ms, 1000);
	set(env, "AZURE_STORAGE_KEY", KEY_B64); /* found without a second open */
	assert_signed(BY_KEY);
}

static void nothing_is_asked_at_open(void **state)
{
	open_auth();
	set_workload();
	open_auth();
	set(env, "AZURE_STORAGE_KEY", KEY_B64);
	open_auth();
	assert_string_equal(trace, "");
}

static void profiles_are_refused(void **state)
{
	set(env, "AZURE_STORAGE_KEY", KEY_B64);
	snprintf(url.profile, sizeof(url.profile), "dev");
	AUTH_REFUSES(PAWL_EINVAL, "?profile= is of S3");
}

/* ---- keys and SAS ---- */

static void accounts_must_agree(void **state)
{
	set(env, "AZURE_STORAGE_KEY", KEY_B64);
	set(env, "AZURE_STORAGE_ACCOUNT", "acct");
	open_auth();
	assert_signed(BY_KEY);
	set(env, "AZURE_STORAGE_ACCOUNT", "other");
	AUTH_REFUSES(PAWL_EINVAL,
		"AZURE_STORAGE_ACCOUNT says account \"other\", but the address \"acct\"");
	set(env, "AZURE_STORAGE_KEY", "");
	set(env, "AZURE_STORAGE_SAS_TOKEN", SAS);
	AUTH_REFUSES(PAWL_EINVAL, "AZURE_STORAGE_ACCOUNT says account \"other\"");
	set(env, CONNECTION, "AccountName=acct;AccountKey=" KEY_B64);
	open_auth(); /* the string says what its own account is */
	assert_signed(BY_KEY);
}

static void keys_are_checked(void **state)
{
	static const char *const bad[] = {"hushhush\n", "hush hus", "h=====", "hush*ush"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		set(env, "AZURE_STORAGE_KEY", bad[i]);
		AUTH_REFUSES(PAWL_EINVAL, "AZURE_STORAGE_KEY is no key in base64");
		SAYS("is a line's end in it?");
	}
}

static void sas_are_checked(void **state)
{
	static char text[4096];
	static const char *const bad[] = {"hush", "sv=1&sig=hush\n", "sv=1&sig=hu sh",
		"sv=1&notsig=hush", "https://acct.blob.core.windows.net/?sv=1&sig=hush",
		"sv=1&sig=hush#"};
	int n = snprintf(text, sizeof(text), "sig=hush");

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		set(env, "AZURE_STORAGE_SAS_TOKEN", bad[i]);
		AUTH_REFUSES(PAWL_EINVAL, "AZURE_STORAGE_SAS_TOKEN is no SAS");
	}
	memset(text + n, 'a', 2048);
	set(env, "AZURE_STORAGE_SAS_TOKEN", text);
	AUTH_REFUSES(PAWL_ELIMIT, "AZURE_STORAGE_SAS_TOKEN has 2056 bytes: at most 2047");
	text[2047] = '\0';
	open_auth();
	OK(SIGN(NOW));
	assert_string_equal(request.query, text);
	request_init(&request, "GET", HOST);
	memset(request.query, 'q', REQUEST_QUERY_MAX - 1000);
	REFUSES(PAWL_ELIMIT, auth->ops->sign(auth, &request, "", 0, NOW, &err), "too long");
}

/* ---- connection strings ---- */

static void connection_strings_are_read(void **state)
{
	static const struct {
		const char *text;     /* the connection string */
		const char *endpoint; /* the right one */
	} cases[] = {
		{"AccountName=acct;AccountKey=" KEY_B64, ""},
		{";accountname=acct;;ACCOUNTKEY=" KEY_B64 ";", ""},
		{"DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=" KEY_B64
		 ";EndpointSuffix=core.windows.net",
			"https://acct.blob.core.windows.net"},
		{"DefaultEndpointsProtocol=http;AccountName=acct;AccountKey=" KEY_B64,
			"http://acct.blob.core.windows.net"},
		{"EndpointSuffix=core.chinacloudapi.cn;AccountName=acct;AccountKey=" KEY_B64,
			"https://acct.blob.core.chinacloudapi.cn"},
		{"AccountName=acct;AccountKey=" KEY_B64 ";BlobEndpoint=http://127.0.0.1:10000/acct",
			"http://127.0.0.1:10000"},
		{"AccountName=acct;AccountKey=" KEY_B64
		 ";BlobEndpoint=http://127.0.0.1:10000/acct/;QueueEndpoint=http://x",
			"http://127.0.0.1:10000"},
		{"AccountKey=" KEY_B64 ";BlobEndpoint=https://acct.z1.blob.storage.azure.net/;"
		 "EndpointSuffix=x",
			"https://acct.z1.blob.storage.azure.net"},
		{"AccountName=acct;AccountKey=" KEY_B64 ";SharedAccessSignature=" SAS, ""},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		set(env, CONNECTION, cases[i].text);
		open_auth();
		assert_string_equal(auth->ops->endpoint(auth), cases[i].endpoint);
		assert_signed(BY_KEY);
	}
	set(env, CONNECTION,
		"BlobEndpoint=https://acct.blob.core.windows.net/;SharedAccessSignature=?" SAS);
	open_auth();
	assert_sas();
	assert_string_equal(auth->ops->endpoint(auth), HOST);
}

static void connection_strings_are_checked(void **state)
{
	static const struct {
		const char *text; /* the connection string */
		int rv;           /* the right error */
		const char *says; /* part of the message */
	} cases[] = {
		{"hush", PAWL_EINVAL, "a part of it is no NAME=VALUE"},
		{"AccountName=acct;hush", PAWL_EINVAL, "a part of it is no NAME=VALUE"},
		{"AccountName=acct;AccountKey=" KEY_B64 "\n", PAWL_EINVAL, "control character"},
		{"AccountKey=" KEY_B64, PAWL_EINVAL, "it has no AccountName"},
		{"AccountName=;AccountKey=" KEY_B64, PAWL_EINVAL, "it has no AccountName"},
		{"AccountName=acct", PAWL_EINVAL, "neither AccountKey nor SharedAccessSignature"},
		{"AccountName=acct;AccountKey=", PAWL_EINVAL, "neither AccountKey"},
		{"AccountName=acct;AccountKey=hush*", PAWL_EINVAL,
			"AccountKey is no key in base64"},
		{"AccountName=acct;SharedAccessSignature=hush", PAWL_EINVAL,
			"its SharedAccessSignature is no SAS"},
		{"AccountName=other;AccountKey=" KEY_B64, PAWL_EINVAL,
			"its AccountName says account \"other\", but the address \"acct\""},
		{"UseDevelopmentStorage=true", PAWL_EINVAL, "write AccountName, AccountKey and"},
		{"AccountKey=" KEY_B64 ";BlobEndpoint=http://127.0.0.1:10000", PAWL_EINVAL,
			"BlobEndpoint does not have the address's account \"acct\""},
		{"AccountKey=" KEY_B64 ";BlobEndpoint=http://127.0.0.1:10000/other", PAWL_EINVAL,
			"https://acct.HOST or http://HOST/acct"},
		{"AccountKey=" KEY_B64 ";BlobEndpoint=http://127.0.0.1:10000/acct2", PAWL_EINVAL,
			"BlobEndpoint does not have"},
		{"AccountKey=" KEY_B64 ";BlobEndpoint=http://127.0.0.1:10000/acct/box", PAWL_EINVAL,
			"BlobEndpoint does not have"},
		{"AccountKey=" KEY_B64 ";BlobEndpoint=https://acct2.blob.core.windows.net",
			PAWL_EINVAL, "BlobEndpoint does not have"},
		{"AccountKey=" KEY_B64 ";BlobEndpoint=https://acct.blob.core.windows.net/acct",
			PAWL_EINVAL, "BlobEndpoint does not have"},
		{"AccountKey=" KEY_B64 ";BlobEndpoint=acct.blob.core.windows.net", PAWL_EINVAL,
			"its BlobEndpoint must look like"},
		{"AccountKey=" KEY_B64 ";BlobEndpoint=https://hush@acct.x/", PAWL_EINVAL,
			"its BlobEndpoint must look like"},
		{"AccountName=acct;AccountKey=" KEY_B64 ";EndpointSuffix=a/b", PAWL_EINVAL,
			"EndpointSuffix make must look like"},
		{"AccountName=acct;AccountKey=" KEY_B64 ";DefaultEndpointsProtocol=ftp",
			PAWL_EINVAL, "EndpointSuffix make must look like"},
	};
	static char text[2048];
	int n;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		set(env, CONNECTION, cases[i].text);
		AUTH_REFUSES(cases[i].rv, cases[i].says);
		SAYS(CONNECTION ": ");
		assert_null(strstr(err.msg, KEY_B64));
	}
	n = snprintf(text, sizeof(text), "AccountKey=%s;BlobEndpoint=https://acct.", KEY_B64);
	memset(text + n, 'a', 600);
	set(env, CONNECTION, text);
	AUTH_REFUSES(PAWL_ELIMIT, "its BlobEndpoint is too long");
	n = snprintf(text, sizeof(text), "AccountName=acct;AccountKey=%s;EndpointSuffix=", KEY_B64);
	memset(text + n, 'a', 600);
	AUTH_REFUSES(PAWL_ELIMIT, "its EndpointSuffix is too long");
}

/* ---- the identity of a workload ---- */

static void tokens_are_exchanged(void **state)
{
	set_workload();
	open_auth();
	assert_token(NOW, "WORK");
	assert_string_equal(trace, AUTHORITY "\n");
	assert_string_equal(body,
		"client_id=client%201&grant_type=client_credentials"
		"&scope=https%3A%2F%2Fstorage.azure.com%2F.default"
		"&client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type"
		"%3Ajwt-bearer&client_assertion=hush%2Fjwt");
	assert_string_equal(request_header(&last, "content-type"),
		"application/x-www-form-urlencoded");
	set(env, "AZURE_AUTHORITY_HOST", "https://login.partner.microsoftonline.cn/");
	drop_answers();
	set_answer("POST https://login.partner.microsoftonline.cn/tenant-1/oauth2/v2.0/token", 200,
		TOKEN("CN"), 0);
	set(files, "/token", "hush.2");
	auth->ops->refused(auth);
	assert_token(NOW, "CN");
	assert_non_null(strstr(body, "client_assertion=hush.2"));
}

static void workloads_are_checked(void **state)
{
	set_workload();
	set(env, "AZURE_CLIENT_ID", "");
	AUTH_REFUSES(PAWL_EINVAL, "AZURE_FEDERATED_TOKEN_FILE is set, but not AZURE_CLIENT_ID");
	set(env, "AZURE_CLIENT_ID", "client");
	set(env, "AZURE_TENANT_ID", "");
	AUTH_REFUSES(PAWL_EINVAL, "AZURE_FEDERATED_TOKEN_FILE is set, but not AZURE_TENANT_ID");
	set(env, "AZURE_TENANT_ID", "../hush");
	AUTH_REFUSES(PAWL_EINVAL, "AZURE_TENANT_ID is no id of a directory");
	set(env, "AZURE_TENANT_ID", "example.onmicrosoft.com");
	set(env, "AZURE_AUTHORITY_HOST", "login.microsoftonline.com");
	AUTH_REFUSES(PAWL_EINVAL, "AZURE_AUTHORITY_HOST must look like");
	set(env, "AZURE_AUTHORITY_HOST", "http://login.microsoftonline.com");
	AUTH_REFUSES(PAWL_EINVAL, "AZURE_AUTHORITY_HOST must begin with https://");
	set(env, "AZURE_AUTHORITY_HOST", "http://127.0.0.1:8080");
	open_auth();
}

static void files_of_tokens_may_be_broken(void **state)
{
	set_workload();
	open_auth();
	set(files, "/token", "");
	SIGN_REFUSES(PAWL_EIO, "AZURE_FEDERATED_TOKEN_FILE: token file /token is empty");
	set(files, "/token", "hush\nhush");
	SIGN_REFUSES(PAWL_EIO, "holds more than one line");
	set(env, "AZURE_FEDERATED_TOKEN_FILE", "/none");
	SIGN_REFUSES(PAWL_EIO, "AZURE_FEDERATED_TOKEN_FILE: token file: open /none");
	assert_string_equal(trace, "");
}

static void answers_of_the_authority_are_checked(void **state)
{
	static const struct {
		int status;       /* status of HTTP */
		const char *text; /* the answer */
		const char *says; /* part of the message */
	} cases[] = {
		{401,
			"{\"error\":\"invalid_client\",\"error_description\":\"AADSTS700213: No "
			"matching federated identity record found for hush\"}",
			"it answered 401, invalid_client: AADSTS700213"},
		{400, "{\"error\":\"invalid_request\",\"error_description\":\"hush\"}",
			"it answered 400, invalid_request"},
		{400, "<html>hush</html>", "it answered 400, no error's name"},
		{503, "hush", "it answered 503"},
		{302, "", "it answered 302"},
		{200, "hush", "its answer is no JSON"},
		{200, "[\"hush\"]", "its answer is no JSON of one object"},
		{200, "{\"expires_in\":3600}", "its access_token is missing"},
		{200, "{\"expires_in\":3600,\"access_token\":7}", "its access_token is missing"},
		{200, "{\"expires_in\":3600,\"access_token\":\"hush hush\"}",
			"its access_token is none"},
		{200, "{\"expires_in\":3600,\"access_token\":\"hush\\r\\nx-ms-meta-a: b\"}",
			"its access_token is none"},
		{200, "{\"access_token\":\"hush\"}", "its expires_in is no number of seconds"},
		{200, "{\"access_token\":\"hush\",\"expires_in\":0}", "its expires_in is no"},
		{200, "{\"access_token\":\"hush\",\"expires_in\":-5}", "its expires_in is no"},
		{200, "{\"access_token\":\"hush\",\"expires_in\":\"1h\"}", "its expires_in is no"},
		{200, "{\"access_token\":\"hush\",\"expires_in\":\"99999999999999999999\"}",
			"its expires_in is no"},
		{200, "{\"access_token\":\"hush\",\"expires_in\":9223372036854775807}",
			"its expires_in is no"},
	};

	set_workload();
	open_auth();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		drop_answers();
		set_answer(AUTHORITY, cases[i].status, cases[i].text, 0);
		SIGN_REFUSES(PAWL_EIO, cases[i].says);
		SAYS("exchange the token of AZURE_FEDERATED_TOKEN_FILE at "
		     "https://login.microsoftonline.com: ");
	}
	drop_answers();
	SIGN_REFUSES(PAWL_ETIMEDOUT, "no answer within");
	set_answer(AUTHORITY, 500, "", 1); /* asked a second time */
	set_answer(AUTHORITY, 200, TOKEN("WORK"), 0);
	assert_token(NOW, "WORK");
}

/* ---- the identity of a machine ---- */

static void machines_have_identities(void **state)
{
	set_identity(200, TEXT_TOKEN("IMDS"));
	open_auth();
	assert_token(NOW, "IMDS");
	assert_string_equal(trace, MACHINE STORAGE "\n" MACHINE STORAGE "\n");
	assert_string_equal(request_header(&last, "metadata"), "true");
	assert_string_equal(body, "(none)");
	assert_int_equal(last_timeout_ms, 10000);
	drop_answers();
	set(env, "AZURE_CLIENT_ID", "id 1");
	set_answer(MACHINE "client_id=id%201&" STORAGE, 200, TEXT_TOKEN("SECOND"), 0);
	auth->ops->refused(auth);
	assert_token(NOW, "SECOND");
	assert_string_equal(trace, MACHINE "client_id=id%201&" STORAGE "\n"); /* is known */
}

static void machines_may_have_none(void **state)
{
	set_identity(400,
		"{\"error\":\"invalid_request\",\"error_description\":\"Identity not found\"}");
	open_auth();
	SIGN_REFUSES(PAWL_EINVAL, "169.254: it answered 400, invalid_request: Identity not found");
	SAYS("no credentials for account acct");
	drop_answers();
	set_identity(404, "<html>another cloud's</html>");
	SIGN_REFUSES(PAWL_EINVAL, "it answered 404");
	drop_answers();
	set_identity(429, "");
	SIGN_REFUSES(PAWL_EIO, "the metadata service at http://169.254.169.254: it answered 429");
	drop_answers();
	set_identity(200, TEXT_TOKEN("IMDS"));
	assert_token(NOW, "IMDS");
	drop_answers(); /* a machine that had a token is one of Azure's */
	REFUSES(PAWL_ETIMEDOUT, SIGN(NOW + 3600), "the metadata service at");
	set_answer(MACHINE STORAGE, 400, "{\"error\":\"invalid_request\"}", 0);
	REFUSES(PAWL_EIO, SIGN(NOW + 3600), "it answered 400");
}

static void tokens_are_not_sent_in_clear(void **state)
{
	set_identity(200, TEXT_TOKEN("IMDS"));
	open_auth();
	REFUSES(PAWL_EINVAL, sign_at(NOW, "http://proxy.example.org:8080"),
		"tokens go by https only: the endpoint is http://proxy.example.org:8080");
	assert_null(request_header(&request, "authorization"));
	OK(sign_at(NOW, "http://127.0.0.1:10000"));
	assert_string_equal(request_header(&request, "authorization"), "Bearer hush-IMDS");
}

/* ---- time ---- */

/* Counts the requests since the last count. */
static unsigned count_asks(void)
{
	unsigned n = 0;

	for (const char *at = trace; (at = strchr(at, '\n')) != NULL; at++) {
		n++;
	}
	trace[0] = '\0';
	return n;
}

static void tokens_are_fresh_before_their_end(void **state)
{
	set_workload();
	open_auth();
	assert_token(NOW, "WORK");
	assert_int_equal(count_asks(), 1);
	assert_token(NOW + 3299, "WORK");
	assert_int_equal(count_asks(), 0);
	answers[0].text = TOKEN("NEW");
	assert_token(NOW + 3300, "NEW");
	assert_token(NOW + 6599, "NEW");
	assert_int_equal(count_asks(), 1);
	assert_token(NOW + 6600, "NEW");
	assert_int_equal(count_asks(), 1);
}

static void a_failed_refresh_keeps_the_token(void **state)
{
	set_workload();
	open_auth();
	assert_token(NOW, "WORK");
	answers[0].status = 404;
	count_asks();
	assert_token(NOW + 3300, "WORK");
	assert_token(NOW + 3304, "WORK");
	assert_int_equal(count_asks(), 1); /* not more often than every 5 s */
	assert_token(NOW + 3305, "WORK");
	assert_int_equal(count_asks(), 1);
	assert_token(NOW + 3304, "WORK"); /* the clock was set back */
	assert_int_equal(count_asks(), 1);
	assert_token(NOW + 3599, "WORK");
	REFUSES(PAWL_EIO, SIGN(NOW + 3600), "it answered 404");
	count_asks();
	REFUSES(PAWL_EIO, SIGN(NOW + 3601), "it answered 404");
	assert_int_equal(count_asks(), 1);
	answers[0].status = 200;
	answers[0].text = TOKEN("NEW");
	assert_token(NOW + 3602, "NEW");
}

static void refused_tokens_are_not_kept(void **state)
{
	set_workload();
	open_auth();
	assert_token(NOW, "WORK");
	auth->ops->refused(auth);
	answers[0].status = 404;
	SIGN_REFUSES(PAWL_EIO, "it answered 404");
	answers[0].status = 200;
	answers[0].text = TOKEN("NEW");
	assert_token(NOW, "NEW");
	count_asks();
	assert_token(NOW + 1, "NEW");
	assert_int_equal(count_asks(), 0);
}

static void refused_keys_are_read_again(void **state)
{
	set(env, "AZURE_STORAGE_KEY", KEY_B64);
	open_auth();
	assert_signed(BY_KEY);
	set(env, "AZURE_STORAGE_KEY", OTHER_B64);
	assert_signed(BY_KEY);
	auth->ops->refused(auth);
	assert_signed(BY_OTHER);
	auth->ops->refused(auth);
	assert_signed(BY_OTHER);
}

static void memory_may_be_out(void **state)
{
	set_workload();
	for (unsigned connection = 0; connection < 2; connection++) {
		for (uint64_t nth = 1; each_fault(nth); nth++) {
			int rv;

			end_auth(NULL);
			fault_arm("", nth, ENOMEM, false);
			rv = auth_azure_open(&url, &outside, &auth, &err);
			rv = rv == 0 ? SIGN(NOW) : rv;
			fault_disarm();
			assert_int_equal(rv, fault_reached(nth) ? PAWL_ENOMEM : 0);
		}
		set(env, CONNECTION, "AccountName=acct;AccountKey=" KEY_B64);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(sources_have_an_order),
		TEST(places_without_credentials_are_listed),
		TEST(nothing_is_asked_at_open),
		TEST(profiles_are_refused),
		TEST(accounts_must_agree),
		TEST(keys_are_checked),
		TEST(sas_are_checked),
		TEST(connection_strings_are_read),
		TEST(connection_strings_are_checked),
		TEST(tokens_are_exchanged),
		TEST(workloads_are_checked),
		TEST(files_of_tokens_may_be_broken),
		TEST(answers_of_the_authority_are_checked),
		TEST(machines_have_identities),
		TEST(machines_may_have_none),
		TEST(tokens_are_not_sent_in_clear),
		TEST(tokens_are_fresh_before_their_end),
		TEST(a_failed_refresh_keeps_the_token),
		TEST(refused_tokens_are_not_kept),
		TEST(refused_keys_are_read_again),
		TEST(memory_may_be_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
