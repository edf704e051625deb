/* Handles the frames of workers, one function a type. See ipc/frames.h for the bodies of frames,
 * root.h for the parts. */
#include "agent/root.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "ckpt/tags.h"
#include "pawl/ckpt.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A longer interval between durable saves counts as this one, of 34 years: sums of it and a clock
 * do not overflow. */
#define EVERY_MAX_MS     (1ULL << 40)
#define REPLICAS_DEFAULT 1u /* hosts that hold a host's part, unless a worker says otherwise */

/* Returns the list without root. */
static struct agent_root *unlink_root(struct agent_root *roots, const struct agent_root *root)
{
	struct agent_root **at = &roots;

	while (*at != root) {
		at = &(*at)->next;
	}
	*at = root->next;
	return roots;
}

/* Checks what a worker's HELLO says of the worker. */
static int check_hello(const struct agent_conn *conn, const struct frame_hello *hello,
	struct pawl_err *err)
{
	if (hello->root[0] != '/' && !store_is_bucket(hello->root)) {
		return pawl_err_set(err, PAWL_EINVAL, "malformed HELLO");
	}
	if (strcmp(hello->job, conn->agent->job) != 0) {
		return pawl_err_set(err, PAWL_EBUSY, "this agent serves job %s, not job %s",
			conn->agent->job, hello->job);
	}
	if (hello->ranks < 1 || hello->ranks > PROTO_RANKS_LOCAL ||
		hello->rank - hello->first >= hello->ranks || hello->world < hello->ranks ||
		hello->first > hello->world - hello->ranks) {
		return pawl_err_set(err, PAWL_ELIMIT,
			"rank %u of %u, ranks %u and %u more on this host: an agent serves up to "
			"%u ranks, with consecutive numbers",
			hello->rank, hello->world, hello->first, hello->ranks - 1,
			PROTO_RANKS_LOCAL);
	}
	return 0;
}

/* Checks what a worker's HELLO says of its root. */
static int check_options(const struct frame_hello *hello, struct pawl_err *err)
{
	if (hello->replicas > PAWL_CKPT_REPLICAS_MAX &&
		hello->replicas != PAWL_CKPT_REPLICAS_DEFAULT) {
		return pawl_err_set(err, PAWL_EINVAL, "%u replicas: at most %u are possible",
			hello->replicas, PAWL_CKPT_REPLICAS_MAX);
	}
	if (hello->parity && hello->replicas > PAWL_CKPT_PARITY_MAX &&
		hello->replicas != PAWL_CKPT_REPLICAS_DEFAULT) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%u replicas with parity: at most %u are possible", hello->replicas,
			PAWL_CKPT_PARITY_MAX);
	}
	return 0;
}

static struct persist_policy policy_of(const struct frame_hello *hello)
{
	return (struct persist_policy){
		.rule = {.keep_last = hello->keep, .keep_every = hello->keep_every},
		.full_every = hello->full_every};
}

/* Refuses workers of an attempt that is over. Workers of a newer attempt begin it, unless the agent
 * counts attempts itself. */
static int check_attempt(const struct agent *agent, const struct agent_root *root, uint32_t attempt,
	struct pawl_err *err)
{
	uint32_t now = agent->any_attempt ? (root ? root->epoch.attempt : attempt) : agent->attempt;

	if (attempt < now || (attempt > now && !agent->any_attempt)) {
		return pawl_err_set(err, PAWL_EPEER,
			"attempt %u of job %s is over: attempt %u runs", attempt, agent->job, now);
	}
	return 0;
}

/*
 * If the ranks span hosts and differ from those for which this agent has the root open, closes the
 * root once the old ranks have ended, so that it is opened anew; *at is NULL then.
 */
static int close_changed_root(struct agent_root **at, const struct frame_hello *hello,
	struct pawl_err *err)
{
	struct agent_root *root = *at;

	if (root->remote_ranks == 0 && hello->world == hello->ranks) {
		return 0;
	}
	if (root->first_rank == hello->first && root->ledger.world == hello->ranks &&
		root->remote_ranks == hello->world - hello->ranks) {
		return 0;
	}
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		if (root->ranks[r].conn) {
			return pawl_err_set(err, PAWL_ETIMEDOUT,
				"%s: ranks %u to %u of %u are on this host, not %u to %u of %u: "
				"the ranks of a host must have consecutive numbers",
				root->path, root->first_rank,
				root->first_rank + root->ledger.world - 1,
				root->ledger.world + root->remote_ranks, hello->first,
				hello->first + hello->ranks - 1, hello->world);
		}
	}
	if (!ledger_all_durable(&root->ledger) || !persist_idle(root->storage.thread)) {
		ledger_want_durable(&root->ledger, 0);
		root_advance(root);
		return pawl_err_set(err, PAWL_ETIMEDOUT,
			"the last checkpoint of the run with %u ranks is being made durable",
			root->ledger.world + root->remote_ranks);
	}
	root->agent->roots = unlink_root(root->agent->roots, root);
	root_close(root);
	*at = NULL;
	return 0;
}

