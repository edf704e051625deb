/* Pure parts of the scheduler's HTTP: paths, addresses, secrets and tokens, and the text that
 * Prometheus reads. */
#include "daemon/http/http_host.h"
#include "daemon/http/http_key.h"
#include "daemon/http/http_listen.h"
#include "daemon/http/http_places.h"
#include "daemon/http/http_route.h"
#include "daemon/prometheus.h"
#include "pawl/err.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define SECRET "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static char dir[] = "/tmp/pawl-http-XXXXXX";

/* ---- paths ---- */

static void paths_are_parsed(void **state)
{
	static const struct {
		const char *path;
		enum http_resource what;
		const char *space, *name, *group, *secret;
	} right[] = {
		{"/", HTTP_PAGE, "", "", "", ""},
		{"/healthz", HTTP_HEALTH, "", "", "", ""},
		{"/metrics", HTTP_METRICS, "", "", "", ""},
		{"/nodes", HTTP_NODES, "", "", "", ""},
		{"/jobs", HTTP_JOBS, "", "", "", ""},
		{"/jobs/7", HTTP_JOB, "", "7", "", ""},
		{"/jobs/7/cancel", HTTP_CANCEL, "", "7", "", ""},
		{"/jobs/a%20b/pause", HTTP_PAUSE, "", "a b", "", ""},
		{"/jobs/7/resume", HTTP_RESUME, "", "7", "", ""},
		{"/hints/a/7", HTTP_HINTS, "a", "7", "", ""},
		{"/h%69nts/%c3%a4/%E2%82%ac", HTTP_HINTS, "\xc3\xa4", "\xe2\x82\xac", "", ""},
		{"/discover/a/7/3", HTTP_DISCOVER, "a", "7", "3", ""},
		{"/memberships/b", HTTP_MEMBERSHIPS, "", "b", "", ""},
		{"/membership/a/7", HTTP_MEMBERSHIP, "a", "7", "", ""},
		{"/job/" SECRET "/membership/a/7", HTTP_MEMBERSHIP, "a", "7", "", SECRET},
		{"/job/" SECRET "/hints/a/7", HTTP_HINTS, "a", "7", "", SECRET},
		{"/job/" SECRET "/discover/a/7/3", HTTP_DISCOVER, "a", "7", "3", SECRET},
		{"/jobs/%2e%2e.", HTTP_JOB, "", "...", "", ""},
		/* no such path */
		{"/job/" SECRET "/jobs/7", HTTP_NOTHING, "", "", "", SECRET},
		{"/job/" SECRET "/metrics", HTTP_NOTHING, "", "", "", SECRET},
		{"/job/" SECRET "/memberships/b", HTTP_NOTHING, "", "", "", SECRET},
		{"/job/" SECRET, HTTP_NOTHING, "", "", "", ""},
		{"/job/x" SECRET "/hints/a/7", HTTP_NOTHING, "", "", "", ""},
		{"/hints/a", HTTP_NOTHING, "", "", "", ""},
		{"/hints/a/b/c", HTTP_NOTHING, "", "", "", ""},
		{"/jobs/7/delete", HTTP_NOTHING, "", "", "", ""},
		{"/Healthz", HTTP_NOTHING, "", "", "", ""},
		{"/a/b/c/d/e/f/g/h/i/j", HTTP_NOTHING, "", "", "", ""},
	};

	for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++) {
		struct http_route route;
		bool ok = http_route_parse(&route, right[i].path);

		if (strlen(right[i].path) > 70 && right[i].what == HTTP_NOTHING && !ok) {
			continue; /* a part that is too long is malformed */
		}
		if (!ok || route.resource != right[i].what) {
			fail_msg("%s: %d", right[i].path, (int)route.resource);
		}
		assert_string_equal(route.space, right[i].space);
		assert_string_equal(route.name, right[i].name);
		assert_string_equal(route.group, right[i].group);
		assert_string_equal(route.secret, right[i].secret);
	}
}

