/* The thread that asks a metadata service, against one in this process: a notice reaches the loop,
 * nothing else does, and the end waits for nobody. */
#include "base/fault.h"
#include "each_fault.h"
#include "io/loop.h"
#include "notice/notice_watcher.h"
#include "pawl/err.h"
#include "times.h"
#include "within.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#define LARGE (1u << 20)

/* The service. Its thread answers one connection after the other. */
static struct {
	int fd; /* listens */
	uint16_t port;
	pthread_t thread;
	/* Writes the answer to a request, whole, into answer; NULL: it never answers. */
	const char *(*answer)(const char *request);
	atomic_uint requests; /* number of requests so far */
	atomic_int held;      /* connection whose request is not answered; -1: none */
} service;
static char large[LARGE + 256];

static struct loop *loop;
static struct notice_watcher *watcher;
static struct notice_event last;
static int64_t last_deadline_ns;
static unsigned events;
static enum notice_kind awaited; /* ends the loop, as trouble does */

/* ---- the service ---- */

static const char *handle(const char *request)
{
	return service.answer(request);
}

/* Answers requests of a connection until it is closed. Returns false if one is held. */
static bool serve(int fd)
{
	char request[4096];
	size_t n = 0;

	for (;;) {
		ssize_t got = read(fd, request + n, sizeof(request) - 1 - n);
		const char *answer;

		if (got <= 0) {
			return true;
		}
		n += (size_t)got;
		request[n] = '\0';
		if (strstr(request, "\r\n\r\n") == NULL) {
			continue;
		}
		n = 0;
		answer = handle(request);
		atomic_fetch_add(&service.requests, 1);
		if (answer == NULL) {
			atomic_store(&service.held, fd);
			return false;
		}
		if (send(fd, answer, strlen(answer), MSG_NOSIGNAL) < 0) {
			return true;
		}
	}
}

static void *run_service(void *user)
{
	int fd;

	while ((fd = accept(service.fd, NULL, NULL)) >= 0) {
		if (serve(fd)) {
			close(fd);
		}
	}
	return NULL;
}

static void start_service(const char *(*answer)(const char *request))
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t len = sizeof(address);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	service.answer = answer;
	atomic_store(&service.requests, 0);
	atomic_store(&service.held, -1);
	service.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(service.fd, (struct sockaddr *)&address, len), 0);
	assert_int_equal(listen(service.fd, 8), 0);
	assert_int_equal(getsockname(service.fd, (struct sockaddr *)&address, &len), 0);
	service.port = ntohs(address.sin_port);
	assert_int_equal(pthread_create(&service.thread, NULL, run_service, NULL), 0);
}

static void stop_service(void)
{
	int held = atomic_load(&service.held);

	shutdown(service.fd, SHUT_RDWR);
	pthread_join(service.thread, NULL);
	close(service.fd);
	if (held >= 0) {
		close(held);
	}
}

/* ---- the loop ---- */

static void took(void *user, const struct notice_event *event, int64_t deadline_ns)
{
	assert_ptr_equal(user, &service);
	events++;
	last = *event;
	last_deadline_ns = deadline_ns;
	if (event->kind == awaited || event->kind == NOTICE_TROUBLE) {
		loop_stop(loop);
	}
}

static int start(const char *scheme, struct pawl_err *err)
{
	static const struct notice_dmi dmi;
	struct notice_source source;
	char text[64];

	snprintf(text, sizeof(text), "%s+http://127.0.0.1:%u", scheme, service.port);
	assert_int_equal(notice_source_parse(text, &dmi, &source, err), 0);
	return notice_watcher_start(&watcher, loop, &source, took, &service, err);
}

static void begin(const char *scheme, const char *(*answer)(const char *request),
	enum notice_kind until)
{
	events = 0;
	awaited = until;
	start_service(answer);
	assert_int_equal(loop_open(&loop, NULL), 0);
	assert_int_equal(start(scheme, NULL), 0);
}

static void end(void)
{
	notice_watcher_stop(watcher);
	loop_close(loop);
	stop_service();
}

/* ---- answers ---- */

#define OK(text, len) "HTTP/1.1 200 OK\r\nContent-Length: " len "\r\n\r\n" text
#define NONE          "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
#define STOP          "{\"action\": \"stop\"}"

/* A notice of AWS comes in the third round. */
static const char *answer_aws(const char *request)
{
	static const char token[] = "x-aws-ec2-metadata-token: secret";

	if (strncmp(request, "PUT /latest/api/token ", 22) == 0) {
		return OK("secret", "6");
	}
	if (strstr(request, token) == NULL) {
		return "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
	}
	if (strstr(request, "instance-action") == NULL || atomic_load(&service.requests) < 5) {
		return NONE;
	}
	return OK(STOP, "18");
}

static void a_notice_reaches_the_loop(void **state)
{
	begin("aws", answer_aws, NOTICE_STOP);
	assert_int_equal(loop_run(loop, NULL), 0);
	assert_int_equal(events, 1);
	assert_string_equal(last.text, "AWS: stop now");
	assert_true(last_deadline_ns > 0);
	assert_int_equal(atomic_load(&service.requests), 6);
	end();
}

