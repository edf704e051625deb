/*
 * Sockets and faults of the server: see s3_server.h.
 *
 * The thread of a connection reads a request, asks the hook what is to go wrong, has s3_objects.c
 * carry it out, and sends the answer. One lock guards all that connections share; none is held
 * while bytes move. Threads that have ended are joined when the next connection comes, or at the
 * stop.
 */
#include "s3_server.h"

#include "base/assert.h"
#include "base/clock.h"
#include "s3_azure.h"
#include "s3_caller.h"
#include "s3_google.h"
#include "s3_objects.h"
#include "s3_pace.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HEAD_MAX   65536u /* bytes of a request's line and headers */
#define BLANK_MS   20
#define IDLE_MAX_S 120 /* for connections to close */
#define HUGE_PIECE 65536u
#define PIECE      (256u << 10) /* bytes of a body between two looks at the speeds */

struct conn {
	struct s3_server *server;
	struct conn *next;
	pthread_t thread;
	int fd;
	bool ended;                  /* the thread is about to end, and fd is closed */
	char *head;                  /* owned; HEAD_MAX bytes */
	size_t has;                  /* bytes that were read into head */
	size_t used;                 /* bytes of them that are a request's line and headers */
	bool closing;                /* the connection ends with this answer */
	struct s3_pace pace;         /* under the server's lock */
	struct s3_settings settings; /* settings when the request came */
	struct s3_fault fault;
};

struct s3_server {
	int fd;
	char endpoint[64];
	pthread_t thread;
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	struct s3_settings settings;
	struct s3_counts counts;
	unsigned in_flight;
	struct s3_pace link;
	struct s3_objects *objects;
	struct s3_azure *azure;
	struct conn *conns;
	bool stopping;
};

/* ---- bytes ---- */

/* Waits, but not longer than the connection lives. Returns whether it lives. */
static bool wait_ms(const struct conn *conn, int ms)
{
	struct pollfd poller = {conn->fd, POLLRDHUP, 0};

	return poll(&poller, 1, ms) == 0;
}

/* Waits as long as bytes of a body take at the speeds that are set. */
static void pace(struct conn *conn, size_t len_bytes)
{
	const struct s3_settings *settings = &conn->settings;
	int64_t now_ns = clock_mono_ns();
	int64_t own_ns, link_ns;

	if (settings->conn_bytes_s == 0 && settings->link_bytes_s == 0) {
		return;
	}
	pthread_mutex_lock(&conn->server->lock);
	own_ns = s3_pace_take(&conn->pace, settings->conn_bytes_s, len_bytes, now_ns);
	link_ns = s3_pace_take(&conn->server->link, settings->link_bytes_s, len_bytes, now_ns);
	pthread_mutex_unlock(&conn->server->lock);
	wait_ms(conn, (int)((own_ns > link_ns ? own_ns : link_ns) / NS_PER_MS));
}

static bool send_all(struct conn *conn, const void *bytes, size_t len_bytes)
{
	const char *at = bytes;

	while (len_bytes > 0) {
		ssize_t n = send(conn->fd, at, len_bytes, MSG_NOSIGNAL);

		if (n <= 0 && errno != EINTR) {
			return false;
		}
		at += n > 0 ? n : 0;
		len_bytes -= n > 0 ? (size_t)n : 0;
	}
	return true;
}

static bool receive_all(struct conn *conn, uint8_t *bytes, size_t len_bytes)
{
	while (len_bytes > 0) {
		ssize_t n = recv(conn->fd, bytes, len_bytes < PIECE ? len_bytes : PIECE, 0);

		if (n == 0 || (n < 0 && errno != EINTR)) {
			return false;
		}
		pace(conn, n > 0 ? (size_t)n : 0);
		bytes += n > 0 ? n : 0;
		len_bytes -= n > 0 ? (size_t)n : 0;
	}
	return true;
}

/* Makes the close of the connection a reset. */
static bool reset(struct conn *conn)
{
	struct linger linger = {1, 0};

	setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	return false;
}

/* ---- requests ---- */

