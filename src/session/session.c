/* Inside a worker: connecting to the agent, and what is known of saves. See session.h and
 * pawl/ckpt.h. */
#include "session/session.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/times.h"
#include "ckpt/tags.h"
#include "ipc/socket_path.h"
#include "session/spawn.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

bool session_is_forked(const struct pawl_ckpt *ckpt, struct pawl_err *err)
{
	if (ckpt->pid == getpid()) {
		return false;
	}
	pawl_err_set(err, PAWL_EPEER,
		"this process is a fork of the one (pid %d) that opened the checkpointer",
		(int)ckpt->pid);
	return true;
}

/* ---- statuses; called with state ---- */

static struct session_status *find_status(struct pawl_ckpt *ckpt, uint64_t id)
{
	struct session_status *status = &ckpt->statuses[id % PAWL_CKPT_STATUS_KEPT];

	return id != 0 && status->id == id ? status : NULL;
}

/* Returns the agent's number for a save. */
static uint64_t seq_of(const struct pawl_ckpt *ckpt, struct session_status *entry)
{
	if (ckpt->numbered && entry->seq == 0) {
		entry->seq = session_number(ckpt, entry->id);
	}
	return entry->seq;
}

/* Returns the id of the save that the agent has this number for, or 0. */
static uint64_t id_of(const struct pawl_ckpt *ckpt, uint64_t seq)
{
	for (uint32_t i = 0; i < PAWL_CKPT_STATUS_KEPT; i++) {
		if (seq != 0 && ckpt->statuses[i].seq == seq) {
			return ckpt->statuses[i].id;
		}
	}
	return 0;
}

uint64_t session_seq(struct pawl_ckpt *ckpt, uint64_t id)
{
	struct session_status *entry;
	uint64_t seq;

	pthread_mutex_lock(&ckpt->state);
	entry = find_status(ckpt, id);
	seq = entry ? seq_of(ckpt, entry) : 0;
	pthread_mutex_unlock(&ckpt->state);
	return seq;
}

void session_set_seq(struct pawl_ckpt *ckpt, uint64_t id, uint64_t seq)
{
	struct session_status *entry;

	pthread_mutex_lock(&ckpt->state);
	entry = find_status(ckpt, id);
	if (entry) {
		entry->seq = seq;
	}
	pthread_mutex_unlock(&ckpt->state);
}

static void set_failed(struct session_status *entry, int code, const char *why, int part,
	int storage)
{
	if (entry->status.level == PAWL_CKPT_FAILED || entry->status.level == PAWL_CKPT_DURABLE) {
		return;
	}
	entry->status.level = PAWL_CKPT_FAILED;
	entry->status.code = code;
	entry->status.part = part;
	entry->status.storage = storage;
	snprintf(entry->status.why, sizeof(entry->status.why), "%s", why);
}

void session_set_level(struct pawl_ckpt *ckpt, uint64_t id, enum pawl_ckpt_level level)
{
	struct session_status *entry;

	pthread_mutex_lock(&ckpt->state);
	entry = find_status(ckpt, id);
	if (entry && entry->status.level != PAWL_CKPT_FAILED && entry->status.level < level) {
		entry->status.level = level;
		if (level == PAWL_CKPT_DURABLE) {
			entry->status.code = 0; /* earlier trouble with the storage is over */
		}
	}
	pthread_cond_broadcast(&ckpt->changed);
	pthread_mutex_unlock(&ckpt->state);
}

void session_set_failed(struct pawl_ckpt *ckpt, uint64_t id, int code, const char *why, int part,
	int storage)
{
	struct session_status *entry;

	pthread_mutex_lock(&ckpt->state);
	entry = find_status(ckpt, id);
	if (entry) {
		set_failed(entry, code, why, part, storage);
	}
	pthread_cond_broadcast(&ckpt->changed);
	pthread_mutex_unlock(&ckpt->state);
}

/* ---- events from the agent; receiving thread ---- */

static void handle_agent_lost(struct pawl_ckpt *ckpt)
{
	pthread_mutex_lock(&ckpt->state);
	for (uint32_t i = 0; i < PAWL_CKPT_STATUS_KEPT; i++) {
		if (ckpt->statuses[i].id != 0 && !ckpt->statuses[i].superseded) {
			set_failed(&ckpt->statuses[i], PAWL_EPEER,
				"the agent is gone, and what it had not made durable with it", -1,
				-1);
		}
	}
	if (ckpt->questions[QUESTION_DUE].yes_at == UINT64_MAX) {
		ckpt->questions[QUESTION_DUE].yes_pending = false; /* the next agent decides anew */
	} /* otherwise others were told yes, too */
	pthread_cond_broadcast(&ckpt->changed);
	pthread_mutex_unlock(&ckpt->state);
}