static const char *answer_gcp(const char *request)
{
	if (strstr(request, "wait_for_change=true") == NULL) {
		return "HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nETag: 1234\r\n"
		       "Content-Length: 5\r\n\r\nFALSE";
	}
	return strstr(request, "last_etag=1234&") != NULL
		? "HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nContent-Length: 4\r\n\r\nTRUE"
		: NONE;
}

static void headers_reach_the_decoder(void **state)
{
	begin("gcp", answer_gcp, NOTICE_STOP);
	assert_int_equal(loop_run(loop, NULL), 0);
	assert_string_equal(last.text, "GCP: preempted");
	end();
}

static const char *answer_never(const char *request)
{
	return NULL;
}

/* The question would be held for an hour. */
static void the_end_waits_for_no_answer(void **state)
{
	begin("gcp", answer_never, NOTICE_STOP);
	WITHIN(WITHIN_LONG_S, atomic_load(&service.held) >= 0);
	end();
	assert_int_equal(events, 0);
}

static const char *answer_elsewhere(const char *request)
{
	static char text[256];

	if (strstr(request, "/elsewhere") != NULL) {
		return OK(STOP, "18");
	}
	if (strncmp(request, "PUT ", 4) == 0) {
		return OK("secret", "6");
	}
	snprintf(text, sizeof(text),
		"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:%u/elsewhere\r\n"
		"Content-Length: 0\r\n\r\n",
		service.port);
	return text;
}

static void a_redirect_is_not_followed(void **state)
{
	begin("aws", answer_elsewhere, NOTICE_TROUBLE);
	assert_int_equal(loop_run(loop, NULL), 0);
	assert_int_equal(events, 1);
	assert_non_null(strstr(last.text, "307"));
	end();
}

static const char *answer_at_length(const char *request)
{
	return strncmp(request, "PUT ", 4) == 0 ? OK("secret", "6") : large;
}

static void a_long_answer_is_cut_off(void **state)
{
	int front = snprintf(large, sizeof(large),
		"HTTP/1.1 200 OK\r\nContent-Length: %u\r\n\r\n" STOP, LARGE);

	memset(large + front, ' ', LARGE);
	large[front + LARGE - (int)strlen(STOP)] = '\0';
	begin("aws", answer_at_length, NOTICE_TROUBLE);
	assert_int_equal(loop_run(loop, NULL), 0);
	assert_int_equal(events, 1);
	end();
}

static void nobody_answers(void **state)
{
	events = 0;
	awaited = NOTICE_TROUBLE;
	start_service(answer_never);
	stop_service();
	assert_int_equal(loop_open(&loop, NULL), 0);
	assert_int_equal(start("aws", NULL), 0);
	assert_int_equal(loop_run(loop, NULL), 0);
	assert_int_equal(events, 1);
	assert_non_null(strstr(last.text, "hop limit"));
	notice_watcher_stop(watcher);
	loop_close(loop);
}

static void a_start_may_fail_anywhere(void **state)
{
	struct pawl_err err;

	start_service(answer_never);
	assert_int_equal(loop_open(&loop, NULL), 0);
	for (uint64_t nth = 1; each_fault(nth); nth++) {
		int rv;

		watcher = NULL;
		fault_arm("notice.", nth, ENOMEM, false);
		rv = start("aws", &err);
		fault_disarm();
		assert_true(rv == 0 || fault_reached(nth));
		assert_true((rv == 0) == (watcher != NULL));
		notice_watcher_stop(watcher);
	}
	loop_close(loop);
	stop_service();
}

static void the_firmware_is_read(void **state)
{
	char dir[] = "/tmp/pawl-dmi-XXXXXX";
	char path[64];
	struct notice_dmi dmi;
	FILE *file;

	assert_non_null(mkdtemp(dir));
	setenv(NOTICE_DMI_ENV, dir, 1);
	notice_dmi_read(&dmi);
	assert_int_equal(notice_cloud_of(&dmi), NOTICE_NOBODY);
	snprintf(path, sizeof(path), "%s/board_vendor", dir);
	file = fopen(path, "w");
	assert_non_null(file);
	assert_true(fputs("Amazon EC2\n", file) >= 0);
	assert_int_equal(fclose(file), 0);
	notice_dmi_read(&dmi);
	assert_string_equal(dmi.board_vendor, "Amazon EC2");
	assert_string_equal(dmi.sys_vendor, "");
	assert_int_equal(notice_cloud_of(&dmi), NOTICE_AWS);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
	unsetenv(NOTICE_DMI_ENV);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_notice_reaches_the_loop),
		cmocka_unit_test(headers_reach_the_decoder),
		cmocka_unit_test(the_end_waits_for_no_answer),
		cmocka_unit_test(a_redirect_is_not_followed),
		cmocka_unit_test(a_long_answer_is_cut_off),
		cmocka_unit_test(nobody_answers),
		cmocka_unit_test(a_start_may_fail_anywhere),
		cmocka_unit_test(the_firmware_is_read),
	};

	/* A proxy that nobody runs: a question that is sent to it has no answer. */
	setenv("http_proxy", "http://127.0.0.1:9", 1);
	unsetenv("no_proxy");
	unsetenv("NO_PROXY");
	test_times("notice_aws=0.01,notice_azure=0.01,notice_again=0.01,notice_answer=3600,"
		   "notice_hold=3600");
	return cmocka_run_group_tests_name("notice_watcher", tests, NULL, NULL);
}
