/* Requests to Google Cloud Storage, authorized: the order of the sources, HMAC keys, files of
 * credentials, the machine, fresh tokens in time, refused ones. The outside is cred_fake.h. */
#include "cred_fake.h"
#include "each_fault.h"
#include "rsa.h"
#include "store/object/auth.h"

#include <errno.h>
#include <openssl/rsa.h>

#define FILE_NAME  "GOOGLE_APPLICATION_CREDENTIALS"
#define WELL_KNOWN "/.config/gcloud/application_default_credentials.json"
#define HOST       "https://storage.googleapis.com"
#define TOKENS     "POST https://oauth2.googleapis.com/token"
#define STS_TOKENS "POST https://sts.googleapis.com/v1/token"
#define METADATA   "GET http://169.254.169.254/"
#define MACHINE    "computeMetadata/v1/instance/service-accounts/default/token"
#define READ_WRITE "https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fdevstorage.read_write"
#define TOKEN(x)   "{\"access_token\":\"hush-" x "\",\"expires_in\":3600,\"token_type\":\"Bearer\"}"
#define USER                                                                                       \
	"{\"type\":\"authorized_user\",\"client_id\":\"c 1\",\"client_secret\":"                   \
	"\"hush-c\",\"refresh_token\":\"hush/r\",\"quota_project_id\":\"p\"}"
#define EXTERNAL(x)                                                                                \
	"{\"type\":\"external_account\",\"audience\":\"//iam/x\","                                 \
	"\"subject_token_type\":\"urn:jwt\",\"token_url\":"                                        \
	"\"https://sts.googleapis.com/v1/token\"," x "}"
#define SOURCE(x) "\"credential_source\":{\"file\":\"/token\"" x "}"

#define IMPERSONATES(url) ",\"service_account_impersonation_url\":\"" url "\""
#define ACCOUNT                                                                                    \
	"https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/"                     \
	"me@p.iam:generateAccessToken"

static EVP_PKEY *own_key;
static char service[2 * RSA_PEM_MAX]; /* file of a service account */
static char changed[2 * RSA_PEM_MAX]; /* service with something else in it */
static struct object_auth *auth;
static struct http_request request;

/* ---- the service account ---- */

static int make_service(void **state)
{
	char pem[RSA_PEM_MAX];
	size_t n;

	own_key = EVP_RSA_gen(2048);
	rsa_write(own_key, NULL, pem);
	n = (size_t)snprintf(service, sizeof(service),
		"{\"type\":\"service_account\",\"project_id\":\"p\",\"private_key_id\":\"k1\","
		"\"client_email\":\"me@p.iam\",\"token_uri\":\"https://oauth2.googleapis.com/"
		"token\","
		"\"private_key\":\"");
	for (const char *c = pem; *c != '\0'; c++) {
		n += (size_t)snprintf(service + n, sizeof(service) - n, *c == '\n' ? "\\n" : "%c",
			*c);
	}
	n += (size_t)snprintf(service + n, sizeof(service) - n, "\"}\n");
	assert_true(n < sizeof(service));
	return 0;
}

static int drop_service(void **state)
{
	EVP_PKEY_free(own_key);
	return 0;
}

/* Replaces a text of the service account's file. */
static void change_service(const char *from, const char *to)
{
	const char *at = strstr(service, from);

	assert_non_null(at);
	snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - service), service, to,
		at + strlen(from));
	set(files, "/creds", changed);
}

/* ---- each test ---- */

static int begin_auth(void **state)
{
	begin(state);
	url.service = OBJECT_GCS;
	snprintf(url.bucket, sizeof(url.bucket), "my-bucket");
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
	OK(auth_google_open(&url, &outside, &auth, &err));
	assert_string_equal(auth->ops->region(auth), "");
}

#define AUTH_REFUSES(want, says) REFUSES(want, auth_google_open(&url, &outside, &auth, &err), says)

/* Signs a request for an object. */
static int sign_at(int64_t now_s, const char *endpoint)
{
	request_init(&request, "GET", endpoint);
	request_add_path(&request, "my-bucket/key");
	return auth->ops->sign(auth, &request, "auto", 0, now_s, &err);
}

