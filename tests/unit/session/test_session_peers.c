/* A rank that restores from the memory of other hosts: it asks for bytes before it uses any, for
 * each once, and verifies them. Saves that other hosts have copies of. The agent is a script. */
#include "test_session_peers.h"

#include "each_fault.h"

#define BIG        (3u * CKPT_CHUNK + 700) /* bytes of the model's large storage */
#define SMALL      1000u                   /* bytes of its small one */
#define OWN        (300u << 10)            /* bytes of rank 2's own partition */
#define LONG_BYTES (258ull << 20) /* bytes of rank 2's long partition, which nobody reads */
#define MEMORY     (16u << 20)    /* bytes of the memory with all but that */

static const char pickle[] = "pickle of the model";
static uint8_t big[BIG], small[SMALL], own[OWN];

/* Ranks 0 and 1 have shares of the model, and rank 2 its own partition. Rank 3 has no part. */
static void make_save(struct scripted *agent)
{
	const struct ckpt_span model[] = {{.addr = big, .size_bytes = BIG},
		{.addr = small, .size_bytes = SMALL},
		{.addr = pickle, .size_bytes = sizeof(pickle)}};
	const struct ckpt_span owned[] = {{.addr = own, .size_bytes = OWN}, {NULL, 0, 0, 0}};
	struct zip_plan plan;

	for (uint32_t i = 0; i < BIG; i++) {
		big[i] = (uint8_t)(i * 7 + (i >> 12));
	}
	memset(small, 5, SMALL);
	memset(own, 9, OWN);
	agent->memory_bytes = MEMORY;
	agent->memory = calloc(1, MEMORY);
	agent->ranks[1].off = 4u << 20;
	agent->ranks[2].off = 8u << 20;
	assert_int_equal(
		zip_plan_init(&plan, (const uint64_t[]){BIG, SMALL}, 2, sizeof(pickle), NULL), 0);
	add_part(agent, 0, "model", true, &plan, model, 2 * CKPT_CHUNK, 0);
	add_part(agent, 1, "model", true, &plan, model, 0, 2 * CKPT_CHUNK);
	zip_plan_deinit(&plan);
	assert_int_equal(zip_plan_init_raw(&plan, (const uint64_t[]){OWN}, 1, NULL), 0);
	add_part(agent, 2, "own", false, &plan, owned, 0, 0);
	zip_plan_deinit(&plan);
}

static struct pawl_ckpt *join_hosts(uint32_t replicas)
{
	const struct pawl_ckpt_options options = {.root = root,
		.job = "test",
		.world = WORLD,
		.host_ranks = 1,
		.replicas = replicas,
		.socket = sock};

	return join_as(&options);
}

static int setup_dir(void **state)
{
	make_dir();
	return 0;
}

/* A rank that has the offer of a save. */
struct fixture {
	struct scripted agent;
	struct pawl_ckpt *ckpt;
	struct pawl_restore *restore;
	struct pawl_err err;
	uint32_t model, own;
};

static void begin(struct fixture *f)
{
	*f = (struct fixture){.restore = NULL};
	make_save(&f->agent);
	start_scripted(&f->agent);
	f->ckpt = join_hosts(0);
}

static void get_offer(struct fixture *f)
{
	struct pawl_restore_info info;

	if (IN_TIME(pawl_ckpt_restore(f->ckpt, false, 0, WAIT_MS, &f->restore, &f->err)) != 0) {
		fail_msg("%s", f->err.msg);
	}
	pawl_restore_info(f->restore, &info);
	assert_true(info.memory);
	assert_int_equal(info.step, 7);
	assert_string_equal(info.tag, "global_step7");
	assert_int_equal(info.world, WORLD);
	f->model = find(f->restore, "model", 0);
	f->own = find(f->restore, "own", 2);
	assert_int_equal(f->agent.asked_n, 0);
}

static void end(struct fixture *f)
{
	pawl_restore_close(f->restore);
	pawl_ckpt_close(f->ckpt, WAIT_MS, NULL);
	stop_scripted(&f->agent);
}

static void expect_asked(const struct fixture *f, uint32_t i, uint32_t rank, uint64_t lo,
	uint64_t hi)
{
	assert_true(i < f->agent.asked_n);
	assert_int_equal(f->agent.asked[i].rank, rank);
	assert_int_equal(f->agent.asked[i].part, 0);
	assert_int_equal(f->agent.asked[i].lo, lo);
	assert_int_equal(f->agent.asked[i].hi, hi);
}

