/* Paths of requests: see http_route.h. */
#include "daemon/http/http_route.h"

#include "base/text.h"

#include <string.h>

#define PARTS_MAX 6u /* parts of a path, at most: /job/SECRET/discover/SPACE/NAME/GROUP */

#define GET  "GET, HEAD"
#define PUT  "PUT"
#define POST "POST"

/* One path: words that must match, and variable parts ("" in words). */
static const struct {
	enum http_resource resource;
	const char *allow;
	bool secret;            /* the path may follow a job's secret */
	const char *words[4];   /* NULL: no more */
	unsigned char names[4]; /* meaning of each "": 's'pace, 'n'ame, 'g'roup */
} paths[] = {
	{HTTP_HEALTH, GET, false, {"healthz"}, {0}},
	{HTTP_METRICS, GET, false, {"metrics"}, {0}},
	{HTTP_NODES, GET, false, {"nodes"}, {0}},
	{HTTP_JOBS, GET, false, {"jobs"}, {0}},
	{HTTP_JOB, GET, false, {"jobs", ""}, {0, 'n'}},
	{HTTP_CANCEL, POST, false, {"jobs", "", "cancel"}, {0, 'n'}},
	{HTTP_PAUSE, POST, false, {"jobs", "", "pause"}, {0, 'n'}},
	{HTTP_RESUME, POST, false, {"jobs", "", "resume"}, {0, 'n'}},
	{HTTP_HINTS, PUT, true, {"hints", "", ""}, {0, 's', 'n'}},
	{HTTP_MEMBERSHIP, POST, true, {"membership", "", ""}, {0, 's', 'n'}},
	{HTTP_MEMBERSHIPS, POST, false, {"memberships", ""}, {0, 'n'}},
	{HTTP_DISCOVER, GET, true, {"discover", "", "", ""}, {0, 's', 'n', 'g'}},
};

static int digit(char c)
{
	const char *const digits = "0123456789abcdef0123456789ABCDEF";
	const char *at = c != '\0' ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) & 15 : -1;
}

static bool is_text(const char *text)
{
	while (*text != '\0') {
		size_t len = text_printable(text);

		if (len == 0 || *text == '/') {
			return false;
		}
		text += len;
	}
	return true;
}

/* Reads a part, up to the next "/" or the end, and returns where it ends. NULL: it is malformed. */
static const char *read_part(const char *at, char part[HTTP_PART_MAX])
{
	size_t len = 0;

	while (*at != '/' && *at != '\0') {
		int c = (unsigned char)*at++;

		if (c == '%') {
			int high = digit(*at);
			int low = high >= 0 ? digit(at[1]) : -1;

			if (low < 0) {
				return NULL;
			}
			c = high * 16 + low;
			at += 2;
		}
		if (c == 0 || len == HTTP_PART_MAX - 1) {
			return NULL;
		}
		part[len++] = (char)c;
	}
	part[len] = '\0';
	if (len == 0 || strcmp(part, ".") == 0 || strcmp(part, "..") == 0 || !is_text(part)) {
		return NULL;
	}
	return at;
}

static bool is_secret(const char *text)
{
	return strlen(text) == HTTP_SECRET_CHARS &&
		strspn(text, "0123456789abcdef") == HTTP_SECRET_CHARS;
}

static void match(struct http_route *route, char (*parts)[HTTP_PART_MAX], uint32_t n, size_t path)
{
	uint32_t i = 0;

	while (i < n && i < 4 && paths[path].words[i] &&
		(paths[path].words[i][0] == '\0' || strcmp(paths[path].words[i], parts[i]) == 0)) {
		i++;
	}
	if (i < n || (i < 4 && paths[path].words[i])) {
		return;
	}
	route->resource = paths[path].resource;
	route->allow = paths[path].allow;
	for (i = 0; i < n; i++) {
		char *into = paths[path].names[i] == 's' ? route->space
			: paths[path].names[i] == 'n'    ? route->name
							 : route->group;

		if (paths[path].names[i] != 0) {
			memcpy(into, parts[i], HTTP_PART_MAX);
		}
	}
}

bool http_route_parse(struct http_route *route, const char *path)
{
	char parts[PARTS_MAX][HTTP_PART_MAX] = {{0}};
	uint32_t first = 0;
	uint32_t n = 0;

	*route = (struct http_route){.resource = HTTP_NOTHING};
	if (strcmp(path, "/") == 0) {
		route->resource = HTTP_PAGE;
		route->allow = GET;
		return true;
	}
	while (*path == '/' && n < PARTS_MAX) {
		path = read_part(path + 1, parts[n]);
		if (!path) {
			return false;
		}
		n++;
	}
	if (*path != '\0') {
		return n == PARTS_MAX; /* longer than any path */
	}
	if (n > 2 && strcmp(parts[0], "job") == 0 && is_secret(parts[1])) {
		memcpy(route->secret, parts[1], sizeof(route->secret));
		first = 2;
	}
	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths) && route->resource == HTTP_NOTHING;
		i++) {
		if (first == 0 || paths[i].secret) {
			match(route, parts + first, n - first, i);
		}
	}
	return true;
}

bool http_route_allows(const struct http_route *route, const char *method)
{
	size_t len = strlen(method);
	const char *at = route->allow;

	while (at) {
		if (strncmp(at, method, len) == 0 && (at[len] == ',' || at[len] == '\0')) {
			return true;
		}
		at = strchr(at, ' ');
		at = at ? at + 1 : NULL;
	}
	return false;
}

bool http_number(const char *text, uint64_t most, uint64_t *number)
{
	uint64_t value = 0;

	if (*text == '\0') {
		return false;
	}
	for (; *text != '\0'; text++) {
		uint64_t d = (uint64_t)(*text - '0');

		if (*text < '0' || *text > '9' || d > most || value > (most - d) / 10) {
			return false;
		}
		value = 10 * value + d;
	}
	*number = value;
	return true;
}
