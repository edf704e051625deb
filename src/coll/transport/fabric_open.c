/* Loads libfabric, and opens a libfabric endpoint: see fabric.h for the contract. */
#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "coll/transport/fabric_impl.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#define API     FI_VERSION(1, 9)
#define SIGNALS 32 /* numbers of the signals that can have a handler, and 0 */

static pthread_mutex_t load_mutex = PTHREAD_MUTEX_INITIALIZER; /* guards lib */
static struct fabric_lib lib; /* guarded by load_mutex until strerror is set */

/* ---- the library ---- */

/* Finds the functions, by version. From these versions on, the library's structs have the layout of
 * the headers. Without a version, dlsym would find the library's newest function. */
static bool find_symbols(void *library)
{
	*(void **)&lib.getinfo = dlvsym(library, "fi_getinfo", "FABRIC_1.3");
	*(void **)&lib.freeinfo = dlvsym(library, "fi_freeinfo", "FABRIC_1.3");
	*(void **)&lib.dupinfo = dlvsym(library, "fi_dupinfo", "FABRIC_1.3");
	*(void **)&lib.fabric = dlvsym(library, "fi_fabric", "FABRIC_1.1");
	*(void **)&lib.strerror = dlvsym(library, "fi_strerror", "FABRIC_1.0");
	return lib.getinfo && lib.freeinfo && lib.dupinfo && lib.fabric && lib.strerror;
}

/* Loads the library, and then restores the signal handlers. One of its providers (PSM) sets
 * handlers for six signals when it is loaded, among them SIGINT and SIGTERM. */
static void *load_library(void)
{
	struct sigaction actions[SIGNALS];
	sigset_t all;
	sigset_t before;
	void *library;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	for (int s = 1; s < SIGNALS; s++) {
		sigaction(s, NULL, &actions[s]);
	}
	library = FAULT_MEM("coll.fabric.open",
		dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE));
	for (int s = 1; s < SIGNALS; s++) {
		sigaction(s, &actions[s], NULL);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return library;
}

const struct fabric_lib *fabric_load(struct pawl_err *err)
{
	const struct fabric_lib *found = &lib;
	void *library;

	pthread_mutex_lock(&load_mutex);
	if (!lib.strerror) {
		library = load_library();
		if (!library || !find_symbols(library)) {
			pawl_err_set(err, PAWL_ENOTSUP,
				"PAWL_TRANSPORT=fabric: libfabric.so.1 %s: install libfabric "
				"(Debian: libfabric1), or use PAWL_TRANSPORT=tcp",
				library ? "is too old" : "cannot be loaded");
			lib = (struct fabric_lib){0};
			found = NULL;
		}
	}
	pthread_mutex_unlock(&load_mutex);
	return found;
}

/* Fills err from rv, an error of libfabric. Returns its code. */
static int set_error(int rv, const char *what, struct pawl_err *err)
{
	return pawl_err_set(err, rv == -FI_ENOMEM ? PAWL_ENOMEM : PAWL_EIO,
		"collectives: libfabric: %s: %s", what, lib.strerror(-rv));
}

/* ---- a provider ---- */

static struct fi_info *make_hints(void)
{
	struct fi_info *hints = FAULT_MEM("coll.fabric.open", lib.dupinfo(NULL));

	if (hints) {
		hints->caps = FI_MSG | FI_REMOTE_COMM;
		hints->mode = FI_CONTEXT | FI_CONTEXT2;
		hints->ep_attr->type = FI_EP_RDM;
		hints->domain_attr->mr_mode = FI_MR_LOCAL;
		hints->domain_attr->threading = FI_THREAD_DOMAIN;
		hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	}
	return hints;
}

/* Chooses the first provider that libfabric offers for an address. If there is none, tries EFA,
 * which only knows addresses of its own. */