/* Where a rank's pieces begin that have a byte from lo on, and where those end that have one before
 * hi. */
static uint64_t first_byte(const struct fixture *f, uint32_t rank, uint64_t lo)
{
	const struct record_part *part = &f->agent.ranks[rank].parts[0];
	uint32_t i = 0;

	while (part->pieces[i].file_off + part->pieces[i].len_bytes <= lo) {
		i++;
	}
	return part->pieces[i].file_off;
}

static uint64_t last_byte(const struct fixture *f, uint32_t rank, uint64_t hi)
{
	const struct record_part *part = &f->agent.ranks[rank].parts[0];
	uint32_t i = part->pieces_n;

	while (part->pieces[i - 1].file_off >= hi) {
		i--;
	}
	return part->pieces[i - 1].file_off + part->pieces[i - 1].len_bytes;
}

static void expect_copied(struct fixture *f)
{
	uint8_t *got = calloc(1, BIG + SMALL + OWN);
	const struct pawl_restore_copy copies[] = {{f->model, 0, 0, (uintptr_t)got, BIG},
		{f->model, 1, 0, (uintptr_t)got + BIG, SMALL},
		{f->own, 0, 0, (uintptr_t)got + BIG + SMALL, OWN}};

	assert_int_equal(pawl_restore_copy(f->restore, copies, 3, &f->err), 0);
	assert_memory_equal(got, big, BIG);
	assert_memory_equal(got + BIG, small, SMALL);
	assert_memory_equal(got + BIG + SMALL, own, OWN);
	free(got);
}

static void bytes_are_asked_for_once(void **state)
{
	struct fixture f;
	const void *got;
	uint64_t len, pickle_off;
	enum pawl_verdict all;

	begin(&f);
	get_offer(&f);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(
			IN_TIME(pawl_restore_pickle(f.restore, f.model, &got, &len, &f.err)), 0);
		assert_int_equal(len, sizeof(pickle));
		assert_memory_equal(got, pickle, sizeof(pickle));
	}
	pickle_off = last_byte(&f, 0, UINT64_MAX) - sizeof(pickle);
	expect_asked(&f, 0, 0, pickle_off, pickle_off + sizeof(pickle));
	assert_int_equal(f.agent.asked_n, 1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(IN_TIME(pawl_restore_read(f.restore, f.model, &f.err)), 0);
		assert_int_equal(IN_TIME(pawl_restore_read(f.restore, f.own, &f.err)), 0);
	}
	expect_asked(&f, 1, 0, first_byte(&f, 0, 0), last_byte(&f, 0, pickle_off));
	expect_asked(&f, 2, 1, first_byte(&f, 1, 0), 2 * CKPT_CHUNK);
	expect_asked(&f, 3, 2, 0, OWN);
	assert_int_equal(f.agent.asked_n, 4);
	assert_int_equal(
		IN_TIME(pawl_restore_vote(f.restore, PAWL_VERDICT_GO, "", WAIT_MS, &all, &f.err)),
		0);
	assert_int_equal(all, PAWL_VERDICT_GO);
	expect_copied(&f);
	end(&f);
	assert_int_equal(f.agent.restored, 1);
	assert_int_equal(f.agent.votes, 1);
}

/* A rank asks for the whole pieces that have what it needs, and no others; then for the rest. */
static void only_needed_bytes_are_asked_for(void **state)
{
	struct fixture f;
	uint8_t got[20];
	struct pawl_restore_copy copy = {.off_bytes = CKPT_CHUNK,
		.dst = (uintptr_t)got,
		.len_bytes = sizeof(got)};

	begin(&f);
	get_offer(&f);
	copy.part = f.model;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(IN_TIME(pawl_restore_read_needed(f.restore, &copy, 1, &f.err)), 0);
		assert_int_equal(pawl_restore_copy(f.restore, &copy, 1, &f.err), 0);
		assert_memory_equal(got, big + CKPT_CHUNK, sizeof(got));
		assert_int_equal(f.agent.asked_n, 2); /* the first one is of the pickle */
	}
	expect_asked(&f, 1, 1, CKPT_CHUNK, 2 * CKPT_CHUNK);
	assert_int_equal(IN_TIME(pawl_restore_read(f.restore, f.model, &f.err)), 0);
	assert_int_equal(IN_TIME(pawl_restore_read(f.restore, f.own, &f.err)), 0);
	expect_asked(&f, 3, 1, first_byte(&f, 1, 0), CKPT_CHUNK);
	expect_copied(&f);
	end(&f);
	assert_int_equal(f.agent.votes, 1); /* closed without a vote: it refuses */
}

