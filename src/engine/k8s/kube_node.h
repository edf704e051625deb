/* Nodes of a cluster, as the API server describes them: what they offer, and whether they are about
 * to go. Pure. */
#ifndef ENGINE_K8S_KUBE_NODE_H
#define ENGINE_K8S_KUBE_NODE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define KUBE_NODE_NAME_MAX 254u /* bytes of a name, terminator included */
#define KUBE_LABEL_MAX     64u  /* bytes of a label's value, terminator included */
#define KUBE_TAINT_MAX     318u /* bytes of a taint's key, terminator included */

enum kube_node_state {
	KUBE_NODE_READY,
	KUBE_NODE_CORDONED, /* takes no more Pods (spec.unschedulable) */
	KUBE_NODE_GOING,    /* something has announced that the node goes away */
	KUBE_NODE_AWAY,     /* the kubelet does not answer, or says that it is not ready */
};

struct kube_node {
	char name[KUBE_NODE_NAME_MAX];
	enum kube_node_state state;
	char why[KUBE_TAINT_MAX];  /* taint, or condition, behind the state; "": none */
	uint64_t devices;          /* allocatable of the resource that was asked for */
	uint64_t milli_cpus;       /* allocatable, in thousandths of a CPU */
	uint64_t memory_bytes;     /* allocatable */
	bool spot;                 /* the cloud may take the node away */
	char type[KUBE_LABEL_MAX]; /* kind of its devices, or of the machine; "": not said */
	bool has_efa;              /* offers vpc.amazonaws.com/efa */
};

/* Reads a Node. resource: what a replica takes, "nvidia.com/gpu". Returns false if it is none. */
bool kube_node_read(const json_t *object, const char *resource, struct kube_node *node);
/*
 * Adds up what the containers of a Pod take of a resource while it is on its node: the sum of all
 * containers, or the most that an init container takes, whichever is more, and the Pod's overhead;
 * 0: it is over. The API server has put limits into requests. Sets *node to the node's name; "": it
 * is on none. per: as in quantity_read. Source: Kubernetes' resource calculation for init and
 * sidecar containers (KEP-753).
 */
uint64_t kube_pod_takes(const json_t *pod, const char *resource, uint32_t per, const char **node);

#endif
