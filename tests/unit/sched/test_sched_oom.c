/* Each allocation fails in turn, libyaml's own included, once or always from then on. The job file
 * is then not read, nothing else happens, and no memory is lost. */
#define ALLOC_FAILS
#include "count_alloc.h"

#ifndef SANITIZED

#include "pawl/err.h"
#include "sched/jobfile/jobfile.h"

#include <stdbool.h>
#include <string.h>

static const char text[] = "%YAML 1.1\n---\nname: x\nrun: |\n  a script\n  of lines\n"
			   "envs: {A: &a b, B: *a, C: \"a\\tb\", D: 'e', E: !!str 5}\n"
			   "resources:\n  any_of: [{cpus: 1}, {memory: 2}]\n"
			   "  accelerators:\n  - A100:1\n  - H100\n"
			   "file_mounts: {/a: /b, /c: nfs://d/e}\n";

static bool armed;    /* allocations fail */
static bool forever;  /* all allocations after the first failure fail, too */
static unsigned left; /* allocations until the first failure */
static bool hit;      /* an allocation has failed */

static long live; /* allocations that were not freed */

/* Counts each call; calls without fail_call are frees. */
static void count_call(void)
{
	live--;
}

/* old: the memory that a realloc moves. */
static int fail_call(const void *old)
{
	bool now = armed && left == 0;

	left -= armed && left > 0;
	armed = armed && (!now || forever);
	live += now || old ? 1 : 2;
	hit = hit || now;
	return now;
}

/* Decodes with the nth allocation failing. Returns the result. */
static int decode(unsigned nth)
{
	static struct remarks remarks;
	const struct jobfile_given given = {NULL};
	struct sched_spec spec;
	long before = live;
	int rv;

	remarks = (struct remarks){0};
	left = nth;
	hit = false;
	armed = true;
	rv = jobfile_decode(&spec, text, sizeof(text) - 1, &given, &remarks, NULL, NULL);
	armed = false;
	sched_spec_deinit(&spec);
	if (live != before) {
		printf("allocation %u: memory is lost\n", nth);
		exit(1);
	}
	return rv;
}

int main(void)
{
	unsigned n = 0;

	for (int i = 0; i < 2; i++) {
		int rv;

		forever = i == 1;
		for (n = 0; (rv = decode(n)) == PAWL_ENOMEM && hit; n++) {
		}
		if (n < 50 || hit || rv != 0) {
			printf("allocation %u: %d\n", n, rv);
			return 1;
		}
	}
	printf("%u allocations, each failed\n", n);
	return 0;
}

#endif
