/* What tests of the client of object stores share: a server, a script of what goes wrong there, and
 * operations. No message of an error may hold a secret, and each of them has "hush" in it. */
#ifndef TEST_S3_FIXTURE_H
#define TEST_S3_FIXTURE_H

#include "base/crc.h"
#include "base/err.h"
#include "store/object/object.h"
#include "store/store.h"

#include "expect.h"
#include "s3_server.h"
#include "times.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define ANY_KIND S3_KINDS
#define RULES_N  4u
#define MIB      ((size_t)1 << 20)
#define PART     (16 * MIB) /* as bucket.h has it */
#define BODY     200000u    /* bytes of an object of make_body */

/* Requests that go wrong, and how. */
struct rule {
	enum s3_kind kind; /* ANY_KIND: all */
	unsigned after;    /* requests of the kind that are fine before */
	unsigned times;    /* requests that go wrong; 0: the rule is not used */
	unsigned seen;     /* requests of the kind so far */
	struct s3_fault fault;
};

static struct s3_server *server;
static struct object_client *client;
static struct store *store;
static struct s3_settings settings;
static struct rule rules[RULES_N]; /* for the hook; guarded by the server's lock */
static struct pawl_err err;
static uint8_t body[BODY];

/* ---- the server ---- */

/* Fits s3_hook_fn. */
static inline void follow_rules(void *user, const struct s3_ask *ask, struct s3_fault *fault)
{
	for (unsigned i = 0; i < RULES_N; i++) {
		struct rule *rule = &rules[i];

		if (rule->times == 0 || (rule->kind != ANY_KIND && rule->kind != ask->kind)) {
			continue;
		}
		rule->seen++;
		if (rule->seen > rule->after && rule->seen - rule->after <= rule->times) {
			*fault = rule->fault;
			return;
		}
	}
}

/* Makes the server behave so from now on, and drops the rules. */
static inline void behave(const struct s3_settings *as)
{
	settings = *as;
	s3_server_set(server, &settings);
	s3_server_reset(server);
	memset(rules, 0, sizeof(rules));
}

/* Lets requests of a kind go wrong: times of them, behind the first after. */
static inline void spoil_after(enum s3_kind kind, unsigned after, unsigned times,
	struct s3_fault fault)
{
	struct s3_settings quiet = settings;
	unsigned i = 0;

	quiet.hook = NULL;
	s3_server_set(server, &quiet); /* the hook is not running any more */
	while (rules[i].times != 0) {
		i++;
	}
	assert_true(i < RULES_N);
	rules[i] = (struct rule){kind, after, times, 0, fault};
	settings.hook = follow_rules;
	s3_server_set(server, &settings);
}

static inline void spoil(enum s3_kind kind, unsigned times, struct s3_fault fault)
{
	spoil_after(kind, 0, times, fault);
}

static inline unsigned count(enum s3_kind kind)
{
	struct s3_counts counts;

	s3_server_get_counts(server, &counts);
	return kind == ANY_KIND ? counts.all : counts.of[kind];
}

static inline unsigned open_uploads(void)
{
	struct s3_counts counts;

	s3_server_get_counts(server, &counts);
	return counts.uploads;
}

static inline unsigned open_blocks(void)
{
	struct s3_counts counts;

	s3_server_get_counts(server, &counts);
	return counts.blocks;
}

static inline int start_server(void **state)
{
	server = s3_server_start();
	s3_server_setenv(server);
	for (size_t i = 0; i < BODY; i++) {
		body[i] = (uint8_t)(i * 2654435761u >> 13);
	}
	return 0;
}

static inline int stop_server(void **state)
{
	s3_server_stop(server);
	return 0;
}

/* ---- a client ---- */

static inline struct object_options make_options(double patience_s)
{
	return (struct object_options){.connections = 8,
		.patience_ns = (int64_t)(patience_s * NS_PER_S),
		.connect_ns = 10 * NS_PER_S,
		.stall_ns = 1 * NS_PER_S};
}

static inline void reopen_client(double patience_s)
{
	struct object_options options = make_options(patience_s);
	struct object_url url;

	object_close(client);
	client = NULL;
	OK(object_url_parse(S3_ADDRESS, &url, &err));
	OK(object_open(&url, &options, &client, &err));
}

/* Each test begins with a server that is empty and behaves, and a patient client. */
static inline int begin_client(void **state)
{
	s3_server_setenv(server);
	s3_server_clear(server);
	behave(&(struct s3_settings){.part_min_bytes = 1});
	reopen_client(60);
	return 0;
}

static inline int end_client(void **state)
{
	object_close(client);
	client = NULL;
	s3_server_wait_idle(server);
	return 0;
}

static inline int begin_store(void **state)
{
	s3_server_setenv(server);
	s3_server_clear(server);
	behave(&(struct s3_settings){.hook = NULL});
	return store_bucket_open(S3_ADDRESS "/p", &store, &err);
}

