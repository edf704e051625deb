/* Reads files of hints. Each running job may write one (PAWL_HINTS); its newest content counts.
 * Only a plain file of the job's user is read. */
#include "daemon/daemon_impl.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/hints.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Finds the entry of a job's file, or adds one; NULL: no memory. */
static struct daemon_hint_file *find(struct daemon *d, uint64_t job)
{
	struct daemon_hint_file *more;

	for (uint32_t i = 0; i < d->hint_files_n; i++) {
		if (d->hint_files[i].job == job) {
			return &d->hint_files[i];
		}
	}
	if (d->hint_files_n == d->hint_files_max) {
		more = realloc(d->hint_files, (2 * d->hint_files_max + 16) * sizeof(*more));
		if (!more) {
			return NULL;
		}
		d->hint_files = more;
		d->hint_files_max = 2 * d->hint_files_max + 16;
	}
	d->hint_files[d->hint_files_n] = (struct daemon_hint_file){.job = job};
	return &d->hint_files[d->hint_files_n++];
}

static void forget_over(struct daemon *d)
{
	for (uint32_t i = 0; i < d->hint_files_n;) {
		const struct core_job *job = core_job_find(d->core, d->hint_files[i].job);

		if (!job || job->state >= CORE_DONE) {
			d->hint_files[i] = d->hint_files[--d->hint_files_n];
		} else {
			i++;
		}
	}
}

/* Reads the file, if it has changed since the last time; 0: nothing new. jobs: descriptor of the
 * directory of all jobs. Users own the directories in it, so no mount below it is entered. */
static ssize_t read_file(int jobs, const struct core_job *job, struct daemon_hint_file *hint,
	char bytes[HINTS_BYTES_MAX])
{
	uint32_t writer = geteuid() == 0 ? job->request.owner : (uint32_t)geteuid();
	char name[64];
	struct stat st;
	ssize_t n = 0;
	int fd;

	snprintf(name, sizeof(name), "%llu/hints.json", (unsigned long long)job->id);
	fd = file_open_beneath(jobs, "jobs", name, O_RDONLY, 0, BENEATH_ONE_MOUNT, &st, NULL);
	if (fd < 0) {
		return 0;
	}
	if (st.st_uid == writer &&
		(st.st_mtim.tv_sec != hint->changed.tv_sec ||
			st.st_mtim.tv_nsec != hint->changed.tv_nsec)) {
		hint->changed = st.st_mtim;
		n = read(fd, bytes, HINTS_BYTES_MAX);
	}
	close(fd);
	return n;
}

static int open_jobs(const struct daemon *d)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/jobs", daemon_shared_dir(d));
	return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

int daemon_set_hints(struct daemon *d, const struct core_job *job, const void *bytes,
	size_t len_bytes, struct pawl_err *err)
{
	const struct core_node *node = core_node_find(d->core, job->current.entries[0].node);
	struct sched_hints hints;
	struct core_event event = {.kind = CORE_HINTS,
		.job = job->id,
		.type = node ? node->offer.type : 0,
		.hints = &hints};
	int rv = hints_decode(&hints, bytes, len_bytes, err);

	return rv == 0 ? daemon_handle_event(d, &event, NULL, NULL, err) : rv;
}

void daemon_read_hints(struct daemon *d)
{
	const struct core_job *const *jobs;
	uint32_t n = core_jobs(d->core, &jobs);
	uint64_t *ids = malloc((n + 1) * sizeof(*ids));
	char *bytes = malloc(HINTS_BYTES_MAX);
	int dir = open_jobs(d);

	for (uint32_t i = 0; i < n && ids; i++) { /* a hint may change the core's list */
		ids[i] = jobs[i]->id;
	}
	for (uint32_t i = 0; i < n && ids && bytes && dir >= 0 && d->failed.code == 0; i++) {
		const struct core_job *job = core_job_find(d->core, ids[i]);
		struct daemon_hint_file *hint;
		struct pawl_err err;
		ssize_t len;

		if (!job || job->state != CORE_RUNNING || job->current.n == 0) {
			continue;
		}
		hint = find(d, ids[i]);
		len = hint ? read_file(dir, job, hint, bytes) : 0;
		if (len > 0 && daemon_set_hints(d, job, bytes, (size_t)len, &err) != 0 &&
			!hint->complained) {
			hint->complained = true;
			log_line(LOG_WARNING, "job %llu: %s", (unsigned long long)ids[i], err.msg);
		}
	}
	forget_over(d);
	if (dir >= 0) {
		close(dir);
	}
	free(ids);
	free(bytes);
}
