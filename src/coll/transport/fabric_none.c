/* Replaces fabric.c in builds without libfabric's headers: see fabric.h. */
#include "base/err.h"
#include "coll/transport/fabric.h"

int coll_fabric_open(struct coll_transport **out, uint32_t rank, uint32_t ranks,
	const char *address, char *name, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_ENOTSUP,
		"PAWL_TRANSPORT=fabric: Pawl was built without libfabric: install its headers "
		"(Debian: libfabric-dev) and build again, or use PAWL_TRANSPORT=tcp");
}

int coll_fabric_join(struct coll_transport *transport, const char *const *names, int64_t timeout_ns,
	const atomic_bool *stop, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_ENOTSUP, "Pawl was built without libfabric");
}

int coll_fabric_events(struct coll_transport *transport)
{
	return -1;
}
