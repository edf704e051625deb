/* See kube_service.h. */
#include "io/kube_service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool kube_service_find(char endpoint[KUBE_SERVICE_MAX])
{
	const char *host = getenv("KUBERNETES_SERVICE_HOST");
	const char *port = getenv("KUBERNETES_SERVICE_PORT");
	bool v6;

	endpoint[0] = '\0';
	if (host == NULL || host[0] == '\0') {
		return false;
	}
	v6 = strchr(host, ':') != NULL;
	snprintf(endpoint, KUBE_SERVICE_MAX, "https://%s%s%s:%s", v6 ? "[" : "", host,
		v6 ? "]" : "", port != NULL && port[0] != '\0' ? port : "443");
	return true;
}
