/* Sends a job to the scheduler: see submit.h. */
#include "cli/sched/submit.h"

#include "base/err.h"
#include "cli/sched/jobs.h"
#include "engine/submission.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VAR_MAX (128u << 10) /* bytes of an environment variable that a job gets, at most */

/* The variables of the submitter's environment that a job gets: they say where programs and modules
 * are, and how text is encoded. The user gives all others by --env. */
static const char *const kept[] = {"PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV",
	"PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ",
	"PAWL_PROGRAM"};

#define KEPT_N (sizeof(kept) / sizeof(*kept))

static int keep_env(struct submission *s, struct pawl_err *err)
{
	s->env = sched_arena_alloc(&s->arena, (KEPT_N + 1) * sizeof(*s->env));
	for (size_t i = 0; i < KEPT_N && s->env; i++) {
		const char *value = getenv(kept[i]);
		char *text;
		size_t len;

		if (!value || strlen(value) > VAR_MAX) {
			continue;
		}
		len = strlen(kept[i]) + strlen(value) + 2;
		text = sched_arena_alloc(&s->arena, len);
		if (text) {
			snprintf(text, len, "%s=%s", kept[i], value);
			s->env[s->env_n++] = text;
		}
	}
	return s->arena.failed ? pawl_err_set(err, PAWL_ENOMEM, "out of memory") : 0;
}

void submit_name(char name[SPEC_NAME_MAX], const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *base = slash ? slash + 1 : path;
	const char *dot = strrchr(base, '.');
	size_t len = dot && dot > base ? (size_t)(dot - base) : strlen(base);
	size_t n = 0;

	for (size_t i = 0; i < len && n < SPEC_NAME_MAX - 1; i++) {
		bool good = isalnum((unsigned char)base[i]) || (n > 0 && strchr("._-", base[i]));

		if (good || n > 0) {
			name[n++] = (char)(good ? base[i] : '-');
		}
	}
	name[n] = '\0';
	if (!jobfile_is_name(name)) {
		snprintf(name, SPEC_NAME_MAX, "job");
	}
}

static int send_it(struct sched_client *client, const struct submission *s, uint64_t *job,
	struct pawl_err *err)
{
	struct sched_msg_submit request;
	struct sched_msg_done done;
	struct wire_out out = {NULL};
	int rv;

	submission_encode(&out, s);
	request.submission = (struct frame_blob){out.bytes, (uint32_t)out.len_bytes};
	rv = out.failed ? pawl_err_set(err, PAWL_ENOMEM, "out of memory")
			: sched_client_call(client, SCHED_MSG_SUBMIT, &request, SCHED_MSG_DONE,
				  &done, sizeof(done), err);
	wire_out_deinit(&out);
	if (rv == 0) {
		*job = done.job;
	}
	return rv;
}

static uint32_t count_words(char *const *words)
{
	uint32_t n = 0;

	while (words && words[n]) {
		n++;
	}
	return n;
}

int submit_send(const struct submit_job *job, uint64_t *id, struct pawl_err *err)
{
	char cwd[PATH_MAX];
	struct submission s = {.cwd = cwd,
		.file = job->file,
		.len_bytes = job->len_bytes,
		.name = job->given->name ? job->given->name : job->name,
		.vars = (struct sched_var *)(uintptr_t)job->given->vars,
		.vars_n = job->given->vars_n,
		.args = (const char **)(uintptr_t)job->words,
		.args_n = count_words(job->words)};
	struct sched_client *client = NULL;
	int rv;

	if (!getcwd(cwd, sizeof(cwd))) {
		return pawl_err_sys(err, "find the working directory");
	}
	if (s.args_n > SUBMISSION_ARGS_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "the command has more than %u words",
			SUBMISSION_ARGS_MAX);
	}
	rv = keep_env(&s, err);
	rv = rv == 0 ? jobs_open(&client, job->root, err) : rv;
	rv = rv == 0 ? send_it(client, &s, id, err) : rv;
	sched_client_close(client);
	sched_arena_deinit(&s.arena);
	return rv;
}