static void errors_of_the_agent_reach_the_caller(void **state)
{
	struct fixture f;
	const void *got;
	uint64_t len;

	begin(&f);
	get_offer(&f);
	f.agent.answer = REFUSES;
	assert_int_equal(IN_TIME(pawl_restore_pickle(f.restore, f.model, &got, &len, &f.err)),
		PAWL_EIO);
	assert_string_equal(f.err.msg,
		"global_step7/model of rank 0: host-b is gone, and host-c too");
	assert_int_equal(IN_TIME(pawl_restore_read(f.restore, f.own, &f.err)), PAWL_EIO);
	f.agent.answer = FILLS; /* what was not there is asked for again */
	assert_int_equal(IN_TIME(pawl_restore_read(f.restore, f.own, &f.err)), 0);
	assert_int_equal(IN_TIME(pawl_restore_read(f.restore, f.model, &f.err)), 0);
	expect_copied(&f);
	end(&f);
	begin(&f);
	get_offer(&f);
	f.agent.answer = HANGS_UP;
	assert_int_equal(IN_TIME(pawl_restore_read(f.restore, f.own, &f.err)), PAWL_EIO);
	assert_int_equal(IN_TIME(pawl_restore_read(f.restore, f.own, &f.err)), PAWL_EPEER);
	end(&f);
}

static void damaged_bytes_are_found(void **state)
{
	struct fixture f;

	begin(&f);
	get_offer(&f);
	pthread_mutex_lock(&f.agent.lock);
	f.agent.memory[f.agent.ranks[2].off + OWN / 2] ^= 4;
	pthread_mutex_unlock(&f.agent.lock);
	assert_int_equal(IN_TIME(pawl_restore_read(f.restore, f.own, &f.err)), PAWL_ECORRUPT);
	assert_non_null(strstr(f.err.msg, "not what rank 2 staged"));
	assert_int_equal(IN_TIME(pawl_restore_read(f.restore, f.model, &f.err)), 0);
	end(&f);
}

