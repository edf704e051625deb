/*
 * The thread that learns which save all hosts make durable: see chooser.h.
 *
 * Lock: one mutex guards the run in force, what is wanted, the news and the pointer to the link. No
 * I/O is done under it. A new run, and the end, cancel the link: the thread drops what it does.
 */
#include "agent/peer/chooser.h"

#include "agent/peer/peer_link.h"
#include "agent/peer/peers.h"
#include "agent/peer/rounds.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"
#include "io/loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct chooser {
	struct peers *peers; /* constant, like the next three */
	struct loop *loop;
	uint64_t root;
	bool leads;
	pthread_t thread;
	pthread_mutex_t lock;    /* guards what is marked "lock" */
	pthread_cond_t changed;  /* stop or run changed */
	bool stop;               /* lock: the thread is to end */
	uint64_t run;            /* lock: run in force; 0: none */
	struct peer_save wanted; /* lock: what this host wants; run 0: nothing */
	struct peer_save news;   /* lock: not taken yet; run 0: none */
	struct peer_link *link;  /* lock: the thread alone sets it, and frees it */
	struct peer_save chosen; /* thread's: the choice that it knows */
};

/* ---- the thread ---- */

/* Waits until a run is in force. Returns it; 0: the thread is to end. */
static uint64_t await_run(struct chooser *chooser)
{
	uint64_t run;

	pthread_mutex_lock(&chooser->lock);
	while (!chooser->stop && chooser->run == 0) {
		pthread_cond_wait(&chooser->changed, &chooser->lock);
	}
	run = chooser->stop ? 0 : chooser->run;
	pthread_mutex_unlock(&chooser->lock);
	return run;
}

/* Waits a moment, unless the run is another. */
static void rest(struct chooser *chooser, uint64_t run)
{
	int64_t due_ns = clock_add_ns(clock_mono_ns(), times_ns(TIME_PEER_RETRY));
	struct timespec due = {.tv_sec = due_ns / NS_PER_S, .tv_nsec = due_ns % NS_PER_S};

	pthread_mutex_lock(&chooser->lock);
	while (!chooser->stop && chooser->run == run &&
		pthread_cond_timedwait(&chooser->changed, &chooser->lock, &due) == 0) {
	}
	pthread_mutex_unlock(&chooser->lock);
}

/* Hands a save to the loop, if it is of the run in force. */
static void put_news(struct chooser *chooser, const struct peer_save *save)
{
	bool is_news;

	pthread_mutex_lock(&chooser->lock);
	is_news = !chooser->stop && save->run != 0 && save->run == chooser->run;
	if (is_news) {
		chooser->news = *save;
	}
	pthread_mutex_unlock(&chooser->lock);
	if (is_news) {
		loop_wake(chooser->loop);
	}
}

static void drop_link(struct chooser *chooser)
{
	struct peer_link *link;

	pthread_mutex_lock(&chooser->lock);
	link = chooser->link;
	chooser->link = NULL;
	pthread_mutex_unlock(&chooser->lock);
	peer_link_close(link);
}

/* Makes a link, which the loop can cancel from then on, and connects it. */
static int connect_leader(struct chooser *chooser, uint64_t run, struct pawl_err *err)
{
	char address[PEER_ADDRESS_MAX];
	struct peer_link *link;
	bool go_on;
	int rv = peers_leader(chooser->peers, address, err);

	rv = rv == 0 ? peer_link_make(&link, chooser->peers, err) : rv;
	if (rv != 0) {
		return rv;
	}
	pthread_mutex_lock(&chooser->lock);
	go_on = !chooser->stop && chooser->run == run;
	chooser->link = go_on ? link : NULL;
	pthread_mutex_unlock(&chooser->lock);
	if (!go_on) {
		peer_link_close(link);
		return pawl_err_set(err, PAWL_ECANCELED, "the run is over");
	}
	return peer_link_connect(link, address, err);
}

/* Asks the leader once. */
static int ask(struct chooser *chooser, uint64_t run, struct pawl_err *err)
{
	struct peer_msg choice = {.kind = PEER_CHOICE, .root = chooser->root};
	struct peer_msg reply;
	int rv = chooser->link != NULL ? 0 : connect_leader(chooser, run, err);

	pthread_mutex_lock(&chooser->lock);
	choice.wanted = chooser->wanted;
	pthread_mutex_unlock(&chooser->lock);
	choice.save = chooser->chosen;
	rv = rv == 0 ? peer_link_call(chooser->link, &choice, PEER_CHOSEN, &reply, err) : rv;
	if (rv == 0 && !peer_save_is(&reply.save, &chooser->chosen)) {
		chooser->chosen = reply.save;
		put_news(chooser, &reply.save);
	}
	return rv;
}

