/* Each part is a keeper's process: see slurm_parts.h and slurm_keep.h. */
#include "sched/slurm_parts.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "sched/slurm_keep.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_NONE (128 + SIGTERM) /* of a part that was to end before it was started */
#define DEVICES   "CUDA_VISIBLE_DEVICES"

extern char **environ;

/* Slurm's SIGTERM goes to all processes of a pilot's job, and a program may die of it before the
 * pilot has seen its own: only after so long is a bad end held against the program. */
#define DOUBT_NS NS_PER_S

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

/* ---- slots ---- */

static bool is_free(const struct slurm_parts *parts, uint32_t slot)
{
	for (uint32_t i = 0; i < parts->n; i++) {
		const struct slurm_part *part = parts->all[i];

		for (uint32_t s = 0; s < part->slots_n && lives(part); s++) {
			if (part->slots[s] == slot) {
				return false;
			}
		}
	}
	return true;
}

/* The lowest that nobody has; fewer than asked for if there are none. */
static void take_slots(const struct slurm_parts *parts, struct slurm_part *part, uint32_t n)
{
	for (uint32_t slot = 0; slot < parts->slots && part->slots_n < n; slot++) {
		if (is_free(parts, slot)) {
			part->slots[part->slots_n++] = slot;
		}
	}
}

/* The n-th item of a list with commas; "": there is none. */
static const char *item_of(const char *list, uint32_t n)
{
	for (; n > 0 && *list != '\0'; n--) {
		list += strcspn(list, ",");
		list += *list == ',';
	}
	return list;
}

/* "CUDA_VISIBLE_DEVICES=" with those of the pilot's that are the part's. Empty: the pilot has not
 * one for each slot. */
static void put_devices(const struct slurm_parts *parts, const struct slurm_part *part,
	struct wire_out *out)
{
	const char *all = getenv(DEVICES);

	if (!all || parts->slots == 0 || *item_of(all, parts->slots - 1) == '\0') {
		return;
	}
	wire_put_raw(out, DEVICES, sizeof(DEVICES) - 1);
	for (uint32_t s = 0; s < part->slots_n; s++) {
		const char *item = item_of(all, part->slots[s]);

		wire_put_u8(out, s == 0 ? '=' : ',');
		wire_put_raw(out, item, strcspn(item, ","));
	}
	wire_put_u8(out, '\0');
}

/* The pilot's environment, with devices in place of its own. To be freed; NULL: out of memory. */
static char **part_env(const struct wire_out *devices)
{
	size_t n = 0;
	char **env;

	while (environ[n]) {
		n++;
	}
	env = devices->failed ? NULL : calloc(n + 1, sizeof(*env));
	for (size_t i = 0; env && i < n; i++) {
		bool theirs = devices->len_bytes > 0 &&
			strncmp(environ[i], DEVICES "=", sizeof(DEVICES)) == 0;

		env[i] = theirs ? (char *)devices->bytes : environ[i];
	}
	return env;
}

/* ---- begin ---- */

static int start(struct slurm_parts *parts, struct slurm_part *part,
	const struct slurm_want_part *want, struct pawl_err *err)
{
	struct wire_out devices = {0};
	struct slurm_words words = {0};
	int rv = slurm_program_decode(want->program, want->len_bytes, &words, err);
	char **env;

	if (rv != 0) {
		return rv;
	}
	take_slots(parts, part, want->slots);
	put_devices(parts, part, &devices);
	env = part_env(&devices);
	rv = env ? slurm_keep(&words, env, &part->pid, &part->started, err)
		 : pawl_err_set(err, PAWL_ENOMEM, "out of memory");
	free(env);
	wire_out_deinit(&devices);
	slurm_words_deinit(&words);
	return rv;
}

static struct slurm_part *add(struct slurm_parts *parts, const struct slurm_want_part *want)
{
	struct slurm_part *part = calloc(1, sizeof(*part) + want->slots * sizeof(part->slots[0]));
	struct slurm_part **all = realloc(parts->all, (parts->n + 1) * sizeof(struct slurm_part *));

