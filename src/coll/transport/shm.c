/*
 * A transport over shared memory: see shm.h and transport.h for the contracts.
 *
 * A rank's area has one ring for each stream that it writes, and a doorbell. Others ring the
 * doorbell when they have written to the rank or made room for it. A reader moves the tail of a
 * ring in the writer's area. What others write is never trusted: if a ring claims more bytes than
 * it can hold, its peer is lost.
 *
 * Sleeping: a rank sets `sleeping`, then reads its doorbell once more. A peer that rings increments
 * the doorbell, then reads `sleeping`. These accesses are sequentially consistent, so at least one
 * of the two sees the other's write. Before it sleeps, a rank polls for a while and yields the CPU,
 * because a futex costs 50 us.
 */
#include "coll/transport/shm.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SHM_MAGIC   0x6c6f636c77617031ULL /* "1pawlcol" */
#define SHM_VERSION 1u

struct ring {
	_Alignas(64) _Atomic uint64_t head; /* bytes ever written; set by the writer */
	_Alignas(64) _Atomic uint64_t tail; /* bytes ever read; set by the reader */
	_Alignas(64) uint8_t bytes[COLL_SHM_RING];
};

struct area {
	uint64_t magic;                         /* SHM_MAGIC */
	uint64_t nonce;                         /* number in the area's name */
	uint32_t version;                       /* SHM_VERSION */
	uint32_t rank, ranks;                   /* the owner; number of ranks in its group */
	uint32_t streams;                       /* COLL_STREAMS */
	_Alignas(64) _Atomic uint32_t doorbell; /* how often it was rung */
	_Alignas(64) _Atomic uint32_t sleeping; /* the owner may be waiting for the doorbell */
	struct ring rings[];                    /* to rank r by stream s: r * COLL_STREAMS + s */
};

struct shm {
	struct coll_transport transport; /* functions for callers; must come first */
	uint32_t rank;                   /* this rank */
	uint32_t ranks;                  /* number of ranks */
	size_t size_bytes;               /* size of an area */
	int fd;                          /* memfd of this rank's area */
	struct area **areas; /* owned; per rank: our own from open on, the others' from join on */
	struct pollfd *pids; /* owned; per rank: pidfd, -1 for our own */
	bool *broken;        /* owned; per rank: it violated the protocol */
};

_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2,
	"a lock of this process would not keep others out");
_Static_assert(offsetof(struct ring, bytes) == 128 && sizeof(struct ring) == 128 + COLL_SHM_RING &&
		offsetof(struct area, doorbell) == 64 && offsetof(struct area, rings) == 192,
	"processes share this layout: another one is another SHM_VERSION");
_Static_assert(offsetof(struct shm, transport) == 0, "shm_of converts pointers");

static struct shm *shm_of(struct coll_transport *transport)
{
	return (struct shm *)(void *)transport;
}

/* ---- doorbells ---- */

static void ring_doorbell(struct area *area)
{
	atomic_fetch_add(&area->doorbell, 1);
	if (atomic_load(&area->sleeping) != 0) {
		syscall(SYS_futex, &area->doorbell, FUTEX_WAKE, 1, NULL, NULL, 0);
	}
}

static uint32_t shm_poll(struct coll_transport *transport)
{
	struct shm *shm = shm_of(transport);

	return atomic_load(&shm->areas[shm->rank]->doorbell);
}

static void shm_wake(struct coll_transport *transport)
{
	struct shm *shm = shm_of(transport);

	ring_doorbell(shm->areas[shm->rank]);
}

static void shm_wait(struct coll_transport *transport, uint32_t seen, int64_t timeout_ns)
{
	struct shm *shm = shm_of(transport);
	struct area *own = shm->areas[shm->rank];
	int64_t poll_ns = times_ns(TIME_SHM_LOOK);
	int64_t until_ns = clock_mono_ns() + (timeout_ns < poll_ns ? timeout_ns : poll_ns);
	struct timespec time = {timeout_ns / NS_PER_S, timeout_ns % NS_PER_S};

	while (atomic_load_explicit(&own->doorbell, memory_order_acquire) == seen) {
		if (clock_mono_ns() >= until_ns) {
			break;
		}
		sched_yield();
	}
	if (timeout_ns <= poll_ns || atomic_load(&own->doorbell) != seen) {
		return;
	}
	atomic_store(&own->sleeping, 1);
	syscall(SYS_futex, &own->doorbell, FUTEX_WAIT, seen, &time, NULL, 0);
	atomic_store(&own->sleeping, 0);
}

static const char *shm_lost(struct coll_transport *transport, uint32_t peer)
{
	struct shm *shm = shm_of(transport);

	if (shm->broken[peer]) {
		return "it wrote invalid data to shared memory";
	}
	return poll(&shm->pids[peer], 1, 0) > 0 ? "its process ended" : NULL;
}

