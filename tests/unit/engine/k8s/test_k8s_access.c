/* Credentials of a client: plugins, files that change, the account of a Pod. No error holds a
 * secret: each of those has "hush" in it. */
#include "../lib/expect.h"
#include "base/clock.h"
#include "base/date.h"
#include "base/err.h"
#include "engine/k8s/kube_access.h"
#include "io/http.h"
#include "io/http_request.h"

#include "times.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "folder.h"

static struct kube_access *access_to;
static struct http_request request;
static struct pawl_err err;

static int begin(void **state)
{
	folder_make();
	unsetenv("KUBECONFIG");
	unsetenv("KUBERNETES_SERVICE_HOST");
	setenv("HOME", folder, 1);
	return 0;
}

static int end(void **state)
{
	kube_access_close(access_to);
	access_to = NULL;
	folder_remove();
	return 0;
}

/* Writes a kubeconfig. cluster: what its cluster has beside the server. */
static void write_config(const char *server, const char *cluster, const char *user)
{
	char text[8192];

	snprintf(text, sizeof(text),
		"current-context: t\n"
		"contexts: [{name: t, context: {cluster: t, user: t}}]\n"
		"clusters: [{name: t, cluster: {server: '%s'%s}}]\n"
		"users: [{name: t, user: {%s}}]\n",
		server, cluster, user);
	folder_write("config", text, 0600);
}

static int open_access(void)
{
	char path[2 * FOLDER_PATH_MAX];
	const struct kube_access_options options = {.kubeconfig = path};

	snprintf(path, sizeof(path), "%s", folder_path("config"));
	kube_access_close(access_to);
	access_to = NULL;
	return kube_access_open(&options, &access_to, &err);
}

/* Returns the header that a request gets; "": none. */
static const char *authorize(bool refused)
{
	const char *value;

	request_init(&request, "GET", "https://server");
	OK(kube_access_authorize(access_to, refused, &request, &err));
	value = request_header(&request, "authorization");
	return value != NULL ? value : "";
}

/* Uses a plugin: a shell script, which is told its own number of runs as $n. */
static void use_plugin(const char *script)
{
	char text[4096];

	snprintf(text, sizeof(text),
		"#!/bin/sh\n"
		"cd %s\n"
		"n=$(($(cat runs 2>/dev/null || echo 0) + 1)); echo $n > runs\n"
		"print() { echo '{\"kind\": \"ExecCredential\", \"apiVersion\": "
		"\"client.authentication.k8s.io/v1\", \"status\": {'\"$1\"'}}'; }\n"
		"%s\n",
		folder, script);
	folder_write("plugin", text, 0700);
	write_config("https://server", ", certificate-authority-data: Q0E=",
		"exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, args: [a, "
		"'b c'], env: [{name: EXTRA, value: x}], installHint: install it, "
		"provideClusterInfo: true}");
	OK(open_access());
}

static void servers_are_understood(void **state)
{
	struct http_options options = {.connections = 1};

	write_config("https://10.0.0.1:6443/prefix/", ", tls-server-name: kubernetes", "");
	OK(open_access());
	assert_string_equal(kube_access_endpoint(access_to), "https://kubernetes:6443");
	assert_string_equal(kube_access_path(access_to), "/prefix");
	assert_string_equal(kube_access_namespace(access_to), "default");
	kube_access_connect(access_to, &options);
	assert_string_equal(options.connect_to, "10.0.0.1:6443");
	write_config("https://[fd00::1]", ", tls-server-name: kubernetes", "");
	OK(open_access());
	assert_string_equal(kube_access_endpoint(access_to), "https://kubernetes");
	options = (struct http_options){.connections = 1};
	kube_access_connect(access_to, &options);
	assert_string_equal(options.connect_to, "[fd00::1]:443");
	write_config("http://127.0.0.1:8080", ", insecure-skip-tls-verify: true", "");
	OK(open_access());
	options = (struct http_options){.connections = 1};
	kube_access_connect(access_to, &options);
	assert_string_equal(kube_access_endpoint(access_to), "http://127.0.0.1:8080");
	assert_null(options.connect_to);
	assert_true(options.insecure);
	write_config("10.0.0.1", "", "");
	FAILS(PAWL_EINVAL, open_access());
	SAYS("must begin with https://");
	write_config("https://me@10.0.0.1", "", "");
	FAILS(PAWL_EINVAL, open_access());
}

