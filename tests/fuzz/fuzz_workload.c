/* Fuzzes workloads of the simulator: an accepted one has a job for each line, in the order of time,
 * and no impossible job. */
#include "fuzz.h"

#include "base/assert.h"
#include "sched/sim/models.h"
#include "sched/sim/profile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *const seeds[] = {
	"name,time,application,num_replicas,batch_size\na,0,cifar10,4,1024\nb,1.5e3,bert,1,12\n",
	"name,time,application,num_replicas,batch_size\r\na,0,ncf,1,512\r\n\r\nb,7,yolov3,2,8",
};

/* Counts the lines that are not empty. */
static uint32_t count_lines(const uint8_t *bytes, size_t len_bytes)
{
	uint32_t lines = 0;
	size_t from = 0;

	for (size_t at = 0; at <= len_bytes; at++) {
		if (at == len_bytes || bytes[at] == '\n') {
			size_t len = at - from;

			len -= len > 0 && bytes[at - 1] == '\r';
			lines += len > 0;
			from = at + 1;
		}
	}
	return lines;
}

static void check(const struct sched_workload *workload)
{
	for (uint32_t j = 0; j < workload->n; j++) {
		const struct sched_submission *job = &workload->jobs[j];

		ASSERT(job->app && isfinite(job->at_s) && job->at_s >= 0);
		ASSERT(j == 0 || job->at_s >= (job - 1)->at_s);
		ASSERT(job->replicas >= 1 && job->batch >= job->app->bounds.init);
		ASSERT(job->batch <= job->app->bounds.max);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	static struct sched_apps apps;
	struct sched_workload workload = {.n = 0};
	int fd = memfd_create("workload", MFD_CLOEXEC);
	char path[32];

	if (apps.n == 0) {
		ASSERT(sched_models_load(&apps, NULL) == 0);
	}
	if (fd < 0 || write(fd, bytes, len_bytes) != (ssize_t)len_bytes) {
		abort();
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (sched_workload_load(&workload, &apps, path, NULL) == 0) {
		ASSERT(workload.n > 0 && workload.n == count_lines(bytes, len_bytes) - 1);
		check(&workload);
	}
	sched_workload_deinit(&workload);
	close(fd);
	return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	if (i >= sizeof(seeds) / sizeof(seeds[0])) {
		return 0;
	}
	memcpy(buf, seeds[i], strlen(seeds[i]));
	return strlen(seeds[i]);
}