/* ---- rings ---- */

/* Returns whether a ring claims no more bytes than it can hold; else the peer is lost. */
static bool is_sane(struct shm *shm, uint32_t peer, uint64_t used_bytes)
{
	if (used_bytes > COLL_SHM_RING) {
		shm->broken[peer] = true;
	}
	return used_bytes <= COLL_SHM_RING;
}

/* Returns the ring by which rank `from` sends to rank `to`. */
static struct ring *ring_of(const struct shm *shm, uint32_t from, uint32_t to, uint32_t stream)
{
	ASSERT(from < shm->ranks && to < shm->ranks && stream < COLL_STREAMS);
	return &shm->areas[from]->rings[to * COLL_STREAMS + stream];
}

static size_t shm_send(struct coll_transport *transport, uint32_t peer, uint32_t stream,
	const void *bytes, size_t len_bytes)
{
	struct shm *shm = shm_of(transport);
	struct ring *ring = ring_of(shm, shm->rank, peer, stream);
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
	size_t room = is_sane(shm, peer, head - tail) ? COLL_SHM_RING - (head - tail) : 0;
	size_t n = len_bytes < room ? len_bytes : room;
	size_t at = head % COLL_SHM_RING;
	size_t first = n < COLL_SHM_RING - at ? n : COLL_SHM_RING - at;

	if (n == 0) {
		return 0;
	}
	memcpy(ring->bytes + at, bytes, first);
	memcpy(ring->bytes, (const uint8_t *)bytes + first, n - first);
	atomic_store_explicit(&ring->head, head + n, memory_order_release);
	ring_doorbell(shm->areas[peer]);
	return n;
}

static size_t shm_receive(struct coll_transport *transport, uint32_t peer, uint32_t stream,
	void *bytes, size_t len_bytes)
{
	struct shm *shm = shm_of(transport);
	struct ring *ring = ring_of(shm, peer, shm->rank, stream);
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
	uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
	size_t there = is_sane(shm, peer, head - tail) ? head - tail : 0;
	size_t n = len_bytes < there ? len_bytes : there;
	size_t at = tail % COLL_SHM_RING;
	size_t first = n < COLL_SHM_RING - at ? n : COLL_SHM_RING - at;

	if (n == 0) {
		return 0;
	}
	memcpy(bytes, ring->bytes + at, first);
	memcpy((uint8_t *)bytes + first, ring->bytes, n - first);
	atomic_store_explicit(&ring->tail, tail + n, memory_order_release);
	ring_doorbell(shm->areas[peer]);
	return n;
}

/* ---- opening ---- */

static void shm_close(struct coll_transport *transport)
{
	struct shm *shm = shm_of(transport);

	for (uint32_t r = 0; r < shm->ranks && shm->areas && shm->pids; r++) {
		if (shm->areas[r]) {
			munmap(shm->areas[r], shm->size_bytes);
		}
		if (shm->pids[r].fd >= 0) {
			close(shm->pids[r].fd);
		}
	}
	if (shm->fd >= 0) {
		close(shm->fd);
	}
	free(shm->areas);
	free(shm->pids);
	free(shm->broken);
	free(shm);
}