#define SIGN(now)                sign_at(now, HOST)
#define SIGN_REFUSES(want, says) REFUSES(want, SIGN(NOW), says)

static void assert_token(int64_t now_s, const char *token)
{
	char value[128];

	OK(SIGN(now_s));
	snprintf(value, sizeof(value), "Bearer hush-%s", token);
	assert_string_equal(request_header(&request, "authorization"), value);
	assert_int_equal(request.headers_n, 1);
}

/* Expects a signature that a second implementation has computed: see test_sign_aws.c. */
static void assert_signed(void)
{
	OK(SIGN(NOW));
	assert_string_equal(request_header(&request, "authorization"),
		"GOOG4-HMAC-SHA256 Credential=GOOG1/20231114/auto/storage/goog4_request, "
		"SignedHeaders=host;x-goog-content-sha256;x-goog-date, Signature="
		"8b93cd47355ef00e996ee28d31d1e4d08ae1cb209b0d57e5c683c8a1a3046068");
}

static void assert_anonymous(void)
{
	OK(SIGN(NOW));
	assert_int_equal(request.headers_n, 0);
}

static void set_file(const char *text)
{
	set(env, FILE_NAME, "/creds");
	set(files, "/creds", text);
	set_answer(TOKENS, 200, TOKEN("FILE"), 0);
}

static void set_hmac(void)
{
	set(env, "GS_ACCESS_KEY_ID", "GOOG1");
	set(env, "GS_SECRET_ACCESS_KEY", "hush-GS");
}

static void set_metadata(int status, const char *text)
{
	set_answer(METADATA, 200, "computeMetadata/\n", 0);
	set_answer(METADATA MACHINE, status, text, 0);
}

/* ---- the chain ---- */

static void sources_have_an_order(void **state)
{
	set_metadata(200, TOKEN("VM"));
	open_auth();
	assert_token(NOW, "VM");
	set(files, "/home/u" WELL_KNOWN, USER);
	set_answer(TOKENS, 200, TOKEN("USER"), 1);
	open_auth();
	assert_token(NOW, "USER");
	set_file(service);
	open_auth();
	assert_token(NOW, "FILE");
	set(env, "STORAGE_EMULATOR_HOST", "http://localhost:9000/");
	open_auth();
	assert_anonymous();
	assert_string_equal(auth->ops->endpoint(auth), "http://localhost:9000");
	set_hmac();
	open_auth();
	assert_signed();
	assert_string_equal(auth->ops->endpoint(auth), "http://localhost:9000");
}

static void places_without_credentials_are_listed(void **state)
{
	open_auth();
	SIGN_REFUSES(PAWL_EINVAL, "no credentials for bucket my-bucket: GS_ACCESS_KEY_ID and ");
	SAYS(FILE_NAME " are not set, gcloud has left no application_default_credentials.json");
	SAYS("http://169.254.169.254: it does not answer");
	assert_int_equal(last_timeout_ms, 1000);
	set_hmac(); /* found without a second open */
	assert_signed();
}

static void nothing_is_asked_at_open(void **state)
{
	open_auth();
	set_file(service);
	open_auth();
	set(files, "/creds", USER);
	open_auth();
	set_hmac();
	open_auth();
	assert_string_equal(trace, "");
}

static void profiles_are_refused(void **state)
{
	set_hmac();
	snprintf(url.profile, sizeof(url.profile), "dev");
	AUTH_REFUSES(PAWL_EINVAL, "?profile= is of S3");
}

static void keys_have_two_halves(void **state)
{
	set_hmac();
	set(env, "GS_SECRET_ACCESS_KEY", "");
	AUTH_REFUSES(PAWL_EINVAL, "GS_ACCESS_KEY_ID is set, but not GS_SECRET_ACCESS_KEY");
	set_hmac();
	set(env, "GS_ACCESS_KEY_ID", "");
	AUTH_REFUSES(PAWL_EINVAL, "GS_SECRET_ACCESS_KEY is set, but not GS_ACCESS_KEY_ID");
	set_hmac();
	set(env, "GS_SECRET_ACCESS_KEY", "hush\nhush");
	AUTH_REFUSES(PAWL_EINVAL, "GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY: ");
	SAYS("is a line's end among them?");
}

