/* The newest changes of a job, from the scheduler's history: see jobs.h. */
#include "cli/sched/jobs.h"

#include "base/clock.h"
#include "base/err.h"
#include "daemon/history/history.h"

#include <jansson.h>
#include <stdio.h>

#define SHOWN 8u /* changes shown, the newest */

/* The last change that was printed. */
struct printed {
	bool any;
	uint32_t least, most; /* bounds of the job's replicas */
};

static void print_change(void *user, const struct history_row *row)
{
	const struct history_job *job = &row->job;
	char text[CLI_TEXT_MAX];
	struct printed *last = user;

	if (!last->any) {
		cli_print(stdout, "history:\n");
	}
	cli_print(stdout, "  %s %s", cli_time(text, (int64_t)(row->t_s * (double)NS_PER_S)),
		job->state);
	for (uint32_t i = 0; i < job->entries_n; i++) {
		cli_print(stdout, "%s %s (%u)", i == 0 ? " on" : "", job->entries[i].node,
			job->entries[i].replicas);
	}
	cli_print(stdout, job->why[0] != '\0' ? ": %s" : "%s", job->why);
	if (job->goodput > 0) {
		cli_print(stdout, ", %.4g samples/s", job->goodput);
	}
	if (last->any && (last->least != job->least || last->most != job->most)) {
		cli_print(stdout, ", now from %u to %u replicas", job->least, job->most);
	}
	cli_print(stdout, "\n");
	*last = (struct printed){true, job->least, job->most};
}

static void add_change(void *user, const struct history_row *row)
{
	const struct history_job *job = &row->job;
	json_t *at = json_object();

	for (uint32_t i = 0; i < job->entries_n; i++) {
		json_object_set_new(at, job->entries[i].node,
			json_integer(job->entries[i].replicas));
	}
	json_array_append_new(user,
		json_pack("{s:f, s:s, s:s, s:o, s:i, s:i, s:o}", "t", row->t_s, "state", job->state,
			"reason", job->why, "nodes", at, "least", (int)job->least, "most",
			(int)job->most, "goodput",
			job->goodput > 0 ? json_real(job->goodput) : json_null()));
}

int jobs_history_dir(const char *root, char dir[PATH_MAX], struct pawl_err *err)
{
	char found[PATH_MAX];
	int rv = sched_find_root(root, found, err);

	if (rv == 0 && snprintf(dir, PATH_MAX, "%s/" HISTORY_DIR, found) >= PATH_MAX) {
		rv = pawl_err_set(err, PAWL_EINVAL, "%s: the path is too long", found);
	}
	return rv;
}

void jobs_history_print(const char *root, uint64_t job)
{
	char dir[PATH_MAX];
	struct printed last = {0};

	if (jobs_history_dir(root, dir, NULL) == 0) {
		history_read_job(dir, job, SHOWN, print_change, &last, NULL);
	}
}

json_t *jobs_history_json(const char *root, uint64_t job)
{
	char dir[PATH_MAX];
	json_t *list = json_array();

	if (jobs_history_dir(root, dir, NULL) == 0) {
		history_read_job(dir, job, SHOWN, add_change, list, NULL);
	}
	return list;
}
