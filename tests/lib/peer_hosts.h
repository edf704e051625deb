/*
 * What tests of replicas share: the hosts of a job in one process, each with links of its own on
 * 127.0.0.1; parts of saves with random records and bytes; and a gate that stops a thread in a
 * call.
 */
#ifndef TEST_PEER_HOSTS_H
#define TEST_PEER_HOSTS_H

#include "agent/peer/held_impl.h"
#include "agent/peer/image.h"
#include "agent/peer/peers.h"
#include "agent/peer/place.h"
#include "base/crc.h"
#include "base/rng.h"
#include "ckpt/format/pieces.h"
#include "io/loop.h"

#include "expect.h"
#include "within.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOSTS_MAX  4u
#define RANKS      2u /* ranks of each host */
#define PARTS_MAX  3u /* partitions of a rank */
#define PIECES_MAX 400u
#define ROOT       42u

static struct pawl_err err;
static struct rng rng;

/* ---- parts ---- */

/* One rank's part of a save. */
struct rank_sample {
	struct record record;
	struct record_part parts[PARTS_MAX];
	struct record_piece pieces[PARTS_MAX][PIECES_MAX];
	struct wire_out blob; /* encoded record */
	struct arena arena;   /* staged bytes; mapped */
};

/* A host's part of a save. */
struct part_sample {
	struct peer_part info;
	struct rank_sample ranks[RANKS];
	const struct record *records[RANKS];
	struct image image;
};

/* Lays random pieces into a file, until it has size_bytes or enough pieces. */
static inline void sample_pieces(struct record_part *part, struct record_piece *pieces,
	uint64_t size_bytes)
{
	uint64_t off = rng_below(&rng, 100);

	part->pieces = pieces;
	while (off < size_bytes && part->pieces_n < PIECES_MAX) {
		uint64_t left = CKPT_CHUNK - off % CKPT_CHUNK;
		uint64_t n = 1 + rng_below(&rng, rng_below(&rng, 4) == 0 ? 1000 : 200000);

		n = n < left ? n : left;
		n = n < size_bytes - off ? n : size_bytes - off;
		pieces[part->pieces_n++] =
			(struct record_piece){.file_off = off, .len_bytes = (uint32_t)n};
		off += n + (rng_below(&rng, 3) == 0 ? rng_below(&rng, 300) : 0);
	}
	part->size_bytes = off > size_bytes ? off : size_bytes;
	part->hi = part->size_bytes;
}

static inline void sample_rank(struct rank_sample *s, const struct peer_part *info, uint32_t rank,
	uint64_t size_bytes)
{
	static const char *const names[PARTS_MAX] = {"model", "optim", "rng"};
	uint64_t arena_bytes = 0;

	s->record = (struct record){.step = info->step,
		.rank = rank,
		.world = info->world,
		.parts_n = PARTS_MAX,
		.parts = s->parts};
	for (uint32_t p = 0; p < PARTS_MAX; p++) {
		struct record_part *part = &s->parts[p];

		*part = (struct record_part){.raw = true, .arena_off = arena_bytes};
		snprintf(part->name, sizeof(part->name), "%s", names[p]);
		/* The last partition is tiny, or has no bytes at all. */
		sample_pieces(part, s->pieces[p],
			p + 1 == PARTS_MAX ? rng_below(&rng, 2) * 10 : size_bytes);
		arena_bytes += (part->size_bytes + CKPT_PAGE - 1) / CKPT_PAGE * CKPT_PAGE;
	}
	OK(arena_ensure(&s->arena, arena_bytes, &err));
	OK(arena_map(&s->arena, &err));
	for (uint64_t i = 0; i < arena_bytes; i += sizeof(uint64_t)) {
		uint64_t random = rng_u64(&rng);

		memcpy(s->arena.map + i, &random, sizeof(random));
	}
	for (uint32_t p = 0; p < PARTS_MAX; p++) {
		for (uint32_t i = 0; i < s->parts[p].pieces_n; i++) {
			struct record_piece *piece = &s->pieces[p][i];

			piece->crc =
				crc32c(0, s->arena.map + s->parts[p].arena_off + piece->file_off,
					piece->len_bytes);
		}
	}
	record_encode(&s->record, &s->blob);
	assert_false(s->blob.failed);
}

/* Makes host's part of a save; size_bytes of each partition. with_empty: its last rank has no part
 * in the save. */
static inline struct part_sample *sample_part(const struct peer_save *save, uint32_t host,
	uint32_t hosts, uint64_t size_bytes, bool with_empty)
{
	struct part_sample *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	s->info = (struct peer_part){.save = *save,
		.step = save->number * 10,
		.world = hosts * RANKS,
		.first_rank = host * RANKS,
		.ranks = RANKS};
	snprintf(s->info.tag, sizeof(s->info.tag), "global_step%u", (unsigned)s->info.step);
	for (uint32_t i = 0; i < RANKS; i++) {
		s->records[i] = &s->ranks[i].record;
		if (!with_empty || i + 1 < RANKS) {
			sample_rank(&s->ranks[i], &s->info, s->info.first_rank + i, size_bytes);
		}
	}
	OK(image_init(&s->image, s->records, RANKS, &err));
	return s;
}

static inline void sample_drop(struct part_sample *s)
{
	for (uint32_t i = 0; s && i < RANKS; i++) {
		arena_deinit(&s->ranks[i].arena);
		wire_out_deinit(&s->ranks[i].blob);
	}
	image_deinit(s ? &s->image : &(struct image){0});
	free(s);
}