static void handle_level(struct pawl_ckpt *ckpt, const struct frame_level *frame)
{
	struct session_status *entry;
	uint64_t id;

	pthread_mutex_lock(&ckpt->state);
	id = id_of(ckpt, frame->seq);
	pthread_mutex_unlock(&ckpt->state);
	if (frame->level == LEVEL_COMMITTED || frame->level == LEVEL_DURABLE) {
		session_set_level(ckpt, id,
			frame->level == LEVEL_COMMITTED ? PAWL_CKPT_COMMITTED : PAWL_CKPT_DURABLE);
	} else if (frame->level == LEVEL_FAILED) {
		session_set_failed(ckpt, id, frame->code, frame->why, -1, -1);
	} else if (frame->level == LEVEL_TROUBLE) {
		pthread_mutex_lock(&ckpt->state);
		entry = find_status(ckpt, id);
		if (entry) {
			entry->status.code = frame->code;
			snprintf(entry->status.why, sizeof(entry->status.why), "%s", frame->why);
		}
		pthread_cond_broadcast(&ckpt->changed);
		pthread_mutex_unlock(&ckpt->state);
	}
}

static void handle_diverged(struct pawl_ckpt *ckpt, const struct frame_diverged *frame)
{
	pthread_mutex_lock(&ckpt->state);
	if (ckpt->diverged_n < SESSION_DIVERGED_MAX) {
		snprintf(ckpt->diverged[ckpt->diverged_n++], CKPT_NAME_MAX, "%s", frame->part);
	}
	pthread_mutex_unlock(&ckpt->state);
}

static void handle_event(void *user, uint16_t type, const union frame_event *event)
{
	struct pawl_ckpt *ckpt = user;

	if (!event) {
		handle_agent_lost(ckpt);
		return;
	}
	switch (type) {
	case PROTO_LEVEL:
		handle_level(ckpt, &event->level);
		break;
	case PROTO_DIVERGED:
		handle_diverged(ckpt, &event->diverged);
		break;
	case PROTO_HOLD:
		session_handle_hold(ckpt, &event->hold);
		break;
	case PROTO_YES_AT:
		session_handle_yes_at(ckpt, &event->yes_at);
		break;
	case PROTO_NOTIFICATION:
		session_notify(ckpt, "%s", event->notification.text);
		break;
	default:
		break; /* a newer agent may say more */
	}
}

/* ---- connecting ---- */

/* Connects to the job's agent, starting one if nobody listens and we know how. */
static int connect_agent(struct pawl_ckpt *ckpt, struct pawl_err *err)
{
	const struct pawl_ckpt_options *options = &ckpt->options;
	int64_t until_ns = clock_mono_ns() + times_ns(TIME_SESSION_SPAWN);
	bool spawned = false;
	int rv;

	for (;;) {
		rv = link_open(&ckpt->link, ckpt->socket, handle_event, ckpt, err);
		if (rv != PAWL_ENOENT || !options->program) {
			return rv;
		}
		if (clock_mono_ns() > until_ns) {
			return pawl_err_prefix(err, rv,
				"the agent was started, but does not listen: the .log beside its "
				"socket may say why");
		}
		if (!spawned) {
			rv = spawn_agent(options->program, options->job, ckpt->socket, err);
			if (rv != 0) {
				return rv;
			}
			spawned = true;
		}
		times_sleep(TIME_SESSION_CONNECT);
	}
}