/* Reads a request's line and headers. Returns false at the connection's end. */
static bool read_head(struct conn *conn)
{
	memmove(conn->head, conn->head + conn->used, conn->has - conn->used);
	conn->has -= conn->used;
	conn->used = 0;
	for (;;) {
		char *end;
		ssize_t n;

		conn->head[conn->has] = '\0';
		end = strstr(conn->head, "\r\n\r\n");
		if (end != NULL) {
			conn->used = (size_t)(end - conn->head) + 4;
			return true;
		}
		ASSERT(conn->has < HEAD_MAX - 1);
		n = recv(conn->fd, conn->head + conn->has, HEAD_MAX - 1 - conn->has, 0);
		if (n == 0 || (n < 0 && errno != EINTR)) {
			return false;
		}
		conn->has += n > 0 ? (size_t)n : 0;
	}
}

/* Takes the head apart. Its lines get NULs. */
static void parse_head(struct conn *conn, struct s3_request *request)
{
	char *at = conn->head;
	char *line, *mark;

	conn->head[conn->used - 2] = '\0';
	line = strtok_r(at, "\r\n", &mark);
	ASSERT(line != NULL && sscanf(line, "%15s %4095s", request->method, request->path) == 2);
	at = strchr(request->path, '?');
	if (at != NULL) {
		snprintf(request->query, sizeof(request->query), "%s", at + 1);
		*at = '\0';
	}
	while ((line = strtok_r(NULL, "\r\n", &mark)) != NULL) {
		char *colon = strchr(line, ':');

		ASSERT(colon != NULL && request->fields_n < S3_FIELDS_MAX);
		*colon = '\0';
		request->names[request->fields_n] = line;
		request->values[request->fields_n++] = colon + 1 + strspn(colon + 1, " ");
	}
	s3_request_sort(request);
}

/* Reads the body. Returns false if the connection ends in it. */
static bool read_body(struct conn *conn, struct s3_request *request)
{
	static const char proceed[] = "HTTP/1.1 100 Continue\r\n\r\n";
	const char *length = s3_request_field(request, "content-length");
	size_t len_bytes = length != NULL ? strtoull(length, NULL, 10) : 0;
	size_t here = conn->has - conn->used;
	size_t want = len_bytes;

	if (len_bytes == 0) {
		return true;
	}
	if (s3_request_field(request, "expect") != NULL && here == 0 &&
		!send_all(conn, proceed, sizeof(proceed) - 1)) {
		return false;
	}
	if (conn->fault.kind == S3_RESET_REQUEST) {
		want = conn->fault.n < len_bytes ? conn->fault.n : len_bytes;
	}
	here = here < want ? here : want;
	request->body = s3_need(calloc(1, len_bytes + 1));
	request->body_bytes = len_bytes;
	memcpy(request->body, conn->head + conn->used, here);
	conn->used += here;
	return receive_all(conn, request->body + here, want - here);
}

/* ---- answers ---- */

/* Writes the time as HTTP has it. */
static void write_date(int64_t at_s, char out[40])
{
	static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
	static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug",
		"Sep", "Oct", "Nov", "Dec"};
	time_t time = (time_t)at_s;
	struct tm tm;

	gmtime_r(&time, &tm);
	snprintf(out, 40, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[tm.tm_wday], tm.tm_mday % 100,
		months[tm.tm_mon], (tm.tm_year + 1900) % 10000, tm.tm_hour % 100, tm.tm_min % 100,
		tm.tm_sec % 100);
}

/* Takes the etag out of the answer's headers, or changes the range. */
static void spoil_headers(const struct s3_fault *fault, struct s3_answer *answer)
{
	char *etag = strstr(answer->headers, "ETag:");
	char *range = strstr(answer->headers, "Content-Range: ");
	uint64_t from, to, size;

	if (fault->kind == S3_NO_ETAG && etag != NULL) {
		memcpy(etag, "Xtag:", 5);
	}
	if (fault->kind == S3_SHIFT_RANGE && range != NULL &&
		sscanf(range, "Content-Range: bytes %" SCNu64 "-%" SCNu64 "/%" SCNu64, &from, &to,
			&size) == 3) {
		memcpy(range, "X", 1);
		s3_answer_field(answer, "Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64,
			from + fault->n, to + fault->n, size + fault->n);
	}
}

static bool is_chunked(const struct s3_fault *fault)
{
	return fault->kind == S3_ENDLESS || fault->kind == S3_BLANKS;
}

