/*
 * What `pawl mirror status` and `pawl mirror flush` say to a running mirror, over its socket, and
 * what it answers. Pure. docs/protocol.md has the bytes.
 *
 * The command sends one request; the mirror answers once, and closes the connection.
 */
#ifndef MIRROR_MSG_H
#define MIRROR_MSG_H

#include "mirror/core.h"

#include <stdint.h>

struct pawl_err;
struct wire_out;

#define MSG_VERSION    1u
#define MSG_REQUEST    16u         /* bytes of a request */
#define MSG_ANSWER_MAX (16u << 20) /* bytes of an answer, at most */
#define MSG_PATH_MAX   4096u       /* bytes of a path, terminator included */
#define MSG_TEXT_MAX   256u        /* bytes of a text, terminator included */

enum msg_kind { MSG_STATUS = 1, MSG_FLUSH = 2 };

struct msg_request {
	enum msg_kind kind;
	int64_t deadline_ns; /* MSG_FLUSH: answer by then, from now on; INT64_MAX: no limit */
};

struct msg_unit {
	char path[CKPT_TAG_MAX]; /* path in the directory */
	char tag[CKPT_TAG_MAX];  /* tag; "": none */
	uint64_t step;           /* step of the tag */
	uint8_t state;           /* enum core_state */
	uint8_t kind;            /* enum unit_kind */
	bool present;            /* the directory has it */
	bool in_bucket;          /* the bucket has it, as it is or as it was */
	uint64_t size_bytes;     /* size */
	uint64_t sent_bytes;     /* uploaded so far, while it is shipped */
	char why[UNIT_WHY_MAX];  /* why it is not committed; "" */
};

struct msg_status {
	char dir[MSG_PATH_MAX];        /* the mirrored directory */
	char bucket[MSG_PATH_MAX];     /* address of the bucket */
	char last_error[MSG_TEXT_MAX]; /* newest failure since the last success; "" */
	uint32_t program;              /* pid of the program; 0: none, or it has ended */
	bool lost;                     /* another process has the root */
	bool full;                     /* pins are at their limit */
	bool flushed;                  /* all that can be shipped is */
	uint32_t dirty_units;          /* units that are not committed as they are */
	uint32_t dirty_loose;          /* loose files that are not shipped as they are */
	uint64_t dirty_bytes;          /* bytes of both */
	int64_t oldest_ns;             /* how long the oldest of them waits; 0: none does */
	uint64_t pinned_bytes;         /* bytes that pins hold */
	uint32_t fetching;             /* whether older units are still being fetched */
	uint32_t units_n;              /* number of units */
	struct msg_unit *units;        /* sorted by path; owned */
};

void msg_put_request(uint8_t bytes[MSG_REQUEST], const struct msg_request *request);
/* PAWL_ENOTSUP: another version of Pawl sent it. PAWL_EINVAL. */
int msg_get_request(const uint8_t bytes[MSG_REQUEST], struct msg_request *request,
	struct pawl_err *err);
/* Appends an answer. Check out->failed afterwards. */
void msg_put_status(struct wire_out *out, const struct msg_status *status);
/* Decodes an answer; msg_status_deinit frees it. PAWL_EIO: it makes no sense; PAWL_ENOMEM. */
int msg_get_status(const void *bytes, size_t len_bytes, struct msg_status *status,
	struct pawl_err *err);
void msg_status_deinit(struct msg_status *status);

#endif
