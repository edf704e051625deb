/*
 * See kube_access.h.
 *
 * The token is one of: the text of a file, which is read again when the file has changed or the
 * server refuses the token; what a plugin printed, until that expires or is refused; a text of the
 * kubeconfig.
 */
#include "engine/k8s/kube_access.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"
#include "engine/k8s/exec_credential.h"
#include "engine/k8s/kubeconfig.h"
#include "io/command.h"
#include "io/http.h"
#include "io/http_request.h"
#include "io/kube_service.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ACCOUNT_DIR     "/var/run/secrets/kubernetes.io/serviceaccount"
#define CONFIG_MAX      (1u << 20)      /* bytes of a kubeconfig */
#define PEM_MAX         (1u << 20)      /* bytes of a file of certificates */
#define TOKEN_MAX       (16u << 10)     /* bytes of a token */
#define PLUGIN_TEXT_MAX (256u << 10)    /* bytes that a plugin may print */
#define EARLY_NS        (30 * NS_PER_S) /* a credential is replaced before it expires */
#define PLUGIN_PAUSE_NS (1 * NS_PER_S)  /* between two runs of a plugin whose token is refused */
#define PATH_TEXT_MAX   4096u
#define ENDPOINT_MAX    512u
#define BASIC_MAX       4096u /* bytes of "user:password", terminator included */

/* A file that was read, and what tells whether it has changed. */
struct seen_file {
	const char *path; /* the kubeconfig's; NULL: there is none */
	struct timespec changed;
	ino_t inode;
};

struct kube_access {
	struct kubeconfig config;
	char *file_texts[KUBECONFIG_FILES_MAX]; /* owned; config points into none of them */
	char endpoint[ENDPOINT_MAX];            /* "https://HOST:PORT", with tls_name as the host */
	char connect_to[ENDPOINT_MAX];          /* "HOST:PORT", if that is not the endpoint's; "" */
	char path[ENDPOINT_MAX];                /* path of the server's URL; "": none */
	char *authority;                        /* PEM, owned; NULL: the system's */
	char *certificate;                      /* PEM, owned; NULL: none */
	char *key;                              /* PEM, owned */
	struct seen_file token_file;
	char *token;                    /* text of the file, owned; NULL: none */
	struct exec_credential printed; /* by the plugin */
	int64_t printed_ns;             /* time of that, monotonic; 0: never */
	uint64_t version;
};

/* ---- files ---- */

/* Reads a file whole, with a NUL behind it. */
static int read_file(const char *path, size_t max_bytes, struct seen_file *seen, char **text,
	struct pawl_err *err)
{
	int fd = FAULT_SYS("kube.open", open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
	struct stat st;
	int rv;

	if (fd < 0) {
		return pawl_err_sys(err, "open %s", path);
	}
	rv = fstat(fd, &st) == 0 ? 0 : pawl_err_sys(err, "look at %s", path);
	if (rv == 0 && seen != NULL) {
		seen->changed = st.st_mtim;
		seen->inode = st.st_ino;
	}
	rv = rv == 0 ? command_collect(fd, max_bytes, INT64_MAX, text, err) : rv;
	close(fd);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "%s", path);
}

static bool has_changed(const struct seen_file *seen)
{
	struct stat st;

	return stat(seen->path, &st) != 0 || st.st_ino != seen->inode ||
		st.st_mtim.tv_sec != seen->changed.tv_sec ||
		st.st_mtim.tv_nsec != seen->changed.tv_nsec;
}

static void wipe(char **text)
{
	if (*text != NULL) {
		explicit_bzero(*text, strlen(*text));
		free(*text);
		*text = NULL;
	}
}

/* Copies a certificate or key of the kubeconfig, or reads its file. */
static int load_pem(const struct kubeconfig_pem *pem, char **text, struct pawl_err *err)
{
	if (pem->text != NULL) {
		*text = FAULT_MEM("kube.pem", strdup(pem->text));
		return *text != NULL ? 0 : pawl_err_set(err, PAWL_ENOMEM, "no memory");
	}
	return pem->file != NULL ? read_file(pem->file, PEM_MAX, NULL, text, err) : 0;
}

/* Reads the token's file, whose last line may end. */
static int load_token(struct kube_access *a, struct pawl_err *err)
{
	char *text = NULL;
	int rv = read_file(a->token_file.path, TOKEN_MAX, &a->token_file, &text, err);

	if (rv != 0) {
		return rv;
	}
	for (size_t n = strlen(text); n > 0 && strchr("\r\n\t ", text[n - 1]) != NULL; n--) {
		text[n - 1] = '\0';
	}
	wipe(&a->token);
	a->token = text;
	return text[0] != '\0' ? 0
			       : pawl_err_set(err, PAWL_EINVAL, "%s is empty", a->token_file.path);
}

