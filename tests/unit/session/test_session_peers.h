/* An agent of one rank of a job on several hosts, as a script: it offers what other hosts have in
 * memory, fills in the bytes that are asked for, and answers a save as it is told. Its thread
 * asserts nothing; the test reads afterwards what came. */
#ifndef TEST_SESSION_PEERS_H
#define TEST_SESSION_PEERS_H

#include "base/crc.h"
#include "ckpt/format/pieces.h"
#include "ckpt/format/record.h"
#include "ipc/frames.h"
#include "ipc/tier.h"
#include "test_session_agent.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define WORLD     4u
#define PARTS_MAX 3u /* partitions of one rank */
#define ASKED_MAX 64u

/* What one rank of the job has of the save. */
struct content {
	struct record_part parts[PARTS_MAX];
	uint32_t parts_n;
	uint64_t off;      /* offset of its arena in the one memory */
	uint64_t bytes;    /* size of the arena */
	bool damaged_blob; /* the record is cut */
};

/* What the agent does with a request for bytes. */
enum answer {
	FILLS,
	REFUSES,
	HANGS_UP,
	FILLS_NOTHING, /* says yes once, without any bytes, and refuses from then on */
};

struct scripted {
	pthread_mutex_t lock; /* held while the thread handles a frame, and to change the script */

	/* The script. */
	struct content ranks[WORLD];
	uint8_t *memory;        /* what the one memory shall hold */
	uint64_t memory_bytes;  /* size of the memory */
	uint32_t rows;          /* ranks that are offered; those from WORLD on have no part */
	uint32_t fds;           /* descriptors that come with the offer */
	bool past_end;          /* rank 2's arena passes the end of the memory */
	atomic_int answer;      /* enum answer, to FETCH */
	atomic_bool replicates; /* a save that is staged becomes replicated */
	atomic_bool supersedes; /* and is then superseded */

	/* What came. */
	struct frame_fetch asked[ASKED_MAX];
	atomic_uint asked_n;
	atomic_uint flushes, restored, votes;
	atomic_uint replicas; /* asked for by the last HELLO */
	atomic_bool parity;   /* asked for by the last HELLO, too */

	int listener;
	int fd; /* the one memory */
	pthread_t thread;
};

/* ---- the save ---- */

/* Adds a partition of which rank has staged bytes lo to before hi; spans: its storages and, last,
 * its pickle. hi 0: the whole file. */
static inline void add_part(struct scripted *agent, uint32_t r, const char *name, bool shared,
	const struct zip_plan *plan, const struct ckpt_span *spans, uint64_t lo, uint64_t hi)
{
	struct content *rank = &agent->ranks[r];
	struct record_part *part = &rank->parts[rank->parts_n++];
	struct ckpt_pieces pieces = {0};
	uint8_t *image;

	*part = (struct record_part){.shared = shared,
		.raw = plan->entries_n == plan->storages + 1,
		.size_bytes = plan->size_bytes,
		.pickle_bytes = zip_plan_pickle(plan)->size_bytes,
		.lo = lo,
		.hi = hi ? hi : plan->size_bytes,
		.arena_off = (rank->bytes + CKPT_PAGE - 1) / CKPT_PAGE * CKPT_PAGE,
		.storages = plan->storages};
	snprintf(part->name, sizeof(part->name), "%s", name);
	rank->bytes = part->arena_off + part->hi - part->lo;
	image = agent->memory + rank->off + part->arena_off;
	part->storage_bytes = calloc(plan->storages + 1u, sizeof(*part->storage_bytes));
	for (uint32_t i = 0; i < plan->storages; i++) {
		part->storage_bytes[i] = plan->entries[i].size_bytes;
	}
	assert_int_equal(ckpt_pieces_add(&pieces, plan, spans, 0, part->lo, part->hi, image, NULL),
		0);
	part->pieces_n = (uint32_t)pieces.n;
	part->pieces = calloc(pieces.n + 1, sizeof(*part->pieces));
	for (size_t i = 0; i < pieces.n; i++) {
		const struct ckpt_piece *piece = &pieces.at[i];

		memcpy(piece->dst, piece->src, piece->len_bytes);
		part->pieces[i] = (struct record_piece){piece->file_off, piece->len_bytes,
			crc32c(0, piece->src, piece->len_bytes)};
	}
	ckpt_pieces_deinit(&pieces);
}

