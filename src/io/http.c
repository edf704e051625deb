/*
 * HTTP by libcurl's multi interface: see http.h.
 *
 * Each call has a handle of its own, freed at its end: a handle that was used again after a failed
 * rewind or a timeout may fail at once. Connections are kept by the pool, not by handles.
 *
 * Whether a call stalls is measured by the bytes that entered or left the kernel, not by those that
 * libcurl took from the caller: with its buffer of 512 KiB, a slow link would look like a dead one.
 * For the same reason the kernel keeps only UNSENT_BYTES beside those in flight, in place of up to
 * 4 MiB, which a link of 128 KiB/s sends in 32 s.
 */
#include "io/http.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "io/http_request.h"

#include <curl/curl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define BUFFER_BYTES                                                                               \
	(512L << 10) /* buffer of libcurl, for each direction; a larger one is slower */
#define UNSENT_BYTES   (128 << 10)
#define PROGRESS_BYTES 16384u /* moved in the time of a stall: less is none */
#define POLL_MS        1000   /* between two looks for stalls */
#define URL_MAX        (512u + REQUEST_PATH_MAX + REQUEST_QUERY_MAX + 16u)

struct http_pool {
	CURLM *multi;
	struct http_options options;
	char *ca_file;                 /* owned copy, or NULL */
	char *proxy;                   /* owned copy, or NULL */
	struct curl_slist *connect_to; /* one entry, owned; NULL: none */
	struct http_call *calls;       /* in flight, in no order */
	atomic_bool woken; /* http_pool_wake was called, and http_reap has not seen it */
};

static pthread_once_t global_once = PTHREAD_ONCE_INIT;
static CURLcode global_rv;

static void init_global(void)
{
	global_rv = curl_global_init(CURL_GLOBAL_ALL);
}

/* Copies a text, if there is one. Returns false if there is no memory. */
static bool copy_text(const char *text, char **copy)
{
	*copy = text != NULL ? FAULT_MEM("http.pool", strdup(text)) : NULL;
	return text == NULL || *copy != NULL;
}

/* Copies the texts of the options. Returns false if there is no memory. */
static bool copy_texts(struct http_pool *http)
{
	const struct http_options *options = &http->options;
	char all[URL_MAX];

	if (options->connect_to != NULL) {
		snprintf(all, sizeof(all), "::%s", options->connect_to);
		http->connect_to = FAULT_MEM("http.pool", curl_slist_append(NULL, all));
	}
	return copy_text(options->ca_file, &http->ca_file) &&
		copy_text(options->proxy, &http->proxy) &&
		(options->connect_to == NULL || http->connect_to != NULL);
}

int http_pool_open(const struct http_options *options, struct http_pool **http,
	struct pawl_err *err)
{
	struct http_pool *h = FAULT_MEM("http.pool", calloc(1, sizeof(*h)));

	pthread_once(&global_once, init_global);
	if (h == NULL || global_rv != CURLE_OK) {
		free(h);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for connections");
	}
	h->options = *options;
	h->multi = FAULT_MEM("http.pool", curl_multi_init());
	if (h->multi == NULL || !copy_texts(h)) {
		http_pool_close(h);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for connections");
	}
	curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, (long)options->connections);
	curl_multi_setopt(h->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
	*http = h;
	return 0;
}

void http_pool_close(struct http_pool *http)
{
	if (http == NULL) {
		return;
	}
	while (http->calls != NULL) {
		http_cancel(http, http->calls);
	}
	if (http->multi != NULL) {
		curl_multi_cleanup(http->multi);
	}
	curl_slist_free_all(http->connect_to);
	free(http->ca_file);
	free(http->proxy);
	free(http);
}

/* ---- what libcurl calls ---- */

static size_t give_body(char *bytes, size_t size, size_t n, void *user)
{
	struct http_call *call = user;
	uint64_t left = call->body_bytes - call->sent_bytes;
	size_t want = size * n < left ? size * n : (size_t)left;
	size_t got = want > 0 ? call->read(call->user, call->sent_bytes, bytes, want) : 0;

	if (want > 0 && got == 0) {
		return CURL_READFUNC_ABORT;
	}
	call->sent_bytes += got;
	return got;
}

/* A connection that had been kept was closed by the server: the body is sent again. */
static int seek_body(void *user, curl_off_t off, int origin)
{
	struct http_call *call = user;

	if (origin != SEEK_SET || off < 0 || (uint64_t)off > call->body_bytes) {
		return CURL_SEEKFUNC_FAIL;
	}
	call->sent_bytes = (uint64_t)off;
	call->resent = true;
	return CURL_SEEKFUNC_OK;
}