static int choose_provider(struct fabric *fabric, const char *address, struct pawl_err *err)
{
	struct fi_info *hints = make_hints();
	int rv;

	if (!hints) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for collectives");
	}
	rv = FAULT_SYS("coll.fabric.open",
		lib.getinfo(API, address, NULL, FI_SOURCE, hints, &fabric->info));
	if (rv == -FI_ENODATA) {
		hints->addr_format = FI_ADDR_EFA;
		rv = lib.getinfo(API, NULL, NULL, 0, hints, &fabric->info);
	}
	lib.freeinfo(hints);
	return rv == 0
		? 0
		: pawl_err_set(err, PAWL_ENOTSUP,
			  "PAWL_TRANSPORT=fabric: libfabric has no provider of reliable "
			  "datagrams (FI_EP_RDM) at %s: %s: check the output of fi_info, and "
			  "FI_PROVIDER",
			  address, lib.strerror(-rv));
}

/* ---- a libfabric endpoint ---- */

/* Opens the completion queue, with a descriptor if the provider offers one. */
static int open_queue(struct fabric *fabric, struct pawl_err *err)
{
	size_t sends = (size_t)fabric->ranks * (COLL_STREAMS * FABRIC_SENDS + 1);
	struct fi_cq_attr attr = {.size = fabric->recvs_n + sends,
		.format = FI_CQ_FORMAT_MSG,
		.wait_obj = FI_WAIT_FD};
	struct epoll_event event = {.events = EPOLLIN};
	int rv = FAULT_SYS("coll.fabric.fd", fi_cq_open(fabric->domain, &attr, &fabric->cq, NULL));

	if (rv == 0) {
		rv = fi_control(&fabric->cq->fid, FI_GETWAIT, &fabric->fd);
	} else {
		attr.wait_obj = FI_WAIT_NONE;
		rv = FAULT_SYS("coll.fabric.open",
			fi_cq_open(fabric->domain, &attr, &fabric->cq, NULL));
	}
	if (rv != 0) {
		return set_error(rv, "make a completion queue", err);
	}
	if (fabric->fd >= 0 &&
		FAULT_SYS("coll.fabric.open",
			epoll_ctl(fabric->epoll, EPOLL_CTL_ADD, fabric->fd, &event)) != 0) {
		return pawl_err_sys(err, "collectives: open a transport");
	}
	return 0;
}

static int open_endpoint(struct fabric *fabric, struct pawl_err *err)
{
	struct fi_av_attr attr = {.type = fabric->info->domain_attr->av_type,
		.count = fabric->ranks};
	int rv = FAULT_SYS("coll.fabric.open",
		lib.fabric(fabric->info->fabric_attr, &fabric->fabric, NULL));

	if (rv == 0) {
		rv = FAULT_SYS("coll.fabric.open",
			fi_domain(fabric->fabric, fabric->info, &fabric->domain, NULL));
	}
	if (rv != 0) {
		return set_error(rv, "open the network", err);
	}
	rv = open_queue(fabric, err);
	if (rv != 0) {
		return rv;
	}
	rv = FAULT_SYS("coll.fabric.open", fi_av_open(fabric->domain, &attr, &fabric->av, NULL));
	if (rv == 0) {
		rv = FAULT_SYS("coll.fabric.open",
			fi_endpoint(fabric->domain, fabric->info, &fabric->ep, NULL));
	}
	if (rv == 0) {
		rv = fi_ep_bind(fabric->ep, &fabric->av->fid, 0);
	}
	if (rv == 0) {
		rv = fi_ep_bind(fabric->ep, &fabric->cq->fid, FI_TRANSMIT | FI_RECV);
	}
	if (rv == 0) {
		rv = FAULT_SYS("coll.fabric.open", fi_enable(fabric->ep));
	}
	return rv == 0 ? 0 : set_error(rv, "open an endpoint", err);
}

static void close_fid(struct fid *fid)
{
	if (fid) {
		fi_close(fid);
	}
}

void fabric_release(struct fabric *fabric)
{
	close_fid(fabric->ep ? &fabric->ep->fid : NULL);
	close_fid(fabric->mr ? &fabric->mr->fid : NULL);
	close_fid(fabric->av ? &fabric->av->fid : NULL);
	close_fid(fabric->cq ? &fabric->cq->fid : NULL);
	close_fid(fabric->domain ? &fabric->domain->fid : NULL);
	close_fid(fabric->fabric ? &fabric->fabric->fid : NULL);
	if (fabric->info) {
		lib.freeinfo(fabric->info);
	}
}

