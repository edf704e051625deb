/*
 * Ends this launcher (SIGALRM), and so its ranks, if it is cut off: an alarm that each contact puts
 * off. A contact is an answer of the scheduler or, in a Pod, of the cluster's API server, which is
 * asked when the scheduler does not answer. One fence a process.
 */
#ifndef LAUNCH_RUN_FENCE_H
#define LAUNCH_RUN_FENCE_H

#include "io/kube_service.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct http_pool;
struct pawl_err;

struct run_fence {
	int64_t ns;                     /* time without a contact, at most; 0: there is no fence */
	char witness[KUBE_SERVICE_MAX]; /* endpoint of the API server; "": there is none */
	struct http_pool *http;         /* to the witness; NULL: there is none */
};

/* Returns the time that a fence has if nobody chose one: 60 s in a Pod, else 0. */
int64_t run_fence_default_ns(void);
/* Finds the witness. Fails as http_pool_open does. */
int run_fence_open(struct run_fence *fence, int64_t ns, struct pawl_err *err);
/* Lets the alarm end this process, whoever blocked or ignored SIGALRM. */
void run_fence_arm(const struct run_fence *fence);
/* Puts the alarm off: somebody was reached. */
void run_fence_reached(const struct run_fence *fence);
/* Asks the witness, if there is one, for any answer at all, which counts as a contact. Blocks for
 * up to TIME_RELAY_RETRY, or until stopping. */
void run_fence_ask(const struct run_fence *fence, const atomic_bool *stopping);
/* Returns span_ns, or what of it leaves two more attempts within the fence's time. */
int64_t run_fence_limit(const struct run_fence *fence, int64_t span_ns);
/* Takes the alarm back, and frees what the fence holds. A zeroed fence is fine. */
void run_fence_close(struct run_fence *fence);

#endif
