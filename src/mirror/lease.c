/*
 * Read leases: see lease.h.
 *
 * When a process opens a leased file for writing, it waits, and the kernel sends us a signal. The
 * thread reads the signal from a signalfd, looks which leases are being broken, marks them and
 * releases them, in this order: whoever sees no mark after reading bytes has read them before any
 * writer could write. The signal does not say more than that some lease is broken, since signals
 * can be lost when many come together; then the kernel sends SIGIO, which is taken in the same way.
 *
 * One lock guards the list. Nothing is called under it but fcntl.
 */
#include "mirror/lease.h"

#include "base/err.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/vfs.h>
#include <unistd.h>

#define LUSTRE_MAGIC 0x0bd00bd0u /* linux/magic.h does not have it */
#define LEASE_SIGNAL (SIGRTMIN + 3)

struct lease {
	int fd;              /* the caller's */
	atomic_bool *broken; /* the caller's */
};

struct leases {
	pthread_mutex_t lock; /* guards the list */
	struct lease *held;   /* leases; owned */
	uint32_t n, cap;      /* number of leases, and room */
	int signal_fd;        /* signals of the kernel */
	int stop_fd;          /* eventfd: the thread shall end */
	pthread_t thread;
	void (*woken)(void *user); /* the opener's, or NULL */
	void *user;                /* for woken */
};

/* Marks and releases all leases that somebody waits for. Returns whether there were any. */
static bool release_broken(struct leases *leases)
{
	bool any = false;

	pthread_mutex_lock(&leases->lock);
	for (uint32_t i = 0; i < leases->n;) {
		struct lease *lease = &leases->held[i];

		if (fcntl(lease->fd, F_GETLEASE) == F_RDLCK) {
			i++;
			continue;
		}
		atomic_store(lease->broken, true);
		fcntl(lease->fd, F_SETLEASE, F_UNLCK);
		*lease = leases->held[--leases->n];
		any = true;
	}
	pthread_mutex_unlock(&leases->lock);
	return any;
}

static void *serve(void *user)
{
	struct leases *leases = user;
	struct pollfd polls[] = {{leases->signal_fd, POLLIN, 0}, {leases->stop_fd, POLLIN, 0}};

	while (polls[1].revents == 0) {
		struct signalfd_siginfo info[16];

		if (poll(polls, 2, -1) < 0) {
			continue; /* EINTR */
		}
		if (polls[0].revents != 0 && read(leases->signal_fd, info, sizeof(info)) > 0 &&
			release_broken(leases) && leases->woken != NULL) {
			leases->woken(leases->user);
		}
	}
	return NULL;
}

int leases_open(struct leases **out, void (*woken)(void *user), void *user, struct pawl_err *err)
{
	struct leases *leases = FAULT_MEM("mirror.leases", calloc(1, sizeof(*leases)));
	sigset_t set;
	int rv;

	if (leases == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for leases");
	}
	sigemptyset(&set);
	sigaddset(&set, LEASE_SIGNAL);
	sigaddset(&set, SIGIO);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	pthread_mutex_init(&leases->lock, NULL);
	leases->woken = woken;
	leases->user = user;
	leases->signal_fd =
		FAULT_SYS("mirror.leases", signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
	leases->stop_fd = FAULT_SYS("mirror.leases", eventfd(0, EFD_CLOEXEC));
	rv = leases->signal_fd < 0 || leases->stop_fd < 0
		? pawl_err_sys(err, "watch for broken leases")
		: 0;
	if (rv == 0) {
		errno = pthread_create(&leases->thread, NULL, serve, leases);
		rv = errno != 0 ? pawl_err_sys(err, "start a thread for leases") : 0;
	}
	if (rv != 0) {
		close(leases->signal_fd);
		close(leases->stop_fd);
		pthread_mutex_destroy(&leases->lock);
		free(leases);
		return rv;
	}
	*out = leases;
	return 0;
}

void leases_close(struct leases *leases)
{
	const uint64_t one = 1;

	if (leases == NULL) {
		return;
	}
	while (write(leases->stop_fd, &one, sizeof(one)) < 0 && errno == EINTR) {
	}
	pthread_join(leases->thread, NULL);
	for (uint32_t i = 0; i < leases->n; i++) {
		fcntl(leases->held[i].fd, F_SETLEASE, F_UNLCK);
	}
	close(leases->signal_fd);
	close(leases->stop_fd);
	pthread_mutex_destroy(&leases->lock);
	free(leases->held);
	free(leases);
}

static bool make_room(struct leases *leases)
{
	uint32_t cap = leases->cap == 0 ? 64 : leases->cap * 2;
	struct lease *held;

	if (leases->n < leases->cap) {
		return true;
	}
	held = FAULT_MEM("mirror.leases", realloc(leases->held, cap * sizeof(*held)));
	if (held == NULL) {
		return false;
	}
	leases->held = held;
	leases->cap = cap;
	return true;
}

/* Returns whether a file lies on a network file system. These refuse leases with EAGAIN, too, when
 * the server has not delegated the file to this host (NFS 4): it need not be open anywhere. */
static bool is_remote(int fd)
{
	static const uint32_t types[] = {NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, SMB2_SUPER_MAGIC,
		CIFS_SUPER_MAGIC, CEPH_SUPER_MAGIC, FUSE_SUPER_MAGIC, LUSTRE_MAGIC};
	struct statfs fs;

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		if (fstatfs(fd, &fs) == 0 && (uint32_t)fs.f_type == types[i]) {
			return true;
		}
	}
	return false;
}

int lease_take(struct leases *leases, int fd, atomic_bool *broken, struct pawl_err *err)
{
	int rv = 0;

	pthread_mutex_lock(&leases->lock);
	if (!make_room(leases)) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory for a lease");
	} else if (FAULT_SYS("mirror.lease", fcntl(fd, F_SETSIG, LEASE_SIGNAL)) != 0 ||
		FAULT_SYS("mirror.lease", fcntl(fd, F_SETLEASE, F_RDLCK)) != 0) {
		rv = errno == EAGAIN && !is_remote(fd)
			? pawl_err_set(err, PAWL_EBUSY, "a process has it open for writing")
			: pawl_err_set(err, PAWL_ENOTSUP, "it cannot be leased");
	} else {
		leases->held[leases->n++] = (struct lease){fd, broken};
	}
	pthread_mutex_unlock(&leases->lock);
	return rv;
}

void lease_give(struct leases *leases, int fd)
{
	pthread_mutex_lock(&leases->lock);
	for (uint32_t i = 0; i < leases->n; i++) {
		if (leases->held[i].fd == fd) {
			fcntl(fd, F_SETLEASE, F_UNLCK);
			leases->held[i] = leases->held[--leases->n];
			break;
		}
	}
	pthread_mutex_unlock(&leases->lock);
}
