/* All hosts restore the same checkpoint, or none: see agree.h. */
#include "agent/persist/agree.h"
#include "ipc/proto.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OFFERS_MAX 16 /* runs in a row that may end before an offer, at most */

/* Reads a member's part of a round. PAWL_ENOENT: the member is past the round, which cannot happen
 * in these rounds. */
static int read_status(struct agree *agree, enum agree_round round, uint64_t n, uint32_t m,
	struct agree_msg_status *status, struct pawl_err *err)
{
	void *bytes;
	size_t len_bytes;
	int rv = agree_read_part(agree, round, n, m, &bytes, &len_bytes, err);

	if (rv == 0) {
		rv = agree_msg_get_status(bytes, len_bytes, status, err);
		free(bytes);
	}
	return rv;
}

/* What all hosts have in memory. */
struct all_held {
	struct recover_held *at;
	uint32_t n;   /* number of entries */
	uint32_t cap; /* room for entries */
};

static void add_held(struct all_held *all, uint32_t host, const struct agree_msg_status *status)
{
	ASSERT(status->held_n <= all->cap - all->n);
	for (uint32_t h = 0; h < status->held_n; h++) {
		all->at[all->n++] = (struct recover_held){host, status->held[h]};
	}
}

/* Checks that all hosts ask for the same as rank 0's host, and adds what they have in memory. */
static int read_asked(struct agree *agree, const struct agree_msg_status *own, struct all_held *all,
	struct pawl_err *err)
{
	struct peer_part held[AGREE_HELD_MAX];
	struct agree_msg_status status = {.held = held};
	int rv = 0;

	for (uint32_t m = 0; m < agree->run.members_n && rv == 0; m++) {
		uint32_t first = agree->run.members[m].first_rank;

		rv = read_status(agree, AGREE_ROUND_RESTORE, agree->restores, m, &status, err);
		if (rv == 0 &&
			(status.has_step != own->has_step ||
				status.asked_step != own->asked_step)) {
			rv = pawl_err_set(err, PAWL_EMISMATCH,
				"rank %u restores another step than rank 0", first);
		}
		if (rv == 0) {
			add_held(all, first, &status);
		}
	}
	return rv;
}

/* Leader: all have asked. Chooses among what they have in memory, and puts it into status->plan. */
static int choose_held(struct agree *agree, struct agree_msg_status *status, struct pawl_err *err)
{
	struct all_held all = {.cap = (agree->run.members_n + 1) * AGREE_HELD_MAX};
	int rv;

	all.at = FAULT_MEM("agree.held", calloc(all.cap, sizeof(*all.at)));
	if (all.at == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for what %u hosts have in memory",
			agree->run.members_n + 1);
	}
	add_held(&all, agree->own.first_rank, status);
	rv = read_asked(agree, status, &all, err);
	if (rv == 0) {
		recover_choose(all.at, all.n, agree->world, status->has_step, status->asked_step,
			status->plan);
	}
	free(all.at);
	return rv;
}

/* Leader: once all have asked, sends the offer. */
static int make_offer(struct agree *agree, struct agree_msg_status *status, agree_find_fn *find,
	void *user, struct pawl_err *err)
{
	struct pawl_err why = {0};
	int rv = agree_gather(agree, AGREE_ROUND_RESTORE, agree->restores, err);

	if (rv != 0) {
		return rv;
	}
	rv = choose_held(agree, status, &why);
	if (rv == 0) {
		status->code = find(user, status);
	} else {
		status->code = rv;
		snprintf(status->why, sizeof(status->why), "%.255s", why.msg);
	}
	ASSERT(!status->memory || status->plan->found);
	status->held = NULL; /* offers have none */
	agree_msg_put_status(&agree->out, status);
	rv = agree_send(agree, AGREE_ROUND_RESTORE, agree->restores, true, err);
	if (rv == 0 && status->code != 0) {
		rv = pawl_err_set(err, status->code, "%s", status->why);
	}
	return rv;
}

/* Checks that a plan that came covers all ranks, each once, as those of recover.h do. */
static int check_plan(const struct agree *agree, const struct recover_plan *plan,
	struct pawl_err *err)
{
	const struct recover_source *before = NULL;
	uint32_t next = 0; /* lowest rank that no source has yet */