/* Sets how often a save becomes durable. Hosts of which none chooses for the others persist every
 * save: they cannot agree in time on which ones to skip. If one does, no save waits for storage,
 * also with an interval of 0. */
static void set_interval(struct agent_root *root, int64_t interval_ns, bool auto_interval)
{
	bool chooses = root->peers.chooses;

	root->schedule.auto_interval =
		auto_interval && (root->remote_ranks == 0 || (chooses && root->first_rank == 0));
	if (root->remote_ranks > 0 && !chooses) {
		ledger_set_interval(&root->ledger, 0);
	} else if (root->schedule.auto_interval) {
		root_advise(root);
	} else {
		ledger_set_interval(&root->ledger, chooses && interval_ns == 0 ? 1 : interval_ns);
	}
}

static int join_root(struct agent_conn *conn, const struct frame_hello *hello, struct pawl_err *err)
{
	struct agent *agent = conn->agent;
	struct agent_root *root = root_find(agent, hello->root);
	const struct persist_policy policy = policy_of(hello);
	const uint64_t every_ms = hello->persist_every_ms;
	const int64_t interval_ns =
		(int64_t)(every_ms < EVERY_MAX_MS ? every_ms : EVERY_MAX_MS) * NS_PER_MS;
	const bool auto_interval = hello->persist_every_ms == PAWL_CKPT_AUTO;
	struct persist_options options = {.root = hello->root,
		.hidden = hello->hidden[0] ? hello->hidden : NULL,
		.job = agent->job,
		.policy = policy,
		.first_rank = hello->first,
		.ranks = hello->ranks,
		.remote_ranks = hello->world - hello->ranks,
		.replicas = hello->replicas == PAWL_CKPT_REPLICAS_DEFAULT ? REPLICAS_DEFAULT
									  : hello->replicas,
		.parity = hello->parity,
		.peers = agent->peers};
	int rv = check_attempt(agent, root, hello->attempt, err);

	if (rv == 0 && root) {
		rv = close_changed_root(&root, hello, err);
	}
	if (rv != 0) {
		return rv;
	}
	if (!root) {
		rv = root_open(agent, hello->root, &options, interval_ns, &root, err);
		if (rv != 0) {
			return rv;
		}
		root->epoch.attempt = hello->attempt;
		root->named = hello->named;
		root->ledger.named = hello->named && root->remote_ranks == 0;
		root->next = agent->roots;
		agent->roots = root;
	}
	if (root->named != hello->named) {
		return pawl_err_set(err, PAWL_EBUSY,
			"%s: one job saves to it both by step and by tag: use two roots",
			hello->root);
	}
	rv = root_join(root, conn, hello->ranks, hello->attempt, err);
	if (rv != 0) {
		return rv;
	}
	rv = root_chosen_join(root, err);
	if (rv != 0) {
		return rv;
	}
	root_set_last_seq(root, conn->rank, hello->seq);
	root->saves.memory_bytes = hello->memory_bytes;
	set_interval(root, interval_ns, auto_interval);
	persist_set_policy(root->storage.thread, &policy);
	return 0;
}

/* Whether the ranks of another host were told to stop in a root. */
static bool is_to_stop(const struct agent_root *root)
{
	const struct agent_stop *stops = root->agent->stops;

	for (uint32_t i = 0; i < AGENT_STOPS_MAX && stops[i].path != NULL; i++) {
		if (strcmp(stops[i].path, root->path) == 0) {
			return root_asks_hosts(root);
		}
	}
	return false;
}