static inline int end_store(void **state)
{
	store_close(store);
	store = NULL;
	s3_server_wait_idle(server);
	return 0;
}

/* Expects an error that says this, and no secret. */
#define REFUSES(want, call, says)                                                                  \
	do {                                                                                       \
		FAILS(want, call);                                                                 \
		SAYS(says);                                                                        \
		assert_null(strstr(err.msg, "hush"));                                              \
	} while (0)

/* ---- operations ---- */

static inline size_t read_from_body(void *user, uint64_t off, void *bytes, size_t size)
{
	memcpy(bytes, body + off, size);
	return size;
}

static inline bool write_to_user(void *user, uint64_t off, const void *bytes, size_t len_bytes)
{
	memcpy((uint8_t *)user + off, bytes, len_bytes);
	return true;
}

static inline int ignore_found(void *user, const struct object_found *found)
{
	unsigned *n = user;

	++*n;
	return 0;
}

static inline struct object_op make_put(const char *key, const char *match)
{
	return (struct object_op){.verb = OBJECT_PUT,
		.key = key,
		.match = match,
		.body_bytes = BODY,
		.read = read_from_body,
		.crc = crc32c(0, body, BODY)};
}

static inline int do_op(struct object_op op)
{
	int rv = object_do(client, &op, &err);

	free(op.text);
	return rv;
}

static inline int put_body(const char *key)
{
	return do_op(make_put(key, NULL));
}

static inline int head(const char *key)
{
	return do_op((struct object_op){.verb = OBJECT_HEAD, .key = key});
}

/* Gets a range of an object; 0 bytes: all of it, as text. */
static inline int get_range(const char *key, uint64_t off, uint64_t len_bytes, uint8_t *bytes)
{
	return do_op((struct object_op){.verb = OBJECT_GET,
		.key = key,
		.off_bytes = off,
		.len_bytes = len_bytes,
		.write = len_bytes > 0 ? write_to_user : NULL,
		.text_max = 2 * BODY,
		.user = bytes});
}

static inline int list_keys(const char *prefix, unsigned *n)
{
	return do_op((struct object_op){.verb = OBJECT_LIST,
		.key = prefix,
		.found = ignore_found,
		.user = n});
}

/* ---- files ---- */

/* Returns the number of descriptors of this process. */
static inline unsigned count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(dir);
	while (readdir(dir) != NULL) {
		n++;
	}
	closedir(dir);
	return n;
}

/* Writes or reads [0, len) of a file, at most 16 transfers of 1 MiB in flight. */
static inline int move_file(struct store_file *file, bool write, uint8_t *bytes, size_t len)
{
	struct store_io ios[16] = {{0}};
	size_t off = 0;
	int rv = 0;

	while (off < len) {
		unsigned n = 0;

		for (; n < 16 && off < len; n++) {
			size_t piece = len - off < MIB ? len - off : MIB;
			int submitted;

			ios[n] = (struct store_io){.file = file,
				.buf = bytes + off,
				.len_bytes = piece,
				.off_bytes = off,
				.write = write};
			submitted = store_submit(store, &ios[n], &err);
			assert_int_equal(submitted, 0);
			off += piece;
		}
		while (n > 0) {
			struct store_io *io = store_reap(store, -1);

			assert_non_null(io);
			if (io->rv != 0 && rv == 0) {
				rv = io->rv;
				pawl_err_set(&err, rv, "%s", store_io_why(io));
			}
			n--;
		}
	}
	return rv;
}

/* Returns bytes that differ between numbers, aligned for transfers. */
static inline uint8_t *make_bytes(size_t len, uint32_t number)
{
	uint32_t *words = aligned_alloc(STORE_ALIGN, len);

	assert_non_null(words);
	for (size_t i = 0; i < len / sizeof(*words); i++) {
		words[i] = (uint32_t)i * 2654435761u + number;
	}
	return (uint8_t *)words;
}

/* Writes a file, which is then an object, whole. */
static inline int write_file(const char *path, uint8_t *bytes, size_t len)
{
	struct store_file *file = NULL;
	int rv = store_create(store, path, len, &file, &err);

	if (rv == 0) {
		rv = move_file(file, true, bytes, len);
		rv = rv == 0 ? store_sync(store, file, &err) : rv;
	}
	store_close_file(store, file);
	return rv;
}

static inline int read_file_back(const char *path, const uint8_t *bytes, size_t len)
{
	uint8_t *got = aligned_alloc(STORE_ALIGN, len);
	struct store_file *file = NULL;
	uint64_t size_bytes = 0;
	int rv = store_open(store, path, &file, &size_bytes, &err);

	assert_non_null(got);
	if (rv == 0) {
		assert_int_equal(size_bytes, len);
		rv = move_file(file, false, got, len);
	}
	if (rv == 0) {
		assert_memory_equal(got, bytes, len);
	}
	store_close_file(store, file);
	free(got);
	return rv;
}

#endif