/* Returns where the bytes of a piece lie in the sample. */
static inline uint8_t *sample_bytes(const struct part_sample *s, const struct image_piece *piece)
{
	return s->ranks[piece->rank].arena.map + piece->arena_off;
}

/* Adds a sample to what a host holds of its own, in arenas. */
static inline void hold_sample(struct held *held, const struct part_sample *s)
{
	struct held_rank ranks[RANKS] = {0};

	for (uint32_t i = 0; i < RANKS; i++) {
		const struct arena *from = &s->ranks[i].arena;

		if (s->ranks[i].blob.len_bytes > 0) {
			OK(arena_ensure(&ranks[i].arena, from->size_bytes, &err));
			OK(arena_map(&ranks[i].arena, &err));
			memcpy(ranks[i].arena.map, from->map, from->size_bytes);
			wire_put_raw(&ranks[i].blob, s->ranks[i].blob.bytes,
				s->ranks[i].blob.len_bytes);
		}
	}
	OK(held_add(held, ROOT, &s->info, ranks, &err));
}

/* Flips a bit of a piece of the first rank's first partition, in what hold_sample has added. */
static inline void damage_sample(struct held *held, const struct part_sample *s,
	const struct record_piece *piece)
{
	struct held_part *part = held_find(held, ROOT, &s->info.save, s->info.first_rank);
	off_t off = (off_t)(s->ranks[0].parts[0].arena_off + piece->file_off +
		rng_below(&rng, piece->len_bytes));
	uint8_t byte;
	int fd;

	assert_non_null(part);
	assert_true(part->own);
	fd = part->ranks[0].held.arena.fd;
	assert_int_equal(pread(fd, &byte, 1, off), 1);
	byte ^= (uint8_t)(1u << rng_below(&rng, 8));
	assert_int_equal(pwrite(fd, &byte, 1, off), 1);
	held_release(part);
}

/* ---- hosts ---- */

struct host {
	struct peers *peers;
	struct loop *loop;
};

/* Opens hosts, the first of which leads, and fills in their map as host 0 has it. */
static inline void hosts_open(struct host *hosts, uint32_t n, uint64_t run, struct peer_map *map)
{
	struct peers_options options = {.job = "test",
		.token = "secret",
		.address = "127.0.0.1",
		.domain = ""};

	sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, NULL); /* as agents do */
	*map = (struct peer_map){.run = run, .n = n};
	for (uint32_t i = 0; i < n; i++) {
		struct peer_host *at = &map->hosts[i];

		OK(peers_open(&hosts[i].peers, &options, &err));
		OK(loop_open(&hosts[i].loop, &err));
		peers_set_leader(hosts[i].peers, "127.0.0.1", peers_port(hosts[0].peers));
		*at = (struct peer_host){.first_rank = i * RANKS, .ranks = RANKS};
		snprintf(at->address, sizeof(at->address), "%s", peers_address(hosts[i].peers));
	}
}

static inline void host_close(struct host *host)
{
	peers_close(host->peers);
	loop_close(host->loop);
	*host = (struct host){0};
}

/* Returns a socket that lets others connect, and never answers; fills in its address. */
static inline int listen_mutely(char address[PEER_ADDRESS_MAX])
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len_bytes = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(fd, 16), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len_bytes), 0);
	snprintf(address, PEER_ADDRESS_MAX, "127.0.0.1:%u", (unsigned)ntohs(at.sin_port));
	return fd;
}

/* ---- a gate ---- */

/* Stops the thread that makes a call. */
struct gate {
	pthread_mutex_t lock; /* guards the rest */
	pthread_cond_t changed;
	ino_t file;     /* inode of the file that the call is about */
	unsigned calls; /* the calls to let pass before one is stopped */
	unsigned seen;  /* calls since gate_arm */
	bool armed;     /* a call is to be stopped */
	bool reached;   /* a thread is, or was, at the gate */
};

#define GATE_INIT                                                                                  \
	{                                                                                          \
		.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER             \
	}

static inline void gate_arm(struct gate *gate, int fd, unsigned calls)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	pthread_mutex_lock(&gate->lock);
	gate->file = st.st_ino;
	gate->calls = calls;
	gate->seen = 0;
	gate->reached = false;
	gate->armed = true;
	pthread_mutex_unlock(&gate->lock);
}

static inline bool gate_reached(struct gate *gate)
{
	bool reached;

	pthread_mutex_lock(&gate->lock);
	reached = gate->reached;
	pthread_mutex_unlock(&gate->lock);
	return reached;
}

/* Returns how many calls there were since gate_arm, about that file. */
static inline unsigned gate_seen(struct gate *gate)
{
	unsigned seen;

	pthread_mutex_lock(&gate->lock);
	seen = gate->seen;
	pthread_mutex_unlock(&gate->lock);
	return seen;
}

static inline void gate_release(struct gate *gate)
{
	pthread_mutex_lock(&gate->lock);
	gate->armed = false;
	pthread_cond_broadcast(&gate->changed);
	pthread_mutex_unlock(&gate->lock);
}

/* Waits at the gate if it is armed for this call. */
static inline void gate_pass(struct gate *gate, int fd)
{
	struct stat st;

	pthread_mutex_lock(&gate->lock);
	if (gate->file != 0 && fstat(fd, &st) == 0 && st.st_ino == gate->file) {
		gate->seen++;
		if (gate->armed && gate->calls > 0) {
			gate->calls--;
		} else if (gate->armed) {
			gate->reached = true;
			while (gate->armed) {
				pthread_cond_wait(&gate->changed, &gate->lock);
			}
		}
	}
	pthread_mutex_unlock(&gate->lock);
}

#endif
