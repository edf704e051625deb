/* Answers the requests of commands: see daemon_impl.h and sched_msg.h. */
#include "daemon/daemon_impl.h"

#include "base/clock.h"
#include "base/err.h"
#include "engine/submission.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Result of a list, or of a search. */
struct listing {
	struct wire_out *rows; /* encoded rows; NULL: they are only counted */
	uint32_t n;
	struct sched_msg_job found; /* the last row */
};

/* ---- jobs as rows ---- */

static int64_t wall_of(const struct daemon *d, int64_t core_ns)
{
	return clock_wall_ns() - daemon_now_ns(d) + core_ns;
}

static void format_place(const struct daemon *d, const struct core_placement *place, char *text)
{
	size_t len = 0;

	text[0] = '\0';
	for (uint32_t i = 0; i < place->n && len < SCHED_MSG_PLACE_MAX; i++) {
		const struct core_node *node = core_node_find(d->core, place->entries[i].node);

		len += (size_t)snprintf(text + len, SCHED_MSG_PLACE_MAX - len, "%s%s:%u",
			i > 0 ? " " : "", node ? node->offer.name : "?",
			place->entries[i].replicas);
	}
}

void daemon_describe(const struct daemon *d, const struct core_job *job, struct sched_msg_job *row)
{
	bool runs = job->state == CORE_RUNNING || job->state == CORE_RESCALING;
	int64_t now_ns = daemon_now_ns(d);
	struct core_outlook outlook;

	core_outlook_now(d->core, job, &outlook);
	*row = (struct sched_msg_job){.id = job->id,
		.owner = job->request.owner,
		.priority = job->request.priority,
		.replicas = job->current.replicas,
		.least = job->request.least,
		.most = job->request.most,
		.submitted_ns = wall_of(d, job->submitted_ns),
		.since_ns = wall_of(d, job->since_ns),
		.ran_s = (double)(job->ran_ns + (runs ? now_ns - job->counted_ns : 0)) / NS_PER_S,
		.restarts = job->restarts,
		.failures = job->failures,
		.exit_code = job->exit_code,
		.goodput = outlook.now,
		.left_s = outlook.left_s,
		.over = job->state >= CORE_DONE};
	snprintf(row->name, sizeof(row->name), "%s", job->request.name);
	snprintf(row->queue, sizeof(row->queue), "%s", job->request.queue);
	snprintf(row->state, sizeof(row->state), "%s", core_state_name(job->state));
	snprintf(row->reason, sizeof(row->reason), "%s", core_reason_text(job->reason));
	format_place(d, &job->current, row->place);
}

/* Adds listing->found to the rows. */
static void add_row(struct listing *listing)
{
	listing->n++;
	if (listing->rows) {
		frame_layout_encode(listing->rows, &sched_msg_job_layout, &listing->found);
	}
}

static void add_ended(void *user, const struct database_job *job)
{
	struct listing *listing = user;
	struct sched_msg_job *row = &listing->found;

	*row = (struct sched_msg_job){.id = job->id,
		.owner = job->owner,
		.priority = job->priority,
		.least = job->least,
		.most = job->most,
		.submitted_ns = job->submitted_ns,
		.since_ns = job->since_ns,
		.ran_s = (double)job->ran_ns / NS_PER_S,
		.restarts = job->restarts,
		.failures = job->failures,
		.exit_code = job->exit_code,
		.left_s = -1,
		.over = true};
	snprintf(row->name, sizeof(row->name), "%s", job->name);
	snprintf(row->queue, sizeof(row->queue), "%s", job->queue);
	snprintf(row->state, sizeof(row->state), "%s", job->state);
	snprintf(row->reason, sizeof(row->reason), "%s", job->reason);
	add_row(listing);
}

/* ---- finding a job ---- */

/* Returns the number; 0: text is a name. */
static uint64_t read_number(const char *text)
{
	char *end;
	uint64_t id = strtoull(text, &end, 10);

	return text[0] >= '0' && text[0] <= '9' && *end == '\0' ? id : 0;
}

