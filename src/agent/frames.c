/* Handles what workers say to the agent: one function a frame. See proto.h for the frames, root.h
 * for the parts. */
#include "agent/root.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/times.h"
#include "ckpt/tags.h"
#include "pawl/ckpt.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- sending ---- */

size_t conn_start(struct agent_conn *conn, enum proto_type type, uint32_t id)
{
	wire_out_reset(&conn->agent->scratch);
	return proto_start(&conn->agent->scratch, type, id);
}

/* Tells people of a rank that has not read what it was sent, and is given up. Nobody needs to hear
 * here of a rank that died. */
static void tell_deaf(struct agent_conn *conn, const struct pawl_err *err)
{
	struct news_item item;

	if (conn->root && (err->sys == EAGAIN || err->sys == EWOULDBLOCK)) {
		news_fill(&item, NEWS_ONCE, NULL,
			"rank %u (pid %u) has not read for %u s what its agent says, and is given "
			"up: its process hangs, or is stopped",
			conn->job_rank, conn->pid, times_s(TIME_LINK_SEND));
		root_news(conn->root, &item);
	} else {
		log_line(LOG_DEBUG, "rank %u (pid %u): %s", conn->job_rank, conn->pid, err->msg);
	}
}

void conn_send(struct agent_conn *conn, size_t start, const int *fds, uint32_t fds_n)
{
	struct pawl_err err = {0};

	proto_end(&conn->agent->scratch, start);
	if (!conn->closing &&
		proto_send(conn->io.fd, &conn->agent->scratch, fds, fds_n, &err) != 0) {
		conn->closing = true;
		tell_deaf(conn, &err);
	}
}

void conn_reply_ok(struct agent_conn *conn, uint32_t id)
{
	conn_send(conn, conn_start(conn, PROTO_OK, id), NULL, 0);
}

void conn_reply_error(struct agent_conn *conn, uint32_t id, const struct pawl_err *err)
{
	size_t start = conn_start(conn, PROTO_ERROR, id);

	wire_put_u32(&conn->agent->scratch, (uint32_t)-err->code);
	wire_put_u32(&conn->agent->scratch, (uint32_t)err->sys);
	wire_put_str(&conn->agent->scratch, err->msg);
	conn_send(conn, start, NULL, 0);
}

void conn_send_hold(struct agent_conn *conn, enum proto_question question, uint64_t seq)
{
	size_t start = conn_start(conn, PROTO_HOLD, 0);

	wire_put_u8(&conn->agent->scratch, (uint8_t)question);
	wire_put_u64(&conn->agent->scratch, seq);
	conn_send(conn, start, NULL, 0);
}

void conn_send_welcome(struct agent_conn *conn)
{
	size_t start = conn_start(conn, PROTO_WELCOME, conn->hello_id);

	conn->welcome = true;
	wire_put_u32(&conn->agent->scratch, (uint32_t)conn->agent->pid);
	conn_send(conn, start, NULL, 0);
	root_news_greet(conn);
}

/* ---- receiving ---- */

static struct agent_root *find_root(struct agent *agent, const char *path)
{
	for (struct agent_root *root = agent->roots; root; root = root->next) {
		if (strcmp(root->path, path) == 0) {
			return root;
		}
	}
	return NULL;
}

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

/* The contents of HELLO: what a worker says about itself. */
struct hello {
	char job[CKPT_JOB_MAX];
	char root[PATH_MAX];
	uint32_t world; /* ranks of the job */
	uint32_t first; /* lowest rank of this host */
	uint32_t ranks; /* number of ranks on this host */
	uint32_t attempt;
	struct persist_policy policy;
	int64_t interval_ns; /* between persists; unused with auto_interval */
	bool auto_interval;
	uint64_t memory_bytes;
	bool named;
	char hidden[PATH_MAX];
	uint64_t seq; /* number of the rank's last save; 0: none yet */
};

static int read_hello(struct agent_conn *conn, struct wire_in *body, struct hello *hello,
	struct pawl_err *err)
{
	uint16_t version = wire_get_u16(body);
	uint64_t interval_ms;

