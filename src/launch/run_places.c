/* Parses the places where nodes meet: see run_places.h. */
#include "launch/run_places.h"

#include "base/err.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_port(const char *text)
{
	char *end;
	unsigned long port = strtoul(text, &end, 10);

	return isdigit((unsigned char)text[0]) && *end == '\0' && port > 0 && port <= UINT16_MAX;
}

/* Splits "host", "host:port", "[address]", "[address]:port", or an IPv6 address alone. */
static bool split(const char *text, size_t len, char *host, char *port)
{
	const char *end = text + len;
	const char *colon = memrchr(text, ':', len);
	const char *host_end = end;

	if (len > 0 && text[0] == '[') {
		host_end = memchr(text, ']', len);
		if (host_end == NULL || (host_end + 1 != end && host_end[1] != ':')) {
			return false;
		}
		colon = host_end + 1 != end ? host_end + 1 : NULL;
		text++;
	} else if (colon != NULL && memchr(text, ':', (size_t)(colon - text)) == NULL) {
		host_end = colon;
	} else {
		colon = NULL;
	}
	if (host_end == text || (size_t)(host_end - text) >= RUN_HOST_MAX) {
		return false;
	}
	snprintf(host, RUN_HOST_MAX, "%.*s", (int)(host_end - text), text);
	snprintf(port, 8, "%.*s", colon != NULL ? (int)(end - colon - 1) : 5,
		colon != NULL ? colon + 1 : RUN_PORT_DEFAULT);
	return (colon == NULL || end - colon - 1 < 6) && is_port(port);
}

static int add(struct run_places *places, const char *text, size_t len, struct pawl_err *err)
{
	char *host = places->hosts[places->n];
	char *port = places->ports[places->n];
	char *name = places->texts[places->n];

	if (places->n == NODES_PLACES_MAX) {
		return pawl_err_set(err, PAWL_EINVAL, "rendezvous: more than %u addresses",
			NODES_PLACES_MAX);
	}
	if (!split(text, len, host, port)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"rendezvous %.*s: host:port is needed, an IPv6 address in brackets",
			(int)(len < RUN_HOST_MAX ? len : RUN_HOST_MAX), text);
	}
	if (strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"rendezvous %s: that is every address of a host; name one that all nodes "
			"can reach",
			host);
	}
	snprintf(name, sizeof(places->texts[0]), strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s",
		host, port);
	places->at[places->n] = (struct node_place){.text = name, .host = host, .port = port};
	places->text[places->n] = name;
	places->n++;
	return 0;
}

int run_places_parse(struct run_places *places, const char *text, struct pawl_err *err)
{
	int rv;

	places->n = 0;
	for (;;) {
		size_t len = strcspn(text, ",");

		rv = add(places, text, len, err);
		if (rv != 0 || text[len] == '\0') {
			return rv;
		}
		text += len + 1;
	}
}

bool run_places_first(const char *nodelist, char host[RUN_HOST_MAX])
{
	size_t stem = strcspn(nodelist, "[,");
	size_t number;
	const char *at = nodelist + stem;
	const char *tail = "";
	int len;

	if (*at == '[') {
		number = strspn(at + 1, "0123456789");
		tail = strchr(at, ']');
		if (number == 0 || tail == NULL) {
			return false;
		}
		tail++;
		len = snprintf(host, RUN_HOST_MAX, "%.*s%.*s%.*s", (int)stem, nodelist, (int)number,
			at + 1, (int)strcspn(tail, "[,"), tail);
	} else {
		len = snprintf(host, RUN_HOST_MAX, "%.*s", (int)stem, nodelist);
	}
	return len > 0 && (size_t)len < RUN_HOST_MAX && tail[strcspn(tail, "[,")] != '[';
}