static bool send_head(struct conn *conn, const struct s3_request *request,
	const struct s3_answer *answer)
{
	const struct s3_fault *fault = &conn->fault;
	uint64_t length_bytes = answer->body.len_bytes;
	struct s3_text head = {0};
	char date[40];
	bool sent;

	if (request->kind == S3_HEAD) {
		length_bytes = answer->length_bytes;
	} else if (fault->kind == S3_HUGE_BODY) {
		length_bytes = fault->n;
	}
	for (uint64_t i = 0; fault->kind == S3_CONTINUE && i < fault->n; i++) {
		s3_text_print(&head, "HTTP/1.1 100 Continue\r\n\r\n");
	}
	write_date(s3_caller_now_s(&conn->settings), date);
	s3_text_print(&head, "HTTP/1.1 %d Status\r\nDate: %s\r\n%s%s", answer->status, date,
		answer->headers, fault->headers != NULL ? fault->headers : "");
	if (fault->kind == S3_HUGE_HEADER) {
		s3_text_print(&head, "x-amz-meta-huge: ");
		for (uint64_t i = 0; i < fault->n; i++) {
			s3_text_add(&head, "h", 1);
		}
		s3_text_print(&head, "\r\n");
	}
	if (is_chunked(fault)) {
		s3_text_print(&head, "Transfer-Encoding: chunked\r\n");
	} else if (answer->status != 204) {
		s3_text_print(&head, "Content-Length: %" PRIu64 "\r\n", length_bytes);
	}
	s3_text_print(&head, "Server: test\r\n\r\n");
	sent = send_all(conn, head.bytes, head.len_bytes);
	free(head.bytes);
	return sent;
}

static void count_sent(struct conn *conn, uint64_t len_bytes)
{
	pthread_mutex_lock(&conn->server->lock);
	conn->server->counts.sent_bytes += len_bytes;
	pthread_mutex_unlock(&conn->server->lock);
}

static bool send_huge(struct conn *conn)
{
	uint64_t left = conn->fault.n;
	char piece[HUGE_PIECE];

	memset(piece, 'e', sizeof(piece));
	while (left > 0) {
		size_t n = left < sizeof(piece) ? (size_t)left : sizeof(piece);

		if (!send_all(conn, piece, n)) {
			return false;
		}
		count_sent(conn, n);
		left -= n;
	}
	return true;
}

static bool send_slowly(struct conn *conn, const struct s3_text *body)
{
	for (size_t i = 0; i < body->len_bytes; i++) {
		if (!wait_ms(conn, (int)(1000 / conn->fault.n)) ||
			!send_all(conn, body->bytes + i, 1)) {
			return false;
		}
		count_sent(conn, 1);
	}
	return true;
}

/* Sends the body as one chunk, behind blanks if the fault says so. */
static bool send_chunks(struct conn *conn, const struct s3_text *body)
{
	struct s3_text chunk = {0};
	bool sent = true;

	for (uint64_t i = 0; conn->fault.kind == S3_BLANKS && i < conn->fault.n && sent; i++) {
		sent = wait_ms(conn, BLANK_MS) && send_all(conn, "1\r\n\n\r\n", 6);
	}
	if (body->len_bytes > 0) {
		s3_text_print(&chunk, "%zx\r\n", body->len_bytes);
		s3_text_add(&chunk, body->bytes, body->len_bytes);
		s3_text_print(&chunk, "\r\n");
	}
	if (conn->fault.kind != S3_ENDLESS) {
		s3_text_print(&chunk, "0\r\n\r\n");
	}
	sent = sent && send_all(conn, chunk.bytes, chunk.len_bytes);
	if (sent && conn->fault.kind == S3_ENDLESS) {
		wait_ms(conn, -1);
		sent = false;
	}
	free(chunk.bytes);
	return sent;
}

/* Sends a body as it is. */
static bool send_plainly(struct conn *conn, const struct s3_text *body)
{
	size_t at = 0;

	count_sent(conn, body->len_bytes);
	while (at < body->len_bytes) {
		size_t n = body->len_bytes - at < PIECE ? body->len_bytes - at : PIECE;

		if (!send_all(conn, body->bytes + at, n)) {
			return false;
		}
		pace(conn, n);
		at += n;
	}
	return true;
}