	parts->all = all ? all : parts->all;
	if (!part || !all) {
		free(part);
		return NULL; /* the next want, or look, will find it missing again */
	}
	part->have.job = want->job;
	part->have.generation = want->generation;
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
		part->have.why = want->stop ? SLURM_BY_WANT : SLURM_BY_NODE;
		part->have.exit_code = EXIT_NONE;
	} else if (start(parts, part, want, &err) != 0) {
		log_line(LOG_ERROR, "job %" PRIu64 ": %s", want->job, err.msg);
		part->over = true;
		part->have.state = SLURM_ENDED;
		part->have.exit_code = SLURM_EXIT_NOT_BEGUN;
	}
}

/* ---- end ---- */

/* It is to end, and is killed when grace_ns is over; the earliest time counts. */
static void tell(struct slurm_part *part, enum slurm_why why, int64_t grace_ns)
{
	int64_t kill_at_ns = clock_mono_ns() + grace_ns;

	if (!lives(part)) {
		return;
	}
	if (!part->told) {
		part->told = true;
		part->have.why = why;
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
		tell(parts->all[i], SLURM_BY_NODE, grace_ns);
	}
}

static void end(struct slurm_part *part, int status)
{
	part->over = true;
	part->over_ns = clock_mono_ns();
	part->have.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	if (part->started >= 0) {
		close(part->started);
		part->started = -1;
	}
}

/* Says of who is over that it has ended, and why; or not yet. */
static void settle(struct slurm_parts *parts, struct slurm_part *part, int64_t now_ns)
{
	bool clear = part->told || parts->leaving || part->have.exit_code == 0 ||
		now_ns - part->over_ns >= DOUBT_NS;

	if (!part->over || part->have.state == SLURM_ENDED || !clear) {
		return;
	}
	part->have.state = SLURM_ENDED;
	if (!part->told && parts->leaving) {
		part->have.why = SLURM_BY_NODE;
	}
	parts->changed = true;
}

/* Who lost its keeper is a child of ours, now that the keeper was killed by somebody else. */
static void end_strays(const struct slurm_parts *parts)
{
	pid_t *kept = calloc(parts->n > 0 ? parts->n : 1, sizeof(*kept));
	uint32_t n = 0;

	for (uint32_t i = 0; kept && i < parts->n; i++) {
		if (lives(parts->all[i])) {
			kept[n++] = parts->all[i]->pid;
		}
	}
	if (kept) {
		slurm_keep_strays(kept, n);
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
				end(parts->all[i], status);
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
		settle(parts, part, now_ns);
		if (lives(part) && part->told && now_ns >= part->kill_at_ns) {
			kill(part->pid, SIGUSR1);
		}
	}
}

/* ---- all of them ---- */

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
	free(parts->all[i]);
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
		}
		if (part && want->parts[w].stop) {
			tell(part, SLURM_BY_WANT, want->parts[w].grace_ns);
		}
	}
	for (uint32_t i = parts->n; i > 0; i--) {
		if (parts->all[i - 1]->wanted) {
			continue;
		}
		if (parts->all[i - 1]->have.state == SLURM_ENDED) {
			forget(parts, i - 1);
		} else {
			tell(parts->all[i - 1], SLURM_BY_WANT, 0);
		}
	}
	for (uint32_t w = 0; w < want->parts_n; w++) { /* last: they may need what has ended */
		if (!find(parts, &want->parts[w])) {
			begin(parts, &want->parts[w]);
		}
	}
}

void slurm_parts_deinit(struct slurm_parts *parts)
{
	for (uint32_t i = 0; i < parts->n; i++) {
		if (parts->all[i]->started >= 0) {
			close(parts->all[i]->started);
		}
		free(parts->all[i]);
	}
	free(parts->all);
	*parts = (struct slurm_parts){0};
}
