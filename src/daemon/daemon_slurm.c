/* The daemon's part of the engine slurm: opens it, says which pools suit a job, and describes what
 * a job runs. */
#include "daemon/daemon_impl.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"
#include "engine/mirrors.h"
#include "engine/slurm/slurm_program.h"
#include "engine/submission.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The strings and arrays that a description points to, until it is encoded. */
struct job_description {
	struct submission submission;
	struct sched_spec spec;
	char directory[PATH_MAX]; /* directory of the job: logs, hints */
	char hints[PATH_MAX];
	char supervisor[HTTP_URL_MAX]; /* URL of AdaptDL's supervisor; "": none */
	char space[CORE_NAME_MAX];
	char task[ORDER_TEXT_MAX];
	char cwd[PATH_MAX];
	const char **words; /* owned; NULL: none */
	const char **env;   /* owned */
};

static void drop(struct job_description *of)
{
	sched_spec_deinit(&of->spec);
	submission_deinit(&of->submission);
	free(of->words);
	free(of->env);
	*of = (struct job_description){0};
}

/* Completes a path of the job's user, by the home directory of the pilots' user. */
static int find_path(const struct job_description *of, const char *path, char full[PATH_MAX],
	struct pawl_err *err)
{
	const char *home = getenv("HOME");

	return submission_path(home ? home : "", of->submission.cwd, path, full, err);
}

static int put_mounts(const struct job_description *of, struct wire_out *list, struct pawl_err *err)
{
	const char *home = getenv("HOME");
	char at[PATH_MAX];
	char from[PATH_MAX];
	int rv = 0;

	for (uint32_t i = 0; i < of->spec.mounts_n && rv == 0; i++) {
		if (mirrors_is_bucket(&of->spec.mounts[i])) {
			continue;
		}
		rv = submission_mount(home ? home : "", of->submission.cwd, &of->spec.mounts[i], at,
			from, err);
		if (rv == 0) {
			wire_put_raw(list, at, strlen(at) + 1);
			wire_put_raw(list, from, strlen(from) + 1);
		}
	}
	return rv == 0 && list->failed ? pawl_err_set(err, PAWL_ENOMEM, "no memory for a job") : rv;
}

/* Returns what a node must have, without scratch space, which pilots measure. */
static struct slurm_size least_size(const struct sched_choice *choice)
{
	return (struct slurm_size){.cpus = (choice->cpus_milli + 999) / 1000,
		.memory_bytes = choice->memory_bytes,
		.disk_bytes = choice->disk_best ? 0 : choice->disk_bytes};
}

static bool node_has(const struct slurm_start *start, const struct sched_choice *choice)
{
	struct slurm_size least = least_size(choice);

	return (!start->size || slurm_size_at_least(start->size, &least)) &&
		(!choice->disk_best ||
			(start->scratch_bytes > 0 && start->scratch_bytes >= choice->disk_bytes));
}

static int refuse_node(const struct slurm_start *start, const struct slurm_size *size,
	struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_EINVAL,
		"resources: node %s has %u CPUs, %llu MiB of memory and %llu MiB of disk, %llu MiB "
		"free for disk_tier: best, and the job is to have more",
		start->node, size->cpus, (unsigned long long)size->memory_bytes >> 20,
		(unsigned long long)size->disk_bytes >> 20,
		(unsigned long long)start->scratch_bytes >> 20);
}

/* Checks a node at the start of a job: nodes of a pool may differ, and change. */
static int check_node(const struct job_description *of, const struct slurm_start *start,
	struct pawl_err *err)
{
	static const struct slurm_size none;

	for (uint32_t i = 0; i < of->spec.choices_n; i++) {
		if (node_has(start, &of->spec.choices[i])) {
			return 0;
		}
	}
	return refuse_node(start, start->size ? start->size : &none, err);
}

int daemon_check_pools(const struct daemon *d, const struct sched_spec *spec, uint32_t *types,
	struct pawl_err *err)
{
	uint32_t found = 0;

	for (uint32_t i = 0; i < spec->choices_n; i++) {
		struct slurm_size least = least_size(&spec->choices[i]);

		if (least.cpus == 0 && least.memory_bytes == 0 && least.disk_bytes == 0) {
			return 0;
		}
		for (uint32_t p = 0; p < d->options->pools_n; p++) {
			if (!d->engine->fits ||
				d->engine->fits(d->engine_self, p, least.cpus, least.memory_bytes,
					least.disk_bytes)) {
				found |= 1u << d->options->pools[p].pool.type;
			}
		}
	}
	found &= *types != 0 ? *types : found;
	if (found == 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"resources: no node that a pool's pilots can get has so many CPUs, so much "
			"memory, and so much disk: compare `sinfo -N -O NodeList,Partition,CPUs,"
			"Memory,Disk`");
	}
	*types = found;
	return 0;
}