static int send_hello(struct pawl_ckpt *ckpt, struct pawl_err *err)
{
	const struct pawl_ckpt_options *options = &ckpt->options;
	struct frame_hello hello = {.version = PROTO_VERSION,
		.rank = options->rank,
		.world = options->world,
		.attempt = options->attempt,
		.keep = options->keep,
		.keep_every = options->keep_every,
		.persist_every_ms = options->persist_every_ms,
		.memory_bytes = options->memory_bytes,
		.named = options->named,
		.full_every = options->full_every,
		.first = options->host_first,
		.ranks = options->host_ranks};

	snprintf(hello.job, sizeof(hello.job), "%s", options->job);
	snprintf(hello.root, sizeof(hello.root), "%s", options->root);
	snprintf(hello.hidden, sizeof(hello.hidden), "%s", options->hidden ? options->hidden : "");
	pthread_mutex_lock(&ckpt->state);
	hello.seq = ckpt->numbered ? session_last_number(ckpt) : 0;
	pthread_mutex_unlock(&ckpt->state);
	return link_call(ckpt->link, &ckpt->frame, PROTO_HELLO, &hello, times_ms(TIME_SESSION_OPEN),
		&ckpt->reply, err);
}

int session_connect(struct pawl_ckpt *ckpt, struct pawl_err *err)
{
	int64_t until_ns = clock_mono_ns() + times_ns(TIME_SESSION_OPEN);
	bool again;
	int rv;

	session_drop_arenas(ckpt);
	link_close(ckpt->link);
	session_forget_request(ckpt);
	ckpt->link = NULL;
	ckpt->build.lost = ckpt->build.open && ckpt->build.slot != SESSION_NO_SLOT;
	pthread_mutex_lock(&ckpt->state);
	session_reset_rounds(ckpt);
	for (uint32_t i = 0; i < PAWL_CKPT_STATUS_KEPT; i++) {
		ckpt->statuses[i].seq = 0; /* this agent counts anew */
	}
	pthread_mutex_unlock(&ckpt->state);
	do {
		rv = connect_agent(ckpt, err);
		if (rv != 0) {
			return rv;
		}
		rv = send_hello(ckpt, err);
		if (rv == 0) {
			return 0;
		}
		/* "try again": see change_world in root.c; or this agent was just ending */
		again = rv == PAWL_ETIMEDOUT || !link_alive(ckpt->link);
		link_close(ckpt->link);
		ckpt->link = NULL;
		times_sleep(TIME_SESSION_RETRY);
	} while (again && clock_mono_ns() < until_ns);
	return rv;
}

/* ---- opening and closing ---- */

static int copy_options(struct pawl_ckpt *ckpt, const struct pawl_ckpt_options *options,
	struct pawl_err *err)
{
	char root[PATH_MAX];
	char cwd[PATH_MAX];
	char path[PATH_MAX];
	int rv;

	if (options->root[0] == '/') {
		rv = snprintf(root, sizeof(root), "%s", options->root);
	} else {
		if (!getcwd(cwd, sizeof(cwd))) {
			return pawl_err_sys(err, "root %s: find the working directory",
				options->root);
		}
		rv = snprintf(root, sizeof(root), "%.*s/%s", PATH_MAX / 2, cwd, options->root);
	}
	if (options->root[0] == '\0' || (size_t)rv >= sizeof(root)) {
		return pawl_err_set(err, PAWL_EINVAL, "root %.64s…: empty, or over %d bytes",
			options->root, PATH_MAX - 1);
	}
	if (options->hidden && strlen(options->hidden) >= PATH_MAX) {
		return pawl_err_set(err, PAWL_EINVAL, "hidden directory %.64s…: over %d bytes",
			options->hidden, PATH_MAX - 1);
	}
	if (options->job[0] == '\0' || strlen(options->job) >= CKPT_JOB_MAX) {
		return pawl_err_set(err, PAWL_EINVAL, "job id %.64s…: empty, or over %u bytes",
			options->job, CKPT_JOB_MAX - 1);
	}
	if (options->host_ranks > 0 &&
		(options->rank < options->host_first ||
			options->rank - options->host_first >= options->host_ranks)) {
		return pawl_err_set(err, PAWL_EINVAL, "rank %u is none of %u from %u on",
			options->rank, options->host_ranks, options->host_first);
	}
	if (options->world < 1 || options->rank >= options->world) {
		return pawl_err_set(err, PAWL_EINVAL, "rank %u of %u", options->rank,
			options->world);
	}
	rv = 0;
	if (!options->socket) {
		rv = agent_socket_path(options->job, path, sizeof(path), err);
	}
	if (rv != 0) {
		return rv;
	}
	ckpt->options = *options;
	ckpt->options.host_ranks = options->host_ranks ? options->host_ranks : options->world;
	ckpt->numbered = !options->named || ckpt->options.host_ranks < options->world;
	ckpt->options.root = realpath(root, NULL);
	if (!ckpt->options.root) {
		ckpt->options.root = strdup(root); /* not there yet: made by the agent */
	}
	ckpt->options.job = strdup(options->job);
	ckpt->options.program = options->program ? strdup(options->program) : NULL;
	ckpt->options.hidden = options->hidden ? strdup(options->hidden) : NULL;
	ckpt->socket = strdup(options->socket ? options->socket : path);
	if (!ckpt->options.root || !ckpt->options.job || !ckpt->socket ||
		(options->program && !ckpt->options.program) ||
		(options->hidden && !ckpt->options.hidden)) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a checkpointer");
	}
	return 0;
}