static void handle_hello(struct agent_conn *conn, uint32_t id, const union frame_request *body)
{
	const struct frame_hello *hello = &body->hello;
	struct pawl_err err = {0};

	if (conn->root) {
		conn->closing = true;
		return;
	}
	if (check_hello(conn, hello, &err) != 0 || check_options(hello, &err) != 0) {
		conn_reply_error(conn, id, &err);
		return;
	}
	conn->job_rank = hello->rank;
	conn->rank = hello->rank - hello->first;
	if (join_root(conn, hello, &err) != 0) {
		conn_reply_error(conn, id, &err);
		return;
	}
	conn->hello_id = id;
	if (conn->agent->notice || is_to_stop(conn->root) ||
		conn->root->questions.hold_sent[QUESTION_STOP]) {
		root_hold(conn->root, QUESTION_STOP); /* again, now with this rank */
	}
	if (conn->root->state == ROOT_OPEN) {
		conn_send_welcome(conn);
	}
}

static void handle_begin(struct agent_conn *conn, uint32_t id, const union frame_request *body)
{
	const struct frame_begin *begin = &body->begin;
	struct ledger_ask ask;
	uint32_t times;

	if (!tag_valid(begin->tag)) {
		conn->closing = true;
		return;
	}
	times = root_fits(conn->root, begin->need_bytes);
	ask = (struct ledger_ask){.rank = conn->rank,
		.seq = begin->seq,
		.step = begin->step,
		.alone = (begin->flags & PAWL_SAVE_ALONE) != 0,
		.adds = (begin->flags & PAWL_SAVE_ADDS) != 0,
		.streams = (begin->flags & PAWL_SAVE_STREAM) != 0,
		.fits = times >= LEDGER_SLOTS - 1,
		/* If hosts write every save, no spare slot is needed: they restore nothing from
		 * it. */
		.fits_spare = times == LEDGER_SLOTS &&
			(conn->root->remote_ranks == 0 || conn->root->peers.chooses)};
	snprintf(ask.tag, sizeof(ask.tag), "%s", begin->tag);
	root_asked(conn->root, conn->rank, ask.seq);
	conn->begin = (struct agent_begin){.id = id,
		.received_ns = clock_mono_ns(),
		.need_bytes = begin->need_bytes,
		.since_ns = begin->since_ns,
		.ask = ask};
	root_advance(conn->root);
}

static void handle_fail(struct agent_conn *conn, uint32_t id, const union frame_request *body)
{
	const struct frame_fail *fail = &body->fail;

	root_asked(conn->root, conn->rank, fail->seq);
	/* After PAWL_ETIMEDOUT the rank has neither the grant nor its descriptors. */
	if (fail->code == PAWL_ETIMEDOUT) {
		memset(conn->arena_ids, 0, sizeof(conn->arena_ids));
	}
	root_fail(conn->root, conn->rank, fail->seq, fail->tag, fail->code, fail->why);
}

static void handle_vote(struct agent_conn *conn, uint32_t id, const union frame_request *body)
{
	uint8_t verdict = body->vote.verdict;

	restore_vote(conn->root, conn, id, verdict > VERDICT_REFUSED ? VERDICT_REFUSED : verdict,
		body->vote.why);
}

static void handle_flush(struct agent_conn *conn, uint32_t id, const union frame_request *body)
{
	struct pawl_err err = {0};
	uint64_t seq = body->flush.seq;

	if (seq == 0) {
		root_move_on(conn->root, conn->rank, MOVE_ASKS, NULL);
	}
	if (ledger_want_durable(&conn->root->ledger, seq)) {
		if (seq == 0 && !ledger_all_durable(&conn->root->ledger)) {
			pawl_err_set(&err, PAWL_EBUSY, "what is in memory is not durable yet");
			conn_reply_error(conn, id, &err);
		} else {
			conn_reply_ok(conn, id);
		}
	} else {
		pawl_err_set(&err, PAWL_ECANCELED, "superseded");
		conn_reply_error(conn, id, &err);
	}
	root_advance(conn->root);
}

/* ---- questions about checkpoints ---- */

/* Fires twice: between the two, the loop reads what the other sockets held when the question
 * came. */
static void question_due(struct loop_timer *timer)
{
	struct agent_conn *conn = timer->user;
	struct agent_question *asked = &conn->question;

	if (!asked->read) {
		asked->read = true;
		loop_timer_start(conn->agent->loop, timer, clock_mono_ns());
		return;
	}
	asked->answer(conn, asked->id, asked->tag);
}