static long get_status(const struct http_call *call)
{
	long status = 0;

	curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
	return status;
}

/* Appends bytes to the call's text. Returns false if there is no room. */
static bool keep_text(struct http_call *call, const char *bytes, size_t len_bytes, size_t max_bytes)
{
	size_t room = max_bytes - call->text_bytes;
	size_t taken = len_bytes < room ? len_bytes : room;
	char *text = FAULT_MEM("http.text", realloc(call->text, call->text_bytes + taken + 1));

	if (text == NULL) {
		call->rv = PAWL_ENOMEM;
		return false;
	}
	memcpy(text + call->text_bytes, bytes, taken);
	call->text = text;
	call->text_bytes += taken;
	text[call->text_bytes] = '\0';
	return taken == len_bytes;
}

static size_t take_body(char *bytes, size_t size, size_t n, void *user)
{
	struct http_call *call = user;
	size_t len_bytes = size * n;
	bool success = get_status(call) / 100 == 2;
	bool taken;

	if (success && call->write != NULL) {
		taken = call->write(call->user, bytes, len_bytes);
	} else {
		taken = keep_text(call, bytes, len_bytes,
			success && call->text_max > 0 ? call->text_max : HTTP_TEXT_MAX);
	}
	call->ended = call->ended || !taken;
	return taken ? len_bytes : 0;
}

/* Keeps a header as a pair of strings. Those that do not fit are left out. */
static void keep_header(struct http_call *call, const char *line, size_t len_bytes)
{
	const char *colon = memchr(line, ':', len_bytes);
	const char *value = colon != NULL ? colon + 1 : NULL;
	const char *end = line + len_bytes;
	size_t name_n, value_n;
	char *at = call->headers + call->headers_n;

	if (colon == NULL || memchr(line, '\0', len_bytes) != NULL) {
		return;
	}
	while (value < end && (*value == ' ' || *value == '\t')) {
		value++;
	}
	while (end > value && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' ')) {
		end--;
	}
	name_n = (size_t)(colon - line);
	value_n = (size_t)(end - value);
	if (name_n + value_n + 2 > sizeof(call->headers) - call->headers_n) {
		return;
	}
	for (size_t i = 0; i < name_n; i++) {
		at[i] = (char)(line[i] >= 'A' && line[i] <= 'Z' ? line[i] + ('a' - 'A') : line[i]);
	}
	at[name_n] = '\0';
	memcpy(at + name_n + 1, value, value_n);
	at[name_n + 1 + value_n] = '\0';
	call->headers_n += name_n + value_n + 2;
}

static size_t take_header(char *line, size_t size, size_t n, void *user)
{
	struct http_call *call = user;

	if (size * n >= 5 && strncmp(line, "HTTP/", 5) == 0) {
		call->headers_n = 0; /* an interim answer, such as 100, has come */
	} else {
		keep_header(call, line, size * n);
	}
	return size * n;
}

const char *http_next_header(const struct http_call *call, const char *name, const char *after)
{
	const char *at = after != NULL ? after + strlen(after) + 1 : call->headers;

	while (at < call->headers + call->headers_n) {
		const char *value = at + strlen(at) + 1;

		if (strcmp(at, name) == 0) {
			return value;
		}
		at = value + strlen(value) + 1;
	}
	return NULL;
}

const char *http_header(const struct http_call *call, const char *name)
{
	const char *found = NULL;
	const char *next;

	while ((next = http_next_header(call, name, found)) != NULL) {
		found = next;
	}
	return found;
}

/* ---- sending ---- */

/* Appends a line to the call's list of headers. */
static bool add_line(struct http_call *call, const char *line)
{
	struct curl_slist *list = FAULT_MEM("http.header", curl_slist_append(call->list, line));

	call->list = list != NULL ? list : call->list;
	return list != NULL;
}

static bool add_lines(struct http_call *call)
{
	const struct http_request *request = call->request;
	char line[REQUEST_TEXT_MAX];
	bool added = add_line(call, "Expect:");

	if (request_header(request, "content-type") == NULL) {
		added = added && add_line(call, "Content-Type:");
	}
	for (uint32_t i = 0; i < request->headers_n && added; i++) {
		const struct request_header *header = &request->headers[i];

		snprintf(line, sizeof(line), header->value[0] != '\0' ? "%s: %s" : "%s;%s",
			header->name, header->value);
		added = add_line(call, line);
	}
	return added;
}