static void malformed_paths_are_none(void **state)
{
	static const char too_long[] = "/jobs/" SECRET SECRET;
	static const char *const wrong[] = {"healthz", "*", "http://x/healthz", "//", "/jobs/",
		"//healthz", "/healthz/", "/jobs//cancel", "/.", "/..", "/jobs/../healthz",
		"/jobs/%2e%2E/x", "/jobs/%2e", "/jobs/a%2fb", "/jobs/%00", "/healthz%00",
		"/healthz%00/x", "/jobs/%", "/jobs/%1", "/jobs/%zz", "/jobs/%u0041", "/jobs/a%0ab",
		"/jobs/\x7f", "/jobs/\x01", "/jobs/%e2%80%ae", "/jobs/%c2%9b", "/jobs/\xff",
		"/jobs/%ff", "/jobs/%c0%af", "/jobs/%ed%a0%80", "/jobs/%f4%90%80%80",
		"/jobs/%e2%82", "/jobs/%f5%80%80%80", "/jobs/%f8%88%80%80%80", "/jobs/%c3",
		too_long};
	struct http_route route;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		if (http_route_parse(&route, wrong[i])) {
			fail_msg("%s is taken", wrong[i]);
		}
	}
}

static void methods_are_those_of_the_path(void **state)
{
	struct http_route route;

	assert_true(http_route_parse(&route, "/healthz"));
	assert_true(http_route_allows(&route, "GET"));
	assert_true(http_route_allows(&route, "HEAD"));
	assert_false(http_route_allows(&route, "PUT"));
	assert_false(http_route_allows(&route, "GE"));
	assert_false(http_route_allows(&route, ""));
	assert_false(http_route_allows(&route, "get"));
	assert_true(http_route_parse(&route, "/hints/a/b"));
	assert_true(http_route_allows(&route, "PUT"));
	assert_false(http_route_allows(&route, "POST"));
	assert_true(http_route_parse(&route, "/jobs/1/cancel"));
	assert_true(http_route_allows(&route, "POST"));
	assert_false(http_route_allows(&route, "GET"));
}

static void numbers_are_whole_and_bounded(void **state)
{
	static const char *const wrong[] = {"", "-1", "+1", " 1", "1 ", "0x1", "1e3", "1.0",
		"18446744073709551616", "99999999999999999999999999"};
	uint64_t n = 5;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		assert_false(http_number(wrong[i], UINT64_MAX, &n));
	}
	assert_int_equal(n, 5);
	assert_true(http_number("18446744073709551615", UINT64_MAX, &n));
	assert_true(n == UINT64_MAX);
	assert_true(http_number("0", 0, &n));
	assert_int_equal(n, 0);
	assert_false(http_number("1", 0, &n));
	assert_true(http_number("007", 7, &n));
	assert_int_equal(n, 7);
	assert_false(http_number("8", 7, &n));
	assert_false(http_number("301", 300, &n));
	assert_true(http_number("300", 300, &n));
}

static void loopback_addresses_are_recognized(void **state)
{
	static const struct {
		const char *text;
		bool loopback;
	} right[] = {{"127.0.0.1:0", true}, {"127.5.6.7:80", true}, {"[::1]:8080", true},
		{"localhost:1", true}, {"0.0.0.0:80", false}, {"10.0.0.1:65535", false},
		{"[::]:80", false}, {"[::ffff:127.0.0.1]:80", false}, {"128.0.0.1:1", false}};
	static const char *const wrong[] = {"", ":", ":80", "80", "127.0.0.1",
		"127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:80x", "::1:80", "[::1]",
		"[::1", "[127.0.0.1]:80", "example.org:80", "127.1:80", "[]:80",
		"1111111111111111111111111111111111111111111111111111111111111111111111:1"};
	struct http_address address;
	struct pawl_err err;

	for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++) {
		assert_int_equal(http_address_parse(&address, right[i].text, &err), 0);
		assert_int_equal(address.loopback, right[i].loopback);
	}
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		if (http_address_parse(&address, wrong[i], &err) != PAWL_EINVAL) {
			fail_msg("%s is taken", wrong[i]);
		}
	}
}