/* Returns the newest job of that name, or number, that is not over; NULL: there is none. */
static const struct core_job *find_live(const struct daemon *d, const char *selector)
{
	const struct core_job *const *jobs;
	uint32_t n = core_jobs(d->core, &jobs);
	uint64_t id = read_number(selector);
	const struct core_job *found = NULL;

	for (uint32_t i = 0; i < n; i++) {
		if (jobs[i]->state < CORE_DONE &&
			(id > 0 ? jobs[i]->id == id
				: strcmp(jobs[i]->request.name, selector) == 0)) {
			found = jobs[i];
		}
	}
	return found;
}

/* Finds a job, live or over, as a row. */
static int find_job(struct daemon *d, const char *selector, struct sched_msg_job *row,
	struct pawl_err *err)
{
	const struct core_job *job = find_live(d, selector);
	struct listing listing = {0};
	uint64_t id = read_number(selector);
	const struct database_query query = {.id = id, .name = id > 0 ? NULL : selector, .most = 1};
	int rv;

	if (selector[0] == '\0') {
		return pawl_err_set(err, PAWL_EINVAL, "no job is named: give a number or a name");
	}
	if (job) {
		daemon_describe(d, job, row);
		return 0;
	}
	rv = sched_database_each_ended(d->database, &query, add_ended, &listing, err);
	if (rv == 0 && listing.n == 0) {
		rv = pawl_err_set(err, PAWL_ENOENT, "there is no job %s; `pawl ls -a` shows all",
			selector);
	}
	if (rv == 0) {
		*row = listing.found;
	}
	return rv;
}

static const char *name_user(uint32_t uid)
{
	const struct passwd *user = getpwuid(uid);

	return user ? user->pw_name : "another";
}

/* Refuses all users but the job's owner, root, and the scheduler's own. */
static int check_owner(uint32_t uid, const struct sched_msg_job *row, struct pawl_err *err)
{
	if (uid == row->owner || uid == 0 || uid == geteuid()) {
		return 0;
	}
	return pawl_err_set(err, PAWL_EINVAL,
		"job %llu is of user %s: only that user, or the one that runs the scheduler, may "
		"do that",
		(unsigned long long)row->id, name_user(row->owner));
}

/* ---- answers ---- */

/* Adds a reply to what is to be sent. reply: see sched_msg_encode. */
static void send_reply(struct daemon_client *client, const struct proto_frame *frame,
	enum sched_msg_type type, const void *reply)
{
	size_t start = proto_start(&client->out, (enum proto_type)type, frame->id);

	sched_msg_encode(&client->out, type, reply);
	proto_end(&client->out, start);
}

static void answer_error(struct daemon_client *client, const struct proto_frame *frame,
	const struct pawl_err *err)
{
	struct sched_msg_error reply = {.code = err->code};

	snprintf(reply.text, sizeof(reply.text), "%s", err->msg);
	send_reply(client, frame, SCHED_MSG_ERROR, &reply);
}

static void answer_done(struct daemon_client *client, const struct proto_frame *frame, uint64_t job)
{
	send_reply(client, frame, SCHED_MSG_DONE, &(struct sched_msg_done){.job = job});
}

/* Asks the engine for its remark on a job (0: on all). */
static void get_remark(const struct daemon *d, uint64_t job, char text[SCHED_MSG_REMARK_MAX])
{
	text[0] = '\0';
	if (d->engine->remark) {
		d->engine->remark(d->engine_self, job, text, SCHED_MSG_REMARK_MAX);
	}
}