/* Answers once the other sockets have been read. */
static void defer_answer(struct agent_conn *conn, uint32_t id, const char *tag,
	void (*answer)(struct agent_conn *conn, uint32_t id, const char *tag))
{
	struct agent_question *asked = &conn->question;

	/* With the timer active, another thread of the worker has asked: answers that first. */
	if (asked->timer.active) {
		loop_timer_cancel(conn->agent->loop, &asked->timer);
		asked->answer(conn, asked->id, asked->tag);
	}
	asked->timer.fired = question_due;
	asked->timer.user = conn;
	asked->read = false;
	asked->answer = answer;
	asked->id = id;
	snprintf(asked->tag, sizeof(asked->tag), "%s", tag);
	loop_timer_start(conn->agent->loop, &asked->timer, clock_mono_ns());
}

static void answer_list(struct agent_conn *conn, uint32_t id, const char *tag)
{
	const struct ledger *ledger = &conn->root->ledger;
	struct frame_listed listed = {.pending_n = 0};

	for (int s = 0; s < LEDGER_SLOTS; s++) {
		if (ledger->slots[s].state == SLOT_COMMITTED && !ledger->slots[s].durable) {
			struct frame_pending *pending = &listed.pending[listed.pending_n++];

			pending->step = ledger->slots[s].step;
			snprintf(pending->tag, sizeof(pending->tag), "%s", ledger->slots[s].tag);
		}
	}
	conn_send(conn, PROTO_LISTED, id, &listed);
}

static void handle_list(struct agent_conn *conn, uint32_t id, const union frame_request *body)
{
	defer_answer(conn, id, "", answer_list);
}

static void answer_find(struct agent_conn *conn, uint32_t id, const char *tag)
{
	root_move_on(conn->root, conn->rank, MOVE_ASKS, NULL);
	restore_find(conn->root, conn, id, tag);
	root_advance(conn->root);
}

static void handle_find(struct agent_conn *conn, uint32_t id, const union frame_request *body)
{
	defer_answer(conn, id, body->tag.tag, answer_find);
}

/* ---- keeping and removing checkpoints ---- */

/* Whether this host may change the store: only rank 0's host does. Otherwise answers with an
 * error. */
static bool may_change(struct agent_conn *conn, uint32_t id, const char *what, const char *tag)
{
	struct pawl_err err = {0};

	if (conn->root->first_rank == 0) {
		return true;
	}
	pawl_err_set(&err, PAWL_ENOTSUP,
		"%s %s: rank %u cannot, since of several hosts only that of rank 0 has the root",
		what, tag, conn->job_rank);
	conn_reply_error(conn, id, &err);
	return false;
}

/* Accepts a job that is done later; job NULL: there was no memory for it. */
static void accept_job(struct agent_conn *conn, uint32_t id, struct persist_job *job)
{
	struct pawl_err err = {0};

	if (!job) {
		pawl_err_set(&err, PAWL_ENOMEM, "the agent is out of memory");
		conn_reply_error(conn, id, &err);
		return;
	}
	persist_submit(conn->root->storage.thread, job);
	conn->root->storage.pending_changes++;
	conn_reply_ok(conn, id);
}

static void handle_pin(struct agent_conn *conn, uint32_t id, const union frame_request *body)
{
	struct persist_job *job;

	if (!may_change(conn, id, "pin", body->pin.tag)) {
		return;
	}
	job = root_job(conn->root, PERSIST_PIN, body->pin.tag);
	if (job) {
		job->pin.pinned = body->pin.pinned;
	}
	accept_job(conn, id, job);
}

static void handle_condemn(struct agent_conn *conn, uint32_t id, const union frame_request *body)
{
	const struct frame_damaged *condemn = &body->damaged;

	/* Damage in the store is handled by rank 0's host, which has the root and sees it, too. */
	if (tag_valid(condemn->tag) && (condemn->memory || conn->root->first_rank == 0)) {
		restore_condemn(conn->root, condemn->memory, condemn->tag, condemn->why);
	}
}

static void handle_remove(struct agent_conn *conn, uint32_t id, const union frame_request *body)
{
	const char *tag = body->tag.tag;

	if (!tag_valid(tag)) {
		conn->closing = true;
		return;
	}
	if (!may_change(conn, id, "remove", tag)) {
		return;
	}
	restore_condemn(conn->root, true, tag, "");
	accept_job(conn, id, root_job(conn->root, PERSIST_REMOVE, tag));
}

/* ---- the rest ---- */

static void handle_imports(struct agent_conn *conn, uint32_t id, const union frame_request *body)
{
	const struct frame_blob *names = &body->imports.names;
	struct agent *agent = conn->agent;
	char *copy = malloc((size_t)names->len_bytes + 1);

	if (!copy) {
		return;
	}
	memcpy(copy, names->bytes, names->len_bytes);
	copy[names->len_bytes] = '\0';
	free(agent->imports);
	agent->imports = copy;
	if (agent->imported) {
		agent->imported(agent->imported_user);
	}
}