static void an_emulator_gets_no_credentials(void **state)
{
	static const char *const bad[] = {"ftp://x", "x:y", "http://h/path", "http://hush@h"};

	set_file(service);
	set_metadata(200, TOKEN("VM"));
	set(env, "STORAGE_EMULATOR_HOST", "127.0.0.1:9000");
	open_auth();
	assert_string_equal(auth->ops->endpoint(auth), "http://127.0.0.1:9000");
	assert_anonymous();
	assert_string_equal(trace, "");
	/* ?endpoint= names another server, which gets them. */
	snprintf(url.endpoint, sizeof(url.endpoint), "https://storage.example.org");
	open_auth();
	assert_string_equal(auth->ops->endpoint(auth), "");
	assert_token(NOW, "FILE");
	url.endpoint[0] = '\0';
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		set(env, "STORAGE_EMULATOR_HOST", bad[i]);
		AUTH_REFUSES(PAWL_EINVAL, "STORAGE_EMULATOR_HOST must look like");
	}
}

/* ---- files ---- */

static void a_service_account_signs_who_it_is(void **state)
{
	static const char begins[] =
		"grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=";
	char header[4096];
	char claims[4096];

	set_file(service);
	open_auth();
	assert_token(NOW, "FILE");
	assert_string_equal(trace, TOKENS "\n");
	assert_string_equal(request_header(&last, "content-type"),
		"application/x-www-form-urlencoded");
	assert_memory_equal(body, begins, sizeof(begins) - 1);
	assert_true(rsa_check(own_key, body + sizeof(begins) - 1, header, claims, 4096));
	assert_string_equal(header, "{\"alg\":\"RS256\",\"kid\":\"k1\",\"typ\":\"JWT\"}");
	assert_string_equal(claims,
		"{\"aud\":\"https://oauth2.googleapis.com/token\",\"exp\":1700003600,"
		"\"iat\":1700000000,\"iss\":\"me@p.iam\",\"scope\":"
		"\"https://www.googleapis.com/auth/devstorage.read_write\"}");
	change_service(",\"token_uri\":\"https://oauth2.googleapis.com/token\"", "");
	auth->ops->refused(auth); /* the file may be another one by now */
	assert_token(NOW, "FILE");
	change_service("https://oauth2.googleapis.com/token", "http://127.0.0.1:8080/t/k");
	drop_answers();
	set_answer("POST http://127.0.0.1:8080/t/k", 200, TOKEN("NEAR"), 0);
	auth->ops->refused(auth);
	assert_token(NOW, "NEAR");
}

static void a_user_has_a_refresh_token(void **state)
{
	set(env, "CLOUDSDK_CONFIG", "/config");
	set(files, "/config/application_default_credentials.json", USER);
	set_answer(TOKENS, 200, TOKEN("USER"), 0);
	open_auth();
	assert_token(NOW, "USER");
	assert_string_equal(body,
		"grant_type=refresh_token&client_id=c%201&client_secret=hush-c"
		"&refresh_token=hush%2Fr");
}

static void tokens_of_others_are_exchanged(void **state)
{
	set(env, FILE_NAME, "/creds");
	set(files, "/creds", EXTERNAL(SOURCE("")));
	set(files, "/token", "hush/jwt\n");
	set_answer(STS_TOKENS, 200, TOKEN("STS"), 0);
	open_auth();
	assert_token(NOW, "STS");
	assert_string_equal(trace, STS_TOKENS "\n");
	assert_string_equal(body,
		"grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange"
		"&requested_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Aaccess_token"
		"&scope=" READ_WRITE
		"&audience=%2F%2Fiam%2Fx&subject_token_type=urn%3Ajwt&subject_token=hush%2Fjwt");
	set(files, "/creds",
		EXTERNAL(SOURCE(
			",\"format\":{\"type\":\"json\",\"subject_token_field_name\":\"t\"}")));
	set(files, "/token", "{\"t\":\"hush.2\",\"u\":\"x\"}\n");
	auth->ops->refused(auth);
	assert_token(NOW, "STS");
	assert_non_null(strstr(body, "&subject_token=hush.2"));
	assert_null(strstr(body, "hush.2%"));
}

