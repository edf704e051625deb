/* Shared by the clouds: see notice.h. */
#ifndef NOTICE_NOTICE_IMPL_H
#define NOTICE_NOTICE_IMPL_H

#include "notice/notice.h"

#include <jansson.h>

/* What a cloud's take function returns, beside negative PAWL_E codes. */
enum notice_progress {
	NOTICE_ROUND_OVER, /* the next question is asked after a pause */
	NOTICE_GO_ON,      /* the next question is asked at once */
};

/* One cloud. */
struct notice_ops {
	const char *name;              /* "AWS" */
	const char *scheme;            /* "aws" */
	const char *endpoint;          /* address of the service */
	enum notice_question question; /* the first one */
	/* Adds path, query and headers to a request, which is a GET or, to AWS for a token, a
	 * PUT. */
	void (*ask)(const struct notice_watch *watch, struct http_request *request);
	/* Takes an answer that came. err says what is wrong with it. */
	int (*take)(struct notice_watch *watch, const struct notice_answer *answer, int64_t now_s,
		struct notice_event *event, struct pawl_err *err);
};

extern const struct notice_ops notice_aws, notice_gcp, notice_azure;

/* ---- notice_read.c ---- */

/* Reads a body as one JSON object. The caller frees it. PAWL_EIO; PAWL_ELIMIT: it is longer than
 * NOTICE_ANSWER_MAX. */
int notice_read_json(const struct notice_answer *answer, json_t **object, struct pawl_err *err);
/* Copies a body without white space at its ends into text. PAWL_EIO: it is empty, or has other
 * characters than visible ASCII; PAWL_ELIMIT: it does not fit. */
int notice_read_word(const struct notice_answer *answer, char *text, size_t size_bytes,
	struct pawl_err *err);
/* Refuses a status of HTTP by name: PAWL_EIO. */
int notice_refuse_status(const struct notice_answer *answer, struct pawl_err *err);
/* Reads a date, "2026-11-29T12:04:31Z" or that of HTTP. Returns seconds since 1970; 0: it is
 * neither, or not after 1970. */
int64_t notice_read_date(const char *text);
/* Makes a NOTICE_STOP: "CLOUD: what at 12:04:31Z", or "CLOUD: what now" for a date of 0 or in the
 * past. It is at most most_s from now, since no clock is trusted further than the cloud's
 * promise. */
void notice_set_stop(struct notice_event *event, const char *cloud, const char *what,
	int64_t when_s, int64_t now_s, int64_t most_s);

#endif