/* ---- the kubeconfig ---- */

/* Reads the files that a list names, "a:b"; those that are not there are left out, unless none
 * is. */
static int read_configs(struct kube_access *a, const char *list, const char *context,
	struct pawl_err *err)
{
	struct kubeconfig_file files[KUBECONFIG_FILES_MAX];
	char paths[KUBECONFIG_FILES_MAX][PATH_TEXT_MAX];
	size_t n = 0;
	int rv = 0;

	while (rv == 0 && *list != '\0' && n < KUBECONFIG_FILES_MAX) {
		size_t len_bytes = strcspn(list, ":");

		snprintf(paths[n], sizeof(paths[n]), "%.*s", (int)len_bytes, list);
		list += len_bytes + (list[len_bytes] == ':');
		if (len_bytes == 0) {
			continue;
		}
		rv = read_file(paths[n], CONFIG_MAX, NULL, &a->file_texts[n], err);
		if (rv == PAWL_ENOENT && (n > 0 || *list != '\0')) {
			rv = 0;
			continue;
		}
		if (rv == 0) {
			files[n] = (struct kubeconfig_file){paths[n], a->file_texts[n],
				strlen(a->file_texts[n])};
			n++;
		}
	}
	if (rv == 0 && n == 0) {
		rv = pawl_err_set(err, PAWL_ENOENT, "there is no kubeconfig");
	}
	rv = rv == 0 ? kubeconfig_read(files, n, context, &a->config, err) : rv;
	for (size_t i = 0; i < KUBECONFIG_FILES_MAX; i++) {
		wipe(&a->file_texts[i]);
	}
	return rv;
}

/* Divides the server's URL, and lets connections go there while the certificate is checked for
 * another name. */
static int set_server(struct kube_access *a, struct pawl_err *err)
{
	const char *server = a->config.server;
	bool tls = strncmp(server, "https://", 8) == 0;
	const char *host = server + (tls ? 8 : 7);
	size_t host_n, path_n;
	const char *port;

	if (!tls && strncmp(server, "http://", 7) != 0) {
		return pawl_err_set(err, PAWL_EINVAL, "server %s must begin with https://", server);
	}
	host_n = strcspn(host, "/");
	path_n = strlen(host + host_n);
	while (path_n > 0 && host[host_n + path_n - 1] == '/') {
		path_n--;
	}
	if (host_n == 0 || strpbrk(host, "@?# ") != NULL || strlen(server) >= ENDPOINT_MAX - 8 ||
		(a->config.tls_name != NULL && strlen(a->config.tls_name) >= ENDPOINT_MAX / 2)) {
		return pawl_err_set(err, PAWL_EINVAL, "server %s is no address", server);
	}
	snprintf(a->path, sizeof(a->path), "%.*s", (int)path_n, host + host_n);
	if (a->config.tls_name == NULL || !tls) {
		snprintf(a->endpoint, sizeof(a->endpoint), "%.*s", (int)(host + host_n - server),
			server);
		return 0;
	}
	port = memrchr(host, ':', host_n);
	port = port != NULL && memchr(port, ']', (size_t)(host + host_n - port)) == NULL ? port
											 : NULL;
	snprintf(a->connect_to, sizeof(a->connect_to), "%.*s%s", (int)host_n, host,
		port != NULL ? "" : ":443");
	snprintf(a->endpoint, sizeof(a->endpoint), "https://%s%.*s", a->config.tls_name,
		port != NULL ? (int)(host + host_n - port) : 0, port != NULL ? port : "");
	return 0;
}

/* ---- the Pod's account ---- */

/* Makes a configuration of what a Pod is given. */
static int use_account(struct kube_access *a, const char *dir, struct pawl_err *err)
{
	struct kubeconfig *config = &a->config;
	char text[PATH_TEXT_MAX];
	char *name_space = NULL;
	int rv;

	if (!kube_service_find(text)) {
		return pawl_err_set(err, PAWL_ENOENT,
			"there is no kubeconfig, and this is no Pod: name one by --kubeconfig or "
			"KUBECONFIG");
	}
	config->context = "the Pod's account";
	config->server = sched_arena_copy_text(&config->arena, text, strlen(text));
	snprintf(text, sizeof(text), "%s/ca.crt", dir);
	config->authority.file = sched_arena_copy_text(&config->arena, text, strlen(text));
	snprintf(text, sizeof(text), "%s/token", dir);
	config->token_file = sched_arena_copy_text(&config->arena, text, strlen(text));
	if (config->arena.failed) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a configuration");
	}
	snprintf(text, sizeof(text), "%s/namespace", dir);
	rv = read_file(text, TOKEN_MAX, NULL, &name_space, err);
	if (rv == 0) {
		config->name_space = sched_arena_copy_text(&config->arena, name_space,
			strcspn(name_space, "\n"));
		rv = config->name_space != NULL
			? 0
			: pawl_err_set(err, PAWL_ENOMEM, "no memory for a configuration");
	}
	free(name_space);
	return rv;
}

