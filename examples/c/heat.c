/*
 * A simulation in C that survives being killed: heat spreads along a rod, and every 100th step is a
 * checkpoint. Started again, it goes on from the newest one.
 *
 *   cc -O2 heat.c -o heat $(pkg-config --cflags --libs pawl)
 *   ./heat runs/rod 5000 "$(command -v pawl)"
 */
#include <pawl/ckpt.h>
#include <pawl/env.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CELLS      (1u << 20)
#define SAVE_EVERY 100u  /* steps between two checkpoints */
#define TIMEOUT_MS 60000 /* longest wait for other ranks and for storage */
#define PARTITION  "rod" /* name of the only partition: a raw file */

static int fail(const char *what, const struct pawl_err *err)
{
	fprintf(stderr, "heat: %s: %s\n", what, err->msg);
	return EXIT_FAILURE;
}

static int open_session(struct pawl_ckpt **ckpt, const char *root, const char *program,
	struct pawl_err *err)
{
	struct pawl_env env;
	struct pawl_ckpt_options options = {.root = root, .keep = 3, .program = program};
	int rv = pawl_env_resolve(NULL, NULL, &env, err);

	if (rv != 0) {
		return rv;
	}
	options.job = env.job[0] != '\0' ? env.job : "heat";
	options.rank = env.rank;
	options.world = env.world;
	options.attempt = env.attempt;
	options.socket = getenv("PAWL_AGENT"); /* set by `pawl run` */
	return pawl_ckpt_open(ckpt, &options, err);
}

/* Reads and verifies the checkpoint, and copies it once all ranks are ready. *all:
 * PAWL_VERDICT_RETRY if a copy was damaged, and is not offered any more: ask again. */
static int load(struct pawl_restore *found, double *cells, enum pawl_verdict *all,
	struct pawl_err *err)
{
	struct pawl_restore_copy copy = {.dst = (uintptr_t)cells,
		.len_bytes = CELLS * sizeof(*cells)};
	int rv = pawl_restore_read(found, 0, err);
	enum pawl_verdict own = rv == 0 ? PAWL_VERDICT_GO
		: rv == PAWL_ECORRUPT   ? PAWL_VERDICT_RETRY
					: PAWL_VERDICT_REFUSED;

	rv = pawl_restore_vote(found, own, rv == 0 ? "" : err->msg, TIMEOUT_MS, all, err);
	return rv == 0 && *all == PAWL_VERDICT_GO ? pawl_restore_copy(found, &copy, 1, err) : rv;
}

/* Fills cells from the newest whole checkpoint. Returns its step, 0 if there is none yet, or an
 * error below 0. */
static int64_t restore(struct pawl_ckpt *ckpt, double *cells, struct pawl_err *err)
{
	enum pawl_verdict all = PAWL_VERDICT_RETRY;
	struct pawl_restore_info info = {0};

	while (all == PAWL_VERDICT_RETRY) {
		struct pawl_restore *found;
		int rv = pawl_ckpt_restore(ckpt, false, 0, TIMEOUT_MS, &found, err);

		if (rv != 0) {
			return rv == PAWL_ENOENT ? 0 : rv;
		}
		pawl_restore_info(found, &info);
		rv = load(found, cells, &all, err);
		pawl_restore_close(found);
		if (rv != 0) {
			return rv;
		}
	}
	return (int64_t)info.step;
}

static int save(struct pawl_ckpt *ckpt, uint64_t step, const double *cells, struct pawl_err *err)
{
	struct pawl_ckpt_span span = {.addr = (uintptr_t)cells,
		.size_bytes = CELLS * sizeof(*cells)};
	struct pawl_ckpt_part part = {.name = PARTITION, .raw = true, .spans = &span, .spans_n = 1};
	uint64_t id;

	return pawl_ckpt_save(ckpt, step, &part, 1, false, &id, err);
}

static void spread(double *cells, double *next)
{
	for (size_t i = 1; i + 1 < CELLS; i++) {
		next[i] = cells[i] + 0.25 * (cells[i - 1] - 2 * cells[i] + cells[i + 1]);
	}
	memcpy(cells + 1, next + 1, (CELLS - 2) * sizeof(*cells));
}

int main(int argc, char **argv)
{
	double *cells = calloc(CELLS, sizeof(*cells));
	double *next = calloc(CELLS, sizeof(*next));
	struct pawl_ckpt *ckpt;
	struct pawl_err err;
	uint64_t steps;
	int64_t step;

	if (argc != 4 || !cells || !next) {
		fprintf(stderr, "usage: heat ROOT STEPS PAWL\n");
		return EXIT_FAILURE;
	}
	steps = strtoull(argv[2], NULL, 10);
	if (open_session(&ckpt, argv[1], argv[3], &err) != 0) {
		return fail("open", &err);
	}
	cells[0] = 100; /* one end is kept hot */
	step = restore(ckpt, cells, &err);
	if (step < 0) {
		return fail("restore", &err);
	}
	printf("begins at step %lld\n", (long long)step);
	for (uint64_t n = (uint64_t)step + 1; n <= steps; n++) {
		spread(cells, next);
		if (n % SAVE_EVERY == 0 && save(ckpt, n, cells, &err) != 0) {
			return fail("save", &err);
		}
	}
	printf("cell 1 is at %.17g\n", cells[1]);
	if (pawl_ckpt_close(ckpt, TIMEOUT_MS, &err) != 0) {
		return fail("close", &err);
	}
	free(cells);
	free(next);
	return EXIT_SUCCESS;
}
