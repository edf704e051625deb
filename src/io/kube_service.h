/* Where a process in a Pod finds its cluster's API server: Kubernetes' variables say so. */
#ifndef IO_KUBE_SERVICE_H
#define IO_KUBE_SERVICE_H

#include <stdbool.h>

#define KUBE_SERVICE_MAX 512u /* bytes of an endpoint, terminator included */

/* Writes "https://HOST:PORT". Returns false, and "", if this process is not in a Pod. */
bool kube_service_find(char endpoint[KUBE_SERVICE_MAX]);

#endif
