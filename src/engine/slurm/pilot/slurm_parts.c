/* Parts of jobs, each run by a keeper process: see slurm_parts.h and slurm_keeper.h. */
#include "engine/slurm/pilot/slurm_parts.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/times.h"
#include "engine/scratch.h"
#include "engine/slurm/pilot/slurm_keeper.h"
#include "engine/slurm/pilot/slurm_scratch.h"
#include "engine/slurm/pilot/slurm_slots.h"

#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_BEFORE_START (128 + SIGTERM) /* exit status of a part stopped before its start */
#define SCALE_IMPOSSIBLE  2 /* exit status of a scale command: the size is not possible */

extern char **environ;

static bool lives(const struct slurm_part *part)
{
	return !part->over;
}

uint32_t slurm_parts_alive(const struct slurm_parts *parts)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < parts->n; i++) {
		n += parts->all[i]->have.state != SLURM_ENDED;
	}
	return n;
}

/* ---- begin ---- */

/* Sets the path of the part's scratch directory, if the program needs one. */
static int name_scratch(const struct slurm_parts *parts, struct slurm_part *part,
	const struct slurm_program_view *view, struct pawl_err *err)
{
	if (view->scratch[0] == '\0') {
		return 0;
	}
	if (parts->scratch->path[0] == '\0' || view->scratch[0] == '.' ||
		strchr(view->scratch, '/')) {
		return pawl_err_set(err, PAWL_ENOENT,
			"this node has no directory for disk_tier: best");
	}
	snprintf(part->scratch, sizeof(part->scratch), "%.2400s/%.1000s", parts->scratch->path,
		view->scratch);
	return 0;
}

static void put_scratch(const char *path, struct wire_out *set)
{
	if (path[0] != '\0') {
		wire_put_raw(set, SCRATCH_VAR "=", sizeof(SCRATCH_VAR));
		wire_put_raw(set, path, strlen(path) + 1);
	}
}

static int start(struct slurm_parts *parts, struct slurm_part *part,
	const struct slurm_want_part *want, struct pawl_err *err)
{
	struct wire_out own = {0};
	struct slurm_program_view view = {0};
	int rv = slurm_program_decode(want->program, want->len_bytes, &view, err);
	char **env = NULL;

	if (rv != 0) {
		return rv;
	}
	slurm_slots_take(parts, part, want->slots);
	rv = slurm_slots_write(parts, part, want->slots, err);
	rv = rv == 0 ? name_scratch(parts, part, &view, err) : rv;
	slurm_slots_put(parts, part, &own);
	put_scratch(part->scratch, &own);
	if (rv == 0) {
		env = slurm_slots_env(&own, environ);
		rv = env ? slurm_keeper_start(&view, part->scratch, env, &part->pid, &part->started,
				   err)
			 : pawl_err_set(err, PAWL_ENOMEM, "out of memory");
	}
	free(env);
	wire_out_deinit(&own);
	slurm_program_view_deinit(&view);
	return rv;
}

static void drop(struct slurm_part *part)
{
	if (part->started >= 0) {
		close(part->started);
	}
	free(part->program);
	free(part);
}

static struct slurm_part *add(struct slurm_parts *parts, const struct slurm_want_part *want)
{
	struct slurm_part *part = calloc(1, sizeof(*part));
	uint8_t *program = malloc(want->len_bytes > 0 ? want->len_bytes : 1);
	struct slurm_part **all = realloc(parts->all, (parts->n + 1) * sizeof(struct slurm_part *));

	parts->all = all ? all : parts->all;
	if (!part || !program || !all) {
		free(part);
		free(program);
		return NULL; /* the next want starts the part */
	}
	memcpy(program, want->program, want->len_bytes);
	part->have.job = want->job;
	part->have.generation = want->generation;
	part->have.sized = want->sizing;
	part->program = program;
	part->len_bytes = want->len_bytes;
	part->started = -1;
	parts->all[parts->n++] = part;
	parts->changed = true;
	return part;
}