static void others_ask_by_name_or_address(void **state)
{
	static const struct {
		const char *text, *url, *name;
		int rv;
		const char *others;
	} all[] = {
		{"10.0.0.1:8443", "https://10.0.0.1:8443", "", 0, "https://10.0.0.1:8443"},
		{"10.0.0.1:8443", "https://10.0.0.1:8443", "a.b", 0, "https://a.b:8443"},
		{"0.0.0.0:0", "https://0.0.0.0:4711", "login-1", 0, "https://login-1:4711"},
		{"0.0.0.0:0", "https://0.0.0.0:4711", "10.0.0.1", 0, "https://10.0.0.1:4711"},
		{"[::]:0", "https://[::]:4711", "fd00::1", 0, "https://[fd00::1]:4711"},
		{"[fd00::1]:1", "https://[fd00::1]:1", "", 0, "https://[fd00::1]:1"},
		{"0.0.0.0:0", "https://0.0.0.0:4711", "", PAWL_ENOENT, NULL},
		{"[::]:0", "https://[::]:4711", "", PAWL_ENOENT, NULL},
		{"127.0.0.1:80", "http://127.0.0.1:80", "", PAWL_ENOENT, NULL},
		{"[::1]:80", "http://[::1]:80", "a", PAWL_ENOENT, NULL},
		{"0.0.0.0:0", "https://0.0.0.0:4711", "a:80", PAWL_EINVAL, NULL},
		{"0.0.0.0:0", "https://0.0.0.0:4711", "a/b", PAWL_EINVAL, NULL},
		{"0.0.0.0:0", "https://0.0.0.0:4711", "[fd00::1]", PAWL_EINVAL, NULL},
		{"0.0.0.0:0", "https://0.0.0.0:4711", SECRET SECRET, PAWL_EINVAL, NULL},
	};
	struct http_address address;
	char url[256];

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		assert_int_equal(http_address_parse(&address, all[i].text, NULL), 0);
		assert_int_equal(http_external_url(&address, all[i].url, all[i].name, url,
					 sizeof(url), NULL),
			all[i].rv);
		if (all[i].rv == 0) {
			assert_string_equal(url, all[i].others);
		}
	}
}

/* ---- secrets ---- */

static void write_file(const char *name, const char *text, mode_t mode)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL, mode);
	assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	fchmod(fd, mode);
	close(fd);
}

static void a_secret_is_one_jobs_and_the_same_after_a_restart(void **state)
{
	struct http_key key;
	struct http_key again;
	char one[HTTP_SECRET_CHARS + 1u];
	char two[HTTP_SECRET_CHARS + 1u];
	char path[64];
	struct stat st;

	assert_int_equal(http_key_load(&key, dir, NULL, NULL), 0);
	snprintf(path, sizeof(path), "%s/http.key", dir);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(st.st_size, 32);
	assert_int_equal(http_key_load(&again, dir, NULL, NULL), 0);
	http_key_secret(&key, 1, one);
	http_key_secret(&again, 1, two);
	assert_string_equal(one, two);
	http_key_secret(&key, 2, two);
	assert_string_not_equal(one, two);
	assert_int_equal(strspn(one, "0123456789abcdef"), HTTP_SECRET_CHARS);
	assert_true(http_key_is_secret(&key, 1, one));
	assert_false(http_key_is_secret(&key, 2, one));
	for (size_t i = 0; i < HTTP_SECRET_CHARS; i++) {
		char wrong[HTTP_SECRET_CHARS + 1u];

		memcpy(wrong, one, sizeof(wrong));
		wrong[i] = wrong[i] == 'a' ? 'b' : 'a';
		assert_false(http_key_is_secret(&key, 1, wrong));
		wrong[i] = '\0';
		assert_false(http_key_is_secret(&key, 1, wrong));
	}
	/* With another key, none of the secrets is right. */
	unlink(path);
	assert_int_equal(http_key_load(&again, dir, NULL, NULL), 0);
	assert_false(http_key_is_secret(&again, 1, one));
	/* Half a key is none. */
	assert_int_equal(truncate(path, 16), 0);
	assert_int_equal(http_key_load(&again, dir, NULL, NULL), PAWL_ECORRUPT);
	unlink(path);
}

/* Secrets follow RFC 2104, so that other tools can make them. */
static void a_secret_is_the_hmac_that_is_documented(void **state)
{
	struct http_key key = {.key = "0123456789abcdef0123456789abcde"};
	char secret[HTTP_SECRET_CHARS + 1u];

	/* printf 'pawl job 7' | openssl dgst -sha256 -mac HMAC -macopt hexkey:30313233… */
	http_key_secret(&key, 7, secret);
	assert_string_equal(secret,
		"37e324e4fff83e9f0bae2747bdda670143b9af2f1f9a86ebe63cd05989836b0e");
}