static void users_are_named_in_a_header(void **state)
{
	write_config("https://server", "", "token: hush");
	OK(open_access());
	assert_string_equal(authorize(false), "Bearer hush");
	write_config("https://server", "", "username: me, password: hush");
	OK(open_access());
	assert_string_equal(authorize(false), "Basic bWU6aHVzaA==");
	write_config("https://server", "", "");
	OK(open_access());
	assert_string_equal(authorize(false), "");
}

static void a_password_is_sent_whole_or_refused(void **state)
{
	char user[6000];

	snprintf(user, sizeof(user), "username: me, password: '%0600d'", 0);
	write_config("https://server", "", user);
	OK(open_access());
	assert_int_equal(strlen(authorize(false)), strlen("Basic ") + 804);
	snprintf(user, sizeof(user), "username: me, password: '%05000d'", 0);
	write_config("https://server", "", user);
	OK(open_access());
	request_init(&request, "GET", "https://server");
	FAILS(PAWL_ELIMIT, kube_access_authorize(access_to, false, &request, &err));
	SAYS("username and password of context t have 5002 bytes: at most 4094");
}

static void a_file_that_changes_is_read_again(void **state)
{
	folder_write("token", "hush1\n", 0600);
	write_config("https://server", "", "tokenFile: token, token: other");
	OK(open_access());
	assert_string_equal(authorize(false), "Bearer hush1");
	folder_write("token", "hush2", 0600);
	assert_string_equal(authorize(false), "Bearer hush2");
	assert_int_equal(unlink(folder_path("token")), 0);
	assert_string_equal(authorize(true), "Bearer hush2"); /* about to be replaced */
	write_config("https://server", "", "tokenFile: none");
	FAILS(PAWL_ENOENT, open_access());
	SAYS("none");
}

static void a_plugin_prints_a_token(void **state)
{
	char told[1024];

	use_plugin("echo \"$KUBERNETES_EXEC_INFO $EXTRA $1 $2\" > told\n"
		   "print \"\\\"token\\\": \\\"hush$n\\\"\"");
	assert_string_equal(authorize(false), "Bearer hush1");
	assert_string_equal(authorize(false), "Bearer hush1"); /* does not expire */
	assert_string_equal(authorize(true), "Bearer hush1");  /* was just printed */
	folder_read("told", told, sizeof(told));
	assert_non_null(strstr(told, "\"interactive\":false"));
	assert_non_null(strstr(told, "\"server\":\"https://server\""));
	assert_non_null(strstr(told, "\"certificate-authority-data\":\"Q0E=\""));
	assert_non_null(strstr(told, " x a b c\n"));
}

static void a_credential_that_expires_is_replaced(void **state)
{
	char script[300], end[DATE_TEXT_MAX];

	snprintf(script, sizeof(script),
		"print \"\\\"token\\\": \\\"hush$n\\\", \\\"expirationTimestamp\\\": \\\"%s\\\"\"",
		date_write(clock_wall_ns() + 5 * NS_PER_S, end)); /* soon */
	use_plugin(script);
	assert_string_equal(authorize(false), "Bearer hush1");
	assert_string_equal(authorize(false), "Bearer hush2");
}

static void a_plugin_prints_a_certificate(void **state)
{
	struct http_options options = {.connections = 1};
	uint64_t version;

	use_plugin("print \"\\\"clientCertificateData\\\": \\\"CERT$n\\\", \\\"clientKeyData\\\": "
		   "\\\"hush\\\"\"");
	version = kube_access_version(access_to);
	assert_string_equal(authorize(false), "");
	assert_int_not_equal(kube_access_version(access_to), version);
	kube_access_connect(access_to, &options);
	assert_string_equal(options.certificate.bytes, "CERT1");
	assert_string_equal(options.key.bytes, "hush");
	assert_int_equal(options.authority.len_bytes, 2);
}

