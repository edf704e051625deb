/* Any call into the C library fails that opening a session, starting the agent or `pawl run` makes.
 * The program ends with an error that names the cause, or goes on; it does not crash, hang or stay.
 * PROGRAM: `pawl`, with calls that can fail. */
#include "../lib/fail_calls.h"
#include "times.h"

#include "test_session_agent.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#define SANITIZER_STATUS 99
#define NO_EXEC_STATUS   98
#define OUTPUT_MAX       4096
#define MISSED_MAX       20 /* agents that were idle for too long before a session came, at most */

static struct fail_calls *shared; /* calls of this process count only where a test counts them */

/* ---- a session ---- */

static int setup_session(void **state)
{
	make_dir();
	agent_pid = fork();
	if (agent_pid == 0) {
		unsetenv(FAIL_CALLS_ENV); /* only calls of this process are to fail */
		execl("/proc/self/exe", "agent", sock, NULL);
		_exit(1);
	}
	await_agent(sock);
	return 0;
}

/* Opens a session. starts: the program to start as an agent if none is there; NULL: none. */
static int open_session(struct pawl_ckpt **ckpt, const char *starts, struct pawl_err *err)
{
	const struct pawl_ckpt_options options = {.root = root,
		.job = "test",
		.world = 1,
		.keep = 2,
		.persist_every_ms = 3600 * 1000,
		.socket = sock,
		.program = starts,
		.watch = true};

	return pawl_ckpt_open(ckpt, &options, err);
}

/* Opens a session while no call fails. An agent that starts on a busy machine may answer later than
 * the short waits of this test allow: it is asked again. */
static struct pawl_ckpt *open_at_last(const char *starts)
{
	struct pawl_ckpt *ckpt = NULL;
	struct pawl_err err = {0};
	int rv;

	WITHIN(WITHIN_LONG_S,
		(rv = open_session(&ckpt, starts, &err)) != PAWL_ETIMEDOUT && rv != PAWL_EPEER);
	if (rv != 0) {
		fail_msg("%d: %s", rv, err.msg);
	}
	return ckpt;
}

/* Opens sessions until each call has failed once, with an agent that is there, or that they
 * start. */
static void fail_opening(const char *starts)
{
	long passed = LONG_MAX;
	long refused = 0;

	fail_calls = shared;
	for (long nth = 1; passed >= nth - 1; nth++) {
		struct pawl_ckpt *ckpt = NULL;
		struct pawl_err err = {0};
		int rv;

		fail_calls_arm(shared, nth);
		rv = open_session(&ckpt, starts, &err);
		passed = fail_calls_disarm(shared);
		if (rv != 0) {
			refused++;
			assert_true(err.code == rv && err.msg[0] != '\0');
			ckpt = open_at_last(starts);
		}
		pawl_ckpt_close(ckpt, WAIT_MS, NULL);
		if (starts != NULL) { /* the agent leaves once it has been idle */
			WITHIN(WITHIN_LONG_S, waitpid(-1, NULL, WNOHANG) < 0);
		}
	}
	fail_calls = NULL;
	print_message("%ld calls, of which %ld ended it\n", passed, refused);
	assert_true(passed > 15 && refused > 10);
}

static void opening_a_session_fails_at_any_call(void **state)
{
	fail_opening(NULL);
}

static void a_session_that_starts_its_agent_fails_at_any_call(void **state)
{
	fail_opening(PROGRAM);
}

/* ---- programs ---- */

/* Appends a file of dir, if it exists, to output. */
static void read_output(const char *name, char *output)
{
	size_t len = strlen(output);
	char path[128];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, output + len, OUTPUT_MAX - 1 - len);
		output[len + (n > 0 ? (size_t)n : 0)] = '\0';
		close(fd);
		unlink(path);
	}
}

/* Executes the program with these words; its output goes to files of dir. */
static pid_t start_program(const char *const *words)
{
	char path[128];
	pid_t pid;

	snprintf(path, sizeof(path), "%s/output", dir);
	pid = fork();
	if (pid == 0) {
		int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

		setenv("ASAN_OPTIONS", "exitcode=99", 1);
		setenv("UBSAN_OPTIONS", "halt_on_error=1:exitcode=99", 1);
		dup2(fd, 1);
		dup2(fd, 2);
		close(fd);
		execv(PROGRAM, (char *const *)(uintptr_t)words);
		_exit(NO_EXEC_STATUS);
	}
	assert_true(pid > 0);
	return pid;
}