	if (version != PROTO_VERSION) {
		return pawl_err_set(err, PAWL_ENOTSUP,
			"the agent of this job speaks protocol %u, this worker %u: it was started "
			"by another "
			"version of pawl; end it and start again",
			PROTO_VERSION, version);
	}
	wire_get_str(body, hello->job, sizeof(hello->job));
	wire_get_str(body, hello->root, sizeof(hello->root));
	conn->job_rank = wire_get_u32(body);
	hello->world = wire_get_u32(body);
	hello->attempt = wire_get_u32(body);
	/* The pid as the worker sees it; conn->pid is the kernel's word. */
	wire_get_u32(body);
	hello->policy.rule.keep_last = wire_get_u32(body);
	hello->policy.rule.keep_every = wire_get_u64(body);
	interval_ms = wire_get_u64(body);
	hello->auto_interval = interval_ms == PAWL_CKPT_AUTO;
	hello->interval_ns = (int64_t)(interval_ms % (1ULL << 40)) * NS_PER_MS;
	hello->memory_bytes = wire_get_u64(body);
	hello->named = wire_get_u8(body);
	wire_get_str(body, hello->hidden, sizeof(hello->hidden));
	hello->policy.full_every = wire_get_u32(body);
	hello->first = wire_get_u32(body);
	hello->ranks = wire_get_u32(body);
	hello->seq = wire_get_u64(body);
	if (!wire_in_done(body) || hello->root[0] != '/') {
		return pawl_err_set(err, PAWL_EINVAL, "malformed greeting");
	}
	if (strcmp(hello->job, conn->agent->job) != 0) {
		return pawl_err_set(err, PAWL_EBUSY, "this agent is job %s's, not job %s's",
			conn->agent->job, hello->job);
	}
	conn->rank = conn->job_rank - hello->first;
	if (hello->ranks < 1 || hello->ranks > PROTO_RANKS_LOCAL || conn->rank >= hello->ranks ||
		hello->world < hello->ranks || hello->first > hello->world - hello->ranks) {
		return pawl_err_set(err, PAWL_ELIMIT,
			"rank %u of %u, ranks %u and %u more on this host: an agent serves up to "
			"%u ranks, one behind the other",
			conn->job_rank, hello->world, hello->first, hello->ranks - 1,
			PROTO_RANKS_LOCAL);
	}
	return 0;
}

/* Refuses workers of an attempt that is over. Workers of a newer attempt begin it, unless the agent
 * counts attempts itself. */
static int check_attempt(const struct agent *agent, const struct agent_root *root, uint32_t attempt,
	struct pawl_err *err)
{
	uint32_t now = agent->any_attempt ? (root ? root->attempt : attempt) : agent->attempt;

	if (attempt < now || (attempt > now && !agent->any_attempt)) {
		return pawl_err_set(err, PAWL_EPEER,
			"attempt %u of job %s is over: attempt %u runs", attempt, agent->job, now);
	}
	return 0;
}

/*
 * Sees to ranks that span hosts and differ from those that this agent has the root open for: the
 * root is opened anew once the old ranks are gone. *at is NULL then.
 */
static int change_hosts(struct agent_root **at, const struct hello *hello, struct pawl_err *err)
{
	struct agent_root *root = *at;

	if (root->elsewhere == 0 && hello->world == hello->ranks) {
		return 0;
	}
	if (root->first == hello->first && root->ledger.world == hello->ranks &&
		root->elsewhere == hello->world - hello->ranks) {
		return 0;
	}
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		if (root->ranks[r].conn) {
			return pawl_err_set(err, PAWL_ETIMEDOUT,
				"%s: ranks %u to %u of %u are on this host, not %u to %u of %u: "
				"all ranks of a host must have numbers one behind the other",
				root->path, root->first, root->first + root->ledger.world - 1,
				root->ledger.world + root->elsewhere, hello->first,
				hello->first + hello->ranks - 1, hello->world);
		}
	}
	if (!ledger_all_durable(&root->ledger) || !persist_idle(root->persist)) {
		ledger_want_durable(&root->ledger, 0);
		root_turn(root);
		return pawl_err_set(err, PAWL_ETIMEDOUT,
			"the last checkpoint of the run with %u ranks is being made durable",
			root->ledger.world + root->elsewhere);
	}
	root->agent->roots = unlink_root(root->agent->roots, root);
	root_close(root);
	*at = NULL;
	return 0;
}