/* Frees all but the connection, also of a session that was made only in part. */
static void free_session(struct pawl_ckpt *ckpt)
{
	session_save_deinit(ckpt);
	snap_close(ckpt->snap);
	link_reply_deinit(&ckpt->reply);
	wire_out_deinit(&ckpt->frame);
	wire_out_deinit(&ckpt->done_frame);
	wire_out_deinit(&ckpt->record);
	pthread_cond_destroy(&ckpt->changed);
	pthread_mutex_destroy(&ckpt->state);
	pthread_mutex_destroy(&ckpt->saving);
	free((void *)ckpt->options.root);
	free((void *)ckpt->options.job);
	free((void *)ckpt->options.program);
	free((void *)ckpt->options.hidden);
	free(ckpt->socket);
	free(ckpt);
}

int pawl_ckpt_open(struct pawl_ckpt **out, const struct pawl_ckpt_options *options,
	struct pawl_err *err)
{
	struct pawl_ckpt *ckpt = calloc(1, sizeof(*ckpt));
	struct snap_options snap = {.threads = 1, .watch = options->watch};
	int rv;

	if (!ckpt) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a checkpointer");
	}
	ckpt->pid = getpid();
	ckpt->opened_ns = clock_wall_ns();
	pthread_mutex_init(&ckpt->saving, NULL);
	pthread_mutex_init(&ckpt->state, NULL);
	clock_cond_init(&ckpt->changed);
	rv = copy_options(ckpt, options, err);
	if (rv == 0) {
		snap.device_threads = snap_device_threads(ckpt->options.host_ranks);
		rv = snap_open(&ckpt->snap, &snap, err);
	}
	if (rv == 0) {
		rv = session_connect(ckpt, err);
	}
	if (rv != 0) {
		free_session(ckpt);
		return rv;
	}
	if (!options->socket && spawn_why_not_detached()) {
		session_notify(ckpt,
			"the agent cannot be relied on to outlive this process: %s. Leaving waits "
			"until the newest save is durable",
			spawn_why_not_detached());
	}
	*out = ckpt;
	return 0;
}

void pawl_ckpt_abandon(struct pawl_ckpt *ckpt, const char *why)
{
	ckpt->abandoned = true;
	snprintf(ckpt->abandoned_why, sizeof(ckpt->abandoned_why), "%s", why);
}

static int flush_own(struct pawl_ckpt *ckpt, int timeout_ms, struct pawl_err *err);

int pawl_ckpt_close(struct pawl_ckpt *ckpt, int timeout_ms, struct pawl_err *err)
{
	struct frame_bye bye;
	int rv = 0;

	if (!ckpt || ckpt->pid != getpid()) {
		return 0; /* a fork's copy shares everything with its parent: nothing of it may be
			     ended or freed */
	}
	session_cancel_request(ckpt, "the session is closed");
	pawl_ckpt_drop(ckpt, "the session is closed");
	if (!ckpt->abandoned || !ckpt->options.named) {
		rv = flush_own(ckpt, timeout_ms, err);
	}
	session_drop_arenas(ckpt);
	if (ckpt->link && link_alive(ckpt->link)) {
		bye = (struct frame_bye){.clean = !ckpt->abandoned || !ckpt->options.named,
			.not_durable = rv != 0};
		snprintf(bye.why, sizeof(bye.why), "%s", ckpt->abandoned_why);
		link_call(ckpt->link, &ckpt->frame, PROTO_BYE, &bye, times_ms(TIME_SESSION_BYE),
			&ckpt->reply, NULL);
	}
	link_close(ckpt->link);
	free_session(ckpt);
	return rv;
}

/* ---- asking ---- */