/* A partition of more than 256 MiB comes in steps. The second one fails, so nothing is read. */
static void long_partitions_come_in_steps(void **state)
{
	struct fixture f;
	struct zip_plan plan;
	struct record_part *part;

	f = (struct fixture){.restore = NULL};
	make_save(&f.agent);
	part = &f.agent.ranks[2].parts[0];
	assert_int_equal(zip_plan_init_raw(&plan, (const uint64_t[]){LONG_BYTES}, 1, NULL), 0);
	part->size_bytes = part->hi = part->storage_bytes[0] = LONG_BYTES;
	free(part->pieces);
	part->pieces_n = LONG_BYTES / CKPT_CHUNK;
	part->pieces = calloc(part->pieces_n, sizeof(*part->pieces));
	for (uint32_t i = 0; i < part->pieces_n; i++) {
		part->pieces[i] = (struct record_piece){(uint64_t)i * CKPT_CHUNK, CKPT_CHUNK, 0};
	}
	f.agent.ranks[2].bytes = LONG_BYTES;
	f.agent.memory_bytes = f.agent.ranks[2].off + arena_round(LONG_BYTES);
	free(f.agent.memory);
	f.agent.memory =
		mmap(NULL, f.agent.memory_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	start_scripted(&f.agent);
	f.ckpt = join_hosts(0);
	get_offer(&f);
	f.agent.answer = FILLS_NOTHING;
	assert_int_equal(IN_TIME(pawl_restore_read(f.restore, f.own, &f.err)), PAWL_EIO);
	expect_asked(&f, 0, 2, 0, 256u << 20);
	expect_asked(&f, 1, 2, 256u << 20, LONG_BYTES);
	assert_int_equal(f.agent.asked_n, 2);
	zip_plan_deinit(&plan);
	munmap(f.agent.memory, f.agent.memory_bytes);
	f.agent.memory = NULL;
	end(&f);
}

/* Every offer that is not whole is refused, and leaves nothing behind. */
static void malformed_offers_are_refused(void **state)
{
	struct fixture f;

	begin(&f);
	for (int i = 0; i < 7; i++) {
		struct scripted *agent = &f.agent;

		pthread_mutex_lock(&agent->lock);
		agent->fds = i == 0 ? 0 : i == 1 ? 2 : 1;
		agent->rows = i == 2 ? 0 : i == 3 ? PROTO_RANKS_JOB + 1 : WORLD;
		agent->past_end = i == 4;
		agent->ranks[2].damaged_blob = i == 5;
		agent->memory_bytes = i == 6 ? 0 : MEMORY;
		pthread_mutex_unlock(&agent->lock);
		assert_int_equal(
			IN_TIME(pawl_ckpt_restore(f.ckpt, false, 0, WAIT_MS, &f.restore, &f.err)),
			PAWL_ECORRUPT);
		assert_true(i < 4 || i > 5 || strstr(f.err.msg, "rank 2") != NULL);
	}
	pthread_mutex_lock(&f.agent.lock);
	f.agent.memory_bytes = MEMORY;
	f.agent.rows = PROTO_RANKS_JOB; /* the largest job */
	pthread_mutex_unlock(&f.agent.lock);
	assert_int_equal(IN_TIME(pawl_ckpt_restore(f.ckpt, false, 0, WAIT_MS, &f.restore, &f.err)),
		0);
	assert_int_equal(IN_TIME(pawl_restore_read(f.restore, find(f.restore, "own", 2), &f.err)),
		0);
	end(&f);
}

/* Without memory a restore fails, and gives everything back. */
static void no_memory_is_an_error(void **state)
{
	struct fixture f;
	int rv = 0;

	begin(&f);
	for (uint64_t nth = 1; each_fault(nth); nth++) {
		fault_arm("restore.peers", nth, ENOMEM, false);
		rv = pawl_ckpt_restore(f.ckpt, false, 0, (int)WAIT_MS, &f.restore, &f.err);
		if (rv == 0) {
			rv = pawl_restore_read(f.restore, find(f.restore, "model", 0), &f.err);
			pawl_restore_close(f.restore);
			f.restore = NULL;
		}
		fault_disarm();
		assert_true(rv == 0 || (rv == PAWL_ENOMEM && fault_reached(nth)));
	}
	assert_int_equal(rv, 0);
	end(&f);
}

/* ---- saves ---- */

static uint64_t save(struct pawl_ckpt *ckpt, uint64_t step)
{
	const struct pawl_ckpt_span span = {(uintptr_t)own, OWN, 0, 0};
	const struct pawl_ckpt_part part = {.name = "own",
		.raw = true,
		.spans = &span,
		.spans_n = 1};
	struct pawl_err err;
	uint64_t id;

	if (pawl_ckpt_save(ckpt, step, &part, 1, false, &id, &err) != 0) {
		fail_msg("%s", err.msg);
	}
	return id;
}

static void must_reach(struct pawl_ckpt *ckpt, uint64_t id, enum pawl_ckpt_level level,
	enum pawl_ckpt_level reached)
{
	struct pawl_ckpt_status status;
	struct pawl_err err;

	if (IN_TIME(pawl_ckpt_wait(ckpt, id, level, WAIT_MS, &err)) != 0) {
		fail_msg("%s", err.msg);
	}
	assert_int_equal(pawl_ckpt_status(ckpt, id, &status, &err), 0);
	assert_int_equal(status.level, reached);
}

/* Waiting for replicas does not make a save durable; without replicas, it waits for that. */
static void replicated_lies_below_durable(void **state)
{
	struct scripted agent = {.memory_bytes = MEMORY, .replicates = true};
	struct pawl_ckpt *ckpt;
	uint64_t id;

	agent.memory = calloc(1, MEMORY);
	start_scripted(&agent);
	ckpt = join_hosts(2);
	assert_int_equal(agent.replicas, 2);
	id = save(ckpt, 1);
	must_reach(ckpt, id, PAWL_CKPT_REPLICATED, PAWL_CKPT_REPLICATED);
	must_reach(ckpt, id, PAWL_CKPT_COMMITTED, PAWL_CKPT_REPLICATED);
	assert_int_equal(agent.flushes, 0);
	must_reach(ckpt, id, PAWL_CKPT_DURABLE, PAWL_CKPT_DURABLE);
	assert_int_equal(agent.flushes, 1);
	must_reach(ckpt, id, PAWL_CKPT_REPLICATED, PAWL_CKPT_DURABLE);
	assert_int_equal(pawl_ckpt_close(ckpt, WAIT_MS, NULL), 0);
	agent.replicates = false;
	agent.flushes = 0;
	ckpt = join_hosts(0);
	assert_int_equal(agent.replicas, 0);
	must_reach(ckpt, save(ckpt, 2), PAWL_CKPT_REPLICATED, PAWL_CKPT_DURABLE);
	assert_int_equal(agent.flushes, 1);
	assert_int_equal(pawl_ckpt_close(ckpt, WAIT_MS, NULL), 0);
	stop_scripted(&agent);
}

/* A save that is superseded keeps its level, and gets no safer. */
static void a_wait_ends_when_the_save_is_superseded(void **state)
{
	for (int replicated = 0; replicated < 2; replicated++) {
		struct scripted agent = {.memory_bytes = MEMORY,
			.replicates = replicated,
			.supersedes = true};
		struct pawl_ckpt *ckpt;
		struct pawl_err err;
		uint64_t id;

		agent.memory = calloc(1, MEMORY);
		start_scripted(&agent);
		ckpt = join_hosts(1);
		id = save(ckpt, 1);
		if (replicated) {
			must_reach(ckpt, id, PAWL_CKPT_REPLICATED, PAWL_CKPT_REPLICATED);
		} else {
			assert_int_equal(IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_REPLICATED,
						 WAIT_MS, &err)),
				PAWL_ECANCELED);
			assert_non_null(strstr(err.msg, "superseded"));
			must_reach(ckpt, id, PAWL_CKPT_COMMITTED, PAWL_CKPT_COMMITTED);
		}
		pawl_ckpt_close(ckpt, WAIT_MS, NULL);
		stop_scripted(&agent);
	}
}

