/* Records the engine and the spool that the database's jobs run in. Another engine or spool does
 * not know the jobs that run, and would start them a second time. */
#include "daemon/daemon_impl.h"

#include "base/err.h"
#include "base/file.h"
#include "engine/slurm/slurm_spool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES (PATH_MAX + 64u)

/* Names the engine: a word that identifies it, then its options. The word of a spool is its id,
 * since the same spool may have another path on another host. */
static int name_engine(const struct daemon *d, char name[NAME_MAX_BYTES], struct pawl_err *err)
{
	char spool[PATH_MAX];
	char id[SLURM_ID_CHARS + 1];
	int rv;

	if (!d->options->pools) {
		snprintf(name, NAME_MAX_BYTES, "local --engine local\n");
		return 0;
	}
	snprintf(spool, sizeof(spool), "%s/slurm", daemon_shared_dir(d));
	rv = slurm_spool_open(spool, id, err);
	snprintf(name, NAME_MAX_BYTES, "%s --engine slurm --spool %s\n", id, daemon_shared_dir(d));
	return rv;
}

/* Reads the recorded name; "": there is none. The file lies in the scheduler's directory with
 * either engine; slurm_spool_get reads it only because it reads any small file. */
static int read_last(const struct daemon *d, char last[NAME_MAX_BYTES], struct pawl_err *err)
{
	uint8_t *bytes;
	size_t len_bytes;
	int rv = slurm_spool_get(d->options->root, "engine", &bytes, &len_bytes, err);

	last[0] = '\0';
	if (rv != 0) {
		return rv == PAWL_ENOENT ? 0 : rv;
	}
	snprintf(last, NAME_MAX_BYTES, "%.*s", (int)len_bytes, (char *)bytes);
	free(bytes);
	return 0;
}

static const struct core_job *find_live(const struct daemon *d)
{
	const struct core_job *const *jobs;
	uint32_t n = core_jobs(d->core, &jobs);

	for (uint32_t i = 0; i < n; i++) {
		if (jobs[i]->state >= CORE_STARTING && jobs[i]->state <= CORE_STOPPING) {
			return jobs[i];
		}
	}
	return NULL;
}

/* Returns the options in a name: all after its first word, without the newline. */
static const char *options_of(char *name)
{
	name[strcspn(name, "\n")] = '\0';
	return name + strcspn(name, " ") + (strchr(name, ' ') ? 1 : 0);
}

static int refuse(const struct daemon *d, const struct core_job *job, char *last, char *name,
	struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_EBUSY,
		"%s: job %" PRIu64 " runs under %s, of which %s knows nothing and would start it "
		"once more: go on with the first until no job runs; or, if nothing of them is left "
		"there, remove %s/engine",
		d->options->root, job->id, options_of(last), options_of(name), d->options->root);
}

int daemon_record_engine(const struct daemon *d, struct pawl_err *err)
{
	char path[PATH_MAX];
	char name[NAME_MAX_BYTES];
	char last[NAME_MAX_BYTES];
	const struct core_job *job = find_live(d);
	int rv = name_engine(d, name, err);

	rv = rv == 0 ? read_last(d, last, err) : rv;
	if (rv != 0 || strcmp(name, last) == 0) {
		return rv;
	}
	if (job && last[0] != '\0' && strncmp(name, last, strcspn(name, " ") + 1) != 0) {
		return refuse(d, job, last, name, err);
	}
	snprintf(path, sizeof(path), "%s/engine", d->options->root);
	return file_put(path, name, strlen(name), 0600, true, err);
}