static void begin(struct slurm_parts *parts, const struct slurm_want_part *want)
{
	struct slurm_part *part = add(parts, want);
	struct pawl_err err = {0};

	if (!part) {
		return;
	}
	part->wanted = true;
	if (want->stop || parts->leaving) {
		part->over = true;
		part->have.state = SLURM_ENDED;
		part->have.end_cause = want->stop ? SLURM_END_STOPPED : SLURM_END_NODE_LOST;
		part->have.exit_code = EXIT_BEFORE_START;
	} else if (start(parts, part, want, &err) != 0) {
		log_line(LOG_ERROR, "job %" PRIu64 ": %s", want->job, err.msg);
		part->over = true;
		part->have.state = SLURM_ENDED;
		part->have.exit_code = SLURM_EXIT_NOT_BEGUN;
	}
}

/* ---- resizing ---- */

static void answer(struct slurm_parts *parts, struct slurm_part *part, bool done)
{
	struct slurm_sizing *sizing = &part->sizing;

	ASSERT(sizing->generation > part->have.sized);
	if (done) {
		part->have.sized = sizing->generation;
		part->slots_n = sizing->slots < part->slots_n ? sizing->slots : part->slots_n;
	} else { /* keep the new slots: a partly resized part may use them */
		part->have.refused_sizing = sizing->generation;
	}
	sizing->generation = 0;
	parts->changed = true;
}

static int scale(struct slurm_part *part, struct pawl_err *err)
{
	struct slurm_program_view view = {0};
	int rv = slurm_program_decode(part->program, part->len_bytes, &view, err);

	if (rv == 0 && !view.scale[0]) {
		rv = pawl_err_set(err, PAWL_ENOTSUP, "the job cannot be resized");
	}
	if (rv == 0) {
		part->sizing.asks_for = part->sizing.slots;
		rv = slurm_keeper_scale(&view, environ, part->sizing.slots, &part->sizing.pid, err);
	}
	slurm_program_view_deinit(&view);
	return rv;
}

/* Tries to resize a part. Writes the devices first, so that new ranks find theirs. */
static void try_size(struct slurm_parts *parts, struct slurm_part *part, int64_t now_ns)
{
	struct slurm_sizing *sizing = &part->sizing;
	struct pawl_err err = {0};
	int rv;

	ASSERT(sizing->generation > 0 && sizing->pid == 0);
	slurm_slots_take(parts, part, sizing->slots);
	if (part->slots_n < sizing->slots && now_ns < sizing->until_ns) {
		sizing->next_ns =
			now_ns + times_ns(TIME_SIZING_AGAIN); /* another part still has the slots */
		return;
	}
	rv = part->slots_n < sizing->slots
		? pawl_err_set(&err, PAWL_EBUSY, "fewer than %u slots are free", sizing->slots)
		: slurm_slots_write(parts, part, sizing->slots, &err);
	rv = rv == 0 ? scale(part, &err) : rv;
	if (rv != 0) {
		log_line(LOG_WARNING, "job %" PRIu64 ": %s", part->have.job, err.msg);
		answer(parts, part, false);
	}
}

/* Handles the end of a scale command. If the program is not ready yet, the command is tried again.
 * If the program is ending, its end is reported separately. */
static void on_scaled(struct slurm_parts *parts, struct slurm_part *part, int status)
{
	struct slurm_sizing *sizing = &part->sizing;
	int64_t now_ns = clock_mono_ns();
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);

	sizing->pid = 0;
	if (sizing->generation == 0 || sizing->asks_for != sizing->slots) {
		sizing->next_ns = now_ns; /* a newer want has another size */
	} else if (code == 0) {
		answer(parts, part, true);
	} else if (code == SCALE_IMPOSSIBLE || now_ns >= sizing->until_ns) {
		answer(parts, part, false);
	} else {
		sizing->next_ns = now_ns + times_ns(TIME_SIZING_AGAIN);
	}
}