static void a_token_is_long_and_its_file_private(void **state)
{
	static const char token[] = "a token of 24 characters";
	struct http_key key;
	struct pawl_err err;
	char path[64];

	snprintf(path, sizeof(path), "%s/token", dir);
	assert_int_equal(http_key_load(&key, dir, path, &err), PAWL_ENOENT);
	write_file("token", token, 0640);
	assert_int_equal(http_key_load(&key, dir, path, &err), PAWL_EINVAL);
	assert_non_null(strstr(err.msg, "others may read it"));
	write_file("token", "123456789012345\n", 0600);
	assert_int_equal(http_key_load(&key, dir, path, &err), PAWL_EINVAL);
	assert_non_null(strstr(err.msg, "16 to 4096"));
	write_file("token", "\n", 0600);
	assert_int_equal(http_key_load(&key, dir, path, &err), PAWL_EINVAL);
	write_file("token", "a token of 24 characters\r\nand more\n", 0600);
	assert_int_equal(http_key_load(&key, dir, path, &err), 0);
	assert_true(http_key_is_token(&key, token));
	assert_false(http_key_is_token(&key, "a token of 24 character"));
	assert_false(http_key_is_token(&key, "a token of 24 characters "));
	assert_false(http_key_is_token(&key, ""));
	/* Without a token file, no text is the token. */
	assert_int_equal(http_key_load(&key, dir, NULL, &err), 0);
	assert_false(http_key_is_token(&key, token));
	assert_false(http_key_is_token(&key, ""));
}

/* ---- hosts ---- */

static void a_host_is_ours_by_address_or_by_a_name_that_we_have(void **state)
{
	static const char *const ours[] = {"127.0.0.1", "127.0.0.1:8080", "localhost",
		"LocalHost:1", "localhost.:80", "10.1.2.3:9090", "[::1]", "[::1]:8080", "[fe80::1]",
		"node7.cluster.example", "NODE7.cluster.example:80", "node7", "node7:1",
		"login1.example.org:8443"};
	static const char *const foreign[] = {"", ":", ":80", "evil.example", "evil.example:8080",
		"localhost.evil.example", "evil-localhost", "127.0.0.1.evil.example", "127.0.0.1x",
		"127.1", "2130706433", "0x7f.1", "::1", "[::1", "[localhost]", "[127.0.0.1]",
		"localhost:80x", "localhost:80:90", "localhost localhost", "node7.evil.example",
		"node", "node77", "cluster.example", "example.org", "x.login1.example.org", ".",
		"..", "user@localhost", "localhost,evil.example", "localhost/"};
	const struct http_host host = {.own = "node7.cluster.example",
		.given = "login1.example.org"};
	const struct http_host bare = {.own = "", .given = ""};
	char long_name[2 * HTTP_HOST_MAX];

	for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++) {
		if (!http_host_is_ours(&host, NULL, ours[i])) {
			fail_msg("%s is foreign", ours[i]);
		}
	}
	for (size_t i = 0; i < sizeof(foreign) / sizeof(*foreign); i++) {
		if (http_host_is_ours(&host, NULL, foreign[i]) ||
			http_host_is_ours(&bare, NULL, foreign[i])) {
			fail_msg("%s is ours", foreign[i]);
		}
	}
	memset(long_name, 'a', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = '\0';
	assert_false(http_host_is_ours(&host, NULL, long_name));
	assert_true(http_host_is_ours(&bare, NULL, "localhost"));
	assert_false(http_host_is_ours(&bare, NULL, "node7"));
}

/* ---- places ---- */

static void put_peer(struct http_place *place, const char *address)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};

	if (inet_pton(AF_INET, address, &v4.sin_addr) == 1) {
		http_place_name((struct sockaddr *)&v4, place->peer);
	} else {
		assert_int_equal(inet_pton(AF_INET6, address, &v6.sin6_addr), 1);
		http_place_name((struct sockaddr *)&v6, place->peer);
	}
}

static bool same_peer(const char *one, const char *other)
{
	struct http_place a = {0};
	struct http_place b = {0};

	put_peer(&a, one);
	put_peer(&b, other);
	return memcmp(a.peer, b.peer, sizeof(a.peer)) == 0;
}

static void a_peer_is_whoever_may_have_the_address(void **state)
{
	assert_true(same_peer("10.0.0.1", "10.0.0.1"));
	assert_false(same_peer("10.0.0.1", "10.0.0.2"));
	/* Any user of this machine has all of these addresses. */
	assert_true(same_peer("127.0.0.1", "127.1.2.3"));
	assert_true(same_peer("2001:db8::1", "2001:db8::2:3"));
	assert_false(same_peer("2001:db8:0:1::1", "2001:db8:0:2::1"));
	assert_false(same_peer("10.0.0.1", "::1"));
}