static int answer_list(struct daemon_client *client, const struct proto_frame *frame,
	const struct sched_msg_list *request, struct pawl_err *err)
{
	struct daemon *d = client->daemon;
	struct wire_out rows = {NULL};
	struct listing listing = {.rows = &rows};
	struct sched_msg_jobs reply;
	const struct core_job *const *jobs;
	uint32_t n = core_jobs(d->core, &jobs);
	const struct database_query query = {
		.most = request->most < ENDED_SHOWN ? request->most : ENDED_SHOWN};
	uint64_t ended = 0;
	uint32_t live;
	int rv = 0;

	for (uint32_t i = 0; i < n && listing.n < SCHED_MSG_JOBS_MAX; i++) {
		if (jobs[i]->state < CORE_DONE) {
			daemon_describe(d, jobs[i], &listing.found);
			add_row(&listing);
		}
	}
	live = listing.n;
	if (request->ended) {
		rv = sched_database_count_ended(d->database, &ended, err);
		rv = rv == 0
			? sched_database_each_ended(d->database, &query, add_ended, &listing, err)
			: rv;
	}
	if (rv == 0 && rows.failed) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory for a list of %u jobs", listing.n);
	}
	if (rv == 0) {
		reply.jobs = (struct frame_rows){rows.bytes, (uint32_t)rows.len_bytes, listing.n};
		reply.left_out = (uint32_t)(ended - (listing.n - live));
		get_remark(d, 0, reply.remark);
		send_reply(client, frame, SCHED_MSG_JOBS, &reply);
	}
	wire_out_deinit(&rows);
	return rv;
}

/* Finds the home directory of the user that the job runs as. */
static void find_home(const struct daemon *d, const struct sched_msg_job *job, char home[PATH_MAX])
{
	const char *ours = getenv("HOME");
	const struct passwd *user;

	if (d->options->pools) {
		snprintf(home, PATH_MAX, "%s", ours ? ours : "");
		return;
	}
	user = getpwuid(geteuid() == 0 ? job->owner : geteuid());
	snprintf(home, PATH_MAX, "%s", user ? user->pw_dir : "/");
}

/* Finds the directory that the job runs in; "": not known. */
static void find_workdir(const struct submission *submission, const char *home, char dir[PATH_MAX])
{
	struct remarks *remarks = calloc(1, sizeof(*remarks));
	struct sched_spec spec = {0};
	const char *workdir = NULL;

	dir[0] = '\0';
	if (remarks && submission->cwd && submission_spec(submission, &spec, remarks, NULL) == 0) {
		workdir = spec.workdir ? spec.workdir : submission->cwd;
	}
	if (workdir && submission_path(home, submission->cwd, workdir, dir, NULL) != 0) {
		dir[0] = '\0';
	}
	sched_spec_deinit(&spec);
	free(remarks);
}

int daemon_show(struct daemon *d, const char *selector, struct sched_msg_shown *shown,
	struct pawl_err *err)
{
	struct submission submission = {0};
	struct core_outlook outlook = {.left_s = -1};
	const struct core_job *job;
	uint8_t *bytes = NULL;
	size_t len_bytes = 0;
	int rv = find_job(d, selector, &shown->job, err);

	if (rv != 0) {
		return rv;
	}
	shown->explanation[0] = shown->remark[0] = '\0';
	job = shown->job.over ? NULL : core_job_find(d->core, shown->job.id);
	if (job) {
		core_explain(d->core, job->id, daemon_now_ns(d), shown->explanation, NULL);
		core_outlook_full(d->core, job, &outlook);
		get_remark(d, job->id, shown->remark);
	}
	if (sched_database_spec(d->database, shown->job.id, &bytes, &len_bytes, NULL) == 0) {
		submission_decode(&submission, bytes, len_bytes,
			NULL); /* empty, if it is not ours */
	}
	snprintf(shown->log_dir, sizeof(shown->log_dir), "%s/jobs/%llu", daemon_shared_dir(d),
		(unsigned long long)shown->job.id);
	find_home(d, &shown->job, shown->home);
	find_workdir(&submission, shown->home, shown->cwd);
	shown->more = outlook.more;
	shown->fewer = outlook.fewer;
	submission_deinit(&submission);
	free(bytes);
	return 0;
}

static int answer_show(struct daemon_client *client, const struct proto_frame *frame,
	const struct sched_msg_selector *request, struct pawl_err *err)
{
	struct sched_msg_shown shown;
	int rv = daemon_show(client->daemon, request->job, &shown, err);

	if (rv == 0) {
		send_reply(client, frame, SCHED_MSG_SHOWN, &shown);
	}
	return rv;
}

/* Finds a job that is not over, and that the user may change. */
static int find_owned(struct daemon *d, uint32_t uid, const char *selector, uint64_t *job,
	struct pawl_err *err)
{
	struct sched_msg_job row;
	int rv = find_job(d, selector, &row, err);