static int join_root(struct agent_conn *conn, const struct hello *hello, struct pawl_err *err)
{
	struct agent *agent = conn->agent;
	struct agent_root *root = find_root(agent, hello->root);
	struct persist_options options = {.root = hello->root,
		.hidden = hello->hidden[0] ? hello->hidden : NULL,
		.job = agent->job,
		.policy = hello->policy,
		.first = hello->first,
		.ranks = hello->ranks,
		.elsewhere = hello->world - hello->ranks};
	int rv = check_attempt(agent, root, hello->attempt, err);

	if (rv == 0 && root) {
		rv = change_hosts(&root, hello, err);
	}
	if (rv != 0) {
		return rv;
	}
	if (!root) {
		rv = root_open(agent, hello->root, &options, hello->interval_ns, &root, err);
		if (rv != 0) {
			return rv;
		}
		root->attempt = hello->attempt;
		root->named = hello->named;
		root->ledger.named = hello->named && root->elsewhere == 0;
		root->next = agent->roots;
		agent->roots = root;
	}
	if (root->named != hello->named) {
		return pawl_err_set(err, PAWL_EBUSY,
			"%s: saved to by step and by tag in one job: use two roots", hello->root);
	}
	rv = root_join(root, conn, hello->ranks, hello->attempt, err);
	if (rv != 0) {
		return rv;
	}
	root_know_seq(root, conn->rank, hello->seq);
	root->memory_bytes = hello->memory_bytes;
	root->auto_interval = hello->auto_interval && root->elsewhere == 0;
	if (root->elsewhere > 0) {
		/* With 0 every save is persisted: hosts cannot agree in time on which ones to
		 * skip. */
		ledger_set_interval(&root->ledger, 0);
	} else if (hello->auto_interval) {
		root_advise(root);
	} else {
		ledger_set_interval(&root->ledger, hello->interval_ns);
	}
	persist_set_policy(root->persist, &hello->policy);
	return 0;
}

static void handle_hello(struct agent_conn *conn, uint32_t id, struct wire_in *body)
{
	struct hello hello;
	struct pawl_err err = {0};

	if (conn->root) {
		conn->closing = true;
		return;
	}
	if (read_hello(conn, body, &hello, &err) != 0 || join_root(conn, &hello, &err) != 0) {
		conn_reply_error(conn, id, &err);
		return;
	}
	conn->hello_id = id;
	if (conn->agent->notice || conn->root->asked[QUESTION_STOP]) {
		root_hold(conn->root, QUESTION_STOP); /* asks anew, now with this rank */
	}
	if (conn->root->state == ROOT_OPEN) {
		conn_send_welcome(conn);
	}
}

static void handle_begin(struct agent_conn *conn, uint32_t id, struct wire_in *body)
{
	uint32_t times;
	uint8_t flags;

	conn->ask = (struct ledger_ask){.rank = conn->rank};
	conn->ask.seq = wire_get_u64(body);
	conn->ask.step = wire_get_u64(body);
	conn->begin_bytes = wire_get_u64(body);
	wire_get_str(body, conn->ask.tag, sizeof(conn->ask.tag));
	flags = wire_get_u8(body);
	conn->ask.alone = (flags & PAWL_SAVE_ALONE) != 0;
	conn->ask.adds = (flags & PAWL_SAVE_ADDS) != 0;
	conn->ask.streams = (flags & PAWL_SAVE_STREAM) != 0;
	conn->begin_since_ns = (int64_t)wire_get_u64(body);
	if (!wire_in_done(body) || !tag_valid(conn->ask.tag)) {
		conn->closing = true;
		return;
	}
	times = root_fits(conn->root, conn->begin_bytes);
	conn->ask.fits = times >= LEDGER_SLOTS - 1;
	/* A job on several hosts restores nothing from memory: no spare slot is needed. */
	conn->ask.spare = times == LEDGER_SLOTS && conn->root->elsewhere == 0;
	root_asked(conn->root, conn->rank, conn->ask.seq);
	conn->begin_id = id;
	conn->begin_ns = clock_mono_ns();
	root_turn(conn->root);
}

static void handle_fail(struct agent_conn *conn, uint32_t id, struct wire_in *body)
{
	char why[PROTO_TEXT_MAX];
	char tag[CKPT_TAG_MAX] = "";
	uint64_t seq = wire_get_u64(body);
	int code = -(int)(wire_get_u32(body) & 0xff);

	wire_get_str(body, why, sizeof(why));
	wire_get_str(body, tag, sizeof(tag));
	root_asked(conn->root, conn->rank, seq);
	/* After PAWL_ETIMEDOUT the rank has neither the grant nor its descriptors. */
	if (code == PAWL_ETIMEDOUT) {
		memset(conn->arena_ids, 0, sizeof(conn->arena_ids));
	}
	root_fail(conn->root, conn->rank, seq, tag, code, why);
}