/* Creates this rank's area. It is sealed, so that nobody can shrink it while others map it. */
static int make_area(struct shm *shm, uint64_t *nonce, struct pawl_err *err)
{
	struct area *area;

	shm->fd = FAULT_SYS("coll.shm", memfd_create("pawl-coll", MFD_CLOEXEC | MFD_ALLOW_SEALING));
	if (shm->fd < 0 || FAULT_SYS("coll.shm", ftruncate(shm->fd, (off_t)shm->size_bytes)) != 0 ||
		fcntl(shm->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
		return pawl_err_sys(err, "collectives: make shared memory of %zu bytes",
			shm->size_bytes);
	}
	area = FAULT_SYS("coll.shm",
		mmap(NULL, shm->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shm->fd, 0));
	if (area == MAP_FAILED) {
		return pawl_err_sys(err, "collectives: map %zu bytes", shm->size_bytes);
	}
	shm->areas[shm->rank] = area;
	if (getrandom(nonce, sizeof(*nonce), 0) != sizeof(*nonce)) {
		return pawl_err_sys(err, "collectives: get a random number");
	}
	area->magic = SHM_MAGIC;
	area->nonce = *nonce;
	area->version = SHM_VERSION;
	area->rank = shm->rank;
	area->ranks = shm->ranks;
	area->streams = COLL_STREAMS;
	return 0;
}

int coll_shm_open(struct coll_transport **out, uint32_t rank, uint32_t ranks, char *name,
	struct pawl_err *err)
{
	struct shm *shm;
	uint64_t nonce;
	int rv;

	ASSERT(rank < ranks);
	if (ranks > COLL_SHM_RANKS_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT,
			"collectives: %u ranks on a host: the limit is %u", ranks,
			COLL_SHM_RANKS_MAX);
	}
	shm = FAULT_MEM("coll.shm", calloc(1, sizeof(*shm)));
	if (!shm) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for collectives");
	}
	shm->transport = (struct coll_transport){shm_send, shm_receive, shm_poll, shm_wait,
		shm_wake, shm_lost, shm_close};
	shm->rank = rank;
	shm->ranks = ranks;
	shm->fd = -1;
	shm->size_bytes = sizeof(struct area) + (size_t)ranks * COLL_STREAMS * sizeof(struct ring);
	shm->areas = FAULT_MEM("coll.shm", calloc(ranks, sizeof(struct area *)));
	shm->pids = FAULT_MEM("coll.shm", calloc(ranks, sizeof(struct pollfd)));
	shm->broken = FAULT_MEM("coll.shm", calloc(ranks, sizeof(bool)));
	for (uint32_t r = 0; r < ranks && shm->pids; r++) {
		shm->pids[r] = (struct pollfd){.fd = -1, .events = POLLIN};
	}
	rv = shm->areas && shm->pids && shm->broken
		? make_area(shm, &nonce, err)
		: pawl_err_set(err, PAWL_ENOMEM, "no memory for collectives of %u ranks", ranks);
	if (rv != 0) {
		shm_close(&shm->transport);
		return rv;
	}
	snprintf(name, COLL_SHM_NAME, "%ld:%d:%" PRIx64, (long)getpid(), shm->fd, nonce);
	*out = &shm->transport;
	return 0;
}

/* Returns whether area is the one that the name describes, made for this group. */
static bool is_area(const struct shm *shm, const struct area *area, uint32_t rank, uint64_t nonce)
{
	return area->magic == SHM_MAGIC && area->version == SHM_VERSION && area->nonce == nonce &&
		area->rank == rank && area->ranks == shm->ranks && area->streams == COLL_STREAMS;
}

/* Maps another rank's area. The memfd must be sealed, so that it cannot shrink. */
static int map_area(struct shm *shm, uint32_t rank, int fd, uint64_t nonce, struct pawl_err *err)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat stat;
	struct area *area;

	if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &stat) != 0 ||
		(size_t)stat.st_size != shm->size_bytes) {
		return pawl_err_set(err, PAWL_EINVAL,
			"collectives: the shared memory of rank %u has the wrong size or no seal: "
			"is it another version of Pawl?",
			rank);
	}
	area = FAULT_SYS("coll.shm",
		mmap(NULL, shm->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
	if (area == MAP_FAILED) {
		return pawl_err_sys(err, "collectives: map the memory of rank %u", rank);
	}
	shm->areas[rank] = area;
	if (!is_area(shm, area, rank, nonce)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"collectives: the shared memory of rank %u belongs to another group", rank);
	}
	return 0;
}

static int join_rank(struct shm *shm, uint32_t rank, const char *name, struct pawl_err *err)
{
	char path[64];
	uint64_t nonce;
	long pid;
	int number;
	int fd;
	int rv;

	if (sscanf(name, "%ld:%d:%" SCNx64, &pid, &number, &nonce) != 3) {
		return pawl_err_set(err, PAWL_EINVAL,
			"collectives: the address of rank %u is malformed: %s", rank, name);
	}
	shm->pids[rank].fd = FAULT_SYS("coll.shm", (int)syscall(SYS_pidfd_open, (pid_t)pid, 0u));
	snprintf(path, sizeof(path), "/proc/%ld/fd/%d", pid, number);
	fd = FAULT_SYS("coll.shm", open(path, O_RDWR | O_CLOEXEC));
	if (shm->pids[rank].fd < 0 || fd < 0) {
		rv = pawl_err_set(err, PAWL_EPEER,
			"collectives: rank %u, process %ld, cannot be reached: %s (is it gone, of "
			"another user, or in another container?)",
			rank, pid, strerror(errno));
	} else {
		rv = map_area(shm, rank, fd, nonce, err);
	}
	if (fd >= 0) {
		close(fd);
	}
	return rv;
}

int coll_shm_join(struct coll_transport *transport, const char *const *names, struct pawl_err *err)
{
	struct shm *shm = shm_of(transport);
	int rv = 0;

	for (uint32_t r = 0; r < shm->ranks && rv == 0; r++) {
		if (r != shm->rank && names[r]) {
			rv = join_rank(shm, r, names[r], err);
		}
	}
	return rv;
}