static void set_method(CURL *easy, const struct http_call *call)
{
	const char *method = call->request->method;

	if (strcmp(method, "HEAD") == 0) {
		curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
	} else if (strcmp(method, "POST") == 0) {
		curl_easy_setopt(easy, CURLOPT_POST, 1L);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body_bytes);
		if (call->body_bytes == 0) {
			curl_easy_setopt(easy, CURLOPT_POSTFIELDS, "");
		}
	} else if (strcmp(method, "PUT") == 0) {
		curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)call->body_bytes);
	} else if (strcmp(method, "GET") != 0) {
		if (call->body_bytes > 0) {
			curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
			curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE,
				(curl_off_t)call->body_bytes);
		}
		curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
	}
}

static void set_pem(CURL *easy, CURLoption option, const struct http_pem *pem)
{
	struct curl_blob blob = {(void *)pem->bytes, pem->len_bytes, CURL_BLOB_NOCOPY};

	if (pem->bytes != NULL) {
		curl_easy_setopt(easy, option, &blob);
	}
}

static void set_tls(const struct http_pool *http, CURL *easy)
{
	if (http->ca_file != NULL) {
		curl_easy_setopt(easy, CURLOPT_CAINFO, http->ca_file);
	}
	set_pem(easy, CURLOPT_CAINFO_BLOB, &http->options.authority);
	set_pem(easy, CURLOPT_SSLCERT_BLOB, &http->options.certificate);
	set_pem(easy, CURLOPT_SSLKEY_BLOB, &http->options.key);
	if (http->options.insecure) {
		curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
		curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
	}
}

/* Fits CURLOPT_SOCKOPTFUNCTION. A kernel that does not know the option keeps more. */
static int limit_unsent(void *user, curl_socket_t fd, curlsocktype purpose)
{
	int bytes = UNSENT_BYTES;

	setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof(bytes));
	return CURL_SOCKOPT_OK;
}

static void set_options(const struct http_pool *http, struct http_call *call)
{
	const struct http_request *request = call->request;
	CURL *easy = call->easy;
	char url[URL_MAX];

	snprintf(url, sizeof(url), "%s://%s%s%s%s", request->tls ? "https" : "http", request->host,
		request->path, request->query[0] != '\0' ? "?" : "", request->query);
	curl_easy_setopt(easy, CURLOPT_URL, url);
	curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_DNS_SHUFFLE_ADDRESSES, 1L);
	curl_easy_setopt(easy, CURLOPT_USERAGENT, "pawl/" PAWL_VERSION);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
		(long)(http->options.connect_ns / NS_PER_MS));
	curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, limit_unsent);
	curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER_BYTES);
	curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->why);
	curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, call->list);
	curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, call);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
	curl_easy_setopt(easy, CURLOPT_READFUNCTION, give_body);
	curl_easy_setopt(easy, CURLOPT_READDATA, call);
	curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, seek_body);
	curl_easy_setopt(easy, CURLOPT_SEEKDATA, call);
	if (http->options.direct) {
		curl_easy_setopt(easy, CURLOPT_PROXY, "");
	} else if (http->proxy != NULL) {
		curl_easy_setopt(easy, CURLOPT_PROXY, http->proxy);
	}
	if (http->connect_to != NULL) {
		curl_easy_setopt(easy, CURLOPT_CONNECT_TO, http->connect_to);
	}
	set_tls(http, easy);
	set_method(easy, call);
}

/* Frees what a call holds of libcurl. */
static void free_easy(struct http_call *call)
{
	curl_easy_cleanup(call->easy);
	curl_slist_free_all(call->list);
	call->easy = NULL;
	call->list = NULL;
}

int http_begin(struct http_pool *http, struct http_call *call, struct pawl_err *err)
{
	ASSERT(!call->request->full && (call->read != NULL || call->body_bytes == 0));
	call->rv = 0;
	call->why[0] = '\0';
	call->status = 0;
	call->text = NULL;
	call->text_bytes = 0;
	call->headers_n = 0;
	call->sent_bytes = 0;
	call->moved_bytes = 0;
	call->marked_bytes = 0;
	call->marked_ns = clock_mono_ns();
	call->ended = false;
	call->resent = false;
	call->list = NULL;
	call->easy = FAULT_MEM("http.call", curl_easy_init());
	if (call->easy == NULL || !add_lines(call)) {
		free_easy(call);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a request");
	}
	set_options(http, call);
	if (curl_multi_add_handle(http->multi, call->easy) != CURLM_OK) {
		free_easy(call);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a request");
	}
	call->next = http->calls;
	http->calls = call;
	return 0;
}

/* ---- ends ---- */

/* Takes a call out of those in flight. */
static void take_out(struct http_pool *http, struct http_call *call)
{
	struct http_call **at = &http->calls;

	while (*at != call) {
		ASSERT(*at != NULL);
		at = &(*at)->next;
	}
	*at = call->next;
	call->next = NULL;
	curl_multi_remove_handle(http->multi, call->easy);
	free_easy(call);
}