static void handle_vote(struct agent_conn *conn, uint32_t id, struct wire_in *body)
{
	char why[PROTO_TEXT_MAX];
	uint8_t verdict = wire_get_u8(body);

	wire_get_str(body, why, sizeof(why));
	conn->vote_id = id;
	restore_vote(conn->root, conn, verdict > VERDICT_REFUSED ? VERDICT_REFUSED : verdict, why);
}

static void handle_want(struct agent_conn *conn, uint32_t id, struct wire_in *body)
{
	struct pawl_err err = {0};
	uint64_t seq = wire_get_u64(body);

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
	root_turn(conn->root);
}

/* ---- questions about checkpoints ---- */

/* Fires twice: between the two, the loop reads what the other sockets held when the question
 * came. */
static void question_due(struct loop_timer *timer)
{
	struct agent_conn *conn = timer->user;
	struct agent_question *asked = &conn->asked;

	if (!asked->read) {
		asked->read = true;
		loop_timer_start(conn->agent->loop, timer, clock_mono_ns());
		return;
	}
	asked->answer(conn, asked->id, asked->tag);
}

/* Answers once the other sockets have been read. */
static void put_off(struct agent_conn *conn, uint32_t id, const char *tag,
	void (*answer)(struct agent_conn *conn, uint32_t id, const char *tag))
{
	struct agent_question *asked = &conn->asked;

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
	size_t start = conn_start(conn, PROTO_LISTED, id);
	uint32_t n = 0;

	wire_put_u32(&conn->agent->scratch, 0);
	for (int s = 0; s < LEDGER_SLOTS; s++) {
		if (ledger->slots[s].state == SLOT_COMMITTED && !ledger->slots[s].durable) {
			wire_put_u64(&conn->agent->scratch, ledger->slots[s].step);
			wire_put_str(&conn->agent->scratch, ledger->slots[s].tag);
			n++;
		}
	}
	wire_patch_u32(&conn->agent->scratch, start + PROTO_HEADER, n);
	conn_send(conn, start, NULL, 0);
}

static void handle_list(struct agent_conn *conn, uint32_t id, struct wire_in *body)
{
	put_off(conn, id, "", answer_list);
}

static void answer_find(struct agent_conn *conn, uint32_t id, const char *tag)
{
	root_move_on(conn->root, conn->rank, MOVE_ASKS, NULL);
	restore_find(conn->root, conn, id, tag);
	root_turn(conn->root);
}

static void handle_find(struct agent_conn *conn, uint32_t id, struct wire_in *body)
{
	char tag[CKPT_TAG_MAX] = "";

	wire_get_str(body, tag, sizeof(tag));
	put_off(conn, id, tag, answer_find);
}

/* ---- keeping and removing checkpoints ---- */

/* Whether this host may change the store: only rank 0's host does. Otherwise answers with an
 * error. */
static bool may_change(struct agent_conn *conn, uint32_t id, const char *what, const char *tag)
{
	struct pawl_err err = {0};

	if (conn->root->first == 0) {
		return true;
	}
	pawl_err_set(&err, PAWL_ENOTSUP,
		"%s %s: on rank %u, but of several hosts that of rank 0 has the root", what, tag,
		conn->job_rank);
	conn_reply_error(conn, id, &err);
	return false;
}

/* Accepts a job that is done later; job NULL: there was no memory for it. */
static void take_job(struct agent_conn *conn, uint32_t id, struct persist_job *job)
{
	struct pawl_err err = {0};

	if (!job) {
		pawl_err_set(&err, PAWL_ENOMEM, "the agent has no memory for it");
		conn_reply_error(conn, id, &err);
		return;
	}
	persist_submit(conn->root->persist, job);
	conn->root->owed++;
	conn_reply_ok(conn, id);
}

static void handle_pin(struct agent_conn *conn, uint32_t id, struct wire_in *body)
{
	char tag[CKPT_TAG_MAX] = "";
	struct persist_job *job;

	wire_get_str(body, tag, sizeof(tag));
	if (!may_change(conn, id, "pin", tag)) {
		return;
	}
	job = root_job(conn->root, PERSIST_PIN, tag);
	if (job) {
		job->pinned = wire_get_u8(body);
	}
	take_job(conn, id, job);
}