static int make_directory(struct daemon *d, uint64_t job, struct job_description *of,
	struct pawl_err *err)
{
	snprintf(of->directory, sizeof(of->directory), "%s/jobs/%llu", daemon_shared_dir(d),
		(unsigned long long)job);
	snprintf(of->hints, sizeof(of->hints), "%s/jobs/%llu/hints.json", daemon_shared_dir(d),
		(unsigned long long)job);
	if (mkdir(of->directory, 0750) != 0 && errno != EEXIST) {
		return pawl_err_sys(err, "directory %s", of->directory);
	}
	return 0;
}

/* Returns a copy of list that is NULL-terminated; NULL: out of memory. */
static const char **copy_terminated(const char *const *list, uint32_t n)
{
	const char **copy = calloc(n + 1, sizeof(*copy));

	if (copy && n > 0) {
		memcpy(copy, list, n * sizeof(*copy));
	}
	return copy;
}

static int read_job(struct daemon *d, const struct core_job *job, struct job_description *of,
	struct pawl_err *err)
{
	struct remarks *remarks = calloc(1, sizeof(*remarks));
	uint8_t *bytes = NULL;
	size_t len_bytes = 0;
	int rv = remarks ? sched_database_spec(d->database, job->id, &bytes, &len_bytes, err)
			 : pawl_err_set(err, PAWL_ENOMEM, "no memory for a submission");

	rv = rv == 0 ? submission_decode(&of->submission, bytes, len_bytes, err) : rv;
	free(bytes);
	rv = rv == 0 ? submission_spec(&of->submission, &of->spec, remarks, err) : rv;
	free(remarks);
	if (rv != 0) {
		return rv;
	}
	if (of->spec.elastic) { /* may have changed since the submission */
		of->spec.size.least = job->request.least;
		of->spec.size.most = job->request.most;
	}
	order_name_task(of->task, job, of->submission.wall_ns);
	if (http_job_url(d->http, job->id, of->supervisor)) {
		http_space(job->request.owner, of->space, sizeof(of->space));
	}
	of->env = copy_terminated(of->submission.env, of->submission.env_n);
	of->words = of->submission.args_n > 0
		? copy_terminated(of->submission.args, of->submission.args_n)
		: NULL;
	if (!of->env || (of->submission.args_n > 0 && !of->words)) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a submission");
	}
	rv = find_path(of, of->spec.workdir ? of->spec.workdir : of->submission.cwd, of->cwd, err);
	return rv == 0 ? make_directory(d, job->id, of, err) : rv;
}

static int describe(void *user, const struct slurm_start *start, struct slurm_program *program,
	struct pawl_err *err)
{
	struct daemon *d = user;
	const struct core_job *job = core_job_find(d->core, start->place->job);
	struct job_description *of;
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
	rv = rv == 0 ? check_node(of, start, err) : rv;
	rv = rv == 0 ? put_mounts(of, &program->mounts, err) : rv;
	launch = (struct slurm_launch){.spec = &of->spec,
		.args = of->words,
		.env = of->env,
		.pawl = d->program,
		.home = getenv("HOME"),
		.cwd = of->cwd,
		.log_directory = of->directory,
		.task = of->task,
		.cluster = "pawl",
		.hints = of->hints,
		.supervisor = of->supervisor[0] != '\0' ? of->supervisor : NULL,
		.space = of->space,
		.attempt = job->restarts,
		.retries = job->failures > 0 ? 0 : of->spec.retries, /* once, not at each start */
		.grace_ns = d->options->grace_ns};
	rv = rv == 0 ? slurm_program_fill(program, &launch, start, err) : rv;
	if (rv != 0) {
		drop(of);
		free(of);
		return rv;
	}
	program->cwd = of->cwd;
	if (submission_wants_scratch(&of->spec) && start->scratch_bytes > 0) {
		program->scratch = of->task;
	}
	d->description = of;
	return 0;
}

static void release(void *user, struct slurm_program *program)
{
	struct daemon *d = user;

	free((char *)(uintptr_t)program->log);
	free((char *)(uintptr_t)program->membership_path);
	drop(d->description);
	free(d->description);
	d->description = NULL;
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
		.fence_ns = times_ns(TIME_SLURM_FENCE),
		.now_ns = core_now,
		.post = daemon_post,
		.describe = describe,
		.release = release,
		.user = d};
	struct sched_slurm *slurm = NULL;
	char jobs[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", d->program, sizeof(d->program) - 1);
	int rv;

	if (len < 0) {
		return pawl_err_sys(err, "find this program's path");
	}
	d->program[len] = '\0';
	snprintf(d->spool, sizeof(d->spool), "%s/slurm", daemon_shared_dir(d));
	snprintf(jobs, sizeof(jobs), "%s/jobs", daemon_shared_dir(d));
	if (mkdir(jobs, 0751) != 0 && errno != EEXIST) {
		return pawl_err_sys(err, "directory %s", jobs);
	}
	rv = sched_slurm_open(&slurm, &options, err);
	d->engine = &sched_slurm_engine;
	d->engine_self = slurm;
	return rv;
}
