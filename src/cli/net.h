/* What `pawl net` measured and predicts, for its report. */
#ifndef CLI_NET_H
#define CLI_NET_H

#include "coll/survey.h"
#include "coll/tcp.h"

#include "pawl/coll.h"

#define NET_ROWS_MAX 8u
#define NET_BUCKET_BYTES                                                                           \
	(25ull << 20) /* DDP's, of which a gradient is reduced one after another                   \
		       */

/* An all-reduce: predicted, and tried. */
struct net_row {
	uint64_t len_bytes; /* of the vector */
	enum coll_way way;  /* the cheapest */
	double predicted_s; /* by the link */
	double measured_s;  /* 0: not tried */
};

struct net {
	char hosts[SURVEY_HOSTS_MAX][COLL_TCP_NAME]; /* addresses; 0 is this host's */
	struct coll_survey survey;                   /* of them; owned */
	struct coll_link link;                       /* that follows */
	struct net_row rows[NET_ROWS_MAX];           /* by size, the last one a bucket */
	uint32_t rows_n;                             /* of them */
	enum pawl_dtype dtype;                       /* of the vectors */
	uint64_t model_bytes;                        /* of a gradient for the model */
	uint32_t servers;                            /* what if there were so many; 0: not asked */
};

/* The way of an all-reduce over hosts with so many servers, and what it takes. */
void net_predict(const struct net *net, uint32_t servers, struct net_row *row);
/* Seconds of the model's gradient, bucket after bucket. */
double net_predict_model(const struct net *net, uint32_t servers);
/* To stdout, for people; returns an exit code. */
int net_print(const struct net *net);
/* The same as one JSON document. */
int net_print_json(const struct net *net);

#endif