	rv = rv == 0 ? check_owner(uid, &row, err) : rv;
	if (rv == 0 && row.over) {
		rv = pawl_err_set(err, PAWL_EINVAL, "job %llu is over: %s",
			(unsigned long long)row.id, row.state);
	}
	if (rv == 0) {
		*job = row.id;
	}
	return rv;
}

int daemon_command(struct daemon *d, uint32_t uid, const char *selector, enum core_event_kind kind,
	uint64_t *job, struct pawl_err *err)
{
	struct core_event event = {.kind = kind};
	int rv = find_owned(d, uid, selector, &event.job, err);

	rv = rv == 0 ? daemon_handle_event(d, &event, NULL, NULL, err) : rv;
	if (rv == 0) {
		*job = event.job;
	}
	return rv;
}

static int refuse_rigid(const struct core_job *job, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_EINVAL,
		"job %llu is not elastic: it runs on num_nodes, %u. Give its job file replicas: "
		"MIN..MAX (or pawl submit --replicas MIN:MAX), and submit it again",
		(unsigned long long)job->id, job->request.most);
}

static int scale(struct daemon *d, uint32_t uid, const struct sched_msg_scale *request,
	uint64_t *id, struct pawl_err *err)
{
	struct core_event event = {.kind = CORE_CHANGE};
	const struct core_job *job;
	int rv = find_owned(d, uid, request->job, &event.job, err);

	if (rv != 0) {
		return rv;
	}
	job = core_job_find(d->core, event.job);
	event.change = (struct core_change){.least = request->sized ? request->least
								    : job->request.least,
		.most = request->sized ? request->most : job->request.most,
		.priority = request->prioritized ? request->priority : job->request.priority};
	if (request->sized && !job->request.in_place) {
		return refuse_rigid(job, err);
	}
	if (request->prioritized &&
		(request->priority < -SPEC_PRIORITY_MAX || request->priority > SPEC_PRIORITY_MAX)) {
		return pawl_err_set(err, PAWL_EINVAL, "priority: %d: it is from -%d to %d",
			request->priority, SPEC_PRIORITY_MAX, SPEC_PRIORITY_MAX);
	}
	rv = request->sized ? daemon_check_size(d, job, request->least, request->most, err) : 0;
	rv = rv == 0 ? daemon_handle_event(d, &event, NULL, NULL, err) : rv;
	if (rv == 0) {
		*id = event.job;
	}
	return rv;
}

static int answer_scale(struct daemon_client *client, const struct proto_frame *frame,
	const struct sched_msg_scale *request, struct pawl_err *err)
{
	uint64_t job = 0;
	int rv = scale(client->daemon, client->uid, request, &job, err);

	if (rv == 0) {
		answer_done(client, frame, job);
	}
	return rv;
}

static int answer_command(struct daemon_client *client, const struct proto_frame *frame,
	const struct sched_msg_selector *request, enum core_event_kind kind, struct pawl_err *err)
{
	uint64_t job = 0;
	int rv = daemon_command(client->daemon, client->uid, request->job, kind, &job, err);

	if (rv == 0) {
		answer_done(client, frame, job);
	}
	return rv;
}

bool daemon_describe_node(const struct daemon *d, const struct core_node *node,
	struct sched_msg_node *row)
{
	*row = (struct sched_msg_node){.slots = node->offer.slots,
		.used = node->used,
		.state = (uint8_t)node->state,
		.spot = node->offer.spot,
		.price = node->offer.price};
	snprintf(row->name, sizeof(row->name), "%s", node->offer.name);
	if (node->offer.type < d->options->types_n) {
		snprintf(row->type, sizeof(row->type), "%s", d->options->types[node->offer.type]);
	}
	return node->state != CORE_NODE_LOST;
}

static int answer_nodes(struct daemon_client *client, const struct proto_frame *frame,
	struct pawl_err *err)
{
	struct daemon *d = client->daemon;
	struct wire_out rows = {NULL};
	struct sched_msg_nodes reply = {{0}};
	const struct core_node *nodes;
	uint32_t n = core_nodes(d->core, &nodes);
	int rv = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct sched_msg_node row;

