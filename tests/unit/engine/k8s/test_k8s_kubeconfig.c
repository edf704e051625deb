/* Kubeconfigs as kubectl, clouds and people write them, and wrong ones. No error holds a secret:
 * each of those has "hush" in it. */
#include "../lib/expect.h"
#include "base/err.h"
#include "engine/k8s/kubeconfig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static struct kubeconfig config;
static struct pawl_err err;

static int end(void **state)
{
	kubeconfig_deinit(&config);
	return 0;
}

static int read_text(const char *text, const char *context)
{
	const struct kubeconfig_file file = {"/home/me/.kube/config", text, strlen(text)};

	kubeconfig_deinit(&config);
	return kubeconfig_read(&file, 1, context, &config, &err);
}

/* Expects an error that says this, and no secret. */
static void refuse(int code, const char *text, const char *says)
{
	FAILS(code, read_text(text, NULL));
	SAYS(says);
	assert_null(strstr(err.msg, "hush"));
}

/* A file with one context: what its cluster has, and what its user has. */
#define FILE_OF(cluster, user)                                                                     \
	"apiVersion: v1\nkind: Config\ncurrent-context: here\n"                                    \
	"contexts:\n- name: here\n  context: {cluster: c, user: u, namespace: team}\n"             \
	"clusters:\n- name: c\n  cluster:\n" cluster "users:\n- name: u\n  user:\n" user

#define SERVER "    server: https://10.0.0.1:6443\n"

static void certificates_are_read(void **state)
{
	OK(read_text(FILE_OF(SERVER "    certificate-authority-data: Q0EK\n"
				    "    tls-server-name: kubernetes\n",
			     "    client-certificate-data: Q0VSVA==\n    client-key: key.pem\n"),
		NULL));
	assert_string_equal(config.context, "here");
	assert_string_equal(config.name_space, "team");
	assert_string_equal(config.server, "https://10.0.0.1:6443");
	assert_string_equal(config.tls_name, "kubernetes");
	assert_string_equal(config.authority.text, "CA\n");
	assert_int_equal(config.authority.text_bytes, 3);
	assert_string_equal(config.certificate.text, "CERT");
	assert_null(config.certificate.file);
	assert_string_equal(config.key.file, "/home/me/.kube/key.pem");
	assert_null(config.key.text);
	assert_false(config.insecure);
	assert_null(config.token);
	assert_null(config.exec.command);
}

static void tokens_are_read(void **state)
{
	OK(read_text(FILE_OF(SERVER "    insecure-skip-tls-verify: true\n"
				    "    proxy-url: http://proxy:3128\n",
			     "    token: hush\n    tokenFile: /run/token\n"
			     "    username: me\n    password: hush2\n"),
		NULL));
	assert_true(config.insecure);
	assert_string_equal(config.proxy, "http://proxy:3128");
	assert_string_equal(config.token, "hush");
	assert_string_equal(config.token_file, "/run/token");
	assert_string_equal(config.user, "me");
	assert_string_equal(config.password, "hush2");
}

static void commands_are_read(void **state)
{
	OK(read_text(FILE_OF(SERVER,
			     "    exec:\n      apiVersion: client.authentication.k8s.io/v1beta1\n"
			     "      command: aws\n      args: [eks, get-token, --cluster-name, 7]\n"
			     "      env:\n      - {name: AWS_PROFILE, value: dev}\n"
			     "      - {name: EMPTY}\n"
			     "      installHint: install it\n      provideClusterInfo: true\n"
			     "      interactiveMode: Never\n"),
		NULL));
	assert_string_equal(config.exec.command, "aws");
	assert_string_equal(config.exec.api_version, "client.authentication.k8s.io/v1beta1");
	assert_int_equal(config.exec.args_n, 4);
	assert_string_equal(config.exec.args[3], "7");
	assert_int_equal(config.exec.env_n, 2);
	assert_string_equal(config.exec.env[0].value, "dev");
	assert_string_equal(config.exec.env[1].value, "");
	assert_string_equal(config.exec.hint, "install it");
	assert_true(config.exec.wants_cluster);

	OK(read_text(FILE_OF(SERVER, "    exec: {apiVersion: v, command: ./bin/plugin}\n"), NULL));
	assert_string_equal(config.exec.command, "/home/me/.kube/./bin/plugin");
}

static void json_is_yaml(void **state)
{
	OK(read_text("{\"current-context\": \"a\", \"contexts\": [{\"name\": \"a\", \"context\": "
		     "{\"cluster\": \"b\", \"user\": \"\"}}], \"clusters\": [{\"name\": \"b\", "
		     "\"cluster\": {\"server\": \"http://localhost:8080\"}}], \"users\": null}",
		NULL));
	assert_string_equal(config.server, "http://localhost:8080");
	assert_null(config.token);
}

