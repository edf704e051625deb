/* A server that is a thread of the test. */
#ifndef TEST_COLL_HOST_H
#define TEST_COLL_HOST_H

#include "base/clock.h"
#include "coll/group/serve_impl.h"
#include "coll/probe/probe.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

struct host {
	struct coll_server *server;
	char name[COLL_TCP_NAME];
	pthread_t thread;
	atomic_bool stop;
	pthread_mutex_t mutex;
	char logged[1024]; /* last line that the server logged; under mutex */
};

static inline void record_line(void *user, const char *line)
{
	struct host *host = user;

	pthread_mutex_lock(&host->mutex);
	snprintf(host->logged, sizeof(host->logged), "%s", line);
	pthread_mutex_unlock(&host->mutex);
}

static inline void *run_host(void *user)
{
	struct host *host = user;

	while (!atomic_load(&host->stop)) {
		assert_int_equal(coll_server_poll(host->server, NS_PER_S / 100, NULL), 0);
	}
	coll_server_close(host->server);
	return NULL;
}

static inline void open_host(struct host *host)
{
	*host = (struct host){0};
	pthread_mutex_init(&host->mutex, NULL);
	assert_int_equal(coll_server_open(&host->server, "127.0.0.1", 0, host->name, record_line,
				 host, coll_probe_obey, NULL),
		0);
	pthread_create(&host->thread, NULL, run_host, host);
}

static inline void close_host(struct host *host)
{
	if (!atomic_exchange(&host->stop, true)) {
		pthread_join(host->thread, NULL);
	}
}

#endif
