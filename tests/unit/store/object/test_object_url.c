/* Addresses of buckets: what each form means, how it is written, and what is wrong with those that
 * are refused. */
#include "../lib/expect.h"
#include "../lib/seed.h"
#include "base/err.h"
#include "base/rng.h"
#include "store/object/object_url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define TEXT_MAX     8192u /* bytes of an address in a test, terminator included */
#define PREFIX_MOST  (OBJECT_KEY_MAX - 1 - OBJECT_ROOM) /* bytes of a prefix */
#define ROUNDS       20000u                             /* random addresses */
#define TEN          "abcdefghij"
#define SIXTY        TEN TEN TEN TEN TEN TEN
#define NAME_256     SIXTY SIXTY SIXTY SIXTY TEN "abcdef"

static struct object_url url;
static struct pawl_err err;

/* ---- what is right ---- */

static void addresses_name_their_parts(void **state)
{
	OK(object_url_parse("s3://my.bucket-1/runs/gpt 2?endpoint=http://127.0.0.1:9000/"
			    "&region=eu-central-1&profile=work&single_writer=1",
		&url, &err));
	assert_int_equal(url.service, OBJECT_S3);
	assert_string_equal(url.bucket, "my.bucket-1");
	assert_string_equal(url.account, "");
	assert_string_equal(url.prefix, "runs/gpt 2");
	assert_string_equal(url.endpoint, "http://127.0.0.1:9000");
	assert_string_equal(url.region, "eu-central-1");
	assert_string_equal(url.profile, "work");
	assert_true(url.single_writer);

	OK(object_url_parse("abfss://box@account1.dfs.core.windows.net/a/b", &url, &err));
	assert_int_equal(url.service, OBJECT_AZURE);
	assert_string_equal(url.account, "account1");
	assert_string_equal(url.bucket, "box");
	assert_string_equal(url.prefix, "a/b");
	assert_string_equal(url.endpoint, "");
	assert_string_equal(url.region, "");
	assert_string_equal(url.profile, "");
	assert_false(url.single_writer);

	OK(object_url_parse("gs://under_scored/p", &url, &err));
	assert_int_equal(url.service, OBJECT_GCS);
}