int pawl_ckpt_status(struct pawl_ckpt *ckpt, uint64_t id, struct pawl_ckpt_status *status,
	struct pawl_err *err)
{
	struct session_status *entry;

	pthread_mutex_lock(&ckpt->state);
	entry = find_status(ckpt, id);
	if (entry) {
		*status = entry->status;
	}
	pthread_mutex_unlock(&ckpt->state);
	return entry ? 0
		     : pawl_err_set(err, PAWL_ENOENT, "save %llu: not known (any more)",
			       (unsigned long long)id);
}

/* Waits, with state held, until id is at level, has failed, or is due. Returns as
 * pawl_ckpt_wait. */
static int wait_level(struct pawl_ckpt *ckpt, uint64_t id, enum pawl_ckpt_level level,
	int64_t due_ns, struct pawl_err *err)
{
	struct timespec due = {.tv_sec = due_ns / NS_PER_S, .tv_nsec = due_ns % NS_PER_S};
	struct session_status *entry;

	for (;;) {
		entry = find_status(ckpt, id);
		if (!entry) {
			return pawl_err_set(err, PAWL_ENOENT, "save %llu: not known (any more)",
				(unsigned long long)id);
		}
		if (entry->status.level >= level) {
			return 0;
		}
		if (entry->status.level == PAWL_CKPT_FAILED) {
			return pawl_err_set(err, PAWL_ECANCELED, "%s", entry->status.why);
		}
		if (entry->superseded && level == PAWL_CKPT_DURABLE) {
			return pawl_err_set(err, PAWL_ECANCELED,
				"superseded by a later save before it became durable");
		}
		if (due_ns == INT64_MAX) {
			pthread_cond_wait(&ckpt->changed, &ckpt->state);
		} else if (pthread_cond_timedwait(&ckpt->changed, &ckpt->state, &due) != 0) {
			return pawl_err_set(err, PAWL_ETIMEDOUT, "timed out%s%s",
				entry->status.code ? ": " : "",
				entry->status.code ? entry->status.why : "");
		}
	}
}

/* Asks the agent to make a save (0: the newest committed) durable out of turn. An agent that hangs
 * is waited for no longer than left_ns. */
static int request_flush(struct pawl_ckpt *ckpt, uint64_t seq, int64_t left_ns,
	struct pawl_err *err)
{
	const struct frame_flush want = {.seq = seq};
	struct wire_out out = {0};
	struct link_reply reply = {0};
	int timeout_ms = times_ms(TIME_SESSION_BEGIN);
	int rv;

	if (left_ns < timeout_ms * NS_PER_MS) {
		timeout_ms = left_ns > 0 ? (int)(left_ns / NS_PER_MS) : 0;
	}
	rv = link_call(ckpt->link, &out, PROTO_FLUSH, &want, timeout_ms, &reply, err);
	wire_out_deinit(&out);
	link_reply_deinit(&reply);
	return rv;
}

/* Has id made durable, and notes if it cannot be any more. PAWL_ETIMEDOUT: the agent does not
 * answer. */
static int flush_save(struct pawl_ckpt *ckpt, uint64_t id, int64_t due_ns, struct pawl_err *err)
{
	uint64_t seq = session_seq(ckpt, id);
	struct session_status *entry;
	int rv;

	if (!ckpt->link || seq == 0) {
		return 0;
	}
	rv = request_flush(ckpt, seq, due_ns - clock_mono_ns(), err);
	pthread_mutex_lock(&ckpt->state);
	entry = find_status(ckpt, id);
	if (entry && rv == PAWL_ECANCELED) {
		entry->superseded = true;
	}
	pthread_mutex_unlock(&ckpt->state);
	return rv;
}

/* Saves by tag: a rank that waits for a save has nothing more to add to it. */
static void send_done(struct pawl_ckpt *ckpt)
{
	struct wire_out out = {0};

	if (ckpt->options.named && ckpt->link) {
		link_send(ckpt->link, &out, PROTO_DONE, NULL, NULL);
		wire_out_deinit(&out);
	}
}

int pawl_ckpt_wait(struct pawl_ckpt *ckpt, uint64_t id, enum pawl_ckpt_level level, int timeout_ms,
	struct pawl_err *err)
{
	int64_t due_ns = timeout_ms < 0 ? INT64_MAX : clock_mono_ns() + timeout_ms * NS_PER_MS;
	struct pawl_err why;
	bool silent;
	int rv;