/* Returns false to end the connection. */
static bool send_body(struct conn *conn, struct s3_text *body)
{
	const struct s3_fault *fault = &conn->fault;
	uint64_t n = fault->n < body->len_bytes ? fault->n : body->len_bytes;
	char extra[1024];

	switch (fault->kind) {
	case S3_HUGE_BODY:
		return send_huge(conn);
	case S3_SLOW:
		return send_slowly(conn, body);
	case S3_ENDLESS:
	case S3_BLANKS:
		return send_chunks(conn, body);
	case S3_RESET_ANSWER:
		send_all(conn, body->bytes, n);
		return reset(conn);
	case S3_TRUNCATE:
		send_all(conn, body->bytes, body->len_bytes - n);
		return false;
	case S3_LONGER:
		memset(extra, 'x', sizeof(extra));
		send_all(conn, body->bytes, body->len_bytes);
		send_all(conn, extra, fault->n < sizeof(extra) ? fault->n : sizeof(extra));
		return false;
	case S3_FLIP_ANSWER:
		if (body->len_bytes > 0) {
			body->bytes[fault->n % body->len_bytes] ^= 1;
		}
		break;
	default:
		break;
	}
	return send_plainly(conn, body);
}

/* ---- one request ---- */

/* Counts a request, and asks the hook what is to go wrong. */
static void admit(struct conn *conn, const struct s3_request *request)
{
	struct s3_server *server = conn->server;
	struct s3_ask ask = {.kind = request->kind,
		.method = request->method,
		.path = request->path,
		.query = request->query,
		.now_ns = clock_mono_ns()};
	char key_id[64];

	s3_caller_scope(request, 0, key_id);
	ask.key_id = key_id;
	conn->fault = (struct s3_fault){.kind = S3_FINE};
	pthread_mutex_lock(&server->lock);
	conn->settings = server->settings;
	ask.nth = ++server->counts.all;
	ask.nth_of_kind = ++server->counts.of[request->kind];
	server->in_flight++;
	if (server->counts.most < server->in_flight) {
		server->counts.most = server->in_flight;
	}
	if (conn->settings.capacity > 0 && server->in_flight > conn->settings.capacity) {
		conn->fault =
			(struct s3_fault){.kind = S3_ANSWER, .status = 503, .code = "SlowDown"};
	} else if (conn->settings.hook != NULL) {
		conn->settings.hook(conn->settings.user, &ask, &conn->fault);
	}
	server->counts.spoiled += conn->fault.kind != S3_FINE || conn->fault.headers != NULL;
	server->counts.stale +=
		request->kind != S3_CREDS && !s3_caller_in_session(&conn->settings, request);
	pthread_mutex_unlock(&server->lock);
}

static void leave(struct conn *conn)
{
	pthread_mutex_lock(&conn->server->lock);
	conn->server->in_flight--;
	pthread_mutex_unlock(&conn->server->lock);
}

static void carry_out(struct conn *conn, const struct s3_request *request, struct s3_answer *answer)
{
	struct s3_server *server = conn->server;
	const struct s3_fault *fault = &conn->fault;

	if (fault->kind == S3_ANSWER || fault->kind == S3_HUGE_BODY) {
		answer->status = fault->status;
		if (fault->code != NULL) {
			s3_answer_error(request, answer, fault->status, fault->code, "");
		} else if (fault->text != NULL && request->kind != S3_HEAD) {
			s3_text_add(&answer->body, fault->text, strlen(fault->text));
		}
		return;
	}
	if (request->kind == S3_CREDS && conn->settings.session_s > 0) {
		s3_caller_begin_session(&conn->settings, answer);
		return;
	}
	if (request->kind == S3_CREDS) {
		answer->status = conn->settings.creds[0] != '\0' ? 200 : 404;
		s3_text_print(&answer->body, "%s", conn->settings.creds);
		return;
	}
	if (!s3_caller_check(&conn->settings, request, answer)) {
		return;
	}
	pthread_mutex_lock(&server->lock);
	/* A request whose client has given it up must not come behind the one sent in its place. */
	if (!wait_ms(conn, 0)) {
		answer->status = 500; /* nobody reads it */
	} else if (s3_azure_is(request)) {
		s3_azure_do(server->azure, server->objects, &conn->settings, request, answer);
	} else {
		(s3_google_is(request) ? s3_google_do : s3_objects_do)(server->objects,
			&conn->settings, request, answer);
	}
	pthread_mutex_unlock(&server->lock);
}

