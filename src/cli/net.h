/* The results of `pawl net`, measured and predicted, for its report. */
#ifndef CLI_NET_H
#define CLI_NET_H

#include "coll/plan/survey.h"
#include "coll/transport/tcp.h"

#include "pawl/coll.h"

#define NET_ROWS_MAX 8u
#define NET_BUCKET_BYTES                                                                           \
	(25ull << 20) /* bytes of a bucket of DDP's, which reduces a gradient bucket by bucket */

/* An all-reduce: predicted, and tried. */
struct net_row {
	uint64_t len_bytes;            /* bytes of the vector */
	enum coll_algorithm algorithm; /* the cheapest algorithm */
	double predicted_s;            /* predicted by the link */
	double measured_s;             /* 0: not tried */
};

struct net {
	char hosts[SURVEY_HOSTS_MAX][COLL_TCP_NAME]; /* addresses; the first is this host's */
	struct coll_survey survey;                   /* measurements of the hosts; owned */
	struct coll_link link;                       /* link that follows from survey */
	struct net_row rows[NET_ROWS_MAX];           /* by size, the last one a bucket */
	uint32_t rows_n;                             /* number of entries in rows */
	enum pawl_dtype dtype;                       /* element type of the vectors */
	uint64_t model_bytes;                        /* bytes of the model's gradient */
	uint32_t servers; /* further hosts that only add, to predict for; 0: none */
};

/* Sets the cheapest algorithm of an all-reduce of row->len_bytes over the hosts with that many
 * servers, and its time. */
void net_predict(const struct net *net, uint32_t servers, struct net_row *row);
/* Returns the seconds for the model's gradient, bucket after bucket. */
double net_predict_model(const struct net *net, uint32_t servers);
/* Prints the report on stdout, for people. Returns an exit code. */
int net_print(const struct net *net);
/* Prints the report as one JSON document. Returns an exit code. */
int net_print_json(const struct net *net);

#endif