static void a_context_can_be_named(void **state)
{
	static const char text[] = "current-context: a\n"
				   "contexts:\n- {name: a, context: {cluster: c}}\n"
				   "- {name: b, context: {cluster: d}}\n"
				   "clusters:\n- {name: c, cluster: {server: 'https://c'}}\n"
				   "- {name: d, cluster: {server: 'https://d'}}\n";

	OK(read_text(text, "b"));
	assert_string_equal(config.server, "https://d");
	assert_string_equal(config.context, "b");
	FAILS(PAWL_ENOENT, read_text(text, "z"));
	SAYS("there is no context z in /home/me/.kube/config");
}

static void of_several_files_the_first_counts(void **state)
{
	static const char first[] = "current-context: a\n"
				    "clusters:\n- {name: c, cluster: {server: 'https://first', "
				    "certificate-authority: ca.pem}}\n";
	static const char second[] = "current-context: z\n"
				     "contexts:\n- {name: a, context: {cluster: c, user: u}}\n"
				     "clusters:\n- {name: c, cluster: {server: 'https://second'}}\n"
				     "users:\n- {name: u, user: {tokenFile: t}}\n";
	const struct kubeconfig_file files[] = {{"/one/config", first, sizeof(first) - 1},
		{"/two/empty", "", 0}, {"/two/config", second, sizeof(second) - 1}};

	OK(kubeconfig_read(files, 3, NULL, &config, &err));
	assert_string_equal(config.server, "https://first");
	assert_string_equal(config.authority.file, "/one/ca.pem");
	assert_string_equal(config.token_file, "/two/t");
}

static void what_is_wrong_is_named(void **state)
{
	refuse(PAWL_ENOENT, "", "there is no current-context");
	refuse(PAWL_ENOENT, "current-context: x\n", "there is no context x");
	refuse(PAWL_EINVAL, "a: [hush\n", "/home/me/.kube/config: line ");
	refuse(PAWL_EINVAL, FILE_OF("    {}\n", "    {}\n"), "cluster c has no server");
	refuse(PAWL_EINVAL, FILE_OF("    server: [a]\n", "    {}\n"), "server must be a text");
	refuse(PAWL_EINVAL, FILE_OF(SERVER "    insecure-skip-tls-verify: maybe\n", "    {}\n"),
		"insecure-skip-tls-verify must be true or false");
	refuse(PAWL_EINVAL, FILE_OF(SERVER "    certificate-authority-data: hush!\n", "    {}\n"),
		"certificate-authority-data is not base64");
	refuse(PAWL_EINVAL, FILE_OF(SERVER, "    client-key-data: hush-hush\n"),
		"client-key-data is not base64");
	refuse(PAWL_EINVAL, FILE_OF(SERVER, "    exec: {command: x}\n"), "needs command and");
	refuse(PAWL_EINVAL, FILE_OF(SERVER, "    exec: {command: x, apiVersion: v, args: a}\n"),
		"args must be a list");
	refuse(PAWL_EINVAL,
		FILE_OF(SERVER, "    exec: {command: x, apiVersion: v, env: [{value: hush}]}\n"),
		"env must be a list");
	refuse(PAWL_ENOTSUP, FILE_OF(SERVER, "    auth-provider: {name: gcp}\n"),
		"gke-gcloud-auth-plugin");
	refuse(PAWL_ENOTSUP, FILE_OF(SERVER, "    as: someone\n"), "impersonation");
	refuse(PAWL_ENOENT,
		"current-context: a\ncontexts:\n- {name: a, context: {cluster: c, user: u}}\n"
		"clusters:\n- {name: c, cluster: {server: s}}\n",
		"there is no user u");
	refuse(PAWL_ENOENT,
		"current-context: a\ncontexts:\n- {name: a, context: {cluster: c, user: u}}\n",
		"there is no cluster c");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(certificates_are_read, NULL, end),
		cmocka_unit_test_setup_teardown(tokens_are_read, NULL, end),
		cmocka_unit_test_setup_teardown(commands_are_read, NULL, end),
		cmocka_unit_test_setup_teardown(json_is_yaml, NULL, end),
		cmocka_unit_test_setup_teardown(a_context_can_be_named, NULL, end),
		cmocka_unit_test_setup_teardown(of_several_files_the_first_counts, NULL, end),
		cmocka_unit_test_setup_teardown(what_is_wrong_is_named, NULL, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