/* Carries a request out and answers it. Returns whether the connection goes on. */
static bool answer_request(struct conn *conn, struct s3_request *request)
{
	const struct s3_fault *fault = &conn->fault;
	struct s3_answer answer = {.status = 200};
	bool lives = true;

	if (fault->kind == S3_FLIP_REQUEST && request->body_bytes > 0) {
		request->body[fault->n % request->body_bytes] ^= 1;
	}
	if (conn->settings.hold_ms > 0) {
		lives = wait_ms(conn, conn->settings.hold_ms);
	}
	carry_out(conn, request, &answer);
	if (fault->kind == S3_LOSE) {
		lives = reset(conn);
	}
	spoil_headers(fault, &answer);
	lives = lives && send_head(conn, request, &answer);
	if (request->kind != S3_HEAD) {
		lives = lives && send_body(conn, &answer.body);
	}
	free(answer.body.bytes);
	return lives;
}

/* Serves a request. Returns whether the connection goes on. */
static bool serve(struct conn *conn)
{
	struct s3_request *request = s3_need(calloc(1, sizeof(*request)));
	bool lives = read_head(conn);

	if (lives) {
		parse_head(conn, request);
		admit(conn, request);
		lives = read_body(conn, request);
		if (conn->fault.kind == S3_RESET_REQUEST) {
			lives = reset(conn);
		} else if (conn->fault.kind == S3_STALL) {
			wait_ms(conn, -1);
			lives = false;
		}
		lives = lives && answer_request(conn, request);
		leave(conn);
	}
	free(request->body);
	free(request);
	return lives;
}

/* ---- connections ---- */

static void *run_conn(void *arg)
{
	struct conn *conn = arg;

	while (serve(conn)) {
	}
	pthread_mutex_lock(&conn->server->lock);
	close(conn->fd);
	conn->ended = true;
	pthread_cond_broadcast(&conn->server->changed);
	pthread_mutex_unlock(&conn->server->lock);
	return NULL;
}

/* Joins the threads of connections: those that have ended, or all. */
static void join_conns(struct s3_server *server, bool all)
{
	struct conn **at = &server->conns;
	struct conn *gone = NULL;

	pthread_mutex_lock(&server->lock);
	while (*at != NULL) {
		struct conn *conn = *at;

		if (all || conn->ended) {
			*at = conn->next;
			conn->next = gone;
			gone = conn;
		} else {
			at = &conn->next;
		}
	}
	pthread_mutex_unlock(&server->lock);
	while (gone != NULL) {
		struct conn *conn = gone;

		gone = conn->next;
		pthread_join(conn->thread, NULL);
		free(conn->head);
		free(conn);
	}
}

static void begin_conn(struct s3_server *server, int fd)
{
	struct conn *conn = s3_need(calloc(1, sizeof(*conn)));
	int one = 1;
	int buffer = PIECE; /* what a buffer takes was not moved at the speed that is set */
	int rv;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	conn->server = server;
	conn->fd = fd;
	conn->head = s3_need(malloc(HEAD_MAX));
	pthread_mutex_lock(&server->lock);
	if (server->settings.conn_bytes_s > 0 || server->settings.link_bytes_s > 0) {
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
	}
	conn->next = server->conns;
	server->conns = conn;
	rv = pthread_create(&conn->thread, NULL, run_conn, conn);
	ASSERT(rv == 0);
	pthread_mutex_unlock(&server->lock);
}

static void *run_server(void *arg)
{
	struct s3_server *server = arg;

	for (;;) {
		int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0 && errno != EINTR && errno != ECONNABORTED) {
			return NULL; /* the socket was shut down */
		}
		join_conns(server, false);
		if (fd >= 0) {
			begin_conn(server, fd);
		}
	}
}

/* ---- start and stop ---- */

struct s3_server *s3_server_start(void)
{
	return s3_server_start_at("127.0.0.1");
}

struct s3_server *s3_server_start_at(const char *host)
{
	struct s3_server *server = s3_need(calloc(1, sizeof(*server)));
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t size = sizeof(address);
	int rv;

	rv = inet_pton(AF_INET, host, &address.sin_addr);
	ASSERT(rv == 1);
	server->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ASSERT(server->fd >= 0);
	rv = bind(server->fd, (struct sockaddr *)&address, sizeof(address));
	rv = rv == 0 ? listen(server->fd, 64) : rv;
	rv = rv == 0 ? getsockname(server->fd, (struct sockaddr *)&address, &size) : rv;
	ASSERT(rv == 0);
	snprintf(server->endpoint, sizeof(server->endpoint), "http://%s:%u", host,
		ntohs(address.sin_port));
	pthread_mutex_init(&server->lock, NULL);
	clock_cond_init(&server->changed);
	server->objects = s3_objects_open();
	server->azure = s3_azure_open();
	rv = pthread_create(&server->thread, NULL, run_server, server);
	ASSERT(rv == 0);
	return server;
}