static void handle_condemn(struct agent_conn *conn, uint32_t id, struct wire_in *body)
{
	char tag[CKPT_TAG_MAX] = "";
	char why[PROTO_TEXT_MAX] = "";
	bool memory = wire_get_u8(body);

	wire_get_str(body, tag, sizeof(tag));
	wire_get_str(body, why, sizeof(why));
	if (tag_valid(tag) &&
		(memory || conn->root->first == 0)) { /* else rank 0's host will see */
		restore_condemn(conn->root, memory, tag, why);
	}
}

static void handle_remove(struct agent_conn *conn, uint32_t id, struct wire_in *body)
{
	char tag[CKPT_TAG_MAX] = "";
	struct persist_job *job;

	wire_get_str(body, tag, sizeof(tag));
	if (!tag_valid(tag)) {
		conn->closing = true;
		return;
	}
	if (!may_change(conn, id, "remove", tag)) {
		return;
	}
	restore_condemn(conn->root, true, tag, "");
	job = root_job(conn->root, PERSIST_REMOVE, tag);
	take_job(conn, id, job);
}

/* ---- the rest ---- */

static void handle_imports(struct agent_conn *conn, uint32_t id, struct wire_in *body)
{
	struct agent *agent = conn->agent;
	uint32_t len;
	const uint8_t *bytes = wire_get_blob(body, &len);
	char *copy = bytes ? malloc(len + 1) : NULL;

	if (!copy) {
		return;
	}
	memcpy(copy, bytes, len);
	copy[len] = '\0';
	free(agent->imports);
	agent->imports = copy;
	if (agent->imported) {
		agent->imported(agent->imported_user);
	}
}

static void handle_staged(struct agent_conn *conn, uint32_t id, struct wire_in *body)
{
	root_staged(conn->root, conn, body);
}

static void handle_restore(struct agent_conn *conn, uint32_t id, struct wire_in *body)
{
	conn->restore_has_step = wire_get_u8(body);
	conn->restore_step = wire_get_u64(body);
	conn->restore_id = id;
	restore_ask(conn->root, conn);
}

static void handle_restored(struct agent_conn *conn, uint32_t id, struct wire_in *body)
{
	restore_done(conn->root, conn);
	root_turn(conn->root);
}

static void handle_notice(struct agent_conn *conn, uint32_t id, struct wire_in *body)
{
	root_stop(conn->root);
}

static void handle_held(struct agent_conn *conn, uint32_t id, struct wire_in *body)
{
	uint8_t question = wire_get_u8(body);

	if (question >= QUESTIONS_N) {
		conn->closing = true;
		return;
	}
	conn->held[question] = true;
	conn->polls[question] = wire_get_u64(body);
	root_agree(conn->root, (enum proto_question)question);
}

static void handle_done(struct agent_conn *conn, uint32_t id, struct wire_in *body)
{
	root_move_on(conn->root, conn->rank, MOVE_ASKS, NULL);
	root_turn(conn->root);
}

static void handle_bye(struct agent_conn *conn, uint32_t id, struct wire_in *body)
{
	char text[PROTO_TEXT_MAX] = "";
	char why[EVENTS_WHY_MAX];

	conn->leaving = wire_get_u8(body);
	wire_get_str(body, text, sizeof(text));
	if (!body->failed && wire_in_left(body) > 0 && wire_get_u8(body)) {
		conn->root->owing = true;
		conn->agent->owing = true;
	}
	/* A rank with an error ends in order, but did not mean to end. */
	if (text[0] != '\0' && conn->root->running) {
		snprintf(why, sizeof(why), "rank %u: %.200s", conn->job_rank, text);
		root_event(conn->root, EVENT_FAILED, why);
	}
	if (conn->leaving) {
		root_move_on(conn->root, conn->rank, MOVE_LEAVES, NULL);
	}
	conn_reply_ok(conn, id);
	root_turn(conn->root);
}