/* Records a newer size, even while a resize to an older one is under way. */
static void resize(struct slurm_part *part, const struct slurm_want_part *want)
{
	struct slurm_sizing *sizing = &part->sizing;
	int64_t now_ns = clock_mono_ns();

	if (want->sizing <= part->have.sized || want->sizing <= part->have.refused_sizing ||
		want->sizing <= sizing->generation) {
		return;
	}
	sizing->generation = want->sizing;
	sizing->slots = want->slots;
	sizing->until_ns = now_ns + times_ns(TIME_SIZING_TRY);
	sizing->next_ns = now_ns;
}

/* ---- end ---- */

/* Asks a part to leave its job, once its program runs and can handle the signal. */
static void request_leave(struct slurm_part *part)
{
	if (lives(part) && part->wanted_leave && !part->leave_requested && !part->stop_requested &&
		part->have.state == SLURM_RUNNING) {
		ASSERT(part->pid > 0); /* 0 would be this process's group */
		part->leave_requested = true;
		kill(part->pid, SIGUSR2);
	}
}

/* Sends SIGTERM to a part, and has it killed after grace_ns. Of several requests, the earliest kill
 * time counts. */
static void request_stop(struct slurm_part *part, enum slurm_end_cause cause, int64_t grace_ns)
{
	int64_t kill_at_ns = clock_mono_ns() + grace_ns;

	if (!lives(part)) {
		return;
	}
	ASSERT(part->pid > 0);
	if (!part->stop_requested) {
		part->stop_requested = true;
		part->have.end_cause = cause;
		part->kill_at_ns = kill_at_ns;
		kill(part->pid, SIGTERM);
	}
	part->kill_at_ns = kill_at_ns < part->kill_at_ns ? kill_at_ns : part->kill_at_ns;
	if (grace_ns == 0) {
		kill(part->pid, SIGUSR1);
	}
}

void slurm_parts_leave(struct slurm_parts *parts, int64_t grace_ns)
{
	parts->leaving = true;
	for (uint32_t i = 0; i < parts->n; i++) {
		request_stop(parts->all[i], SLURM_END_NODE_LOST, grace_ns);
	}
}

static void end(struct slurm_parts *parts, struct slurm_part *part, int status)
{
	ASSERT(!part->over && part->pid > 0);
	part->over = true;
	part->over_ns = clock_mono_ns();
	part->have.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	if (part->started >= 0) {
		close(part->started);
		part->started = -1;
	}
	if (part->scratch[0] != '\0') {
		slurm_scratch_drop(parts->scratch, part->scratch);
	}
}

/* Marks a part that is over as ended, and sets its end cause; or waits. Slurm sends SIGTERM to all
 * processes of a pilot's job, and a program may die of it before the pilot handles its own. So a
 * failed part is only after a while taken for failed on its own. */
static void mark_ended(struct slurm_parts *parts, struct slurm_part *part, int64_t now_ns)
{
	bool clear = part->stop_requested || part->leave_requested || parts->leaving ||
		part->have.exit_code == 0 || now_ns - part->over_ns >= times_ns(TIME_PART_DOUBT);

	if (!part->over || part->have.state == SLURM_ENDED || !clear) {
		return;
	}
	ASSERT(part->started < 0); /* end has closed it */
	part->have.state = SLURM_ENDED;
	if (!part->stop_requested && parts->leaving) {
		part->have.end_cause = SLURM_END_NODE_LOST;
	}
	parts->changed = true;
}