/* Checks that the program ended by itself, and reported why if it failed. */
static void check_end(int status, long nth)
{
	char output[OUTPUT_MAX] = "";
	bool by_itself = WIFEXITED(status) && WEXITSTATUS(status) < 128 &&
		WEXITSTATUS(status) != SANITIZER_STATUS && WEXITSTATUS(status) != NO_EXEC_STATUS;
	bool silent;

	read_output("output", output);
	read_output("agent.log", output);
	silent = output[0] == '\0' && status != 0 && strcmp(shared->name, "write") != 0 &&
		strcmp(shared->name, "dup2") != 0;
	if (!by_itself || silent) {
		fail_msg("call %ld, %s, failed: status 0x%x, and its output: %s", nth, shared->name,
			(unsigned)status, output);
	}
}

static int await_end(pid_t pid)
{
	int status;

	WITHIN(WITHIN_LONG_S, waitpid(pid, &status, WNOHANG) == pid);
	return status;
}

static int setup_program(void **state)
{
	fail_calls = NULL; /* a test before may have set it */
	make_dir();
	return 0;
}

static bool is_over(pid_t pid, int *status)
{
	return waitpid(pid, status, WNOHANG) == pid;
}

/* The agent accepts the first session by the same calls as all others. An agent of which no call
 * failed, and that had been idle for too long before the session came, is tried again: it has not
 * made all its calls. */
static void an_agent_fails_at_any_call(void **state)
{
	long passed = LONG_MAX;
	long ended = 0;
	unsigned missed = 0;
	char option[160];

	snprintf(option, sizeof(option), "--socket=%s", sock);
	for (long nth = 1; passed >= nth - 1; nth++) {
		const char *words[] = {"pawl", "agent", "--job=test", option, NULL};
		struct pawl_ckpt *ckpt;
		struct pawl_err err;
		bool let_in = false;
		int status = -1;
		pid_t pid;

		fail_calls_arm(shared, nth);
		pid = start_program(words);
		WITHIN_DOING(WITHIN_LONG_S, is_over(pid, &status) || is_up(sock),
			within_pace(0.002));
		if (status == -1) {
			let_in = open_session(&ckpt, NULL, &err) == 0;
			if (let_in) {
				pawl_ckpt_close(ckpt, WAIT_MS, NULL);
			}
			status = await_end(pid); /* leaves after it has been idle */
		} else {
			ended++;
		}
		passed = fail_calls_disarm(shared);
		check_end(status, nth);
		if (passed < nth && !let_in) {
			if (++missed > MISSED_MAX) {
				FAIL_LATE("agents leave before a session comes to them");
			}
			nth--;
			passed = LONG_MAX;
		}
	}
	print_message("%ld calls, of which %ld ended it early\n", passed, ended);
	assert_true(passed > 60 && ended > 15);
}

/* Runs `pawl run` of true with these options until each call has failed once. */
static void fail_run(const char *const options[3])
{
	long passed = LONG_MAX;
	long failed = 0;

	for (long nth = 1; passed >= nth - 1; nth++) {
		const char *words[] = {"pawl", "run", "--job=test", "--max-restarts=0",
			"--no-python", options[0], options[1], options[2], "true", NULL};
		int status;

		fail_calls_arm(shared, nth);
		status = await_end(start_program(words));
		passed = fail_calls_disarm(shared);
		check_end(status, nth);
		failed += status != 0;
	}
	print_message("%ld calls, of which %ld made it fail\n", passed, failed);
	assert_true(passed > 60 && failed > 30);
}

static void run_fails_at_any_call(void **state)
{
	const char *const plain[3] = {"-n", "2", "--"};

	fail_run(plain);
}

static void elastic_run_fails_at_any_call(void **state)
{
	char membership[160];
	const char *const elastic[3] = {"--elastic=1:2", "--node-rank=0", membership};

	snprintf(membership, sizeof(membership), "--door=%s/door", dir);
	fail_run(elastic);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(opening_a_session_fails_at_any_call, setup_session,
			teardown),
		cmocka_unit_test_setup_teardown(a_session_that_starts_its_agent_fails_at_any_call,
			setup_program, teardown),
		cmocka_unit_test_setup_teardown(an_agent_fails_at_any_call, setup_program,
			teardown),
		cmocka_unit_test_setup_teardown(run_fails_at_any_call, setup_program, teardown),
		cmocka_unit_test_setup_teardown(elastic_run_fails_at_any_call, setup_program,
			teardown),
	};

	if (argc == 2 && strcmp(argv[0], "agent") == 0) {
		return run_agent(argv[1]);
	}
	test_times("session_open=0.3,session_begin=0.3,agent_idle=0.2");
	shared = fail_calls_share();
	if (shared == NULL) {
		return 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
