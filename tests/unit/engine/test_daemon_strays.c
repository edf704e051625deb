/* The processes and the placement of a run. Other processes cannot pretend to belong to it. */
#include "engine/local/order.h"
#include "engine/local/run_placement.h"
#include "engine/local/strays.h"

#include "base/clock.h"
#include "base/file.h"
#include "within.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define NOBODY   65534u
#define STRANGER 64321u /* id of no user here */

/* Starts sleep as a user, with one variable in its environment ("": with none). */
static pid_t start_as(uint32_t uid, const char *var)
{
	char text[160];
	char *const argv[] = {(char[]){"sleep"}, (char[]){"98762"}, NULL};
	char *const with[] = {text, NULL};
	char *const without[] = {NULL};
	pid_t pid = fork();

	snprintf(text, sizeof(text), "%s", var);
	if (pid == 0) {
		if (uid == geteuid() || setresuid(uid, uid, uid) == 0) {
			execve("/bin/sleep", argv, var[0] != '\0' ? with : without);
		}
		_exit(1);
	}
	return pid;
}

static pid_t start(const char *var)
{
	return start_as(geteuid(), var);
}

static void end(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static struct strays_mark mark_of(const char *text, uint32_t uid)
{
	struct strays_mark mark = {.uid = uid};

	snprintf(mark.text, sizeof(mark.text), "%s", text);
	return mark;
}

static void await_count(const char *text, uint32_t uid, int wanted)
{
	const struct strays_mark mark = mark_of(text, uid);

	WITHIN_DOING(WITHIN_LONG_S, strays_signal(&mark, 0) == wanted, within_pace(0.01));
}

static void processes_of_a_run_are_found_and_no_others(void **state)
{
	const struct strays_mark seven = mark_of(RUN_KEY_VAR "=71", geteuid());
	const struct strays_mark none = mark_of("", geteuid());
	pid_t ours = start(RUN_KEY_VAR "=71");
	pid_t others = start(RUN_KEY_VAR "=712");
	pid_t hidden = start("");

	await_count(RUN_KEY_VAR "=71", geteuid(), 1);
	await_count(RUN_KEY_VAR "=712", geteuid(), 1);
	await_count(RUN_KEY_VAR "=7", geteuid(), 0);
	assert_int_equal(strays_signal(&none, SIGKILL), 0);
	assert_int_equal(strays_signal(&seven, SIGKILL), 1);
	assert_int_equal(waitpid(ours, NULL, 0), ours);
	assert_int_equal(strays_signal(&seven, SIGKILL), 0);
	end(others);
	end(hidden);
}

/* A process of another user never counts, whatever its environment. For a run of another user,
 * root's processes with the mark count too: they may not have become that user yet. */
static void a_process_of_another_user_is_no_runs(void **state)
{
	pid_t ours;
	pid_t theirs;

	if (geteuid() != 0) {
		print_message("skipped: only root can be another user\n");
		skip();
	}
	theirs = start_as(NOBODY, RUN_KEY_VAR "=72");
	await_count(RUN_KEY_VAR "=72", NOBODY, 1);
	await_count(RUN_KEY_VAR "=72", 0, 0);
	await_count(RUN_KEY_VAR "=72", STRANGER, 0);
	await_count(RUN_KEY_VAR "=72", STRAYS_ANY_USER, 1);
	ours = start(RUN_KEY_VAR "=72");
	await_count(RUN_KEY_VAR "=72", STRANGER, 1);
	await_count(RUN_KEY_VAR "=72", 0, 1);
	end(ours);
	end(theirs);
}

static void put_order(const char *folder, const void *bytes, size_t len_bytes)
{
	char path[160];
	struct pawl_err err = {0};

	snprintf(path, sizeof(path), "%s/order", folder);
	if (file_put(path, bytes, len_bytes, 0600, false, &err) != 0) {
		fail_msg("%s", err.msg);
	}
}

/* Writes an order of version 4, without a key and the owner (8 bytes, since the key is empty),
 * bounds and priority (12 bytes), and boot (4 bytes), which follow: cuts them out. */
static void put_keyless(const char *folder, struct wire_out *out, const struct order *order)
{
	static const uint8_t version[] = {4, 0, 0, 0};
	const size_t cut = 8 + 12 + 4;
	uint8_t *at = memmem(out->bytes, out->len_bytes, order->scratch, strlen(order->scratch));
	size_t off;

	assert_non_null(at);
	memcpy(out->bytes, version, sizeof(version));
	at += strlen(order->scratch);
	off = (size_t)(at - out->bytes);
	memmove(at, at + cut, out->len_bytes - off - cut);
	put_order(folder, out->bytes, out->len_bytes - cut);
}

/* A run's directory may have the path of an earlier run, processes of which may be left. */
static void a_process_of_an_earlier_run_is_not_of_this_one(void **state)
{
	static struct order order = {.job = 7, .generation = 1, .nodes_n = 1, .scratch = "/scr"};
	char folder[] = "/tmp/pawl-parts-XXXXXX";
	char was[96];
	char is[96];
	struct strays_mark mark;
	struct wire_out out = {NULL};
	pid_t earlier;
	pid_t ours;

	assert_non_null(mkdtemp(folder));
	assert_int_equal(strays_mark_load(&mark, folder, NULL), 0); /* there is no order yet */
	assert_string_equal(mark.text, "");
	order.uid = geteuid();
	snprintf(order.run_dir, sizeof(order.run_dir), "%s", folder);
	assert_int_equal(order_make_key(order.key, NULL), 0);
	snprintf(was, sizeof(was), RUN_KEY_VAR "=%s", order.key);
	earlier = start(was);
	await_count(was, geteuid(), 1);
	assert_int_equal(order_make_key(order.key, NULL), 0);
	snprintf(is, sizeof(is), RUN_KEY_VAR "=%s", order.key);
	order_encode(&out, &order);
	put_order(folder, out.bytes, out.len_bytes);
	assert_int_equal(strays_mark_load(&mark, folder, NULL), 0);
	assert_string_equal(mark.text, is);
	assert_int_equal(mark.uid, geteuid());
	assert_false(mark.booted); /* an order without a boot */
	assert_int_equal(strays_signal(&mark, SIGKILL), 0);
	ours = start(is);
	await_count(is, geteuid(), 1);
	end(ours);
	end(earlier);
	order.key[0] = '\0';
	wire_out_reset(&out);
	order_encode(&out, &order);
	put_keyless(folder, &out, &order);
	snprintf(is, sizeof(is), RUN_VAR "=%s", folder);
	assert_int_equal(strays_mark_load(&mark, folder, NULL), 0);
	assert_string_equal(mark.text, is);
	assert_int_equal(mark.uid, geteuid());
	put_order(folder, "damaged", 7);
	assert_int_equal(strays_mark_load(&mark, folder, NULL), 0);
	assert_string_equal(mark.text, is);
	assert_true(mark.uid == STRAYS_ANY_USER);
	wire_out_deinit(&out);
	snprintf(is, sizeof(is), "%s/order", folder);
	assert_int_equal(unlink(is), 0);
	assert_int_equal(rmdir(folder), 0);
}

/* Starts processes that leave their session and parents, as a subreaper, and kills them. Returns 0
 * on success. */
static int keep_a_run(void)
{
	char *const argv[] = {(char[]){"sh"}, (char[]){"-c"},
		(char[]){"(trap '' HUP; setsid sh -c 'sleep 98762 & sleep 98762; :' &) ; exit"},
		NULL};
	char *const path[] = {(char[]){"PATH=/usr/bin:/bin"}, NULL};
	int64_t due_ns = clock_mono_ns() + 60 * NS_PER_S;
	pid_t pid;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (strays_has_own()) {
		return 2;
	}
	pid = fork();
	if (pid == 0) {
		execve("/bin/sh", argv, path);
		_exit(1);
	}
	if (waitpid(pid, NULL, 0) != pid || !strays_has_own()) {
		return 3;
	}
	while (strays_has_own() && clock_mono_ns() < due_ns) {
		strays_signal_own(SIGKILL);
		while (waitpid(-1, NULL, WNOHANG) > 0) {
		}
		within_pace(0.01);
	}
	return strays_has_own() ? 4 : 0;
}

/* All descendants are found, also in another session, without the run's environment, or with dead
 * parents. No other process is. */
static void all_that_came_of_a_process_is_its_own(void **state)
{
	pid_t stranger = start(RUN_KEY_VAR "=73");
	pid_t keeper = fork();
	int status;

	if (keeper == 0) {
		_exit(keep_a_run());
	}
	assert_int_equal(waitpid(keeper, &status, 0), keeper);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	await_count(RUN_KEY_VAR "=73", geteuid(), 1);
	end(stranger);
}

/* The file holds the two newest placements: the run may not have reached the newest, or refuse
 * it. */
static void a_run_is_where_it_was_changed_to(void **state)
{
	static struct run_placement_entry entry;
	static struct run_placement_entry found;
	char folder[] = "/tmp/pawl-parts-XXXXXX";
	char file[64];
	FILE *opened;

	assert_non_null(mkdtemp(folder));
	snprintf(file, sizeof(file), "%s/" RUN_PLACEMENT_FILE, folder);
	assert_int_equal(run_placement_load(folder, 1, &found, NULL), PAWL_ENOENT);
	for (uint32_t i = 2; i <= 4; i++) {
		entry = (struct run_placement_entry){.generation = i, .nodes_n = i};
		for (uint32_t n = 0; n < i; n++) {
			entry.nodes[n].replicas = 10 * i + n;
			snprintf(entry.nodes[n].name, CORE_NAME_MAX, "node%u", n);
		}
		assert_int_equal(run_placement_save(folder, &entry, i - 1, NULL), 0);
	}
	assert_int_equal(run_placement_load(folder, 2, &found, NULL), PAWL_ENOENT);
	for (uint32_t i = 3; i <= 4; i++) {
		assert_int_equal(run_placement_load(folder, i, &found, NULL), 0);
		assert_int_equal(found.nodes_n, i);
		assert_int_equal(found.nodes[2].replicas, 10 * i + 2);
		assert_string_equal(found.nodes[2].name, "node2");
	}
	opened = fopen(file, "r+e");
	assert_non_null(opened);
	fseek(opened, 12, SEEK_SET); /* generation of an entry */
	fputc(77, opened);
	fclose(opened);
	assert_int_equal(run_placement_load(folder, 4, &found, NULL), PAWL_ECORRUPT);
	assert_int_equal(truncate(file, 3), 0);
	assert_int_equal(run_placement_load(folder, 4, &found, NULL), PAWL_ECORRUPT);
	assert_int_equal(unlink(file), 0);
	assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(processes_of_a_run_are_found_and_no_others),
		cmocka_unit_test(a_process_of_another_user_is_no_runs),
		cmocka_unit_test(a_process_of_an_earlier_run_is_not_of_this_one),
		cmocka_unit_test(all_that_came_of_a_process_is_its_own),
		cmocka_unit_test(a_run_is_where_it_was_changed_to),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
