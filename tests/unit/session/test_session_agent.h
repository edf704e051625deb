/* Shared by the tests of worker and agent together: a directory, an agent in it as a process of its
 * own, a way to connect, and a way to read what was saved. */
#ifndef TEST_SESSION_AGENT_H
#define TEST_SESSION_AGENT_H

#include "agent/agent.h"
#include "base/clock.h"
#include "io/loop.h"
#include "pawl/ckpt.h"
#include "store/store.h"
#include "within.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define WAIT_MS within_ms(WITHIN_LONG_S) /* longest wait for anything, in ms */

static char dir[64];    /* directory of one test */
static char root[128];  /* root of the checkpoints */
static char sock[128];  /* socket of the agent */
static pid_t agent_pid; /* 0: no agent */

/* The agent is this program again, in a process of its own: a fork of a threaded process would not
 * do. */
static inline int run_agent(const char *socket_path)
{
	struct agent_options options = {.job = "test", .socket = socket_path, .any_attempt = true};
	struct loop *loop;
	struct agent *agent;
	struct pawl_err err;

	if (loop_open(&loop, &err) != 0 || agent_open(&agent, loop, &options, &err) != 0) {
		fprintf(stderr, "agent: %s\n", err.msg);
		return 1;
	}
	return loop_run(loop, &err);
}

static inline void start_agent(void)
{
	agent_pid = fork();
	assert_true(agent_pid >= 0);
	if (agent_pid == 0) {
		execl("/proc/self/exe", "agent", sock, NULL);
		_exit(1);
	}
}

/* Returns whether an agent listens there. */
static inline bool is_up(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool up;

	assert_true(strlen(path) < sizeof(addr.sun_path));
	memcpy(addr.sun_path, path, strlen(path) + 1);
	up = connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0;
	close(fd);
	return up;
}

static inline void await_agent(const char *path)
{
	WITHIN_DOING(WITHIN_LONG_S, is_up(path), within_pace(0.005));
}

static inline void kill_agent(void)
{
	if (agent_pid > 0) {
		kill(agent_pid, SIGKILL);
		waitpid(agent_pid, NULL, 0);
	}
	agent_pid = 0;
	unlink(sock);
}

static inline void make_dir(void)
{
	snprintf(dir, sizeof(dir), "/var/tmp/pawl-session-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(root, sizeof(root), "%s/with space\n", dir);
	snprintf(sock, sizeof(sock), "%s/agent.sock", dir);
}

static inline int setup(void **state)
{
	make_dir();
	start_agent();
	return 0;
}

static inline int teardown(void **state)
{
	struct store *store;

	kill_agent();
	assert_int_equal(store_posix_open("/var/tmp", false, &store, NULL), 0);
	assert_int_equal(store_remove(store, strrchr(dir, '/') + 1, NULL), 0);
	store_close(store);
	return 0;
}

/* Connects, waiting for the agent to listen. */
static inline struct pawl_ckpt *join_as(const struct pawl_ckpt_options *options)
{
	struct pawl_ckpt *ckpt;
	struct pawl_err err;
	int rv;

	WITHIN_DOING(WITHIN_LONG_S, (rv = pawl_ckpt_open(&ckpt, options, &err)) != PAWL_ENOENT,
		within_pace(0.005));
	if (rv != 0) {
		fail_msg("%s", err.msg);
	}
	return ckpt;
}

static inline struct pawl_ckpt *join(uint32_t rank, uint32_t world, uint64_t memory_bytes)
{
	const struct pawl_ckpt_options options = {.root = root,
		.job = "test",
		.rank = rank,
		.world = world,
		.keep = 2,
		.persist_every_ms = 3600 * 1000,
		.memory_bytes = memory_bytes,
		.socket = sock,
		.watch = true};

	return join_as(&options);
}

/* Returns the index of the partition that rank would take. */
static inline uint32_t find(const struct pawl_restore *restore, const char *name, uint32_t rank)
{
	struct pawl_restore_info info;
	struct pawl_restore_part part;

	pawl_restore_info(restore, &info);
	for (uint32_t p = 0; p < info.parts_n; p++) {
		pawl_restore_part(restore, p, &part);
		if (strcmp(part.name, name) == 0 && (part.rank < 0 || part.rank == rank)) {
			return p;
		}
	}
	fail_msg("no partition %s of rank %u", name, rank);
	return 0;
}

#endif