	if (session_is_forked(ckpt, err)) {
		return PAWL_EPEER;
	}
	if (level >= PAWL_CKPT_COMMITTED) {
		send_done(ckpt);
	}
	pthread_mutex_lock(&ckpt->state);
	rv = wait_level(ckpt, id, level < PAWL_CKPT_COMMITTED ? level : PAWL_CKPT_COMMITTED, due_ns,
		err);
	pthread_mutex_unlock(&ckpt->state);
	if (rv != 0 || level != PAWL_CKPT_DURABLE) {
		return rv;
	}
	/* asked at each call: an attempt may have failed meanwhile */
	silent = flush_save(ckpt, id, due_ns, &why) == PAWL_ETIMEDOUT;
	pthread_mutex_lock(&ckpt->state);
	rv = wait_level(ckpt, id, level, due_ns, err);
	pthread_mutex_unlock(&ckpt->state);
	if (rv == PAWL_ETIMEDOUT && silent && err != NULL) {
		*err = why;
	}
	return rv;
}

/* Returns the newest save, from at down, that did not fail and is all begun; 0 if there is none. */
static uint64_t newest_good(struct pawl_ckpt *ckpt, uint64_t at)
{
	uint64_t good = 0;

	pthread_mutex_lock(&ckpt->state);
	for (uint64_t id = at; id > 0 && find_status(ckpt, id) && good == 0; id--) {
		bool failed = find_status(ckpt, id)->status.level == PAWL_CKPT_FAILED;

		good = failed || id == ckpt->building_id ? 0 : id;
	}
	pthread_mutex_unlock(&ckpt->state);
	return good;
}

/* Replaces a timeout by the storage's error, if there is one, since that says more. */
static int prefer_storage_error(struct pawl_ckpt *ckpt, uint64_t id, struct pawl_err *err)
{
	const struct session_status *entry;
	int rv = PAWL_ETIMEDOUT;

	pthread_mutex_lock(&ckpt->state);
	entry = find_status(ckpt, id);
	if (entry && entry->status.code != 0) {
		rv = pawl_err_set(err, entry->status.code, "%s", entry->status.why);
	}
	pthread_mutex_unlock(&ckpt->state);
	return rv;
}

/* Waits until the newest save of this session is durable. */
static int flush_own(struct pawl_ckpt *ckpt, int timeout_ms, struct pawl_err *err)
{
	int64_t due_ns = timeout_ms < 0 ? INT64_MAX : clock_mono_ns() + timeout_ms * NS_PER_MS;
	uint64_t id = newest_good(ckpt, ckpt->last_id);
	int rv = 0;

	while (id != 0) {
		int64_t left_ns = due_ns == INT64_MAX ? 0 : due_ns - clock_mono_ns();

		rv = pawl_ckpt_wait(ckpt, id, PAWL_CKPT_DURABLE,
			timeout_ms < 0 ? -1 : (int)(left_ns > 0 ? left_ns / NS_PER_MS : 0), err);
		if (rv != PAWL_ECANCELED) {
			return rv == PAWL_ETIMEDOUT ? prefer_storage_error(ckpt, id, err) : rv;
		}
		id = newest_good(ckpt, id - 1); /* save id failed: try the one before */
	}
	return rv;
}

/* Makes durable what earlier processes have left in the agent's memory, if that is still there. */
static int flush_earlier(struct pawl_ckpt *ckpt, int timeout_ms, struct pawl_err *err)
{
	int64_t due_ns = timeout_ms < 0 ? INT64_MAX : clock_mono_ns() + timeout_ms * NS_PER_MS;
	int rv = PAWL_EBUSY;

	while (rv == PAWL_EBUSY && ckpt->link) {
		int64_t left_ns = due_ns - clock_mono_ns();

		if (left_ns <= 0) {
			return PAWL_ETIMEDOUT; /* err says what is waited for */
		}
		rv = request_flush(ckpt, 0, left_ns, err);
		if (rv == PAWL_EBUSY) {
			times_sleep(TIME_SESSION_PAUSE);
		}
	}
	return rv == PAWL_EBUSY || rv == PAWL_EPEER
		? pawl_err_set(err, PAWL_ECANCELED, "the agent is gone, and its memory with it")
		: rv;
}