/* ---- plugins ---- */

/* Lists this process's variables, those of the kubeconfig, and what the plugin is told. All but
 * the pointers is owned by others but for what *made holds, which the caller frees. */
static const char **list_env(const struct kube_access *a, const char *info, char **made)
{
	const struct kubeconfig_exec *exec = &a->config.exec;
	size_t own_n = 0, bytes = strlen(info) + sizeof("KUBERNETES_EXEC_INFO=");
	const char **env;
	char *at, *end;

	while (environ[own_n] != NULL) {
		own_n++;
	}
	for (uint32_t i = 0; i < exec->env_n; i++) {
		bytes += strlen(exec->env[i].name) + strlen(exec->env[i].value) + 2;
	}
	env = FAULT_MEM("kube.env", calloc(own_n + exec->env_n + 2, sizeof(*env)));
	at = *made = FAULT_MEM("kube.env", malloc(bytes));
	if (env == NULL || at == NULL) {
		free(env);
		return NULL;
	}
	end = at + bytes;
	/* Most programs take the first of two variables of one name. */
	for (uint32_t i = 0; i < exec->env_n; i++) {
		env[i] = at;
		at += snprintf(at, (size_t)(end - at), "%s=%s", exec->env[i].name,
			      exec->env[i].value) +
			1;
	}
	env[exec->env_n] = at;
	snprintf(at, (size_t)(end - at), "KUBERNETES_EXEC_INFO=%s", info);
	memcpy(env + exec->env_n + 1, environ, own_n * sizeof(*env));
	return env;
}

/* Runs the plugin, and takes what it prints. */
static int run_plugin(struct kube_access *a, struct pawl_err *err)
{
	const struct kubeconfig_exec *exec = &a->config.exec;
	const char *argv[KUBECONFIG_ARGS_MAX + 2] = {exec->command};
	struct exec_credential printed;
	char *info = exec_credential_ask(&a->config);
	char *made = NULL;
	const char **env = info != NULL ? list_env(a, info, &made) : NULL;
	char *text = NULL;
	int rv;

	if (env == NULL) {
		free(info);
		free(made);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to run %s", exec->command);
	}
	memcpy(argv + 1, exec->args, exec->args_n * sizeof(*argv));
	rv = command_run(&(struct command){argv, env, times_ns(TIME_KUBE_PLUGIN), PLUGIN_TEXT_MAX},
		&text, err);
	a->printed_ns = clock_mono_ns();
	free(env);
	free(made);
	free(info);
	if (rv == PAWL_ENOENT && exec->hint != NULL) {
		rv = pawl_err_set(err, rv, "there is no %s: %.300s", exec->command, exec->hint);
	}
	rv = rv == 0 ? exec_credential_read(&a->config, text, &printed, err) : rv;
	wipe(&text);
	if (rv != 0) {
		return pawl_err_prefix(err, rv, "the plugin %s of context %s", exec->command,
			a->config.context);
	}
	if (printed.certificate != NULL || a->printed.certificate != NULL) {
		a->version++;
	}
	exec_credential_deinit(&a->printed);
	a->printed = printed;
	return 0;
}

/* Returns whether the plugin is to be run: there is nothing of it, or it expires, or was refused,
 * and not just printed. */
static bool wants_plugin(const struct kube_access *a, bool refused)
{
	if (a->printed_ns == 0) {
		return true;
	}
	if (refused) {
		return clock_mono_ns() - a->printed_ns > PLUGIN_PAUSE_NS;
	}
	return a->printed.end_wall_ns != INT64_MAX &&
		clock_wall_ns() > a->printed.end_wall_ns - EARLY_NS;
}

/* ---- all ---- */

static int find_config(struct kube_access *a, const struct kube_access_options *options,
	struct pawl_err *err)
{
	const char *home = getenv("HOME");
	const char *list = options->kubeconfig;
	char path[PATH_TEXT_MAX];

