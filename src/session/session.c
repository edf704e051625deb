/* Inside a worker: opening and closing a session, waiting for saves, and calls that ask the agent
 * something. See session.h and pawl/ckpt.h. */
#include "session/session.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"
#include "ckpt/tags.h"
#include "ipc/socket_path.h"
#include "session/spawn.h"
#include "store/store.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- opening and closing ---- */

static int check_ranks(const struct pawl_ckpt_options *options, struct pawl_err *err)
{
	if (options->host_ranks > 0 &&
		(options->rank < options->host_first ||
			options->rank - options->host_first >= options->host_ranks)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"rank %u is not on this host, which has %u ranks from rank %u on",
			options->rank, options->host_ranks, options->host_first);
	}
	if (options->world < 1 || options->rank >= options->world) {
		return pawl_err_set(err, PAWL_EINVAL, "rank %u of %u", options->rank,
			options->world);
	}
	if (options->replicas > PAWL_CKPT_REPLICAS_MAX &&
		options->replicas != PAWL_CKPT_REPLICAS_DEFAULT) {
		return pawl_err_set(err, PAWL_EINVAL, "%u replicas: at most %u are possible",
			options->replicas, PAWL_CKPT_REPLICAS_MAX);
	}
	if (options->parity && options->replicas > PAWL_CKPT_PARITY_MAX &&
		options->replicas != PAWL_CKPT_REPLICAS_DEFAULT) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%u replicas with parity: at most %u are possible", options->replicas,
			PAWL_CKPT_PARITY_MAX);
	}
	return 0;
}

static int copy_options(struct pawl_ckpt *ckpt, const struct pawl_ckpt_options *options,
	struct pawl_err *err)
{
	char root[PATH_MAX];
	char cwd[PATH_MAX];
	char path[PATH_MAX];
	int rv;