int pawl_ckpt_flush(struct pawl_ckpt *ckpt, int timeout_ms, struct pawl_err *err)
{
	if (session_is_forked(ckpt, err)) {
		return PAWL_EPEER;
	}
	return newest_good(ckpt, ckpt->last_id) != 0 ? flush_own(ckpt, timeout_ms, err)
						     : flush_earlier(ckpt, timeout_ms, err);
}

/* Makes a call about a tag; what names it in errors. The caller deinits the reply. */
static int call_simple(struct pawl_ckpt *ckpt, enum proto_type type, const void *body,
	const char *what, struct link_reply *reply, struct pawl_err *err)
{
	struct wire_out out = {0};
	int rv;

	if (session_is_forked(ckpt, err) || !ckpt->link) {
		return pawl_err_set(err, PAWL_EPEER, "%s: no agent", what);
	}
	rv = link_call(ckpt->link, &out, type, body, times_ms(TIME_SESSION_BEGIN), reply, err);
	wire_out_deinit(&out);
	return rv;
}

static int check_tag(const char *tag, struct pawl_err *err)
{
	return tag_valid(tag) ? 0 : pawl_err_set(err, PAWL_EINVAL, "'%.64s' cannot be a tag", tag);
}

int pawl_ckpt_pin(struct pawl_ckpt *ckpt, const char *tag, bool pinned, struct pawl_err *err)
{
	struct frame_pin pin = {.pinned = pinned};
	struct link_reply reply = {0};
	int rv = check_tag(tag, err);

	if (rv == 0) {
		snprintf(pin.tag, sizeof(pin.tag), "%s", tag);
		rv = call_simple(ckpt, PROTO_PIN, &pin, tag, &reply, err);
		link_reply_deinit(&reply);
	}
	return rv;
}

int pawl_ckpt_remove(struct pawl_ckpt *ckpt, const char *tag, struct pawl_err *err)
{
	struct frame_tag body;
	struct link_reply reply = {0};
	int rv = check_tag(tag, err);

	if (rv == 0) {
		snprintf(body.tag, sizeof(body.tag), "%s", tag);
		rv = call_simple(ckpt, PROTO_REMOVE, &body, tag, &reply, err);
		link_reply_deinit(&reply);
	}
	return rv;
}

int pawl_ckpt_pending(struct pawl_ckpt *ckpt,
	struct pawl_ckpt_pending pending[PAWL_CKPT_PENDING_MAX], uint32_t *n, struct pawl_err *err)
{
	struct link_reply reply = {0};
	struct frame_listed listed;
	int rv = call_simple(ckpt, PROTO_LIST, NULL, "list", &reply, err);

	*n = 0;
	if (rv == 0) {
		rv = link_reply_get(&reply, PROTO_LISTED, &listed, sizeof(listed), err);
	}
	for (uint32_t i = 0; rv == 0 && i < listed.pending_n; i++) {
		pending[i].step = listed.pending[i].step;
		snprintf(pending[i].tag, sizeof(pending[i].tag), "%s", listed.pending[i].tag);
		*n = i + 1;
	}
	link_reply_deinit(&reply);
	return rv;
}

int pawl_ckpt_report_imports(struct pawl_ckpt *ckpt, const char *names, size_t len_bytes,
	struct pawl_err *err)
{
	const struct frame_imports imports = {
		.names = {.bytes = (const uint8_t *)names, .len_bytes = (uint32_t)len_bytes}};
	struct wire_out out = {0};
	int rv;

	if (session_is_forked(ckpt, err) || !ckpt->link) {
		return PAWL_EPEER;
	}
	rv = link_send(ckpt->link, &out, PROTO_IMPORTS, &imports, err);
	wire_out_deinit(&out);
	return rv;
}

uint32_t pawl_ckpt_diverged(struct pawl_ckpt *ckpt, char *buf, size_t cap_bytes)
{
	size_t len = 0;
	uint32_t n;

	pthread_mutex_lock(&ckpt->state);
	n = ckpt->diverged_n;
	for (uint32_t i = 0; i < n && len < cap_bytes; i++) {
		len += (size_t)snprintf(buf + len, cap_bytes - len, "%s\n", ckpt->diverged[i]);
	}
	pthread_mutex_unlock(&ckpt->state);
	return n;
}

bool pawl_ckpt_can_watch(struct pawl_ckpt *ckpt, const char **why_not)
{
	return snap_best(ckpt->snap, why_not) == SNAP_WATCHED;
}