#define ACTS(end) "{\"accessToken\":\"hush-SA\",\"expireTime\":\"" end "\"}"

static void a_principal_may_act_for_a_service_account(void **state)
{
	static const struct {
		int status;       /* status of HTTP */
		const char *text; /* the answer */
		const char *says; /* part of the message */
	} cases[] = {
		{403,
			"{\"error\":{\"code\":403,\"message\":\"hush\",\"status\":\"PERMISSION_"
			"DENIED\"}}",
			"it answered 403, PERMISSION_DENIED"},
		{404, "<html>hush</html>", "it answered 404, no error's name"},
		{200, "hush", "its accessToken is missing"},
		{200, "{\"accessToken\":\"hush hush\",\"expireTime\":\"" HOUR "\"}",
			"its accessToken is missing, or has characters"},
		{200, ACTS(""), "its expireTime is no time to come"},
		{200, ACTS("hush"), "its expireTime is no time to come"},
		{200, ACTS("2023-11-14T22:13:20Z"), "its expireTime is no time to come"},
		{200, ACTS("9999-01-01T00:00:00Z"), "its expireTime is no time to come"},
	};

	set(env, FILE_NAME, "/creds");
	set(files, "/creds", EXTERNAL(SOURCE("") IMPERSONATES(ACCOUNT)));
	set(files, "/token", "hush/jwt\n");
	set_answer(STS_TOKENS, 200, TOKEN("STS"), 0);
	set_answer("POST " ACCOUNT, 200, ACTS(HOUR), 0);
	open_auth();
	assert_token(NOW, "SA");
	assert_string_equal(trace, STS_TOKENS "\nPOST " ACCOUNT "\n");
	assert_string_equal(request_header(&last, "authorization"), "Bearer hush-STS");
	assert_string_equal(request_header(&last, "content-type"), "application/json");
	assert_string_equal(body,
		"{\"scope\":[\"https://www.googleapis.com/auth/devstorage.read_write\"],"
		"\"lifetime\":\"3600s\"}");
	answers[1].status = 500;
	assert_token(NOW + 3599, "SA");
	REFUSES(PAWL_EIO, SIGN(NOW + 3600), "it answered 500");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		answers[1].status = cases[i].status;
		answers[1].text = cases[i].text;
		open_auth();
		SIGN_REFUSES(PAWL_EIO, cases[i].says);
		SAYS("impersonate a service account at https://iamcredentials.googleapis.com: ");
	}
	answers[0].status = 400; /* without a token, nobody is asked on */
	trace[0] = '\0';
	SIGN_REFUSES(PAWL_EIO, "get a token from https://sts.googleapis.com: it answered 400");
	assert_string_equal(trace, STS_TOKENS "\n");
	assert_non_null(
		strstr(body, "&scope=https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fcloud-platform&"));
}

static void files_of_tokens_may_be_broken(void **state)
{
	static const char json[] = EXTERNAL(
		SOURCE(",\"format\":{\"type\":\"json\",\"subject_token_field_name\":\"t\"}"));
	static const char *const bad[] = {"", "hush", "[\"hush\"]", "{\"u\":\"hush\"}", "{\"t\":7}",
		"{\"t\":\"\"}", "{\"t\":\"hush hush\"}"};

	set(env, FILE_NAME, "/creds");
	set(files, "/creds", EXTERNAL(SOURCE(",\"format\":{\"type\":\"text\"}")));
	set(files, "/token", "hush\nhush");
	open_auth();
	SIGN_REFUSES(PAWL_EIO, "token file /token holds more than one line");
	set(files, "/token", "");
	SIGN_REFUSES(PAWL_EIO, "token file /token is empty");
	set(files, "/creds", json);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		set(files, "/token", bad[i]);
		SIGN_REFUSES(PAWL_EIO,
			"token file /token holds no token under its subject_token_field_name");
	}
	files[0] = (struct item){"/creds", json, 0};
	files[1] = (struct item){0};
	SIGN_REFUSES(PAWL_EIO, "token file: open /token");
	assert_string_equal(trace, "");
}