	if (store_is_bucket(options->root)) {
		rv = store_bucket_name(options->root, root, sizeof(root), err);
		if (rv != 0) {
			return pawl_err_prefix(err, rv, "root");
		}
	} else if (options->root[0] == '/') {
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
	rv = check_ranks(options, err);
	if (rv == 0 && !options->socket) {
		rv = agent_socket_path(options->job, path, sizeof(path), err);
	}
	if (rv != 0) {
		return rv;
	}
	ckpt->options = *options;
	ckpt->options.host_ranks = options->host_ranks ? options->host_ranks : options->world;
	ckpt->numbered = !options->named || ckpt->options.host_ranks < options->world;
	ckpt->options.root = store_is_bucket(root) ? NULL : realpath(root, NULL);
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

/* Frees all but the connection, also of a session that was only partly opened. */
static void free_session(struct pawl_ckpt *ckpt)
{
	session_save_deinit(ckpt);
	snap_close(ckpt->snap);
	link_reply_deinit(&ckpt->reply);
	wire_out_deinit(&ckpt->frame);
	wire_out_deinit(&ckpt->staged.frame);
	wire_out_deinit(&ckpt->staged.record);
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
			"the agent may end with this process: %s. So the process waits at its end "
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
		return 0; /* a fork's copy shares all with its parent: end and free nothing */
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

/* ---- waiting for saves ---- */

/* Waits until id is at level, has failed, or the time is up. Returns as pawl_ckpt_wait does. Called
 * with state. */
static int wait_level(struct pawl_ckpt *ckpt, uint64_t id, enum pawl_ckpt_level level,
	int64_t due_ns, struct pawl_err *err)
{
	struct timespec due = {.tv_sec = due_ns / NS_PER_S, .tv_nsec = due_ns % NS_PER_S};
	struct session_status *entry;

	for (;;) {
		entry = session_find_status(ckpt, id);
		if (!entry) {
			return pawl_err_set(err, PAWL_ENOENT,
				"save %llu: unknown, or no longer remembered",
				(unsigned long long)id);
		}
		if (entry->status.level >= level) {
			return 0;
		}
		if (entry->status.level == PAWL_CKPT_FAILED) {
			return pawl_err_set(err, PAWL_ECANCELED, "%s", entry->status.why);
		}
		if (entry->superseded && level > PAWL_CKPT_COMMITTED) {
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

/* Asks the agent to make a save (0: the newest committed) durable now. Waits at most left_ns for an
 * agent that hangs. */
static int request_flush(struct link *link, uint64_t seq, int64_t left_ns, struct pawl_err *err)
{
	const struct frame_flush flush = {.seq = seq};
	struct wire_out out = {0};
	struct link_reply reply = {0};
	int timeout_ms = times_ms(TIME_SESSION_BEGIN);
	int rv;

	if (left_ns < timeout_ms * NS_PER_MS) {
		timeout_ms = left_ns > 0 ? (int)(left_ns / NS_PER_MS) : 0;
	}
	rv = link_call(link, &out, PROTO_FLUSH, &flush, timeout_ms, &reply, err);
	wire_out_deinit(&out);
	link_reply_deinit(&reply);
	return rv;
}

/* Asks for save id to be made durable now, and records if that is no longer possible.
 * PAWL_ETIMEDOUT: the agent does not answer. */
static int flush_save(struct pawl_ckpt *ckpt, uint64_t id, int64_t due_ns, struct pawl_err *err)
{
	uint64_t seq = session_seq(ckpt, id);
	struct link *link = seq != 0 ? session_link(ckpt) : NULL;
	struct session_status *entry;
	int rv;

	if (!link) {
		return 0;
	}
	rv = request_flush(link, seq, due_ns - clock_mono_ns(), err);
	link_release(link);
	pthread_mutex_lock(&ckpt->state);
	entry = session_find_status(ckpt, id);
	if (entry && rv == PAWL_ECANCELED) {
		entry->superseded = true;
	}
	pthread_mutex_unlock(&ckpt->state);
	return rv;
}

/* Saves by tag: reports that this rank, which waits for a save, has nothing more to add to it. */
static void send_done(struct pawl_ckpt *ckpt)
{
	struct wire_out out = {0};

	if (ckpt->options.named) {
		session_send(ckpt, &out, PROTO_DONE, NULL, NULL);
		wire_out_deinit(&out);
	}
}

/* Whether other hosts may keep replicas. A wait for them ends even if they cannot: every save of
 * ranks that span hosts is made durable, or superseded. */
static bool may_replicate(const struct pawl_ckpt *ckpt)
{
	return ckpt->options.replicas > 0 && ckpt->options.host_ranks < ckpt->options.world;
}

int pawl_ckpt_wait(struct pawl_ckpt *ckpt, uint64_t id, enum pawl_ckpt_level level, int timeout_ms,
	struct pawl_err *err)
{
	int64_t due_ns = timeout_ms < 0 ? INT64_MAX : clock_mono_ns() + timeout_ms * NS_PER_MS;
	struct pawl_err why;
	bool no_answer;
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
	if (rv != 0 || level <= PAWL_CKPT_COMMITTED) {
		return rv;
	}
	/* requested at each call: an earlier attempt may have failed */
	no_answer = (level == PAWL_CKPT_DURABLE || !may_replicate(ckpt)) &&
		flush_save(ckpt, id, due_ns, &why) == PAWL_ETIMEDOUT;
	pthread_mutex_lock(&ckpt->state);
	rv = wait_level(ckpt, id, level, due_ns, err);
	pthread_mutex_unlock(&ckpt->state);
	if (rv == PAWL_ETIMEDOUT && no_answer && err != NULL) {
		*err = why;
	}
	return rv;
}

/* Returns the newest save, from at down (0: from the last save), that did not fail and is not being
 * put together; 0 if there is none. */
static uint64_t newest_good(struct pawl_ckpt *ckpt, uint64_t at)
{
	uint64_t good = 0;

	pthread_mutex_lock(&ckpt->state);
	for (uint64_t id = at != 0 ? at : ckpt->saves.last_id;
		id > 0 && session_find_status(ckpt, id) && good == 0; id--) {
		bool failed = session_find_status(ckpt, id)->status.level == PAWL_CKPT_FAILED;

		good = failed || id == ckpt->saves.building_id ? 0 : id;
	}
	pthread_mutex_unlock(&ckpt->state);
	return good;
}

/* Replaces a timeout by the storage's error, if there is one: that error names the cause. */
static int prefer_storage_error(struct pawl_ckpt *ckpt, uint64_t id, struct pawl_err *err)
{
	const struct session_status *entry;
	int rv = PAWL_ETIMEDOUT;

	pthread_mutex_lock(&ckpt->state);
	entry = session_find_status(ckpt, id);
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
	uint64_t id = newest_good(ckpt, 0);
	int rv = 0;

	while (id != 0) {
		int64_t left_ns = due_ns == INT64_MAX ? 0 : due_ns - clock_mono_ns();

		rv = pawl_ckpt_wait(ckpt, id, PAWL_CKPT_DURABLE,
			timeout_ms < 0 ? -1 : (int)(left_ns > 0 ? left_ns / NS_PER_MS : 0), err);
		if (rv != PAWL_ECANCELED) {
			return rv == PAWL_ETIMEDOUT ? prefer_storage_error(ckpt, id, err) : rv;
		}
		id = id > 1 ? newest_good(ckpt, id - 1) : 0; /* id failed: try the previous one */
	}
	return rv;
}

/* Makes durable what earlier processes left in the agent's memory, if it is still there. */
static int flush_earlier(struct pawl_ckpt *ckpt, int timeout_ms, struct pawl_err *err)
{
	int64_t due_ns = timeout_ms < 0 ? INT64_MAX : clock_mono_ns() + timeout_ms * NS_PER_MS;
	struct link *link = session_link(ckpt);
	int rv = PAWL_EBUSY;

	while (rv == PAWL_EBUSY && link) {
		int64_t left_ns = due_ns - clock_mono_ns();

		if (left_ns <= 0) {
			link_release(link);
			return PAWL_ETIMEDOUT; /* err names the reason for the wait */
		}
		rv = request_flush(link, 0, left_ns, err);
		if (rv == PAWL_EBUSY) {
			times_sleep(TIME_SESSION_PAUSE);
		}
	}
	if (link) {
		link_release(link);
	}
	return rv == PAWL_EBUSY || rv == PAWL_EPEER
		? pawl_err_set(err, PAWL_ECANCELED,
			  "the agent is gone, and with it the saves in its memory")
		: rv;
}

int pawl_ckpt_flush(struct pawl_ckpt *ckpt, int timeout_ms, struct pawl_err *err)
{
	if (session_is_forked(ckpt, err)) {
		return PAWL_EPEER;
	}
	return newest_good(ckpt, 0) != 0 ? flush_own(ckpt, timeout_ms, err)
					 : flush_earlier(ckpt, timeout_ms, err);
}

/* Makes a call that fails without an agent. what: name of the tag or call in errors. The caller
 * deinits the reply. */
static int call_simple(struct pawl_ckpt *ckpt, enum proto_type type, const void *body,
	const char *what, struct link_reply *reply, struct pawl_err *err)
{
	struct wire_out out = {0};
	struct link *link;
	int rv;

	if (session_is_forked(ckpt, err)) {
		return PAWL_EPEER;
	}
	link = session_link(ckpt);
	if (!link) {
		return pawl_err_set(err, PAWL_EPEER, "%s: no agent", what);
	}
	rv = link_call(link, &out, type, body, times_ms(TIME_SESSION_BEGIN), reply, err);
	link_release(link);
	wire_out_deinit(&out);
	return rv;
}

static int check_tag(const char *tag, struct pawl_err *err)
{
	return tag_valid(tag) ? 0
			      : pawl_err_set(err, PAWL_EINVAL, "'%.64s' is not a valid tag", tag);
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

	if (session_is_forked(ckpt, err)) {
		return PAWL_EPEER;
	}
	rv = session_send(ckpt, &out, PROTO_IMPORTS, &imports, err);
	wire_out_deinit(&out);
	return rv;
}

uint32_t pawl_ckpt_diverged(struct pawl_ckpt *ckpt, char *buf, size_t cap_bytes)
{
	size_t len = 0;
	uint32_t n;

	pthread_mutex_lock(&ckpt->state);
	n = ckpt->diverged.n;
	for (uint32_t i = 0; i < n && len < cap_bytes; i++) {
		len += (size_t)snprintf(buf + len, cap_bytes - len, "%s\n",
			ckpt->diverged.names[i]);
	}
	pthread_mutex_unlock(&ckpt->state);
	return n;
}

bool pawl_ckpt_can_watch(struct pawl_ckpt *ckpt, const char **why_not)
{
	return snap_best(ckpt->snap, why_not) == SNAP_WATCHED;
}