		if (daemon_describe_node(d, &nodes[i], &row)) {
			frame_layout_encode(&rows, &sched_msg_node_layout, &row);
			reply.nodes.n++;
		}
	}
	if (rows.failed) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory for a list of %u nodes", n);
	} else {
		reply.nodes.bytes = rows.bytes;
		reply.nodes.len_bytes = (uint32_t)rows.len_bytes;
		send_reply(client, frame, SCHED_MSG_NODE_ROWS, &reply);
	}
	wire_out_deinit(&rows);
	return rv;
}

static int answer_drain(struct daemon_client *client, const struct proto_frame *frame,
	const struct sched_msg_drain *request, struct pawl_err *err)
{
	struct core_event event = {.kind = request->drained ? CORE_NODE_DRAIN : CORE_NODE_RESUME,
		.node = request->node};
	int rv;

	if (client->uid != 0 && client->uid != geteuid()) {
		return pawl_err_set(err, PAWL_EINVAL,
			"node %s: only the user that runs the scheduler may drain it",
			request->node);
	}
	rv = daemon_handle_event(client->daemon, &event, NULL, NULL, err);
	if (rv == 0) {
		answer_done(client, frame, 0);
	}
	return rv;
}

static int answer_submit(struct daemon_client *client, const struct proto_frame *frame,
	const struct sched_msg_submit *request, struct pawl_err *err)
{
	uint64_t job = 0;
	int rv = daemon_submit(client, request->submission.bytes, request->submission.len_bytes,
		&job, err);

	if (rv == 0) {
		answer_done(client, frame, job);
	}
	return rv;
}

/* Sets the error of a request that cannot be decoded. */
static int refuse(uint16_t type, struct pawl_err *err)
{
	bool names_job = type == SCHED_MSG_SHOW || type == SCHED_MSG_CANCEL ||
		type == SCHED_MSG_PAUSE || type == SCHED_MSG_RESUME || type == SCHED_MSG_SCALE;

	if (!sched_msg_is_request(type)) {
		return pawl_err_set(err, PAWL_ENOTSUP, "the scheduler knows no request %u", type);
	}
	return pawl_err_set(err, PAWL_EINVAL, "%s",
		names_job ? "a job is a number, or a name" : "a request is malformed");
}

static int answer(struct daemon_client *client, struct proto_frame *frame, struct pawl_err *err)
{
	uint16_t version = sched_msg_version(frame->body);
	union sched_msg_request request;

	if (version != SCHED_MSG_VERSION) {
		return pawl_err_set(err, PAWL_ENOTSUP,
			"the scheduler speaks version %u, this command %u: they are of different "
			"versions of Pawl",
			SCHED_MSG_VERSION, version);
	}
	if (!sched_msg_decode(&frame->body, frame->type, &request, sizeof(request))) {
		return refuse(frame->type, err);
	}
	switch (frame->type) {
	case SCHED_MSG_SUBMIT:
		return answer_submit(client, frame, &request.submit, err);
	case SCHED_MSG_LIST:
		return answer_list(client, frame, &request.list, err);
	case SCHED_MSG_SHOW:
		return answer_show(client, frame, &request.selector, err);
	case SCHED_MSG_CANCEL:
		return answer_command(client, frame, &request.selector, CORE_CANCEL, err);
	case SCHED_MSG_PAUSE:
		return answer_command(client, frame, &request.selector, CORE_PAUSE, err);
	case SCHED_MSG_RESUME:
		return answer_command(client, frame, &request.selector, CORE_RESUME, err);
	case SCHED_MSG_NODES:
		return answer_nodes(client, frame, err);
	case SCHED_MSG_DRAIN:
		return answer_drain(client, frame, &request.drain, err);
	case SCHED_MSG_SCALE:
		return answer_scale(client, frame, &request.scale, err);
	default:
		return refuse(frame->type, err);
	}
}

void daemon_answer(struct daemon_client *client, struct proto_frame *frame)
{
	struct pawl_err err = {.code = PAWL_EIO};

	if (answer(client, frame, &err) != 0) {
		answer_error(client, frame, &err);
	}
}