static void files_are_checked(void **state)
{
	static const struct {
		const char *text; /* the file */
		const char *says; /* part of the message */
	} cases[] = {
		{"", "it is no JSON of one object with a \"type\""},
		{"hush", "it is no JSON"},
		{"[\"hush\"]", "it is no JSON"},
		{"{\"type\":7}", "it is no JSON"},
		{"{\"type\":\"impersonated_service_account\",\"x\":\"hush\"}",
			"its type is \"impersonated_service_account\": use one of"},
		{"{\"type\":\"a\\nb\"}", "its type is \"a\\nb\""},
		{"{\"type\":\"service_account\",\"private_key\":\"hush\"}",
			"it has no \"client_email\""},
		{"{\"type\":\"service_account\",\"client_email\":\"x\",\"private_key\":\"\"}",
			"it has no \"private_key\""},
		{"{\"type\":\"authorized_user\",\"client_id\":\"x\",\"client_secret\":\"hush\"}",
			"it has no \"refresh_token\""},
		{EXTERNAL("\"x\":1"), "its \"credential_source\" is no file"},
		{EXTERNAL("\"credential_source\":{\"url\":\"http://hush\"}"),
			"takes tokens of other providers from a file only"},
		{EXTERNAL("\"credential_source\":{\"environment_id\":\"aws1\"}"), "is no file"},
		{EXTERNAL(SOURCE(",\"format\":{\"type\":\"json\"}")),
			"its \"format\" must be text, or json with a subject_token_field_name"},
		{EXTERNAL(SOURCE(",\"format\":{\"type\":\"xml\"}")), "its \"format\" must be"},
		{EXTERNAL(SOURCE("") IMPERSONATES("http://x/y")),
			"its \"service_account_impersonation_url\" must begin with https://"},
		{EXTERNAL(SOURCE("") IMPERSONATES("https://x")),
			"its \"service_account_impersonation_url\" must look like"},
		{"{\"type\":\"external_account\",\"audience\":\"x\",\"subject_token_type\":\"y\"}",
			"it has no \"token_url\""},
	};
	static char large[70000];

	set(env, FILE_NAME, "/creds");
	AUTH_REFUSES(PAWL_EINVAL, FILE_NAME ": open /creds");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		set(files, "/creds", cases[i].text);
		AUTH_REFUSES(PAWL_EINVAL, cases[i].says);
		SAYS(FILE_NAME ": /creds: ");
	}
	memset(large, 'h', sizeof(large) - 1);
	set(files, "/creds", large);
	AUTH_REFUSES(PAWL_ELIMIT, FILE_NAME ": /creds: more than 65536 bytes");
	/* One that nobody named may be broken, too. */
	set(env, FILE_NAME, "");
	set(files, "/home/u" WELL_KNOWN, "hush");
	AUTH_REFUSES(PAWL_EINVAL, WELL_KNOWN ": it is no JSON");
}

/* A private key or token must go nowhere that others could read it. */
static void addresses_of_tokens_are_checked(void **state)
{
	static const struct {
		const char *uri;  /* token_uri of the file */
		const char *says; /* part of the message */
	} cases[] = {
		{"http://oauth2.googleapis.com/token",
			"its \"token_uri\" must begin with https://"},
		{"http://127.0.0.1.example.org/token",
			"its \"token_uri\" must begin with https://"},
		{"https://oauth2.googleapis.com", "its \"token_uri\" must look like https://HOST/"},
		{"oauth2.googleapis.com/token", "its \"token_uri\" must look like"},
		{"https://hush@oauth2.googleapis.com/token", "token_uri must look like"},
		{"https://oauth2.googleapis.com/token?x=hush", "its \"token_uri\" must look like"},
		{"https://oauth2.googleapis.com/a b", "its \"token_uri\" must look like"},
		{"https://x/\\r\\nhost: y", "its \"token_uri\" must look like"},
		{"ftp://oauth2.googleapis.com/token", "token_uri must look like"},
	};

	set_file(service);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		change_service("https://oauth2.googleapis.com/token", cases[i].uri);
		AUTH_REFUSES(PAWL_EINVAL, cases[i].says);
	}
	assert_string_equal(trace, "");
}

