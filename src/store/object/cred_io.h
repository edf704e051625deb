/* What credentials need from outside, by the system: the environment, files, commands and HTTP. */
#ifndef STORE_OBJECT_CRED_IO_H
#define STORE_OBJECT_CRED_IO_H

#include "io/http.h"
#include "store/object/cred_aws.h"

struct pawl_err;

/* The connections of credentials, beside those of the bucket. */
struct cred_net {
	struct http_pool *http; /* owned */
	bool warned;            /* a file that others may read was reported */
};

/* Fills *io, whose functions use net. Zero net before. */
int cred_net_open(struct cred_net *net, const struct http_options *options, struct cred_io *io,
	struct pawl_err *err);
/* Zeroed is fine. */
void cred_net_close(struct cred_net *net);

#endif