/* Answers `pawl scale`, which is no rank. */
static void handle_scale(struct agent_conn *conn, uint32_t id, struct wire_in *body)
{
	const struct agent *agent = conn->agent;
	struct agent_scale now = {0};
	struct pawl_err err = {0};
	char job[CKPT_JOB_MAX] = "";
	struct wire_out *out = &conn->agent->scratch;
	uint32_t wanted;
	size_t start;
	int rv;

	wire_get_str(body, job, sizeof(job));
	wanted = wire_get_u32(body);
	if (!wire_in_done(body)) {
		conn->closing = true;
		return;
	}
	if (strcmp(job, agent->job) != 0) {
		rv = pawl_err_set(&err, PAWL_ENOENT, "here is job %s, not %s", agent->job, job);
	} else if (agent->scale == NULL) {
		rv = pawl_err_set(&err, PAWL_ENOTSUP,
			"job %s was not started by pawl run: its ranks are others' to start",
			agent->job);
	} else {
		rv = agent->scale(agent->scale_user, wanted, &now, &err);
	}
	if (rv != 0) {
		conn_reply_error(conn, id, &err);
		return;
	}
	start = conn_start(conn, PROTO_SCALED, id);
	wire_put_u32(out, now.alive);
	wire_put_u32(out, now.wanted);
	wire_put_u32(out, now.least);
	wire_put_u32(out, now.most);
	conn_send(conn, start, NULL, 0);
}

/* Answers `pawl ckpt watch`, which is no rank. */
static void handle_state(struct agent_conn *conn, uint32_t id, struct wire_in *body)
{
	struct agent *agent = conn->agent;
	struct wire_out *out = &agent->scratch;
	const struct agent_root *root;
	const struct news_state *trouble;
	struct pawl_err err = {0};
	char job[CKPT_JOB_MAX] = "";
	char path[PATH_MAX] = "";
	uint32_t ranks = 0;
	int newest;
	size_t start;

	wire_get_str(body, job, sizeof(job));
	wire_get_str(body, path, sizeof(path));
	root = wire_in_done(body) && strcmp(job, agent->job) == 0 ? find_root(agent, path) : NULL;
	if (!root) {
		pawl_err_set(&err, PAWL_ENOENT, "job %s does not save to %.256s", job, path);
		conn_reply_error(conn, id, &err);
		return;
	}
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		ranks += root->ranks[r].conn != NULL;
	}
	newest = ledger_newest(&root->ledger);
	trouble = root_trouble(root);
	start = conn_start(conn, PROTO_STATED, id);
	wire_put_u32(out, ranks);
	wire_put_str(out,
		newest >= 0 && !root->ledger.slots[newest].durable ? root->ledger.slots[newest].tag
								   : "");
	wire_put_u32(out, trouble ? (uint32_t)trouble->key : 0);
	wire_put_str(out, trouble ? trouble->text : "");
	conn_send(conn, start, NULL, 0);
}

typedef void frame_fn(struct agent_conn *conn, uint32_t id, struct wire_in *body);

/* Frames of a worker that was welcomed. */
static frame_fn *const handlers[] = {
	[PROTO_BEGIN] = handle_begin,
	[PROTO_STAGED] = handle_staged,
	[PROTO_FAIL] = handle_fail,
	[PROTO_WANT] = handle_want,
	[PROTO_RESTORE] = handle_restore,
	[PROTO_VOTE] = handle_vote,
	[PROTO_RESTORED] = handle_restored,
	[PROTO_LIST] = handle_list,
	[PROTO_PIN] = handle_pin,
	[PROTO_IMPORTS] = handle_imports,
	[PROTO_BYE] = handle_bye,
	[PROTO_NOTICE] = handle_notice,
	[PROTO_HELD] = handle_held,
	[PROTO_DONE] = handle_done,
	[PROTO_CONDEMN] = handle_condemn,
	[PROTO_REMOVE] = handle_remove,
	[PROTO_FIND] = handle_find,
};

#define HANDLERS_N (sizeof(handlers) / sizeof(handlers[0]))

void frame_handle(struct agent_conn *conn, struct proto_frame *frame)
{
	if (frame->type == PROTO_HELLO) {
		handle_hello(conn, frame->id, &frame->body);
	} else if (frame->type == PROTO_SCALE && !conn->root) {
		handle_scale(conn, frame->id, &frame->body);
	} else if (frame->type == PROTO_STATE && !conn->root) {
		handle_state(conn, frame->id, &frame->body);
	} else if (conn->root && conn->welcome && frame->type < HANDLERS_N &&
		handlers[frame->type]) {
		handlers[frame->type](conn, frame->id, &frame->body);
	} else {
		conn->closing =
			true; /* out of turn, nonsense, or of a protocol that did not say so */
	}
}