/* Writes a name such as "fi1:020099…:3f0c…:tcp;ofi_rxm". */
static int write_name(const struct fabric *fabric, char *name, struct pawl_err *err)
{
	uint8_t address[FABRIC_ADDRESS];
	char text[2 * FABRIC_ADDRESS + 1] = "";
	size_t len = sizeof(address);
	int rv = FAULT_SYS("coll.fabric.open", fi_getname(&fabric->ep->fid, address, &len));

	if (rv != 0) {
		return set_error(rv, "get the address of the endpoint", err);
	}
	for (size_t i = 0; i < len; i++) {
		snprintf(text + 2 * i, 3, "%02x", address[i]);
	}
	if (snprintf(name, COLL_FABRIC_NAME, "fi%u:%s:%" PRIx64 ":%s", FABRIC_VERSION, text,
		    fabric->key, fabric->info->fabric_attr->prov_name) >= (int)COLL_FABRIC_NAME) {
		return pawl_err_set(err, PAWL_ENOTSUP,
			"collectives: libfabric: the names of provider %s are too long",
			fabric->info->fabric_attr->prov_name);
	}
	return 0;
}

/* ---- a transport ---- */

/* Sets the window of each stream, so that all streams together stay within FABRIC_ROOM, unless the
 * smallest window is too large for that. Also sets the number of buffers that receive. */
static void choose_window(struct fabric *fabric)
{
	uint64_t streams = (uint64_t)fabric->ranks * COLL_STREAMS;

	fabric->window = FABRIC_WINDOW_MAX;
	while (fabric->window > FABRIC_WINDOW_MIN && fabric->window * streams > FABRIC_ROOM) {
		fabric->window /= 2;
	}
	fabric->recvs_n = 64 + 2 * fabric->ranks;
}

static int open_events(struct fabric *fabric, struct pawl_err *err)
{
	struct epoll_event event = {.events = EPOLLIN};

	fabric->epoll = FAULT_SYS("coll.fabric.open", epoll_create1(EPOLL_CLOEXEC));
	fabric->event = FAULT_SYS("coll.fabric.open", eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	return fabric->epoll >= 0 && fabric->event >= 0 &&
			epoll_ctl(fabric->epoll, EPOLL_CTL_ADD, fabric->event, &event) == 0 &&
			getrandom(&fabric->key, sizeof(fabric->key), 0) == sizeof(fabric->key)
		? 0
		: pawl_err_sys(err, "collectives: open a transport");
}

int coll_fabric_open(struct coll_transport **out, uint32_t rank, uint32_t ranks,
	const char *address, char *name, struct pawl_err *err)
{
	struct fabric *fabric;
	int rv;

	ASSERT(rank < ranks);
	if (!fabric_load(err)) {
		return PAWL_ENOTSUP;
	}
	fabric = FAULT_MEM("coll.fabric.open", calloc(1, sizeof(*fabric)));
	if (!fabric) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for collectives");
	}
	fabric->transport = fabric_transport;
	fabric->rank = rank;
	fabric->ranks = ranks;
	fabric->epoll = fabric->event = fabric->fd = -1;
	choose_window(fabric);
	fabric->peers = FAULT_MEM("coll.fabric.open", calloc(ranks, sizeof(*fabric->peers)));
	rv = fabric->peers
		? open_events(fabric, err)
		: pawl_err_set(err, PAWL_ENOMEM, "no memory for collectives of %u ranks", ranks);
	if (rv == 0) {
		rv = choose_provider(fabric, address, err);
	}
	if (rv == 0) {
		rv = open_endpoint(fabric, err);
	}
	if (rv == 0) {
		rv = write_name(fabric, name, err);
	}
	if (rv != 0) {
		fabric->transport.close(&fabric->transport);
		return rv;
	}
	*out = &fabric->transport;
	return 0;
}