	for (uint32_t s = 0; s < plan->sources_n; s++) {
		const struct recover_source *source = &plan->sources[s];

		if (before != NULL && source->first_rank == before->first_rank &&
			source->ranks == before->ranks) {
			continue;
		}
		if (source->first_rank != next || source->ranks == 0 ||
			source->ranks > agree->world - next) {
			break;
		}
		next += source->ranks;
		before = source;
	}
	return next == agree->world && plan->save.run != 0
		? 0
		: pawl_err_set(err, PAWL_ECORRUPT,
			  "rank 0's host offers step %llu from memory, but not of all ranks",
			  (unsigned long long)plan->step);
}

static int offer_once(struct agree *agree, struct agree_msg_status *status, agree_find_fn *find,
	void *user, struct pawl_err *err)
{
	int rv = agree_enter(agree, err);

	if (rv == 0 && agree_is_leader(agree)) {
		rv = make_offer(agree, status, find, user, err);
	} else if (rv == 0) {
		agree_msg_put_status(&agree->out, status);
		rv = agree_send(agree, AGREE_ROUND_RESTORE, agree->restores, false, err);
		rv = rv == 0 ? agree_await_result(agree, AGREE_ROUND_RESTORE, agree->restores,
				       status, err)
			     : rv;
		rv = rv == 0 && status->memory ? check_plan(agree, status->plan, err) : rv;
	}
	return rv;
}

int agree_offer(struct agree *agree, struct agree_msg_status *status, agree_find_fn *find,
	void *user, struct pawl_err *err)
{
	const struct agree_msg_status asked = *status;
	int rv = PAWL_EPEER;

	ASSERT(asked.plan != NULL && !asked.memory);
	for (int i = 0; i < OFFERS_MAX && rv == PAWL_EPEER; i++) {
		*status = asked;
		rv = offer_once(agree, status, find, user, err);
		if (rv == PAWL_EPEER && agree->run_used) {
			return rv;
		}
	}
	if (rv == 0 && !status->found) { /* the round is over: there is nothing to vote on */
		agree->restores++;
		agree->run_used = true;
	} else if (rv != 0 && status->code != 0) {
		agree->restores++; /* all hosts have the failure as the result */
	}
	return rv;
}

/* Leader: puts the worst verdict of all hosts' ranks into *status. */
static int count_votes(struct agree *agree, struct agree_msg_status *status, struct pawl_err *err)
{
	struct agree_msg_status other = {0};
	int rv = agree_gather(agree, AGREE_ROUND_VOTE, agree->restores, err);

	for (uint32_t m = 0; m < agree->run.members_n && rv == 0; m++) {
		rv = read_status(agree, AGREE_ROUND_VOTE, agree->restores, m, &other, err);
		if (rv == 0 && other.verdict > status->verdict) {
			status->verdict =
				other.verdict > VERDICT_REFUSED ? VERDICT_REFUSED : other.verdict;
			memcpy(status->why, other.why, sizeof(status->why));
		}
	}
	return rv;
}

int agree_vote(struct agree *agree, struct agree_msg_status *status, agree_condemn_fn *condemn,
	void *user, struct pawl_err *err)
{
	int rv = 0;

	if (!agree->in_run) {
		return pawl_err_set(err, PAWL_EPEER, "a host began anew");
	}
	if (agree_is_leader(agree)) {
		rv = count_votes(agree, status, err);
		if (rv == 0 && status->verdict == VERDICT_RETRY) {
			condemn(user, status->why);
		}
		agree_msg_put_status(&agree->out, status);
		rv = rv == 0 ? agree_send(agree, AGREE_ROUND_VOTE, agree->restores, true, err) : rv;
	} else {
		agree_msg_put_status(&agree->out, status);
		rv = agree_send(agree, AGREE_ROUND_VOTE, agree->restores, false, err);
		rv = rv == 0
			? agree_await_result(agree, AGREE_ROUND_VOTE, agree->restores, status, err)
			: rv;
	}
	if (rv == 0 && agree_is_leader(agree)) {
		agree_remove_old(agree, AGREE_ROUND_RESTORE, agree->restores);
		agree_remove_old(agree, AGREE_ROUND_VOTE, agree->restores);
	}
	if (rv == 0) {
		agree->restores++;
		agree->run_used = agree->run_used || status->verdict == VERDICT_GO;
	}
	return rv;
}
