/*
 * What an answer of an object store means, and how much may be sent at a time. Pure: the caller
 * passes the time.
 *
 * A reset connection may be tried again at once. A 503 or 429 means: send less. So each endpoint
 * has one window, the number of requests in flight, which halves on such an answer and grows by one
 * for each window of successes (AIMD: Chiu and Jain 1989; faster after an outage, slower where it
 * was too much before), and no request of the endpoint is begun before the jittered delay is over.
 */
#ifndef STORE_OBJECT_OBJECT_RETRY_H
#define STORE_OBJECT_OBJECT_RETRY_H

#include <stdbool.h>
#include <stdint.h>

enum object_verdict {
	VERDICT_OK,
	VERDICT_AGAIN,  /* may succeed at once: a lost connection, a torn answer, a 500 */
	VERDICT_SLOWER, /* the service asks for less: 503, 429, SlowDown */
	VERDICT_KEY,    /* the credentials have expired, or are refused: get others, then again */
	VERDICT_CLOCK,  /* the clocks differ: sign by the server's Date, then again */
	VERDICT_REGION, /* the bucket is in another region: ask there */
	VERDICT_PLAIN,  /* the service takes no checksum: leave it out, then again */
	VERDICT_FAIL,   /* trying again is in vain */
};

/* What came back. */
struct object_answer {
	int rv;               /* PAWL_E code of a request without an answer, else 0 */
	int status;           /* HTTP's; 0: none */
	const char *code;     /* the service's name of the error, or "" */
	int64_t date_s;       /* the Date header, seconds since 1970; 0: none */
	double retry_after_s; /* below 0: none */
};

/* Returns what an answer means. now_s: the local time, as the request was signed with. */
enum object_verdict object_judge(const struct object_answer *answer, int64_t now_s);
/* Returns the PAWL_E code of an answer that is no success: PAWL_ENOENT for 404, PAWL_EEXIST for a
 * condition that was refused by 412 or 409 (the caller knows it), PAWL_EIO otherwise. */
int object_answer_code(const struct object_answer *answer);
/* Returns a Retry-After header's seconds, from a number or a date; below 0: it is neither. */
double object_retry_after_s(const char *value, int64_t now_s);
/* Returns the seconds since 1970 of a date of HTTP ("Sun, 06 Nov 1994 08:49:37 GMT"); 0: it is
 * none. */
int64_t object_date_s(const char *value);

/* The window of one endpoint. */
struct object_window {
	uint32_t most;      /* requests in flight, at most */
	double size;        /* requests in flight that are allowed now, 1 to most */
	double before;      /* size before the last series of halvings without a success */
	uint32_t in_flight; /* requests that have begun and not ended */
	uint32_t failures;  /* halvings since the last success; above 0: one request at a time */
	int64_t open_ns;    /* no request begins before; 0: at once */
	int64_t halved_ns;  /* time of the last halving; requests begun before do not halve it */
	uint64_t random;    /* state of the jitter */
};

/* The first delay after an answer that asks for less, and the longest: short enough to find within
 * 5 s that a service is well again. Retry-After may be longer, up to 120 s. */
#define WINDOW_DELAY_MIN_NS 100000000LL
#define WINDOW_DELAY_MAX_NS 4000000000LL

void window_init(struct object_window *window, uint32_t most, uint64_t seed);
/* Returns whether a request may begin now; else *wait_ns is how long to wait, -1: until one
 * ends. */
bool window_may_begin(const struct object_window *window, int64_t now_ns, int64_t *wait_ns);
void window_begin(struct object_window *window);
/* A request that began at began_ns has ended. */
void window_end(struct object_window *window, enum object_verdict verdict, double retry_after_s,
	int64_t began_ns, int64_t now_ns);
/* Returns how long to wait before attempt n + 1 of a request whose attempt n (from 1) failed with a
 * verdict other than VERDICT_SLOWER: 0 for the first retry, then jittered, doubling, bounded. */
int64_t retry_delay_ns(struct object_window *window, uint32_t attempt);

#endif