void http_cancel(struct http_pool *http, struct http_call *call)
{
	take_out(http, call);
	free(call->text);
	call->text = NULL;
}

static int translate(CURLcode code)
{
	switch (code) {
	case CURLE_OPERATION_TIMEDOUT:
		return PAWL_ETIMEDOUT;
	case CURLE_OUT_OF_MEMORY:
		return PAWL_ENOMEM;
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_URL_MALFORMAT:
		return PAWL_EINVAL;
	default:
		return PAWL_EIO;
	}
}

/* Sets the results of a call that libcurl has ended. */
static void set_results(struct http_call *call, CURLcode code)
{
	bool success;

	call->status = (int)get_status(call);
	success = call->status / 100 == 2;
	if (call->rv == PAWL_ENOMEM) {
		snprintf(call->why, sizeof(call->why), "no memory for the answer");
	} else if (call->ended && call->status > 0) {
		/* An error's text was cut, which is fine; a success's was too long, or refused. */
		call->rv = success ? PAWL_ELIMIT : 0;
		snprintf(call->why, sizeof(call->why), "the answer is longer than it can be");
	} else if (code != CURLE_OK) {
		call->rv = translate(code);
		if (call->why[0] == '\0') {
			snprintf(call->why, sizeof(call->why), "%s", curl_easy_strerror(code));
		}
	}
}

static uint64_t count_moved(const struct http_call *call)
{
	curl_off_t up = 0, down = 0;

	curl_easy_getinfo(call->easy, CURLINFO_SIZE_UPLOAD_T, &up);
	curl_easy_getinfo(call->easy, CURLINFO_SIZE_DOWNLOAD_T, &down);
	return (uint64_t)up + (uint64_t)down;
}

/* Returns whether the call has moved nearly nothing for the time of a stall. */
static bool stalls(const struct http_pool *http, struct http_call *call, int64_t now_ns)
{
	uint64_t least = call->patient ? 1 : PROGRESS_BYTES;

	call->moved_bytes = count_moved(call);
	if (call->moved_bytes < call->marked_bytes) {
		call->marked_bytes = 0; /* the body is sent again */
	}
	if (call->moved_bytes >= call->marked_bytes + least) {
		call->marked_bytes = call->moved_bytes;
		call->marked_ns = now_ns;
	}
	return now_ns - call->marked_ns >
		(call->stall_ns > 0 ? call->stall_ns : http->options.stall_ns);
}

/* Ends the first call that stalls, and returns it. */
static struct http_call *end_stalled(struct http_pool *http)
{
	int64_t now_ns = clock_mono_ns();

	for (struct http_call *call = http->calls; call != NULL; call = call->next) {
		if (stalls(http, call, now_ns)) {
			call->status = (int)get_status(call);
			call->rv = PAWL_ETIMEDOUT;
			snprintf(call->why, sizeof(call->why),
				"nearly nothing was sent or received for %lld s",
				(long long)((now_ns - call->marked_ns) / NS_PER_S));
			take_out(http, call);
			return call;
		}
	}
	return NULL;
}

static struct http_call *reap_done(struct http_pool *http)
{
	struct http_call *call = NULL;
	CURLMsg *msg;
	int left;

	do {
		msg = curl_multi_info_read(http->multi, &left);
	} while (msg != NULL && msg->msg != CURLMSG_DONE);
	if (msg == NULL) {
		return NULL;
	}
	curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&call);
	call->moved_bytes = count_moved(call);
	set_results(call, msg->data.result);
	take_out(http, call);
	return call;
}

void http_pump(struct http_pool *http)
{
	int running;

	if (http->calls != NULL) {
		curl_multi_perform(http->multi, &running);
	}
}

struct http_call *http_reap(struct http_pool *http, int timeout_ms)
{
	int64_t end_ns =
		timeout_ms < 0 ? INT64_MAX : clock_add_ns(clock_mono_ns(), timeout_ms * NS_PER_MS);

	while (http->calls != NULL) {
		struct http_call *call;
		int64_t left_ms;

		http_pump(http);
		call = reap_done(http);
		call = call != NULL ? call : end_stalled(http);
		left_ms = (end_ns - clock_mono_ns()) / NS_PER_MS;
		if (call != NULL || left_ms <= 0 || atomic_exchange(&http->woken, false)) {
			return call;
		}
		curl_multi_poll(http->multi, NULL, 0, left_ms < POLL_MS ? (int)left_ms : POLL_MS,
			NULL);
	}
	return NULL;
}

void http_pool_wake(struct http_pool *http)
{
	atomic_store(&http->woken, true);
	curl_multi_wakeup(http->multi);
}