static void handle_staged(struct agent_conn *conn, uint32_t id, const union frame_request *body)
{
	root_staged(conn->root, conn, &body->staged);
}

static void handle_restore(struct agent_conn *conn, uint32_t id, const union frame_request *body)
{
	restore_ask(conn->root, conn, id, &body->restore);
}

static void handle_restored(struct agent_conn *conn, uint32_t id, const union frame_request *body)
{
	restore_done(conn->root, conn);
	root_advance(conn->root);
}

static void handle_fetch(struct agent_conn *conn, uint32_t id, const union frame_request *body)
{
	restore_fetch(conn->root, conn, id, &body->fetch);
}

static void handle_notice(struct agent_conn *conn, uint32_t id, const union frame_request *body)
{
	root_request_stop(conn->root);
}

static void handle_poll_count(struct agent_conn *conn, uint32_t id, const union frame_request *body)
{
	uint8_t question = body->poll_count.question;

	if (question >= QUESTIONS_N) {
		conn->closing = true;
		return;
	}
	conn->hold_answered[question] = true;
	conn->polls[question] = body->poll_count.polls;
	root_settle(conn->root, (enum proto_question)question);
}

static void handle_done(struct agent_conn *conn, uint32_t id, const union frame_request *body)
{
	root_move_on(conn->root, conn->rank, MOVE_ASKS, NULL);
	root_advance(conn->root);
}

static void handle_bye(struct agent_conn *conn, uint32_t id, const union frame_request *body)
{
	const struct frame_bye *bye = &body->bye;
	char why[EVENTS_WHY_MAX];

	conn->leaving = bye->clean;
	if (bye->not_durable) {
		conn->root->workers.left_not_durable = true;
		conn->agent->left_not_durable = true;
	}
	/* A rank with an error ends in order, but did not mean to end. */
	if (bye->why[0] != '\0' && conn->root->workers.running) {
		snprintf(why, sizeof(why), "rank %u: %.200s", conn->job_rank, bye->why);
		root_event(conn->root, EVENT_FAILED, why);
	}
	if (conn->leaving) {
		root_move_on(conn->root, conn->rank, MOVE_LEAVES, NULL);
	}
	conn_reply_ok(conn, id);
	root_advance(conn->root);
}

/* Answers `pawl scale`, which is no rank. */
static void handle_scale(struct agent_conn *conn, uint32_t id, const union frame_request *body)
{
	const struct agent *agent = conn->agent;
	struct agent_scale now = {0};
	struct pawl_err err = {0};
	struct frame_scaled scaled;
	int rv;

	if (strcmp(body->scale.job, agent->job) != 0) {
		rv = pawl_err_set(&err, PAWL_ENOENT, "this agent serves job %s, not job %s",
			agent->job, body->scale.job);
	} else if (agent->scale == NULL) {
		rv = pawl_err_set(&err, PAWL_ENOTSUP,
			"job %s was not started by pawl run, so pawl cannot change its number of "
			"ranks",
			agent->job);
	} else {
		rv = agent->scale(agent->scale_user, body->scale.wanted, &now, &err);
	}
	if (rv != 0) {
		conn_reply_error(conn, id, &err);
		return;
	}
	scaled = (struct frame_scaled){.alive = now.alive,
		.wanted = now.wanted,
		.least = now.least,
		.most = now.most};
	conn_send(conn, PROTO_SCALED, id, &scaled);
}

/* Answers `pawl notice`, which is no rank. The answer comes last: if it cannot be sent, the
 * connection is closed, and must not be in use. */
static void handle_preempt(struct agent_conn *conn, uint32_t id, const union frame_request *body)
{
	const struct frame_preempt *preempt = &body->preempt;
	struct agent *agent = conn->agent;
	struct frame_preempted preempted = {.job = ""};
	struct pawl_err err = {0};

	if (preempt->job[0] != '\0' && strcmp(preempt->job, agent->job) != 0) {
		pawl_err_set(&err, PAWL_ENOENT, "this agent serves job %s, not job %s", agent->job,
			preempt->job);
		conn_reply_error(conn, id, &err);
		return;
	}
	if (agent->preempted) {
		agent->preempted(agent->preempted_user, preempt->left_ms * NS_PER_MS);
	} else {
		log_line(LOG_INFO,
			"this machine goes away in %.0f s (pawl notice): the workers stop",
			(double)preempt->left_ms / 1000);
		agent_notice(agent, "pawl notice");
		agent_save_soon(agent);
	}
	snprintf(preempted.job, sizeof(preempted.job), "%s", agent->job);
	conn_send(conn, PROTO_PREEMPTED, id, &preempted);
}