/* Kills processes whose keeper was killed. They have become children of this process. */
static void end_strays(const struct slurm_parts *parts)
{
	pid_t *kept = calloc(2 * parts->n + 1, sizeof(*kept));
	uint32_t n = 0;

	for (uint32_t i = 0; kept && i < parts->n; i++) {
		if (lives(parts->all[i])) {
			kept[n++] = parts->all[i]->pid;
		}
		if (parts->all[i]->sizing.pid > 0) {
			kept[n++] = parts->all[i]->sizing.pid;
		}
	}
	if (kept) {
		slurm_keeper_kill_strays(kept, n);
	}
	free(kept);
}

static void reap(struct slurm_parts *parts)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (uint32_t i = 0; i < parts->n; i++) {
			if (parts->all[i]->pid == pid && lives(parts->all[i])) {
				end(parts, parts->all[i], status);
			}
			if (parts->all[i]->sizing.pid == pid) {
				on_scaled(parts, parts->all[i], status);
			}
		}
		if (WIFSIGNALED(status)) {
			end_strays(parts);
		}
	}
}

void slurm_parts_look(struct slurm_parts *parts, int64_t now_ns)
{
	char byte;

	reap(parts);
	for (uint32_t i = 0; i < parts->n; i++) {
		struct slurm_part *part = parts->all[i];

		if (part->have.state == SLURM_STARTING && part->started >= 0 &&
			read(part->started, &byte, 1) == 1) {
			part->have.state = SLURM_RUNNING;
			parts->changed = true;
		}
		request_leave(part);
		if (part->have.state == SLURM_RUNNING && lives(part) && !part->stop_requested &&
			part->sizing.generation > 0 && part->sizing.pid == 0 &&
			now_ns >= part->sizing.next_ns) {
			try_size(parts, part, now_ns);
		}
		mark_ended(parts, part, now_ns);
		if (lives(part) && part->stop_requested && now_ns >= part->kill_at_ns) {
			kill(part->pid, SIGUSR1);
		}
	}
}

/* ---- want ---- */

static struct slurm_part *find(struct slurm_parts *parts, const struct slurm_want_part *want)
{
	for (uint32_t i = 0; i < parts->n; i++) {
		if (parts->all[i]->have.job == want->job &&
			parts->all[i]->have.generation == want->generation) {
			return parts->all[i];
		}
	}
	return NULL;
}

static void forget(struct slurm_parts *parts, uint32_t i)
{
	ASSERT(i < parts->n && parts->all[i]->over && parts->all[i]->have.state == SLURM_ENDED);
	slurm_slots_forget(parts, parts->all[i]);
	drop(parts->all[i]);
	parts->all[i] = parts->all[--parts->n];
	parts->changed = true;
}

void slurm_parts_apply(struct slurm_parts *parts, const struct slurm_want *want)
{
	parts->slots = want->slots;
	for (uint32_t i = 0; i < parts->n; i++) {
		parts->all[i]->wanted = false;
	}
	for (uint32_t w = 0; w < want->parts_n; w++) {
		struct slurm_part *part = find(parts, &want->parts[w]);

		if (part) {
			part->wanted = true;
			part->wanted_leave = want->parts[w].leave;
			resize(part, &want->parts[w]);
		}
		if (part && want->parts[w].stop) {
			request_stop(part, SLURM_END_STOPPED, want->parts[w].grace_ns);
		}
	}
	for (uint32_t i = parts->n; i > 0; i--) {
		if (parts->all[i - 1]->wanted) {
			continue;
		}
		if (parts->all[i - 1]->have.state == SLURM_ENDED) {
			forget(parts, i - 1);
		} else {
			request_stop(parts->all[i - 1], SLURM_END_STOPPED, 0);
		}
	}
	for (uint32_t w = 0; w < want->parts_n; w++) { /* last: may need slots of ended parts */
		if (!find(parts, &want->parts[w])) {
			begin(parts, &want->parts[w]);
		}
	}
}

void slurm_parts_deinit(struct slurm_parts *parts)
{
	for (uint32_t i = 0; i < parts->n; i++) {
		drop(parts->all[i]);
	}
	free(parts->all);
	*parts = (struct slurm_parts){0};
}