static void replicas_are_bounded(void **state)
{
	struct scripted agent = {.memory_bytes = MEMORY};
	struct pawl_ckpt_options options = {.root = root,
		.job = "test",
		.world = 1,
		.socket = sock};
	struct pawl_ckpt *ckpt;
	struct pawl_err err;

	start_scripted(&agent);
	options.replicas = PAWL_CKPT_REPLICAS_MAX + 1;
	assert_int_equal(pawl_ckpt_open(&ckpt, &options, &err), PAWL_EINVAL);
	assert_non_null(strstr(err.msg, "9 replicas: at most 8"));
	options.replicas = PAWL_CKPT_PARITY_MAX + 1;
	options.parity = true;
	assert_int_equal(pawl_ckpt_open(&ckpt, &options, &err), PAWL_EINVAL);
	assert_non_null(strstr(err.msg, "4 replicas with parity: at most 3"));
	options.replicas = PAWL_CKPT_REPLICAS_DEFAULT;
	ckpt = join_as(&options);
	assert_int_equal(agent.replicas, UINT32_MAX);
	assert_true(agent.parity);
	pawl_ckpt_close(ckpt, WAIT_MS, NULL);
	stop_scripted(&agent);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(bytes_are_asked_for_once, setup_dir, teardown),
		cmocka_unit_test_setup_teardown(only_needed_bytes_are_asked_for, setup_dir,
			teardown),
		cmocka_unit_test_setup_teardown(errors_of_the_agent_reach_the_caller, setup_dir,
			teardown),
		cmocka_unit_test_setup_teardown(damaged_bytes_are_found, setup_dir, teardown),
		cmocka_unit_test_setup_teardown(long_partitions_come_in_steps, setup_dir, teardown),
		cmocka_unit_test_setup_teardown(malformed_offers_are_refused, setup_dir, teardown),
		cmocka_unit_test_setup_teardown(no_memory_is_an_error, setup_dir, teardown),
		cmocka_unit_test_setup_teardown(replicated_lies_below_durable, setup_dir, teardown),
		cmocka_unit_test_setup_teardown(a_wait_ends_when_the_save_is_superseded, setup_dir,
			teardown),
		cmocka_unit_test_setup_teardown(replicas_are_bounded, setup_dir, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