static void keys_of_files_are_checked(void **state)
{
	set_file("{\"type\":\"service_account\",\"client_email\":\"x\",\"private_key\":\"hush\"}");
	open_auth();
	SIGN_REFUSES(PAWL_EINVAL,
		"get a token from https://oauth2.googleapis.com: its private_key");
	assert_string_equal(trace, "");
}

/* Whoever signs with a wrong clock is told no more than "invalid_grant". */
static void a_refused_signature_may_be_the_clocks(void **state)
{
	set_file(service);
	answers[0].status = 400;
	answers[0].text = "{\"error\":\"invalid_grant\",\"error_description\":\"hush\"}";
	open_auth();
	SIGN_REFUSES(PAWL_EIO,
		"get a token from https://oauth2.googleapis.com (is this machine's clock right?): "
		"it answered 400, invalid_grant");
}

static void answers_are_checked(void **state)
{
	static const struct {
		int status;       /* status of HTTP */
		const char *text; /* the answer */
		const char *says; /* part of the message */
	} cases[] = {
		{400, "{\"error\":\"invalid_grant\",\"error_description\":\"hush\"}",
			"it answered 400, invalid_grant"},
		{503, "hush", "it answered 503"},
		{302, "", "it answered 302"},
		{200, "hush", "its answer is no JSON"},
		{200,
			"{\"expires_in\":3600,\"access_token\":\"hush\\r\\nx-goog-acl: "
			"public-read\"}",
			"its access_token is none"},
		{200, "{\"access_token\":\"hush\"}", "its expires_in is no number of seconds"},
	};

	set_file(USER);
	open_auth();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		drop_answers();
		set_answer(TOKENS, cases[i].status, cases[i].text, 0);
		SIGN_REFUSES(PAWL_EIO, cases[i].says);
		SAYS("get a token from https://oauth2.googleapis.com: ");
	}
	drop_answers();
	SIGN_REFUSES(PAWL_ETIMEDOUT, "no answer within");
}

/* ---- the machine ---- */

static void machines_have_accounts(void **state)
{
	set_metadata(200, TOKEN("VM"));
	open_auth();
	assert_token(NOW, "VM");
	assert_string_equal(trace, METADATA "\n" METADATA MACHINE "\n");
	assert_string_equal(request_header(&last, "metadata-flavor"), "Google");
	assert_string_equal(body, "(none)");
	assert_int_equal(last_timeout_ms, 10000);
	drop_answers();
	set(env, "GCE_METADATA_HOST", "metadata.internal:80");
	set_answer("GET http://metadata.internal/" MACHINE, 200, TOKEN("SECOND"), 0);
	auth->ops->refused(auth);
	assert_token(NOW, "SECOND");
	assert_string_equal(trace, "GET http://metadata.internal/" MACHINE "\n"); /* is known */
	set(env, "GCE_METADATA_HOST", "http://x");
	AUTH_REFUSES(PAWL_EINVAL, "GCE_METADATA_HOST must look like");
}

static void machines_may_have_none(void **state)
{
	set_metadata(404, "<html>another cloud's</html>");
	open_auth();
	SIGN_REFUSES(PAWL_EINVAL, "169.254: it answered 404");
	SAYS("no credentials for bucket my-bucket");
	drop_answers();
	set_metadata(429, "");
	SIGN_REFUSES(PAWL_EIO, "the metadata service at http://169.254.169.254: it answered 429");
	drop_answers();
	set_metadata(200, TOKEN("VM"));
	assert_token(NOW, "VM");
	drop_answers(); /* a machine that had a token is one of Google's */
	REFUSES(PAWL_ETIMEDOUT, SIGN(NOW + 3600), "the metadata service at");
	set_metadata(404, "");
	REFUSES(PAWL_EIO, SIGN(NOW + 3600), "it answered 404");
}