static void peer_with_most_is_evicted(void **state)
{
	static const struct {
		const char *peer;
		int64_t since_ns;
	} rows[] = {{"10.0.0.1", 1}, {"10.0.0.2", 5}, {"10.0.0.2", 3}, {"10.0.0.2", 4},
		{"10.0.0.3", 2}};
	struct http_place places[5] = {0};

	for (size_t i = 0; i < 5; i++) {
		put_peer(&places[i], rows[i].peer);
		places[i].since_ns = rows[i].since_ns;
		places[i].next = i < 4 ? &places[i + 1] : NULL;
	}
	assert_null(http_places_victim(NULL));
	assert_int_equal(http_places_taken(places), 5);
	/* The oldest of the peer that has most, and not the oldest of all. */
	assert_ptr_equal(http_places_victim(places), &places[2]);
	places[2].leaving = true;
	assert_int_equal(http_places_taken(places), 4);
	assert_ptr_equal(http_places_victim(places), &places[3]);
	places[3].waiting = true; /* in discovery, and counted */
	assert_ptr_equal(http_places_victim(places), &places[1]);
	places[1].leaving = true;
	assert_ptr_equal(http_places_victim(places), &places[0]); /* each peer has one */
	places[0].waiting = places[4].waiting = true;
	assert_null(http_places_victim(places));
}

/* ---- metrics ---- */

static void metrics_are_text_that_prometheus_reads(void **state)
{
	static const double bounds[METRICS_BOUNDS] = {0.1, 1, 2, 3, 4, 5, 6, 7};
	struct metrics_times times = {.bounds_s = bounds};
	const struct metrics_label labels[] = {{"a", "x\\y\"z\nw"}, {"b", ""}};
	struct wire_out out = {NULL};
	const char *expected =
		"# HELP m What \\\\ is\\n\"it\"\n# TYPE m gauge\n"
		"m{a=\"x\\\\y\\\"z\\nw\",b=\"\"} 0.1\n"
		"m{a=\"x\\\\y\\\"z\\nw\"} 1e+300\n"
		"m NaN\nm +Inf\nm -Inf\nm 12345678901\nm 0.30000000000000004\n"
		"# HELP c C\n# TYPE c counter\nc 3\n"
		"# HELP t T\n# TYPE t histogram\n"
		"t_bucket{le=\"0.1\"} 1\nt_bucket{le=\"1\"} 2\nt_bucket{le=\"2\"} 2\n"
		"t_bucket{le=\"3\"} 2\nt_bucket{le=\"4\"} 2\nt_bucket{le=\"5\"} 2\n"
		"t_bucket{le=\"6\"} 2\nt_bucket{le=\"7\"} 2\nt_bucket{le=\"+Inf\"} 3\n"
		"t_sum 9\nt_count 3\n";

	metrics_put_family(&out, "m", "gauge", "What \\ is\n\"it\"");
	metrics_put(&out, "m", labels, 2, 0.1);
	metrics_put(&out, "m", labels, 1, 1e300);
	metrics_put(&out, "m", NULL, 0, (double)NAN);
	metrics_put(&out, "m", NULL, 0, (double)INFINITY);
	metrics_put(&out, "m", NULL, 0, -(double)INFINITY);
	metrics_put(&out, "m", NULL, 0, 12345678901.0);
	metrics_put(&out, "m", NULL, 0, 0.1 + 0.2);
	metrics_put_one(&out, "c", "counter", "C", 3);
	metrics_times_add(&times, 0.1); /* a bound is in its bucket */
	metrics_times_add(&times, 0.9);
	metrics_times_add(&times, 8);
	metrics_put_times(&out, "t", "T", &times);
	wire_put_u8(&out, 0);
	assert_false(out.failed);
	assert_string_equal((const char *)out.bytes, expected);
	wire_out_deinit(&out);
}

static int make_dir(void **state)
{
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/token", dir);
	unlink(path);
	snprintf(path, sizeof(path), "%s/http.key", dir);
	unlink(path);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paths_are_parsed),
		cmocka_unit_test(malformed_paths_are_none),
		cmocka_unit_test(methods_are_those_of_the_path),
		cmocka_unit_test(numbers_are_whole_and_bounded),
		cmocka_unit_test(loopback_addresses_are_recognized),
		cmocka_unit_test(others_ask_by_name_or_address),
		cmocka_unit_test(a_secret_is_one_jobs_and_the_same_after_a_restart),
		cmocka_unit_test(a_secret_is_the_hmac_that_is_documented),
		cmocka_unit_test(a_token_is_long_and_its_file_private),
		cmocka_unit_test(a_host_is_ours_by_address_or_by_a_name_that_we_have),
		cmocka_unit_test(a_peer_is_whoever_may_have_the_address),
		cmocka_unit_test(peer_with_most_is_evicted),
		cmocka_unit_test(metrics_are_text_that_prometheus_reads),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