void s3_server_stop(struct s3_server *server)
{
	shutdown(server->fd, SHUT_RDWR);
	pthread_join(server->thread, NULL);
	close(server->fd);
	pthread_mutex_lock(&server->lock);
	for (struct conn *conn = server->conns; conn != NULL; conn = conn->next) {
		if (!conn->ended) {
			shutdown(conn->fd, SHUT_RDWR);
		}
	}
	pthread_mutex_unlock(&server->lock);
	join_conns(server, true);
	s3_objects_close(server->objects);
	s3_azure_close(server->azure);
	pthread_cond_destroy(&server->changed);
	pthread_mutex_destroy(&server->lock);
	free(server);
}

void s3_server_setenv(const struct s3_server *server)
{
	static const char *const others[] = {"AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION",
		"AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE",
		"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
		"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "http_proxy", "all_proxy", "ALL_PROXY"};
	char connection[256];

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		unsetenv(others[i]);
	}
	snprintf(connection, sizeof(connection),
		"AccountName=" AZURE_ACCOUNT
		";AccountKey=aHVzaC1zZWNyZXQ=;BlobEndpoint=%s/" AZURE_ACCOUNT,
		server->endpoint);
	setenv("AZURE_STORAGE_CONNECTION_STRING", connection, 1);
	setenv("AWS_ENDPOINT_URL", server->endpoint, 1);
	setenv("AWS_ACCESS_KEY_ID", S3_KEY_ID, 1);
	setenv("AWS_SECRET_ACCESS_KEY", S3_SECRET, 1);
	setenv("STORAGE_EMULATOR_HOST", server->endpoint, 1);
	setenv("GS_ACCESS_KEY_ID", S3_KEY_ID, 1);
	setenv("GS_SECRET_ACCESS_KEY", S3_SECRET, 1);
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
	setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials", 1);
	setenv("AWS_CONFIG_FILE", "/nonexistent/config", 1);
}

const char *s3_server_endpoint(const struct s3_server *server)
{
	return server->endpoint;
}

void s3_server_set(struct s3_server *server, const struct s3_settings *settings)
{
	pthread_mutex_lock(&server->lock);
	server->settings = *settings;
	pthread_mutex_unlock(&server->lock);
}

void s3_server_get_counts(struct s3_server *server, struct s3_counts *counts)
{
	pthread_mutex_lock(&server->lock);
	*counts = server->counts;
	counts->uploads = s3_objects_uploads(server->objects);
	counts->blocks = s3_azure_blocks(server->azure);
	pthread_mutex_unlock(&server->lock);
}

void s3_server_reset(struct s3_server *server)
{
	pthread_mutex_lock(&server->lock);
	server->counts = (struct s3_counts){0};
	pthread_mutex_unlock(&server->lock);
}

static bool is_idle(const struct s3_server *server)
{
	const struct conn *conn = server->conns;

	while (conn != NULL && conn->ended) {
		conn = conn->next;
	}
	return conn == NULL;
}

void s3_server_wait_idle(struct s3_server *server)
{
	struct timespec end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += IDLE_MAX_S;
	pthread_mutex_lock(&server->lock);
	while (!is_idle(server)) {
		int rv = pthread_cond_timedwait(&server->changed, &server->lock, &end);

		ASSERT(rv == 0);
	}
	pthread_mutex_unlock(&server->lock);
}

bool s3_server_holds(struct s3_server *server, const char *key, const void *bytes, size_t len_bytes)
{
	bool holds;

	pthread_mutex_lock(&server->lock);
	holds = s3_objects_hold(server->objects, key, bytes, len_bytes);
	pthread_mutex_unlock(&server->lock);
	return holds;
}

void s3_server_put(struct s3_server *server, const char *key, const void *bytes, size_t len_bytes)
{
	pthread_mutex_lock(&server->lock);
	s3_objects_put(server->objects, key, bytes, len_bytes);
	pthread_mutex_unlock(&server->lock);
}

void s3_server_clear(struct s3_server *server)
{
	pthread_mutex_lock(&server->lock);
	s3_objects_clear(server->objects);
	s3_azure_clear(server->azure);
	pthread_mutex_unlock(&server->lock);
}
