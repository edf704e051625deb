/* A guarded read survives memory that it may not read; every other fault goes where it went
 * before. */
#include "ckpt/format/pieces.h"
#include "ckpt/snap/snap_guard.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define OTHER_EXIT 42 /* status of a child whose own handler was called */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* the sanitizer's own handlers stand in for the default */
#else
#define SANITIZED 0
#endif

static struct sigaction segv, bus; /* ours, which cmocka replaces by its own for each test */

static void read_page(void *user)
{
	uint8_t *at = user;

	(void)*(volatile uint8_t *)at;
}

static bool try_read(uint8_t *at, uint8_t *lo, size_t len_bytes)
{
	return snap_guard(read_page, at, (uintptr_t)lo, (uintptr_t)lo + len_bytes);
}

static void use_ours(void)
{
	assert_int_equal(sigaction(SIGSEGV, &segv, NULL), 0);
	assert_int_equal(sigaction(SIGBUS, &bus, NULL), 0);
}

static void survives_vanished_memory(void **state)
{
	uint8_t *page = mmap(NULL, CKPT_PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	use_ours();
	for (int i = 0; i < 3; i++) {
		assert_true(try_read(page, page, CKPT_PAGE));
		assert_int_equal(mprotect(page, CKPT_PAGE, PROT_NONE), 0);
		assert_false(try_read(page, page, CKPT_PAGE));
		assert_int_equal(mprotect(page, CKPT_PAGE, PROT_READ), 0);
	}
	munmap(page, CKPT_PAGE);
	assert_false(try_read(page, page, CKPT_PAGE));
}

static void survives_a_shortened_file(void **state)
{
	int fd = memfd_create("test", MFD_CLOEXEC);
	uint8_t *page;

	use_ours();
	assert_int_equal(ftruncate(fd, CKPT_PAGE), 0);
	page = mmap(NULL, CKPT_PAGE, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(try_read(page, page, CKPT_PAGE));
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_false(try_read(page, page, CKPT_PAGE));
	munmap(page, CKPT_PAGE);
	close(fd);
}

static void *read_often(void *user)
{
	uint8_t *pages = user;

	for (int i = 0; i < 1000; i++) {
		if (!try_read(pages, pages, CKPT_PAGE) ||
			try_read(pages + CKPT_PAGE, pages, (size_t)2 * CKPT_PAGE)) {
			return user;
		}
	}
	return NULL;
}

static void threads_do_not_meet(void **state)
{
	uint8_t *pages =
		mmap(NULL, (size_t)2 * CKPT_PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t threads[4];

	use_ours();
	assert_int_equal(mprotect(pages + CKPT_PAGE, CKPT_PAGE, PROT_NONE), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL, read_often, pages), 0);
	}
	for (int i = 0; i < 4; i++) {
		void *failed;

		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	munmap(pages, (size_t)2 * CKPT_PAGE);
}

static void leave(int sig)
{
	_exit(OTHER_EXIT);
}

static void leave_info(int sig, siginfo_t *info, void *context)
{
	_exit(info->si_signo == sig && context != NULL ? OTHER_EXIT : 1);
}

/* Runs fault in a child whose handler before ours was action; returns its wait status. */
static int status_of(const struct sigaction *action, void (*fault)(void))
{
	const struct rlimit no_core = {0, 0};
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &no_core);
		sigaction(SIGSEGV, action, NULL);
		snap_guard_init(NULL);
		fault();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void touch_nothing(void)
{
	uint8_t *page = mmap(NULL, CKPT_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	read_page(page);
}

static void touch_beside(void)
{
	uint8_t *page = mmap(NULL, CKPT_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)try_read(page, page + CKPT_PAGE, CKPT_PAGE);
}

static void send_signal(void)
{
	kill(getpid(), SIGSEGV);
	pause();
}

/* Must run before anything installs the handlers in this process: children do it themselves. */
static void other_faults_go_on(void **state)
{
	void (*const faults[])(void) = {touch_nothing, touch_beside, send_signal};
	const struct sigaction plain = {.sa_handler = leave};
	const struct sigaction info = {.sa_sigaction = leave_info, .sa_flags = SA_SIGINFO};
	const struct sigaction none = {.sa_handler = SIG_DFL};

	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		int status = status_of(&plain, faults[i]);

		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == OTHER_EXIT);
		status = status_of(&info, faults[i]);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == OTHER_EXIT);
		status = status_of(&none, faults[i]);
		assert_true(SANITIZED || (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV));
	}
}

int main(void)
{
	const struct CMUnitTest before[] = {
		cmocka_unit_test(other_faults_go_on),
	};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(survives_vanished_memory),
		cmocka_unit_test(survives_a_shortened_file),
		cmocka_unit_test(threads_do_not_meet),
	};
	int rv = cmocka_run_group_tests_name("before", before, NULL, NULL);

	if (snap_guard_init(NULL) != 0 || sigaction(SIGSEGV, NULL, &segv) != 0 ||
		sigaction(SIGBUS, NULL, &bus) != 0) {
		printf("cannot install the handlers\n");
		return 1;
	}
	return rv + cmocka_run_group_tests_name("after", tests, NULL, NULL);
}