static void refuse_plugin(int code, const char *script, const char *says)
{
	use_plugin(script);
	request_init(&request, "GET", "https://server");
	FAILS(code, kube_access_authorize(access_to, false, &request, &err));
	SAYS("the plugin ");
	SAYS(says);
	assert_null(strstr(err.msg, "hush"));
}

static void a_plugin_that_fails_is_named(void **state)
{
	refuse_plugin(PAWL_EIO, "echo hush; exit 3", "it failed with status 3");
	refuse_plugin(PAWL_EIO, "echo hush", "is no ExecCredential");
	refuse_plugin(PAWL_EIO, "print ''", "neither a token nor a certificate");
	refuse_plugin(PAWL_EIO, "print '\"clientKeyData\": \"hush\"'", "alone");
	refuse_plugin(PAWL_EIO, "print '\"token\": \"hush\"' | sed s/v1/v1beta1/",
		"apiVersion client");
	refuse_plugin(PAWL_EIO, "print '\"token\": \"hush\", \"expirationTimestamp\": \"soon\"'",
		"no time");
	refuse_plugin(PAWL_ETIMEDOUT, "sleep 100", "did not end in time");
	write_config("https://server", "",
		"exec: {apiVersion: v, command: no-such-plugin, installHint: install it}");
	OK(open_access());
	FAILS(PAWL_ENOENT, kube_access_authorize(access_to, false, &request, &err));
	SAYS("there is no no-such-plugin: install it");
}

static void a_pod_has_an_account(void **state)
{
	const struct kube_access_options options = {.account_dir = folder};
	struct http_options http = {.connections = 1};

	FAILS(PAWL_ENOENT, kube_access_open(&options, &access_to, &err));
	SAYS("this is no Pod");
	folder_write("token", "hush", 0600);
	folder_write("ca.crt", "CA", 0600);
	folder_write("namespace", "team\n", 0600);
	setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1", 1);
	setenv("KUBERNETES_SERVICE_PORT", "443", 1);
	OK(kube_access_open(&options, &access_to, &err));
	assert_string_equal(kube_access_endpoint(access_to), "https://10.96.0.1:443");
	assert_string_equal(kube_access_namespace(access_to), "team");
	assert_string_equal(authorize(false), "Bearer hush");
	kube_access_connect(access_to, &http);
	assert_string_equal(http.authority.bytes, "CA");
}

static void a_kubeconfig_is_found(void **state)
{
	const struct kube_access_options options = {.kubeconfig = NULL};
	char list[900];

	write_config("https://one", "", "");
	snprintf(list, sizeof(list), ":%s/none:%s/config:", folder, folder);
	setenv("KUBECONFIG", list, 1);
	OK(kube_access_open(&options, &access_to, &err));
	assert_string_equal(kube_access_endpoint(access_to), "https://one");
	kube_access_close(access_to);
	access_to = NULL;
	unsetenv("KUBECONFIG");
	assert_int_equal(mkdir(folder_path(".kube"), 0700), 0);
	folder_read("config", list, sizeof(list));
	folder_write(".kube/config", list, 0600);
	OK(kube_access_open(&options, &access_to, &err));
	assert_string_equal(kube_access_endpoint(access_to), "https://one");
	setenv("KUBECONFIG", "/none/such", 1);
	kube_access_close(access_to);
	access_to = NULL;
	FAILS(PAWL_ENOENT, kube_access_open(&options, &access_to, &err));
	SAYS("/none/such");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(servers_are_understood),
		TEST(users_are_named_in_a_header),
		TEST(a_password_is_sent_whole_or_refused),
		TEST(a_file_that_changes_is_read_again),
		TEST(a_plugin_prints_a_token),
		TEST(a_credential_that_expires_is_replaced),
		TEST(a_plugin_prints_a_certificate),
		TEST(a_plugin_that_fails_is_named),
		TEST(a_pod_has_an_account),
		TEST(a_kubeconfig_is_found),
	};

	test_times("kube_plugin=0.5");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