	list = list == NULL ? getenv("KUBECONFIG") : list;
	if (list != NULL && list[0] != '\0') {
		return read_configs(a, list, options->context, err);
	}
	snprintf(path, sizeof(path), "%s/.kube/config", home != NULL ? home : "");
	if (home != NULL && access(path, F_OK) == 0) {
		return read_configs(a, path, options->context, err);
	}
	return use_account(a, options->account_dir != NULL ? options->account_dir : ACCOUNT_DIR,
		err);
}

int kube_access_open(const struct kube_access_options *options, struct kube_access **out,
	struct pawl_err *err)
{
	struct kube_access *a = FAULT_MEM("kube.access", calloc(1, sizeof(*a)));
	int rv;

	if (a == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for an API server's client");
	}
	rv = find_config(a, options, err);
	rv = rv == 0 ? set_server(a, err) : rv;
	rv = rv == 0 ? load_pem(&a->config.authority, &a->authority, err) : rv;
	rv = rv == 0 ? load_pem(&a->config.certificate, &a->certificate, err) : rv;
	rv = rv == 0 ? load_pem(&a->config.key, &a->key, err) : rv;
	if (rv == 0 && a->config.token_file != NULL) {
		a->token_file.path = a->config.token_file;
		rv = load_token(a, err);
	}
	if (rv != 0) {
		kube_access_close(a);
		return rv;
	}
	*out = a;
	return 0;
}

void kube_access_close(struct kube_access *a)
{
	if (a == NULL) {
		return;
	}
	exec_credential_deinit(&a->printed);
	wipe(&a->token);
	wipe(&a->key);
	free(a->certificate);
	free(a->authority);
	kubeconfig_deinit(&a->config);
	free(a);
}

const char *kube_access_endpoint(const struct kube_access *a)
{
	return a->endpoint;
}

const char *kube_access_path(const struct kube_access *a)
{
	return a->path;
}

const char *kube_access_namespace(const struct kube_access *a)
{
	return a->config.name_space != NULL ? a->config.name_space : "default";
}

static struct http_pem pem_of(const char *text)
{
	return (struct http_pem){text, text != NULL ? strlen(text) : 0};
}

void kube_access_connect(const struct kube_access *a, struct http_options *options)
{
	bool printed = a->printed.certificate != NULL;

	options->authority = pem_of(a->authority);
	options->certificate = pem_of(printed ? a->printed.certificate : a->certificate);
	options->key = pem_of(printed ? a->printed.key : a->key);
	options->connect_to = a->connect_to[0] != '\0' ? a->connect_to : NULL;
	options->proxy = a->config.proxy;
	options->insecure = a->config.insecure;
}

uint64_t kube_access_version(const struct kube_access *a)
{
	return a->version;
}

static int add_basic(const struct kubeconfig *config, struct http_request *request,
	struct pawl_err *err)
{
	char both[BASIC_MAX];
	unsigned char base64[sizeof(both) / 3 * 4 + 5];
	int n = snprintf(both, sizeof(both), "%s:%s", config->user,
		config->password != NULL ? config->password : "");

	if (n >= (int)sizeof(both)) {
		explicit_bzero(both, sizeof(both));
		return pawl_err_set(err, PAWL_ELIMIT,
			"username and password of context %s have %d bytes: at most %zu",
			config->context, n - 1, sizeof(both) - 2);
	}
	EVP_EncodeBlock(base64, (const unsigned char *)both, n);
	request_add_header(request, "authorization", "Basic %s", (const char *)base64);
	explicit_bzero(both, sizeof(both));
	explicit_bzero(base64, sizeof(base64));
	return 0;
}

int kube_access_authorize(struct kube_access *a, bool refused, struct http_request *request,
	struct pawl_err *err)
{
	const struct kubeconfig *config = &a->config;
	const char *token = config->token;

	request_drop_header(request, "authorization");
	if (a->token_file.path != NULL) {
		/* A file that cannot be read now may be about to be replaced. */
		if ((refused || has_changed(&a->token_file)) && load_token(a, err) != 0 &&
			a->token == NULL) {
			return err != NULL ? err->code : PAWL_EIO;
		}
		token = a->token;
	} else if (config->exec.command != NULL) {
		int rv = wants_plugin(a, refused) ? run_plugin(a, err) : 0;

		if (rv != 0) {
			return rv;
		}
		token = a->printed.token;
	}
	if (token != NULL) {
		request_add_header(request, "authorization", "Bearer %s", token);
	} else if (config->user != NULL) {
		return add_basic(config, request, err);
	}
	return 0;
}