/* Answers `pawl ckpt watch`, which is no rank. */
static void handle_state(struct agent_conn *conn, uint32_t id, const union frame_request *body)
{
	const struct frame_state *asked = &body->state;
	struct agent *agent = conn->agent;
	struct frame_stated stated = {.ranks = 0};
	const struct agent_root *root;
	const struct alert_state *alert;
	struct pawl_err err = {0};
	int newest;

	root = strcmp(asked->job, agent->job) == 0 ? root_find(agent, asked->root) : NULL;
	if (!root) {
		pawl_err_set(&err, PAWL_ENOENT, "job %s does not save to %.256s", asked->job,
			asked->root);
		conn_reply_error(conn, id, &err);
		return;
	}
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		stated.ranks += root->ranks[r].conn != NULL;
	}
	newest = ledger_newest(&root->ledger);
	alert = root_worst_alert(root);
	if (newest >= 0 && !root->ledger.slots[newest].durable) {
		snprintf(stated.tag, sizeof(stated.tag), "%s", root->ledger.slots[newest].tag);
	}
	if (alert) {
		stated.key = (uint32_t)alert->key;
		snprintf(stated.text, sizeof(stated.text), "%s", alert->text);
	}
	conn_send(conn, PROTO_STATED, id, &stated);
}

typedef void frame_fn(struct agent_conn *conn, uint32_t id, const union frame_request *body);

/* Frames of a worker that was welcomed. */
static frame_fn *const handlers[] = {
	[PROTO_BEGIN] = handle_begin,
	[PROTO_STAGED] = handle_staged,
	[PROTO_FAIL] = handle_fail,
	[PROTO_FLUSH] = handle_flush,
	[PROTO_RESTORE] = handle_restore,
	[PROTO_VOTE] = handle_vote,
	[PROTO_RESTORED] = handle_restored,
	[PROTO_LIST] = handle_list,
	[PROTO_PIN] = handle_pin,
	[PROTO_IMPORTS] = handle_imports,
	[PROTO_BYE] = handle_bye,
	[PROTO_NOTICE] = handle_notice,
	[PROTO_POLL_COUNT] = handle_poll_count,
	[PROTO_DONE] = handle_done,
	[PROTO_DAMAGED] = handle_condemn,
	[PROTO_REMOVE] = handle_remove,
	[PROTO_FIND] = handle_find,
	[PROTO_FETCH] = handle_fetch,
};

#define HANDLERS_N (sizeof(handlers) / sizeof(handlers[0]))

/* Returns the handler of a frame; NULL: the frame is unknown, or not allowed now. */
static frame_fn *find_handler(const struct agent_conn *conn, uint16_t type)
{
	if (type == PROTO_HELLO) {
		return handle_hello;
	}
	if (!conn->root) {
		return type == PROTO_SCALE      ? handle_scale
			: type == PROTO_STATE   ? handle_state
			: type == PROTO_PREEMPT ? handle_preempt
						: NULL;
	}
	return conn->welcomed && type < HANDLERS_N ? handlers[type] : NULL;
}

/* Refuses a worker of another version, whose HELLO may have another layout. */
static bool check_hello_version(struct agent_conn *conn, const struct proto_frame *frame)
{
	uint16_t version = frame_hello_version(frame->body);
	struct pawl_err err;

	if (version == PROTO_VERSION) {
		return true;
	}
	pawl_err_set(&err, PAWL_ENOTSUP,
		"the agent of this job speaks protocol %u, this worker %u: it was started by "
		"another version of pawl; end it and start again",
		PROTO_VERSION, version);
	conn_reply_error(conn, frame->id, &err);
	return false;
}

void frame_handle(struct agent_conn *conn, struct proto_frame *frame)
{
	frame_fn *handler = find_handler(conn, frame->type);
	union frame_request body;

	if (handler && frame->type == PROTO_HELLO && !check_hello_version(conn, frame)) {
		return;
	}
	if (handler && frame_decode(&frame->body, frame->type, &body, sizeof(body))) {
		handler(conn, frame->id, &body);
	} else {
		conn->closing = true;
	}
}