/* All spellings of an address are written alike. */
static void addresses_have_one_form(void **state)
{
	static const struct {
		const char *text;
		const char *written; /* NULL: as text */
	} cases[] = {
		{"s3://bucket", NULL},
		{"S3://bucket/", "s3://bucket"},
		{"s3://b%75cket/a/", "s3://bucket/a"},
		{"s3://123/a/b", NULL},
		{"s3://a.b-c.d/.hidden/...", NULL},
		{"s3://bucket/a%20b/c d+e", "s3://bucket/a%20b/c%20d%2Be"},
		{"s3://bucket/100%25", NULL},
		{"s3://bucket/what%3F%23&=", "s3://bucket/what%3F%23%26%3D"},
		{"s3://bucket/\xe2\x82\xac", "s3://bucket/%E2%82%AC"},
		{"s3://bucket/user:name@host", "s3://bucket/user%3Aname%40host"},
		{"s3://" SIXTY "abc/a", NULL},
		{"gs://b_c.d-e/a", NULL},
		{"gs://" SIXTY "." SIXTY "." SIXTY ".abcdefghi.abcdefghijklmnopqrstuvwxyz012",
			NULL},
		{"azure://abc/def", NULL},
		{"Azure://account/container/a/b/", "azure://account/container/a/b"},
		{"azure://abcdefghijklmnopqrstuvwx/c-0-1", NULL},
		{"abfs://box@account.dfs.core.windows.net", "azure://account/box"},
		{"abfs://box@account.dfs.core.windows.net?region=x",
			"azure://account/box?region=x"},
		{"ABFSS://box@account.DFS.Core.Windows.NET/a/", "azure://account/box/a"},
		{"s3://bucket?region=us-east-1", NULL},
		{"s3://bucket/?region=RegionOne", "s3://bucket?region=RegionOne"},
		{"s3://bucket/a?single_writer=1&%72egion=a%2Db&profile=my%20own&endpoint="
		 "HTTPS://S3.Example.com:443/",
			"s3://bucket/a?endpoint=https%3A//s3.example.com&region=a-b&"
			"profile=my%20own&single_writer=1"},
		{"s3://bucket/a?single_writer=0", "s3://bucket/a"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		const char *want = cases[i].written != NULL ? cases[i].written : cases[i].text;
		char text[TEXT_MAX];

		OK(object_url_parse(cases[i].text, &url, &err));
		object_url_write(&url, text, sizeof(text));
		assert_string_equal(text, want);
		assert_true(object_url_is(cases[i].text));
	}
}

static void a_long_address_is_cut(void **state)
{
	static const char whole[] = "s3://bucket/a%20b?region=r&single_writer=1";

	OK(object_url_parse(whole, &url, &err));
	for (size_t size_bytes = 1; size_bytes <= sizeof(whole); size_bytes++) {
		char *text = malloc(size_bytes); /* a sanitizer sees a byte too many */

		assert_non_null(text);
		object_url_write(&url, text, size_bytes);
		assert_true(strlen(text) < size_bytes);
		assert_memory_equal(text, whole, strlen(text));
		assert_int_equal(strcmp(text, whole) == 0, size_bytes == sizeof(whole));
		free(text);
	}
}

static void paths_are_no_addresses(void **state)
{
	static const char *const paths[] = {"", "s3", "s3:", "s3:/bucket", "/s3://bucket", "./s3",
		"az://a/b", "r2://bucket/a", "s33://bucket", "file:///tmp", "abfs:box", "gs:/x"};

	for (size_t i = 0; i < COUNT(paths); i++) {
		assert_false(object_url_is(paths[i]));
		FAILS(PAWL_EINVAL, object_url_parse(paths[i], &url, &err));
		SAYS("unknown scheme");
	}
	assert_true(object_url_is("GS://"));
	assert_true(object_url_is("abfss://what is wrong with it is said later"));
}

/* ---- what is wrong ---- */

struct wrong {
	const char *text;
	const char *said; /* in the message */
};

static void assert_all_wrong(const struct wrong *wrong, size_t n, int code)
{
	for (size_t i = 0; i < n; i++) {
		struct object_url before;

		memset(&url, 'x', sizeof(url));
		memcpy(&before, &url, sizeof(before));
		if (object_url_parse(wrong[i].text, &url, &err) != code) {
			fail_msg("%s: not refused as it should be", wrong[i].text);
		}
		assert_int_equal(err.code, code);
		SAYS(wrong[i].said);
		assert_memory_equal(&url, &before, sizeof(url)); /* set only on success */
	}
}

static void names_of_buckets_follow_their_rules(void **state)
{
	static const struct wrong wrong[] = {
		{"s3://", "no bucket: it must look like s3://BUCKET/PREFIX"},
		{"s3:///k", "no bucket"},
		{"s3://?region=a", "no bucket"},
		{"gs://", "no bucket: it must look like gs://BUCKET/PREFIX"},
		{"s3://Bucket/k", "bucket \"Bucket\" may have only lower-case letters"},
		{"s3://under_scored/k", "lower-case"},
		{"s3://buck\xc3\xa9t/k", "lower-case"},
		{"s3://bucket#a/k", "lower-case"},
		{"s3://buck%2Fet/k", "lower-case"},
		{"s3://ab/k", "3 to 63"},
		{"s3://" SIXTY "abcd/k", "3 to 63"},
		{"s3://-bucket/k", "begin and end"},
		{"s3://bucket./k", "begin and end"},
		{"s3://.bucket", "begin and end"},
		{"s3://my..bucket/k", "two dots"},
		{"s3://192.168.5.4/k", "IP address"},
		{"gs://Bucket/k", "'-', '_' and '.'"},
		{"gs://ab", "up to 222 with dots"},
		{"gs://" SIXTY "abcd", "up to 222 with dots"},
		{"gs://" SIXTY "." SIXTY "." SIXTY ".abcdefghi.abcdefghijklmnopqrstuvwxyz0123",
			"up to 222"},
		{"gs://bucket_", "begin and end"},
	};

	assert_all_wrong(wrong, COUNT(wrong), PAWL_EINVAL);
}

static void names_of_azure_follow_their_rules(void **state)
{
	static const struct wrong wrong[] = {
		{"azure://", "no account: it must look like azure://ACCOUNT/CONTAINER/PREFIX"},
		{"azure:///container", "no account"},
		{"azure://account", "no container"},
		{"azure://account/", "no container"},
		{"azure://account//k", "no container"},
		{"azure://account?region=a", "no container"},
		{"azure://ab/container", "account \"ab\" must have 3 to 24"},
		{"azure://abcdefghijklmnopqrstuvwxy/container", "3 to 24"},
		{"azure://Account/container", "3 to 24 lower-case"},
		{"azure://my-account/container", "3 to 24 lower-case"},
		{"azure://account.blob.core.windows.net/container", "3 to 24 lower-case"},
		{"azure://account/Container", "container \"Container\" must have 3 to 63"},
		{"azure://account/ab", "3 to 63"},
		{"azure://account/" SIXTY "abcd", "3 to 63"},
		{"azure://account/$root", "3 to 63 lower-case"},
		{"azure://account/a--b", "around each '-'"},
		{"azure://account/-ab", "at both ends"},
		{"azure://account/ab-", "at both ends"},
		{"abfs://account.dfs.core.windows.net/k", "no '@'"},
		{"abfs://", "no '@': it must look like abfs://CONTAINER@ACCOUNT.dfs."},
		{"abfs:///box@account.dfs.core.windows.net", "no '@'"},
		{"abfss://box@account.blob.core.windows.net/k", "ACCOUNT.dfs.core.windows.net"},
		{"abfss://box@account/k", "ACCOUNT.dfs.core.windows.net"},
		{"abfss://box@account.dfs.core.windows.net.example.com/k", "must look like abfss"},
		{"abfss://@account.dfs.core.windows.net/k", "no container"},
		{"abfss://box@.dfs.core.windows.net/k", "no account"},
		{"abfss://Box@account.dfs.core.windows.net/k", "container \"Box\""},
		{"azure://account/box/a./b", "end with a dot"},
		{"azure://account/box/a\\b", "Azure changes it"},
	};

	assert_all_wrong(wrong, COUNT(wrong), PAWL_EINVAL);
}

static void names_in_a_prefix_follow_their_rules(void **state)
{
	static const struct wrong wrong[] = {
		{"s3://bucket//", "name \"\" in the prefix must not be empty, . or .."},
		{"s3://bucket//a", "must not be empty"},
		{"s3://bucket/a//b", "must not be empty"},
		{"s3://bucket/a//", "must not be empty"},
		{"s3://bucket/..", "name \"..\""},
		{"s3://bucket/a/../b", "name \"..\""},
		{"s3://bucket/a/./b", "name \".\""},
		{"s3://bucket/a/%2e%2E", "name \"..\""},
		{"s3://bucket/a%2Fb", "name \"a/b\" in the prefix must not have an encoded '/'"},
		{"s3://bucket/a%2f", "encoded '/'"},
		{"s3://bucket/a%00b", "control characters"},
		{"s3://bucket/a\nb", "control characters"},
		{"s3://bucket/a%1b[31m", "control characters"},
		{"s3://bucket/a%7F", "control characters"},
		{"s3://bucket/\xe2\x80\xae", "control characters"}, /* changes direction */
		{"s3://bucket/\xff", "UTF-8"},
		{"s3://bucket/%E2%82", "UTF-8"},
		{"s3://bucket/100%", "%25"},
		{"s3://bucket/%4", "two hexadecimal digits"},
		{"s3://bucket/%4/", "two hexadecimal digits"},
		{"s3://bucket/%4?region=a", "two hexadecimal digits"},
		{"s3://bucket/%xy", "two hexadecimal digits"},
		{"s3://bucket/%-1", "two hexadecimal digits"},
		{"s3://buck%et/", "two hexadecimal digits"},
	};

	assert_all_wrong(wrong, COUNT(wrong), PAWL_EINVAL);
}

static void parameters_follow_their_rules(void **state)
{
	static const struct wrong wrong[] = {
		{"s3://bucket/a?", "no value"},
		{"s3://bucket/a?region", "no value"},
		{"s3://bucket/a?region=", "no value"},
		{"s3://bucket/a?region=a&", "no value"},
		{"s3://bucket/a?&region=a", "no value"},
		{"s3://bucket/a?=a", "unknown parameter \"\""},
		{"s3://bucket/a?Region=a", "unknown parameter \"Region\": there are endpoint"},
		{"s3://bucket/a?versionId=1", "unknown parameter \"versionId\""},
		{"s3://bucket/a?a%0ab=1", "control characters"},
		{"s3://bucket/a?region=a&region=a", "?region= is given twice"},
		{"s3://bucket/a?single_writer=0&single_writer=1", "given twice"},
		{"s3://bucket/a?single_writer=yes", "must be 0 or 1"},
		{"s3://bucket/a?single_writer=11", "must be 0 or 1"},
		{"s3://bucket/a?region=us east", "such as us-east-1"},
		{"s3://bucket/a?region=us/east", "such as us-east-1"},
		{"s3://bucket/a?region=example.com", "such as us-east-1"},
		{"s3://bucket/a?region=-east", "such as us-east-1"},
		{"s3://bucket/a?region=a?profile=b", "such as us-east-1"},
		{"s3://bucket/a?region=%zz", "two hexadecimal digits"},
		{"s3://bucket/a?profile=a]", "brackets"},
		{"s3://bucket/a?profile=a%0A", "control characters"},
		{"s3://bucket/a?endpoint=127.0.0.1:9000", "?endpoint= must look like"},
		{"s3://bucket/a?endpoint=http://host/path", "no path"},
	};

	assert_all_wrong(wrong, COUNT(wrong), PAWL_EINVAL);
}

static void parts_have_limits(void **state)
{
	static const struct wrong wrong[] = {
		{"s3://" NAME_256 "/k", "bucket: at most 255 bytes"},
		{"s3://bucket/a?region=" NAME_256, "region: at most 255 bytes"},
		{"s3://bucket/a?profile=" NAME_256, "profile: at most 255 bytes"},
		{"s3://bucket/a?" NAME_256 "=a", "name of a parameter: at most 255 bytes"},
		{"s3://bucket/a?endpoint=http://" NAME_256 NAME_256, "endpoint: at most 511 bytes"},
	};

	assert_all_wrong(wrong, COUNT(wrong), PAWL_ELIMIT);
}

/* Names of length bytes in all, each of up to 100, behind "s3://bucket/". */
static void write_prefix(char text[TEXT_MAX], size_t length)
{
	size_t n = (size_t)snprintf(text, TEXT_MAX, "s3://bucket/");

	for (size_t i = 0; i < length; i++) {
		text[n++] = i % 101 == 100 && i + 1 < length ? '/' : 'a';
	}
	text[n] = '\0';
}

/* A prefix leaves room for the rest of a key. */
static void a_prefix_has_a_limit(void **state)
{
	char text[TEXT_MAX];
	const struct wrong wrong = {text, "prefix"};

	write_prefix(text, PREFIX_MOST);
	OK(object_url_parse(text, &url, &err));
	assert_int_equal(strlen(url.prefix), PREFIX_MOST);
	for (size_t length = PREFIX_MOST + 1; length < PREFIX_MOST + 250; length++) {
		write_prefix(text, length);
		assert_all_wrong(&wrong, 1, PAWL_ELIMIT);
	}
	memset(text + strlen("s3://bucket/"), 'b', 3000); /* one name above all limits */
	text[3000] = '\0';
	assert_all_wrong(&wrong, 1, PAWL_ELIMIT);
}

/* Whatever else is wrong: a message does not repeat a password. */
static void messages_do_not_show_passwords(void **state)
{
	static const char *const texts[] = {
		"s3://AKID:hunter2@bucket/k",
		"s3://hunter2@bucket/k",
		"s3://AKID:hunter2/b@bucket/k",
		"s3://AKID%3Ahunter2%40bucket/k",
		"s3://AKID:hunter2?x@bucket/k",
		"s3://bucket:hunter2/k",
		"gs://id:hunter2@bucket",
		"azure://account:hunter2@host/container",
		"azure://account/hunter2:a@container",
		"abfs://box:hunter2@account.dfs.core.windows.net/k",
		"abfs://box@hunter2@account.dfs.core.windows.net/k",
		"abfs://box@account:hunter2.dfs.core.windows.net/k",
		"abfs://box@hunter2.example.com/k",
		"r2://id:hunter2@bucket",
		"s3://bucket/k?secret=hunter2",
		"s3://bucket/k?hunter2",
		"s3://bucket/k?region=hunter2/x",
		"s3://bucket/k?profile=[hunter2",
		"s3://bucket/k?single_writer=hunter2",
		"s3://bucket/k?endpoint=http://u:hunter2@host",
		"s3://bucket/k?endpoint=http://host/?key=hunter2",
		"s3://bucket/k?endpoint=http://host:hunter2",
		"s3://bucket/k?endpoint=hunter2",
	};

	for (size_t i = 0; i < COUNT(texts); i++) {
		FAILS(PAWL_EINVAL, object_url_parse(texts[i], &url, &err));
		if (strstr(err.msg, "hunter2") != NULL) {
			fail_msg("%s: the password is shown: %s", texts[i], err.msg);
		}
		if (i < 10 && strstr(err.msg, "no user, password or port") == NULL) {
			fail_msg("%s: \"%s\" does not say why", texts[i], err.msg);
		}
	}
}

/* ---- endpoints ---- */

static void endpoints_have_one_form(void **state)
{
	static const struct {
		const char *text;
		const char *endpoint;
	} cases[] = {
		{"http://127.0.0.1:9000", "http://127.0.0.1:9000"},
		{"http://127.0.0.1:9000/", "http://127.0.0.1:9000"},
		{"https://S3.Example.COM", "https://s3.example.com"},
		{"HTTPS://my_host-1:0443", "https://my_host-1"},
		{"http://host:80/", "http://host"},
		{"http://host:443", "http://host:443"},
		{"https://host:80", "https://host:80"},
		{"https://h:65535", "https://h:65535"},
		{"http://[::1]:9000", "http://[::1]:9000"},
		{"https://[2001:DB8:0:0::1]/", "https://[2001:db8::1]"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		char endpoint[OBJECT_ENDPOINT_MAX];

		OK(object_endpoint_parse(cases[i].text, "AWS_ENDPOINT_URL", endpoint, &err));
		assert_string_equal(endpoint, cases[i].endpoint);
	}
}

static void endpoints_follow_their_rules(void **state)
{
	static const struct wrong cases[] = {
		{"", "http:// or https://"},
		{"host:9000", "http:// or https://"},
		{"ftp://host", "http:// or https://"},
		{"http:/host", "http:// or https://"},
		{"http://", "no host"},
		{"http:///", "no host"},
		{"http://:9000", "no host"},
		{"http://[", "no host"},
		{"http://[]", "no host"},
		{"http://" NAME_256, "more than 251"},
		{"http://host/path", "no path"},
		{"http://host//", "no path"},
		{"http://[::1]x", "no path"},
		{"http://host?a=b", "no user, password, query or fragment"},
		{"http://host#a", "fragment"},
		{"http://user@host", "no user"},
		{"http://user:password@host:9000", "no user"},
		{"http://host name", "letters, digits"},
		{"http://host%41", "letters, digits"},
		{"http://h\xc3\xb6st", "letters, digits"},
		{"http://host.", "letters, digits"},
		{"http://-host", "letters, digits"},
		{"http://a..b", "single dots"},
		{"http://host\n", "letters, digits"},
		{"http://::1", "no host"},
		{"http://[::g]", "IPv6"},
		{"http://[::1", "IPv6"},
		{"http://[127.0.0.1]", "IPv6"},
		{"http://[fe80::1%25eth0]", "IPv6"},
		{"http://host:", "port"},
		{"http://host:/", "port"},
		{"http://host:0", "port"},
		{"http://host:65536", "port"},
		{"http://host:123456", "port"},
		{"http://host:-1", "port"},
		{"http://host:9x", "no path"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		char endpoint[OBJECT_ENDPOINT_MAX] = "before";

		if (object_endpoint_parse(cases[i].text, "AWS_ENDPOINT_URL", endpoint, &err) !=
			PAWL_EINVAL) {
			fail_msg("%s: not refused", cases[i].text);
		}
		SAYS("AWS_ENDPOINT_URL must look like http[s]://HOST[:PORT]");
		SAYS(cases[i].said);
		assert_string_equal(endpoint, "before");
	}
}

/* ---- random addresses ---- */

static struct rng rng;

/* Writes 3 to most letters of chars. */
static void draw(char *text, size_t most, const char *chars)
{
	size_t n = 3 + rng_below(&rng, most - 2);

	for (size_t i = 0; i < n; i++) {
		text[i] = chars[rng_below(&rng, strlen(chars))];
	}
	text[n] = '\0';
}

static struct object_url draw_url(void)
{
	static const char *const letters = "abcdefghijklmnopqrstuvwxyz0123456789";
	struct object_url drawn = {.service = (enum object_service)rng_below(&rng, 3)};
	unsigned names = (unsigned)rng_below(&rng, 4);

	draw(drawn.bucket, 63, letters);
	if (drawn.service == OBJECT_AZURE) {
		draw(drawn.account, 24, letters);
	}
	for (unsigned i = 0; i < names; i++) {
		size_t n = strlen(drawn.prefix);

		n += (size_t)snprintf(drawn.prefix + n, 2, "%s", n > 0 ? "/" : "");
		draw(drawn.prefix + n, 100, "ab \"%?#&=+:@;<>{}|^`~!$'()*,-_");
	}
	if (rng_below(&rng, 2) == 0) {
		char host[40];

		draw(host, sizeof(host) - 1, letters);
		snprintf(drawn.endpoint, sizeof(drawn.endpoint), "http%s://%s:%u",
			rng_below(&rng, 2) == 0 ? "s" : "", host,
			(unsigned)(1000 + rng_below(&rng, 64000)));
	}
	if (rng_below(&rng, 2) == 0) {
		draw(drawn.region, 255, letters);
	}
	if (rng_below(&rng, 2) == 0) {
		draw(drawn.profile, 255, "ab \"%?#&=+:@;<>{}|^`~!$'()*,-_/.");
	}
	drawn.single_writer = rng_below(&rng, 2) == 0;
	return drawn;
}

/* Encodes some of a text's letters and digits that need it not. */
static void encode_more(const char *text, char *out)
{
	size_t n = 0;

	for (; *text != '\0'; text++) {
		bool encoded = *text == '%';
		bool letter = strchr("abcdefgh0123", *text) != NULL;

		if (!encoded && letter && rng_below(&rng, 4) == 0) {
			n += (size_t)snprintf(out + n, 4, "%%%02x", (unsigned)*text);
			continue;
		}
		out[n++] = *text;
		for (int i = 0; encoded && i < 2; i++) {
			out[n++] = *++text;
		}
	}
	out[n] = '\0';
}

static void assert_same(const struct object_url *a, const struct object_url *b)
{
	assert_int_equal(a->service, b->service);
	assert_string_equal(a->bucket, b->bucket);
	assert_string_equal(a->account, b->account);
	assert_string_equal(a->prefix, b->prefix);
	assert_string_equal(a->endpoint, b->endpoint);
	assert_string_equal(a->region, b->region);
	assert_string_equal(a->profile, b->profile);
	assert_int_equal(a->single_writer, b->single_writer);
}

static void written_addresses_can_be_read(void **state)
{
	rng.state = test_seed();
	for (uint32_t round = 0; round < ROUNDS; round++) {
		const struct object_url drawn = draw_url();
		char text[TEXT_MAX];
		char spelled[3 * TEXT_MAX];
		char again[TEXT_MAX];
		size_t scheme_n;

		object_url_write(&drawn, text, sizeof(text));
		OK(object_url_parse(text, &url, &err));
		assert_same(&url, &drawn);
		scheme_n = (size_t)(strchr(text, '/') - text) + 2;
		memcpy(spelled, text, scheme_n);
		encode_more(text + scheme_n, spelled + scheme_n);
		OK(object_url_parse(spelled, &url, &err));
		object_url_write(&url, again, sizeof(again));
		assert_string_equal(again, text);
	}
}

/* Addresses with a few wrong bytes are refused by name, or have a form that is stable. */
static void damaged_addresses_are_read_or_refused(void **state)
{
	static const char odd[] = "/?&=%@:#.-[]\\\x01\x7f\x80\xff";

	rng.state = test_seed();
	for (uint32_t round = 0; round < ROUNDS; round++) {
		const struct object_url drawn = draw_url();
		char text[TEXT_MAX];
		char again[TEXT_MAX];
		uint64_t wrong = 1 + rng_below(&rng, 4);

		object_url_write(&drawn, text, sizeof(text));
		while (wrong-- > 0) {
			text[5 + rng_below(&rng, strlen(text) - 5)] =
				odd[rng_below(&rng, sizeof(odd))]; /* a NUL, too */
			if (text[5] == '\0') {
				text[5] = 'a';
			}
			if (text[6] == '\0') {
				text[6] = 'a';
			}
		}
		err.msg[0] = '\0';
		if (object_url_parse(text, &url, &err) != 0) {
			assert_true(err.code == PAWL_EINVAL || err.code == PAWL_ELIMIT);
			assert_string_not_equal(err.msg, "");
			continue;
		}
		object_url_write(&url, text, sizeof(text));
		OK(object_url_parse(text, &url, &err));
		object_url_write(&url, again, sizeof(again));
		assert_string_equal(again, text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses_name_their_parts),
		cmocka_unit_test(addresses_have_one_form),
		cmocka_unit_test(a_long_address_is_cut),
		cmocka_unit_test(paths_are_no_addresses),
		cmocka_unit_test(names_of_buckets_follow_their_rules),
		cmocka_unit_test(names_of_azure_follow_their_rules),
		cmocka_unit_test(names_in_a_prefix_follow_their_rules),
		cmocka_unit_test(parameters_follow_their_rules),
		cmocka_unit_test(parts_have_limits),
		cmocka_unit_test(a_prefix_has_a_limit),
		cmocka_unit_test(messages_do_not_show_passwords),
		cmocka_unit_test(endpoints_have_one_form),
		cmocka_unit_test(endpoints_follow_their_rules),
		cmocka_unit_test(written_addresses_can_be_read),
		cmocka_unit_test(damaged_addresses_are_read_or_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
