/*
 * A real Slurm (tests/lib/slurm.sh) with the engine slurm, and what tests do to both. All files are
 * in one folder, which is removed at the end. No process is left.
 */
#ifndef TEST_SCHED_SLURM_WORLD_H
#define TEST_SCHED_SLURM_WORLD_H

#include "test_sched_events.h"

#include "base/clock.h"
#include "engine/slurm/slurm.h"
#include "folder.h"
#include "within.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORLD_NODES    4u
#define WORLD_JOBS     256u
#define WORLD_FENCE_NS (30 * NS_PER_S)
#define WORLD_TRIES    4

extern char **environ;

static struct slurm_world {
	char folder[64];
	char spool[80];
	char marks[80]; /* file with a line for each start, save, … of a job */
	const char *program;
	const char *source;
	pid_t slurm; /* process of slurm.sh */
	FILE *to;    /* stdin of slurm.sh */
	FILE *from;  /* stdout of slurm.sh */
	struct sched_slurm *engine;
	struct slurm_pool pool;
	enum deed deeds[WORLD_JOBS];
	uint32_t nodes[WORLD_JOBS]; /* number of nodes of each job, by its last description */
	bool dynamic;               /* nodes can join and leave jobs described from now on */
	bool closed;                /* but these jobs open no membership file */
	char membership_path[128];
} sw;

/* ---- programs ---- */

/* Starts a program, with pipes to its stdin and from its stdout. */
static pid_t world_spawn(const char *const *argv, FILE **in, FILE **out)
{
	posix_spawn_file_actions_t files;
	int to[2];
	int from[2];
	pid_t pid;
	int rv;

	assert_int_equal(pipe2(to, O_CLOEXEC), 0);
	assert_int_equal(pipe2(from, O_CLOEXEC), 0);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, to[0], STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&files, from[1], STDOUT_FILENO);
	rv = posix_spawnp(&pid, argv[0], &files, NULL, (char **)(uintptr_t)argv, environ);
	posix_spawn_file_actions_destroy(&files);
	assert_int_equal(rv, 0);
	close(to[0]);
	close(from[1]);
	*in = fdopen(to[1], "we");
	*out = fdopen(from[0], "re");
	assert_true(*in && *out);
	return pid;
}

