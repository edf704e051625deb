/* Fuzzes jobfile_decode, with the bytes unchanged and with each byte turned into a character of
 * text, so that the code behind the check for text is reached. A file is either refused with a
 * reason and a place, or is a job within bounds. */
#include "fuzz.h"

#include "base/assert.h"
#include "pawl/err.h"
#include "sched/jobfile/jobfile.h"
#include "sched/jobfile/tree.h"

#include <stdlib.h>
#include <string.h>

static const char *const seeds[] = {
	"name: gpt\nreplicas: 2..8\nspot: 0..6\nresources:\n  accelerators: [A100, H100:1]\n"
	"  memory: 32+\nenvs: {SIZE: 13b}\nsecrets:\n  TOKEN: abc\nfile_mounts:\n"
	"  /data/${SIZE}: ~/data\n  /more: nfs://nas/x\ntime_limit: 1d12h\nrun: |\n  python x.py\n",
	"num_nodes: 2\nresources:\n  any_of:\n  - &a {accelerators: {A100: 4}, use_spot: true}\n"
	"  - *a\n  disk_size: 1.5TB\n  disk_tier: best\nqueue: q\npriority: -3\nretries: 2\n"
	"preemptible: no\nworkdir: \"~/\\u00e4\"\nsetup: 'x'\nrun: x\n",
	"---\nname: x\nresources:\n  infra: aws/us-east-1\n  disk_tier: high\n  ordered:\n"
	"  - {accelerators: {A100: 4.0}, zone: a, job_recovery: {max_restarts_on_errors: 3}}\n"
	"  - {gpus: L4:0.5, ports: [1], priority: 2}\nsecrets: [a]\nenvs: {A: yes}\nservice: {}\n"
	"file_mounts: {/a: {source: ./b}, /b: {store: volume}}\nvolumes: {}\nrun: x\n---\n",
	"a: &a [1, 2]\nb: &b [*a, *a, *a]\nc: [*b, *b, *b]\nrun: !!str yes\nconfig: {}\n",
};

static void check_spec(const struct sched_spec *spec)
{
	ASSERT(spec->run && spec->run[0] != '\0' && jobfile_is_name(spec->queue));
	ASSERT(!spec->name || jobfile_is_name(spec->name));
	ASSERT(spec->size.least >= 1 && spec->size.least <= spec->size.most);
	ASSERT(spec->size.most <= SPEC_NODES_MAX && spec->spot.most <= spec->size.most);
	ASSERT(spec->choices_n >= 1 && spec->choices_n <= SPEC_CHOICES_MAX);
	ASSERT(spec->time_limit_s <= SPEC_TIME_MAX_S && spec->retries <= SPEC_RETRIES_MAX);
	for (uint32_t i = 0; i < spec->choices_n; i++) {
		ASSERT(spec->choices[i].accelerators <= SPEC_ACCELERATORS_MAX);
		ASSERT(!spec->choices[i].accelerator == (spec->choices[i].accelerators == 0));
		ASSERT(spec->choices[i].memory_bytes <= (uint64_t)SPEC_GIB_MAX << 30);
	}
	for (uint32_t i = 0; i < spec->vars_n; i++) {
		ASSERT(jobfile_is_var(spec->vars[i].name) && spec->vars[i].value);
		ASSERT(strlen(spec->vars[i].value) < SPEC_VALUE_MAX);
	}
	for (uint32_t i = 0; i < spec->mounts_n; i++) {
		ASSERT(strlen(spec->mounts[i].at) < SPEC_PATH_MAX && spec->mounts[i].from);
	}
}

static void decode(const uint8_t *bytes, size_t len_bytes)
{
	const struct jobfile_given given = {NULL};
	const struct jobfile_given strictly = {.strict = true};
	struct remarks remarks = {0};
	struct remarks notes = {0};
	struct remarks all = {0};
	struct remarks of_remarks = {0};
	struct sched_spec spec;
	int rv = jobfile_decode(&spec, bytes, len_bytes, &given, &remarks, &notes, NULL);

	ASSERT(rv == 0 || rv == PAWL_EINVAL);
	ASSERT((rv == 0) == (remarks.n == 0));
	if (rv == 0) {
		check_spec(&spec);
	}
	for (uint32_t i = 0; i < remarks.n; i++) {
		const char *text = remarks.at[i].text;

		ASSERT(remarks.at[i].line > 0 && remarks.at[i].column > 0 && text[0] != '\0');
		ASSERT(tree_text_check((const uint8_t *)text, strlen(text), &of_remarks));
	}
	sched_spec_deinit(&spec);
	/* a strict caller gets the notes as remarks as well, and nothing else */
	jobfile_decode(&spec, bytes, len_bytes, &strictly, &all, NULL, NULL);
	ASSERT(all.n + all.dropped == remarks.n + remarks.dropped + notes.n + notes.dropped);
	sched_spec_deinit(&spec);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	uint8_t *text = malloc(len_bytes + 1);

	ASSERT(text);
	decode(bytes, len_bytes);
	for (size_t i = 0; i < len_bytes; i++) {
		text[i] = bytes[i] & 0x7f;
		text[i] = text[i] == '\n' || text[i] >= ' ' ? text[i] : ' ';
	}
	decode(text, len_bytes);
	free(text);
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