static void tokens_are_not_sent_in_clear(void **state)
{
	set_metadata(200, TOKEN("VM"));
	open_auth();
	REFUSES(PAWL_EINVAL, sign_at(NOW, "http://proxy.example.org:8080"),
		"tokens go by https only: the endpoint is http://proxy.example.org:8080");
	assert_null(request_header(&request, "authorization"));
	OK(sign_at(NOW, "http://127.0.0.1:9000"));
	assert_string_equal(request_header(&request, "authorization"), "Bearer hush-VM");
}

/* ---- time ---- */

static void tokens_are_fresh_before_their_end(void **state)
{
	set_file(service);
	open_auth();
	assert_token(NOW, "FILE");
	answers[0].text = TOKEN("NEW");
	assert_token(NOW + 3299, "FILE");
	assert_token(NOW + 3300, "NEW");
	answers[0].status = 404;
	assert_token(NOW + 6899, "NEW"); /* what does not come does no harm until the end */
	REFUSES(PAWL_EIO, SIGN(NOW + 6900), "it answered 404");
	answers[0].status = 200;
	answers[0].text = TOKEN("LATE");
	assert_token(NOW + 6901, "LATE");
}

static void refused_credentials_are_got_again(void **state)
{
	set_file(USER);
	open_auth();
	assert_token(NOW, "FILE");
	auth->ops->refused(auth);
	answers[0].status = 404;
	SIGN_REFUSES(PAWL_EIO, "it answered 404");
	answers[0].status = 200;
	answers[0].text = TOKEN("NEW");
	assert_token(NOW, "NEW");
	set_hmac();
	assert_token(NOW, "NEW");
	auth->ops->refused(auth);
	assert_signed();
	OK(auth->ops->sign(auth, &request, "auto", 0, NOW, &err)); /* once more */
	assert_int_equal(request.headers_n, 3);
}

static void memory_may_be_out(void **state)
{
	static const char *const texts[] = {service, USER,
		EXTERNAL(
			SOURCE(",\"format\":{\"type\":\"json\",\"subject_token_field_name\":\"t\"}")
				IMPERSONATES(ACCOUNT)),
		EXTERNAL(SOURCE(
			",\"format\":{\"type\":\"json\",\"subject_token_field_name\":\"t\"}"))};

	set(files, "/token", "{\"t\":\"hush\"}");
	set_answer(STS_TOKENS, 200, TOKEN("STS"), 0);
	set_answer("POST " ACCOUNT, 200, ACTS(HOUR), 0);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		set_file(texts[i]);
		for (uint64_t nth = 1; each_fault(nth); nth++) {
			int rv;

			end_auth(NULL);
			fault_arm("", nth, ENOMEM, false);
			rv = auth_google_open(&url, &outside, &auth, &err);
			rv = rv == 0 ? SIGN(NOW) : rv;
			fault_disarm();
			assert_int_equal(rv, fault_reached(nth) ? PAWL_ENOMEM : 0);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(sources_have_an_order),
		TEST(places_without_credentials_are_listed),
		TEST(nothing_is_asked_at_open),
		TEST(profiles_are_refused),
		TEST(keys_have_two_halves),
		TEST(an_emulator_gets_no_credentials),
		TEST(a_service_account_signs_who_it_is),
		TEST(a_user_has_a_refresh_token),
		TEST(tokens_of_others_are_exchanged),
		TEST(a_principal_may_act_for_a_service_account),
		TEST(files_of_tokens_may_be_broken),
		TEST(files_are_checked),
		TEST(addresses_of_tokens_are_checked),
		TEST(keys_of_files_are_checked),
		TEST(a_refused_signature_may_be_the_clocks),
		TEST(answers_are_checked),
		TEST(machines_have_accounts),
		TEST(machines_may_have_none),
		TEST(tokens_are_not_sent_in_clear),
		TEST(tokens_are_fresh_before_their_end),
		TEST(refused_credentials_are_got_again),
		TEST(memory_may_be_out),
	};

	return cmocka_run_group_tests(tests, make_service, drop_service);
}
