/* Pods of jobs: what the API server is asked to make of a template, and what it says about a Pod
 * later. Pure. */
#ifndef ENGINE_K8S_KUBE_POD_H
#define ENGINE_K8S_KUBE_POD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct pawl_err;

#define KUBE_POD_NAME_MAX    64u /* bytes of a Pod's name, terminator included: it is a host name */
#define KUBE_JOB_NAME_MAX    53u /* bytes of a job's name: the numbers of a Pod follow it */
#define KUBE_POD_WHY_MAX     384u
#define KUBE_POD_ADDRESS_MAX 46u

/* Labels of all Pods that the engine makes. */
#define KUBE_LABEL_JOB        "pawl.dev/job"        /* name of the job's object */
#define KUBE_LABEL_NUMBER     "pawl.dev/number"     /* number that the scheduler gave the job */
#define KUBE_LABEL_GENERATION "pawl.dev/generation" /* generation of the start */
#define KUBE_LABEL_PART       "pawl.dev/part"       /* number of the part */

/* A part of a job: what runs of one start on one node. Strings are the caller's. */
struct kube_part {
	const json_t *pod_template; /* spec.template of the job's object */
	const json_t *per_node;     /* names of resources that do not grow with replicas; or NULL */
	const json_t *env;          /* name and text of each variable; NULL: none */
	const char *job;            /* name of the job's object */
	const char *name_space;
	const char *owner_kind; /* kind, apiVersion and uid of the job's object */
	const char *owner_version;
	const char *owner_uid;
	const char *node;    /* where the Pod must run */
	uint64_t number;     /* as in the labels */
	uint64_t generation; /* as in the labels */
	uint32_t part;       /* as in the labels */
	uint32_t replicas;   /* replicas in the part, at least 1 */
	/* Words in front of the command of the first container, as "pawl", "run" …;
	 * NULL-terminated. NULL: the command is as it is. */
	const char *const *launcher;
	uint32_t grace_s; /* seconds from the Pod's deletion to SIGKILL */
};

/* Writes the name of a part's Pod. A part has one name, so that it is made once. */
void kube_pod_name(const struct kube_part *part, char name[KUBE_POD_NAME_MAX]);
/* Makes the Pod of a part, which the caller owns: the template, placed on the node, with resources
 * for all replicas in the first container. PAWL_EINVAL: the template cannot be used, and err names
 * what is wrong; PAWL_ENOMEM. */
int kube_pod_make(const struct kube_part *part, json_t **pod, struct pawl_err *err);

enum kube_pod_state {
	KUBE_POD_WAITS, /* is not placed yet, or its containers have not all started */
	KUBE_POD_RUNS,
	KUBE_POD_DONE,      /* ended with code 0 */
	KUBE_POD_FAILED,    /* ended by its own fault */
	KUBE_POD_DISRUPTED, /* ended by that of others: the cluster's, or the node's */
};

/* What the API server says about a Pod. */
struct kube_pod {
	enum kube_pod_state state;
	uint64_t number, generation; /* as in the labels; 0: there are none */
	uint32_t part;
	bool deleted;   /* somebody has asked for the Pod's deletion */
	bool leaves;    /* the cluster has announced that the Pod is taken away */
	bool stuck;     /* waits for what will not come without help: see why */
	int exit_code;  /* over: the first one that is not 0 */
	char node[254]; /* "": none yet */
	char address[KUBE_POD_ADDRESS_MAX]; /* "": none yet */
	char why[KUBE_POD_WHY_MAX];         /* the cluster's words about the state; "": none */
};

/* Reads a Pod. Returns false if it is none. */
bool kube_pod_read(const json_t *object, struct kube_pod *pod);

#endif