static inline void free_contents(struct scripted *agent)
{
	for (uint32_t r = 0; r < WORLD; r++) {
		for (uint32_t p = 0; p < agent->ranks[r].parts_n; p++) {
			free(agent->ranks[r].parts[p].storage_bytes);
			free(agent->ranks[r].parts[p].pieces);
		}
	}
}

/* ---- the agent's thread ---- */

static inline void reply(int fd, const struct proto_frame *to, enum proto_type type,
	const void *body, const int *fds, uint32_t fds_n)
{
	struct wire_out out = {0};
	size_t start = proto_start(&out, type, to ? to->id : 0);

	frame_encode(&out, type, body);
	proto_end(&out, start);
	proto_send(fd, &out, fds, fds_n, NULL);
	wire_out_deinit(&out);
}

static inline void encode_record(const struct scripted *agent, uint32_t r, struct wire_out *out)
{
	const struct content *rank = &agent->ranks[r];
	const struct record record = {.step = 7,
		.rank = r,
		.world = WORLD,
		.parts_n = rank->parts_n,
		.parts = (struct record_part *)rank->parts};

	record_encode(&record, out);
	out->len_bytes -= rank->damaged_blob;
}

static inline void offer(struct scripted *agent, int fd, const struct proto_frame *to)
{
	struct frame_from_peers body = {.step = 7,
		.tag = "global_step7",
		.memory_bytes = agent->memory_bytes};
	const int fds[] = {agent->fd, agent->fd};
	struct wire_out rows = {0}, blob = {0};

	for (uint32_t r = 0; r < agent->rows; r++) {
		struct frame_peer_share share = {0};

		wire_out_reset(&blob);
		if (r < WORLD && agent->ranks[r].parts_n > 0) {
			encode_record(agent, r, &blob);
			share.off = agent->ranks[r].off;
			share.size_bytes = arena_round(agent->ranks[r].bytes);
			share.record = (struct frame_blob){blob.bytes, (uint32_t)blob.len_bytes};
		}
		if (r == 2 && agent->past_end) {
			share.size_bytes = agent->memory_bytes - share.off + 1;
		}
		frame_layout_encode(&rows, &frame_peer_share_layout, &share);
	}
	body.shares = (struct frame_rows){rows.bytes, (uint32_t)rows.len_bytes, agent->rows};
	reply(fd, to, PROTO_FROM_PEERS, &body, fds, agent->fds);
	wire_out_deinit(&rows);
	wire_out_deinit(&blob);
}

/* Fills in the bytes that are asked for. Returns false to end the connection. */
static inline bool answer_fetch(struct scripted *agent, int fd, const struct proto_frame *to,
	const struct frame_fetch *fetch)
{
	struct frame_error error = {.code = PAWL_EIO, .text = "host-b is gone, and host-c too"};
	uint32_t n = agent->asked_n;
	const struct content *rank;
	const struct record_part *part;
	uint64_t off;

	if (n < ASKED_MAX) {
		agent->asked[n] = *fetch;
		agent->asked_n = n + 1;
	}
	if (agent->answer == FILLS_NOTHING) {
		agent->answer = REFUSES;
		reply(fd, to, PROTO_OK, NULL, NULL, 0);
		return true;
	}
	if (agent->answer != FILLS || fetch->rank >= WORLD ||
		fetch->part >= agent->ranks[fetch->rank].parts_n) {
		reply(fd, to, PROTO_ERROR, &error, NULL, 0);
		return agent->answer != HANGS_UP;
	}
	rank = &agent->ranks[fetch->rank];
	part = &rank->parts[fetch->part];
	off = rank->off + part->arena_off + fetch->lo - part->lo;
	(void)!pwrite(agent->fd, agent->memory + off, fetch->hi - fetch->lo, (off_t)off);
	reply(fd, to, PROTO_OK, NULL, NULL, 0);
	return true;
}