/* Runs a program to its end; text gets its output. Returns its exit status. */
static int world_run(const char *const *argv, char *text, size_t cap_bytes)
{
	FILE *in;
	FILE *out;
	pid_t pid = world_spawn(argv, &in, &out);
	size_t n;
	int status;

	fclose(in);
	n = fread(text, 1, cap_bytes - 1, out);
	text[n] = '\0';
	fclose(out);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Runs one of Slurm's commands, again until it succeeds: the controller may be too busy to answer
 * in time. */
static void world_do(const char *const *argv)
{
	char text[4096];

	WITHIN_DOING(WITHIN_LONG_S, world_run(argv, text, sizeof(text)) == 0,
		printf("%s %s fails: %s\n", argv[0], argv[1], text), within_pace(0.5));
}

/* ---- Slurm ---- */

/* Reads a line of slurm.sh. */
static void world_answer(char *line, size_t cap_bytes)
{
	if (!fgets(line, (int)cap_bytes, sw.from)) {
		snprintf(line, cap_bytes, "slurm.sh has ended");
	}
	line[strcspn(line, "\n")] = '\0';
}

/* Makes slurm.sh "kill" or "start" the slurmd of a node. */
static void world_slurmd(const char *what, const char *node)
{
	char line[128];

	fprintf(sw.to, "%s %s\n", what, node);
	fflush(sw.to);
	world_answer(line, sizeof(line));
	assert_string_equal(line, "ok");
}

static void world_start_slurm(void)
{
	char script[512];
	char nodes[16];
	const char *const argv[] = {"bash", script, sw.folder, nodes, NULL};
	char conf[128];
	char line[256];
	int status;

	snprintf(script, sizeof(script), "%s/tests/lib/slurm.sh", sw.source);
	snprintf(nodes, sizeof(nodes), "%u", WORLD_NODES);
	sw.slurm = world_spawn(argv, &sw.to, &sw.from);
	world_answer(line, sizeof(line));
	if (strcmp(line, "ready") == 0) {
		snprintf(conf, sizeof(conf), "%s/slurm.conf", sw.folder);
		setenv("SLURM_CONF", conf, 1);
		return;
	}
	printf("%s\n", line);
	while (fgets(line, sizeof(line), sw.from)) {
		printf("%s", line);
	}
	waitpid(sw.slurm, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == WITHIN_STATUS) {
		printf("[  FAILED  ] outside_of_tests\n");
	}
	exit(WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : 1);
}

static int64_t world_now(void *user)
{
	return clock_mono_ns();
}

/* ---- jobs ---- */

static void world_prepare(uint64_t job, enum deed deed)
{
	assert_true(job < WORLD_JOBS);
	sw.deeds[job] = deed;
}

static void world_put(struct wire_out *list, const char *arg)
{
	wire_put_raw(list, arg, strlen(arg) + 1);
}

/* A script for sh like those of the deeds: a launcher of an elastic job, with one rank. $2 is its
 * node number, $3 the membership file; $3.all has a file for each launcher that trains. If $0.vain
 * exists, no launcher can join. A launcher writes the membership file again if $3.all has changed
 * meanwhile, so the last writer lists all. */
static const char dynamic_script[] =
	"all() { cd $d.all && ls; }; k=$2 d=$3\n"
	"list() { while n=$(all); echo name $n >$d.$k; mv $d.$k $d; [ \"$n\" != \"$(all)\" ]\n"
	"do :; done; }\n"
	"out() { rm $d.all/$((k * 64)); list; }\n"
	"trap 'echo saved $1 >>$0; out; exit 143' TERM\n"
	"trap 'echo left $1 >>$0; out; exit 79' USR1\n"
	"echo start $1 >>$0; [ $2 = 0 ] || [ ! -e $0.vain ] || exit 3\n"
	"mkdir -p $3.all; touch $3.all/$(($2 * 64)); list; while :; do sleep 0.1; done";

static void world_put_dynamic(struct slurm_program *program, const struct slurm_start *start)
{
	char number[16];

	snprintf(sw.membership_path, sizeof(sw.membership_path), "%s.door.%llu", sw.marks,
		(unsigned long long)start->place->job);
	snprintf(number, sizeof(number), "%u", start->number);
	program->membership_path = sw.membership_path;
	world_put(&program->run, number);
	world_put(&program->run, sw.membership_path);
}

static int world_describe(void *user, const struct slurm_start *start,
	struct slurm_program *program, struct pawl_err *err)
{
	const struct vars_place *place = start->place;
	char number[48];

	sw.nodes[place->job] = place->nodes;
	program->cwd = "/";
	program->log = sw.marks; /* nothing else is printed if all goes well */
	snprintf(number, sizeof(number), "%llu.%llu.%u", (unsigned long long)place->job,
		(unsigned long long)start->generation, start->number);
	world_put(&program->setup, "true");
	world_put(&program->run, "sh");
	world_put(&program->run, "-c");
	world_put(&program->run,
		sw.dynamic && !sw.closed ? dynamic_script : deed_scripts[sw.deeds[place->job]]);
	world_put(&program->run, sw.marks);
	world_put(&program->run, number);
	if (sw.dynamic) {
		world_put_dynamic(program, start);
	}
	world_put(&program->scale, "sh"); /* $2: number of replicas */
	world_put(&program->scale, "-c");
	world_put(&program->scale, "echo size $1 $2 >>$0; [ ! -e $0.scale ] || . $0.scale");
	world_put(&program->scale, sw.marks);
	world_put(&program->scale, number);
	world_put(&program->env, "A_JOB=of the test");
	return 0;
}

/* Counts the marks with that begin. */
static uint64_t world_marks(const char *begin)
{
	return marks_count(sw.marks, begin, "");
}

static uint64_t world_starts(void)
{
	return marks_starts(sw.marks);
}

/* Waits until the job's programs have started: for the engine, a part runs before that. */
static void world_await(uint64_t job)
{
	char mark[64];

	for (uint32_t n = 0; n < sw.nodes[job]; n++) {
		snprintf(mark, sizeof(mark), "start %llu.%llu.%u", (unsigned long long)job,
			(unsigned long long)suite.generation, n);
		WITHIN_DOING(WITHIN_LONG_S, world_marks(mark) > 0, within_pace(0.1));
	}
}

/* Sets what the scale programs of jobs do from now on, after they have written their size. */
static void world_scales(const char *script)
{
	char path[96];
	FILE *file;

	snprintf(path, sizeof(path), "%s.scale", sw.marks);
	file = fopen(path, "we");
	assert_non_null(file);
	fputs(script, file);
	assert_int_equal(fclose(file), 0);
}

static uint32_t world_requested_size(uint64_t job)
{
	return marks_size(sw.marks, job);
}

/* ---- nodes ---- */

/* Returns the job number of a pilot in Slurm: 12 for "n1.12" and "n1.12.1". */
static const char *world_slurm_job(const char *node)
{
	static char number[24];

	node = strchr(node, '.');
	assert_non_null(node);
	snprintf(number, sizeof(number), "%.*s", (int)strcspn(node + 1, "."), node + 1);
	return number;
}

/* Kills the pilot itself, which writes no last have. */
static void world_lose(const char *node)
{
	const char *const argv[] = {"scancel", "--signal=KILL", "--batch", world_slurm_job(node),
		NULL};

	world_do(argv);
}

/* ---- the engine ---- */

static void world_open_engine(void)
{
	struct slurm_options options = {.loop = events.loop,
		.spool = sw.spool,
		.program = sw.program,
		.pools = &sw.pool,
		.pools_n = 1,
		.poll_ns = 300 * NS_PER_MS,
		.fence_ns = WORLD_FENCE_NS,
		.now_ns = world_now,
		.post = events_take,
		.describe = world_describe};
	struct pawl_err err = {0};

	if (sched_slurm_open(&sw.engine, &options, &err) != 0) {
		fail_msg("%s", err.msg);
	}
	suite.world->self = sw.engine;
}

static void world_reopen(void)
{
	sched_slurm_close(sw.engine);
	events.n = 0;
	world_open_engine();
}

static struct engine_world slurm_engine_world = {.engine = &sched_slurm_engine,
	.bad_code = 3,
	.wait_ms = 120000,
	.prepare = world_prepare,
	.next = events_next,
	.starts = world_starts,
	.await = world_await,
	.requested_size = world_requested_size,
	.lose = world_lose,
	.reopen = world_reopen,
	.pool = "pool"};

/* ---- begin and end ---- */

static void world_open(const char *program, const char *source)
{
	struct pawl_err err = {0};

	snprintf(sw.folder, sizeof(sw.folder), "/tmp/pawl-slurm-XXXXXX");
	if (!mkdtemp(sw.folder)) {
		printf("%s: %s\n", sw.folder, strerror(errno));
		exit(1);
	}
	sw.program = program;
	sw.source = source;
	snprintf(sw.spool, sizeof(sw.spool), "%s/spool", sw.folder);
	snprintf(sw.marks, sizeof(sw.marks), "%s/marks", sw.folder);
	sw.pool.pool = (struct core_pool){.name = "pool", .slots = 4, .price = 1, .most = 4};
	setenv("TMPDIR", sw.folder, 1); /* leftovers of killed pilots go with the folder */
	world_start_slurm();
	if (loop_open(&events.loop, &err) != 0) {
		printf("%s\n", err.msg);
		exit(1);
	}
	suite_open(&slurm_engine_world);
	setenv("SLURM_RESTART_COUNT", "1", 1); /* as in a requeued job of Slurm's */
	world_open_engine();
}

/* Counts the processes whose environment contains the folder, and prints them if print is set. */
static uint32_t world_left(bool print)
{
	DIR *all = opendir("/proc");
	struct dirent *entry;
	uint32_t n = 0;

	while (all && (entry = readdir(all)) != NULL) {
		static char text[65536];
		char path[280];
		ssize_t len;
		int fd;

		snprintf(path, sizeof(path), "/proc/%s/environ", entry->d_name);
		fd = entry->d_name[0] <= '9' ? open(path, O_RDONLY | O_CLOEXEC) : -1;
		if (fd < 0) {
			continue;
		}
		len = read(fd, text, sizeof(text));
		close(fd);
		if (len > 0 && memmem(text, (size_t)len, sw.folder, strlen(sw.folder))) {
			n++;
			if (print) {
				printf("left: process %s\n", entry->d_name);
			}
		}
	}
	if (all) {
		closedir(all);
	}
	return n;
}

static void world_close(void)
{
	struct within within;
	char line[256];
	int status;

	sched_slurm_close(sw.engine);
	suite_close();
	loop_close(events.loop);
	unsetenv("SLURM_CONF");
	unsetenv("TMPDIR");
	fclose(sw.to);
	while (fgets(line, sizeof(line), sw.from)) {
		printf("%s", line);
	}
	fclose(sw.from);
	assert_int_equal(waitpid(sw.slurm, &status, 0), sw.slurm);
	within = within_begin(WITHIN_LONG_S);
	while (world_left(false) > 0) { /* A process that was killed may not be gone yet. */
		if (within_over(&within) && world_left(true) > 0) {
			FAIL_LATE("the end of these processes");
		}
		within_pace(0.1);
	}
	folder_remove_tree(sw.folder);
}

#endif
