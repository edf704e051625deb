/* The engine slurm for the daemon: what a job runs is read of what was submitted. */
#include "daemon/daemon_impl.h"

#include "base/clock.h"
#include "base/err.h"
#include "daemon/submission.h"
#include "sched/slurm_program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FENCE_NS (30 * NS_PER_S)

/* What a description points to until it is encoded. */
struct described {
	struct submission submission;
	struct sched_spec spec;
	char directory[PATH_MAX]; /* of the job: logs, hints */
	char hints[PATH_MAX];
	char task[ORDER_TEXT_MAX];
	char cwd[PATH_MAX];
	const char **words; /* owned; NULL: none */
	const char **env;   /* owned */
};

static void drop(struct described *of)
{
	sched_spec_deinit(&of->spec);
	submission_deinit(&of->submission);
	free(of->words);
	free(of->env);
	*of = (struct described){0};
}

/* Where it was submitted, or its workdir from there on; the pilots' user's home for ~. */
static int find_cwd(struct described *of, struct pawl_err *err)
{
	const char *home = getenv("HOME");
	const char *dir = of->spec.workdir ? of->spec.workdir : of->submission.cwd;
	int len;

	if (dir[0] == '~' && (dir[1] == '/' || dir[1] == '\0')) {
		len = snprintf(of->cwd, sizeof(of->cwd), "%s%s", home ? home : "", dir + 1);
	} else if (dir[0] == '/') {
		len = snprintf(of->cwd, sizeof(of->cwd), "%s", dir);
	} else {
		len = snprintf(of->cwd, sizeof(of->cwd), "%s/%s", of->submission.cwd, dir);
	}
	return len > 0 && (size_t)len < sizeof(of->cwd)
		? 0
		: pawl_err_set(err, PAWL_EINVAL, "workdir: its path is too long");
}

static int make_directory(struct daemon *d, uint64_t job, struct described *of,
	struct pawl_err *err)
{
	snprintf(of->directory, sizeof(of->directory), "%s/jobs/%llu", d->options->root,
		(unsigned long long)job);
	snprintf(of->hints, sizeof(of->hints), "%s/jobs/%llu/hints.json", d->options->root,
		(unsigned long long)job);
	if (mkdir(of->directory, 0750) != 0 && errno != EEXIST) {
		return pawl_err_sys(err, "directory %s", of->directory);
	}
	return 0;
}

/* NULL-terminated; NULL: out of memory. */
static const char **terminate(const char *const *list, uint32_t n)
{
	const char **copy = calloc(n + 1, sizeof(*copy));

	if (copy && n > 0) {
		memcpy(copy, list, n * sizeof(*copy));
	}
	return copy;
}

static int read_job(struct daemon *d, const struct core_job *job, struct described *of,
	struct pawl_err *err)
{
	struct remarks *remarks = calloc(1, sizeof(*remarks));
	uint8_t *bytes = NULL;
	size_t len_bytes = 0;
	int rv = remarks ? sched_store_spec(d->store, job->id, &bytes, &len_bytes, err)
			 : pawl_err_set(err, PAWL_ENOMEM, "no memory for a submission");

	rv = rv == 0 ? submission_decode(&of->submission, bytes, len_bytes, err) : rv;
	free(bytes);
	rv = rv == 0 ? submission_spec(&of->submission, &of->spec, remarks, err) : rv;
	free(remarks);
	if (rv != 0) {
		return rv;
	}
	if (of->spec.mounts_n > 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"file_mounts are not yet on Slurm: name the directory itself in run");
	}
	order_name_task(of->task, job, of->submission.wall_ns);
	of->env = terminate(of->submission.env, of->submission.env_n);
	of->words = of->submission.words_n > 0
		? terminate(of->submission.words, of->submission.words_n)
		: NULL;
	if (!of->env || (of->submission.words_n > 0 && !of->words)) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a submission");
	}
	rv = find_cwd(of, err);
	return rv == 0 ? make_directory(d, job->id, of, err) : rv;
}

static int describe(void *user, const struct slurm_start *start, struct slurm_program *program,
	struct pawl_err *err)
{
	struct daemon *d = user;
	const struct core_job *job = core_job_find(d->core, start->place->job);
	struct described *of;
	struct slurm_launch launch;
	int rv;

	if (!job) {
		return pawl_err_set(err, PAWL_ENOENT, "there is no such job");
	}
	of = calloc(1, sizeof(*of));
	if (!of) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a job");
	}
	rv = read_job(d, job, of, err);
	launch = (struct slurm_launch){.spec = &of->spec,
		.words = of->words,
		.env = of->env,
		.pawl = d->program,
		.cwd = of->cwd,
		.log_directory = of->directory,
		.task = of->task,
		.cluster = "pawl",
		.hints = of->hints,
		.attempt = job->restarts,
		.grace_ns = d->options->grace_ns};
	rv = rv == 0 ? slurm_program_fill(program, &launch, start, err) : rv;
	if (rv != 0) {
		drop(of);
		free(of);
		return rv;
	}
	program->cwd = of->cwd;
	d->described = of;
	return 0;
}

static void release(void *user, struct slurm_program *program)
{
	struct daemon *d = user;

	free((char *)(uintptr_t)program->log);
	drop(d->described);
	free(d->described);
	d->described = NULL;
}

static int64_t core_now(void *user)
{
	return daemon_now_ns(user);
}

int daemon_open_slurm(struct daemon *d, struct pawl_err *err)
{
	struct slurm_options options = {.loop = d->loop,
		.spool = d->spool,
		.program = d->program,
		.pools = d->options->pools,
		.pools_n = d->options->pools_n,
		.poll_ns = d->options->poll_ns,
		.fence_ns = FENCE_NS,
		.now_ns = core_now,
		.tell = daemon_post,
		.describe = describe,
		.release = release,
		.user = d};
	char jobs[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", d->program, sizeof(d->program) - 1);
	int rv;

	if (len < 0) {
		return pawl_err_sys(err, "find this program's path");
	}
	d->program[len] = '\0';
	snprintf(d->spool, sizeof(d->spool), "%s/slurm", d->options->root);
	snprintf(jobs, sizeof(jobs), "%s/jobs", d->options->root);
	if (mkdir(jobs, 0751) != 0 && errno != EEXIST) {
		return pawl_err_sys(err, "directory %s", jobs);
	}
	rv = sched_slurm_open(&d->slurm, &options, err);
	d->engine = &sched_slurm_engine;
	d->engine_self = d->slurm;
	return rv;
}