/* Reports the level of a save. */
static inline void report(struct scripted *agent, int fd, uint64_t seq, enum proto_level level)
{
	const struct frame_level body = {.seq = seq, .level = (uint8_t)level};

	reply(fd, NULL, PROTO_LEVEL, &body, NULL, 0);
}

static inline bool handle(struct scripted *agent, int fd, const struct proto_frame *frame,
	const union frame_request *body)
{
	const struct frame_grant grant = {.seq = body->begin.seq,
		.arenas_n = 1,
		.arenas = {{.slot = 0, .size_bytes = agent->memory_bytes}}};
	const struct frame_verdict verdict = {.verdict = VERDICT_GO, .rounds = 1};

	switch (frame->type) {
	case PROTO_HELLO:
		agent->replicas = body->hello.replicas;
		agent->parity = body->hello.parity;
		reply(fd, frame, PROTO_WELCOME, &(struct frame_welcome){.pid = 1}, NULL, 0);
		return true;
	case PROTO_RESTORE:
		offer(agent, fd, frame);
		return true;
	case PROTO_FETCH:
		return answer_fetch(agent, fd, frame, &body->fetch);
	case PROTO_VOTE:
		agent->votes++;
		if (frame->id != 0) {
			reply(fd, frame, PROTO_VERDICT, &verdict, NULL, 0);
		}
		return true;
	case PROTO_RESTORED:
		agent->restored++;
		return true;
	case PROTO_BEGIN:
		reply(fd, frame, PROTO_GRANT, &grant, &agent->fd, 1);
		return true;
	case PROTO_STAGED:
		report(agent, fd, body->staged.seq, LEVEL_COMMITTED);
		if (agent->replicates) {
			report(agent, fd, body->staged.seq, LEVEL_REPLICATED);
		}
		if (agent->supersedes) {
			report(agent, fd, body->staged.seq, LEVEL_SUPERSEDED);
		}
		return true;
	case PROTO_FLUSH:
		agent->flushes++;
		reply(fd, frame, PROTO_OK, NULL, NULL, 0);
		report(agent, fd, body->flush.seq, LEVEL_DURABLE);
		return true;
	case PROTO_BYE:
		reply(fd, frame, PROTO_OK, NULL, NULL, 0);
		return true;
	default:
		return true;
	}
}

static inline void *serve(void *user)
{
	struct scripted *agent = user;
	union frame_request body;
	struct proto_frame frame;
	int fd;

	while ((fd = accept4(agent->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		struct proto_conn conn = {.fd = fd};
		bool more = true;

		while (more && proto_fill(&conn, NULL) > 0) {
			while (more && proto_next(&conn, &frame, NULL) > 0) {
				pthread_mutex_lock(&agent->lock);
				more = frame_decode(&frame.body, frame.type, &body, sizeof(body)) &&
					handle(agent, fd, &frame, &body);
				pthread_mutex_unlock(&agent->lock);
				proto_frame_close(&frame);
			}
		}
		proto_conn_close(&conn);
	}
	return NULL;
}

static inline void start_scripted(struct scripted *agent)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	pthread_mutex_init(&agent->lock, NULL);
	agent->rows = WORLD;
	agent->fds = 1;
	agent->fd = memfd_create("peers", MFD_CLOEXEC);
	assert_true(agent->fd >= 0);
	assert_int_equal(ftruncate(agent->fd, (off_t)agent->memory_bytes), 0);
	agent->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	memcpy(addr.sun_path, sock, strlen(sock) + 1);
	assert_int_equal(bind(agent->listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(agent->listener, 4), 0);
	assert_int_equal(pthread_create(&agent->thread, NULL, serve, agent), 0);
}

/* Ends the thread, once the worker has closed its connection. */
static inline void stop_scripted(struct scripted *agent)
{
	shutdown(agent->listener, SHUT_RDWR);
	pthread_join(agent->thread, NULL);
	close(agent->listener);
	unlink(sock);
	close(agent->fd);
	pthread_mutex_destroy(&agent->lock);
	free_contents(agent);
	free(agent->memory);
}

#endif
