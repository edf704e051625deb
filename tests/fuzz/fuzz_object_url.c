/* Fuzzes addresses of buckets, and endpoints. An accepted address stays the same if it is written
 * and read again, and its requests fit, or say that they do not. */
#include "fuzz.h"

#include "base/assert.h"
#include "base/err.h"
#include "store/object/dialect.h"

#include <stdlib.h>
#include <string.h>

static void check_text(const char *text)
{
	for (; *text != '\0'; text++) {
		ASSERT((unsigned char)*text >= 0x20 && *text != 0x7f);
	}
}

static void check_prefix(const char *prefix)
{
	size_t len_bytes = strlen(prefix);

	check_text(prefix);
	ASSERT(len_bytes < OBJECT_KEY_MAX - OBJECT_ROOM + 1);
	ASSERT(len_bytes == 0 || (prefix[0] != '/' && prefix[len_bytes - 1] != '/'));
	ASSERT(!strstr(prefix, "//") && strcmp(prefix, "..") != 0);
}

static void check_url(const struct object_url *url)
{
	check_text(url->bucket);
	check_text(url->account);
	check_text(url->endpoint);
	check_text(url->region);
	check_text(url->profile);
	check_prefix(url->prefix);
	ASSERT(url->bucket[0] != '\0' && !strchr(url->bucket, '/'));
	ASSERT((url->account[0] != '\0') == (url->service == OBJECT_AZURE));
	ASSERT(url->endpoint[0] == '\0' || strncmp(url->endpoint, "http", 4) == 0);
}

/* Fills in where the bucket is, and asks for an object. */
static void ask(const struct object_url *url)
{
	const struct object_dialect *dialect =
		url->service == OBJECT_AZURE ? &azure_dialect : &s3_dialect;
	struct object_place place = {.url = *url};
	struct object_op op = {.verb = OBJECT_HEAD, .key = url->prefix};
	struct http_request request;
	struct pawl_err err;
	int rv;

	if (dialect->locate(&place, url->region, url->endpoint, &err) != 0) {
		return;
	}
	check_text(place.endpoint);
	rv = dialect->build(&place, &op, &request, &err);
	ASSERT(rv == 0 || rv == PAWL_EINVAL || rv == PAWL_ELIMIT);
	if (rv == 0) {
		ASSERT(!request.full && request.path[0] == '/');
		check_text(request.host);
		check_text(request.path);
	}
	free(op.body_text);
}

static bool is_same(const struct object_url *a, const struct object_url *b)
{
	return a->service == b->service && strcmp(a->bucket, b->bucket) == 0 &&
		strcmp(a->account, b->account) == 0 && strcmp(a->prefix, b->prefix) == 0 &&
		strcmp(a->endpoint, b->endpoint) == 0 && strcmp(a->region, b->region) == 0 &&
		strcmp(a->profile, b->profile) == 0 && a->single_writer == b->single_writer;
}

static void parse(const char *text)
{
	char again[16384];
	char cut[24];
	struct object_url url;
	struct object_url same;
	struct pawl_err err;

	if (object_url_parse(text, &url, &err) != 0) {
		ASSERT(strlen(err.msg) > 0);
		return;
	}
	ASSERT(object_url_is(text));
	check_url(&url);
	object_url_write(&url, again, sizeof(again));
	ASSERT(object_url_parse(again, &same, NULL) == 0);
	ASSERT(is_same(&url, &same));
	object_url_write(&url, cut, sizeof(cut));
	ASSERT(strlen(cut) < sizeof(cut) && strncmp(cut, again, strlen(cut)) == 0);
	ask(&url);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	/* Exactly this long, so that ASan reports a read beyond the end. */
	char *text = malloc(len_bytes + 1);
	char endpoint[OBJECT_ENDPOINT_MAX];

	if (!text) {
		return 0;
	}
	memcpy(text, bytes, len_bytes);
	text[len_bytes] = '\0';
	parse(text);
	if (object_endpoint_parse(text, "endpoint", endpoint, NULL) == 0) {
		check_text(endpoint);
		ASSERT(strncmp(endpoint, "http", 4) == 0 && endpoint[strlen(endpoint) - 1] != '/');
	}
	free(text);
	return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	static const char *const seeds[] = {
		"s3://bucket/runs/gpt",
		"S3://my.bucket-1",
		"s3://b%2Ducket/a%20b/%C3%A4?region=eu-west-1&profile=a%20b&single_writer=1",
		"s3://bucket/x?endpoint=http://127.0.0.1:9000/&region=us-east-1",
		"s3://bucket/x?endpoint=https%3A%2F%2F%5Bfe80::1%5D:9000",
		"gs://bucket/x",
		"azure://account/container/a/b",
		"azure://account/$root?endpoint=https://account.blob.core.windows.net",
		"abfss://container@account.dfs.core.windows.net/a/b",
		"abfs://container@account.dfs.core.windows.net",
		"https://s3.example.org:443/",
	};

	if (i >= sizeof(seeds) / sizeof(*seeds)) {
		return 0;
	}
	memcpy(buf, seeds[i], strlen(seeds[i]));
	return strlen(seeds[i]);
}