/* Waits for what other hosts want. */
static int await_wanted(struct chooser *chooser, struct pawl_err *err)
{
	struct peer_save wanted;
	int rv = rounds_take_wanted(peers_rounds(chooser->peers), chooser->root, &wanted,
		times_ns(TIME_PEER_NEXT), err);

	if (rv == 0) {
		put_news(chooser, &wanted);
	}
	return rv;
}

static void *run_chooser(void *user)
{
	struct chooser *chooser = user;
	struct pawl_err err;
	uint64_t before = 0;
	uint64_t run;

	while ((run = await_run(chooser)) != 0) {
		if (run != before) {
			drop_link(chooser);
			chooser->chosen = (struct peer_save){0};
			before = run;
		}
		if ((chooser->leads ? await_wanted(chooser, &err) : ask(chooser, run, &err)) != 0) {
			/* If this lasts, users learn that a save does not become durable. */
			drop_link(chooser);
			rest(chooser, run);
		}
	}
	drop_link(chooser);
	return NULL;
}

/* ---- for the loop ---- */

/* Makes the thread drop what it does. The caller holds the lock. */
static void interrupt(struct chooser *chooser)
{
	if (chooser->link != NULL) {
		peer_link_cancel(chooser->link);
	}
	pthread_cond_broadcast(&chooser->changed);
}

static void free_chooser(struct chooser *chooser)
{
	pthread_cond_destroy(&chooser->changed);
	pthread_mutex_destroy(&chooser->lock);
	free(chooser);
}

int chooser_start(struct chooser **out, struct peers *peers, struct loop *loop, uint64_t root,
	bool leads, struct pawl_err *err)
{
	struct chooser *chooser = FAULT_MEM("chooser.start", calloc(1, sizeof(*chooser)));
	int sys;

	if (chooser == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to choose what becomes durable");
	}
	chooser->peers = peers;
	chooser->loop = loop;
	chooser->root = root;
	chooser->leads = leads;
	pthread_mutex_init(&chooser->lock, NULL);
	clock_cond_init(&chooser->changed);
	sys = FAULT_SYS("chooser.thread",
		pthread_create(&chooser->thread, NULL, run_chooser, chooser));
	if (sys != 0) {
		errno = sys > 0 ? sys : errno; /* an injected fault sets errno */
		pawl_err_sys(err, "start the thread that chooses what becomes durable");
		free_chooser(chooser);
		return err != NULL ? err->code : PAWL_EIO;
	}
	*out = chooser;
	return 0;
}

void chooser_stop(struct chooser *chooser)
{
	if (chooser == NULL) {
		return;
	}
	pthread_mutex_lock(&chooser->lock);
	chooser->stop = true;
	interrupt(chooser);
	pthread_mutex_unlock(&chooser->lock);
	if (chooser->leads) {
		rounds_cancel(peers_rounds(chooser->peers), chooser->root);
	}
	pthread_join(chooser->thread, NULL);
	free_chooser(chooser);
}

void chooser_set_run(struct chooser *chooser, uint64_t run)
{
	pthread_mutex_lock(&chooser->lock);
	chooser->run = run;
	chooser->wanted = (struct peer_save){0};
	chooser->news = (struct peer_save){0};
	interrupt(chooser);
	pthread_mutex_unlock(&chooser->lock);
	if (chooser->leads) {
		rounds_begin(peers_rounds(chooser->peers), chooser->root, run);
	}
}

void chooser_choose(struct chooser *chooser, const struct peer_save *save)
{
	ASSERT(chooser->leads);
	rounds_choose(peers_rounds(chooser->peers), chooser->root, save);
}

void chooser_want(struct chooser *chooser, const struct peer_save *save)
{
	ASSERT(!chooser->leads);
	pthread_mutex_lock(&chooser->lock);
	chooser->wanted = *save;
	pthread_mutex_unlock(&chooser->lock);
}

bool chooser_take(struct chooser *chooser, struct peer_save *save)
{
	bool has_news;

	pthread_mutex_lock(&chooser->lock);
	*save = chooser->news;
	has_news = save->run != 0;
	chooser->news = (struct peer_save){0};
	pthread_mutex_unlock(&chooser->lock);
	return has_news;
}
