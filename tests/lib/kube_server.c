/* See kube_server.h. Changes are kept in a log, from which each watch reads at its own pace. */
#include "kube_server.h"

#include "base/assert.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_MAX_BYTES 1024u
#define PAGE_MAX       500u

/* Where an object or a collection is. */
struct place {
	char group[128];      /* "/api/v1", "/apis/pawl.dev/v1" */
	char resource[64];    /* "pods" */
	char name_space[256]; /* "": all, or none */
	char name[256];       /* "": a collection */
	char sub[32];         /* subresource; "": none */
};

struct object {
	struct place place;
	json_t *json;
	struct object *next;
};

struct change {
	uint64_t version;
	const char *type; /* "ADDED", "MODIFIED", "DELETED", "BOOKMARK" */
	struct place place;
	json_t *json; /* the object behind the change */
};

struct kube_server {
	struct MHD_Daemon *daemon;
	char url[64];
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct object *objects; /* in the order of their making, the newest last */
	struct change *changes;
	size_t changes_n, changes_cap;
	uint64_t version; /* resourceVersion of the last change */
	uint64_t oldest;  /* changes up to this one are forgotten */
	unsigned ended;   /* how often all watches were ended */
	bool stopping;
	kube_server_hook *hook;
	void *user;
	unsigned count;
};

/* A request that is being received. */
struct incoming {
	char *body;
	size_t len_bytes;
};

/* A watch. */
struct watching {
	struct kube_server *server;
	struct place place;
	char label[256], value[256]; /* selector; label "": all */
	uint64_t version;            /* changes up to this one were sent */
	unsigned ended;              /* as the server's when it began */
	bool breaks, stalls;
	char *line; /* event being sent, as JSON, owned; NULL: none */
	size_t sent;
	bool over; /* the watch ends behind that line */
};

/* ---- places ---- */

static bool next_word(const char **at, char *out, size_t size_bytes)
{
	size_t n = strcspn(*at, "/");

	if (n == 0 || n >= size_bytes) {
		return false;
	}
	snprintf(out, size_bytes, "%.*s", (int)n, *at);
	*at += n + ((*at)[n] == '/');
	return true;
}

static bool parse(const char *path, struct place *place)
{
	char word[256], group[64], version[32];
	const char *at = path + 1;

	memset(place, 0, sizeof(*place));
	if (path[0] != '/' || !next_word(&at, word, sizeof(word))) {
		return false;
	}
	if (strcmp(word, "api") == 0 && next_word(&at, version, sizeof(version))) {
		snprintf(place->group, sizeof(place->group), "/api/%s", version);
	} else if (strcmp(word, "apis") == 0 && next_word(&at, group, sizeof(group)) &&
		next_word(&at, version, sizeof(version))) {
		snprintf(place->group, sizeof(place->group), "/apis/%s/%s", group, version);
	} else {
		return false;
	}
	if (strncmp(at, "namespaces/", 11) == 0 && strchr(at + 11, '/') != NULL) {
		at += 11;
		if (!next_word(&at, place->name_space, sizeof(place->name_space))) {
			return false;
		}
	}
	return next_word(&at, place->resource, sizeof(place->resource)) &&
		(*at == '\0' || next_word(&at, place->name, sizeof(place->name))) &&
		(*at == '\0' || next_word(&at, place->sub, sizeof(place->sub))) && *at == '\0';
}

/* Returns whether an object is in a collection. */
static bool is_in(const struct place *object, const struct place *collection)
{
	return strcmp(object->group, collection->group) == 0 &&
		strcmp(object->resource, collection->resource) == 0 &&
		(collection->name_space[0] == '\0' ||
			strcmp(object->name_space, collection->name_space) == 0);
}

static struct object **find(struct kube_server *server, const struct place *place)
{
	struct object **at = &server->objects;

	while (*at != NULL &&
		!(is_in(&(*at)->place, place) &&
			strcmp((*at)->place.name_space, place->name_space) == 0 &&
			strcmp((*at)->place.name, place->name) == 0)) {
		at = &(*at)->next;
	}
	return at;
}

static bool has_label(const json_t *json, const char *label, const char *value)
{
	const char *is = json_string_value(json_object_get(
		json_object_get(json_object_get(json, "metadata"), "labels"), label));

	return label[0] == '\0' || (is != NULL && strcmp(is, value) == 0);
}

/* ---- changes; with the lock ---- */

static void set_version(json_t *json, uint64_t version)
{
	char text[24];
	json_t *metadata = json_object_get(json, "metadata");

	if (metadata == NULL) {
		metadata = json_object();
		json_object_set_new(json, "metadata", metadata);
	}
	snprintf(text, sizeof(text), "%llu", (unsigned long long)version);
	json_object_set_new(metadata, "resourceVersion", json_string(text));
}

/* Logs a change of an object, which gets its version. */
static void add_change(struct kube_server *server, const char *type, const struct place *place,
	json_t *json)
{
	if (server->changes_n == server->changes_cap) {
		server->changes_cap = server->changes_cap > 0 ? 2 * server->changes_cap : 64;
		server->changes =
			realloc(server->changes, server->changes_cap * sizeof(*server->changes));
		ASSERT(server->changes != NULL);
	}
	server->version++;
	set_version(json, server->version);
	server->changes[server->changes_n++] =
		(struct change){server->version, type, *place, json_deep_copy(json)};
	pthread_cond_broadcast(&server->changed);
}

/* Creates or replaces. json is taken. */
static struct object *put(struct kube_server *server, const struct place *place, json_t *json)
{
	struct object **at = find(server, place);
	json_t *metadata = json_object_get(json, "metadata");
	bool is_new = *at == NULL;

	if (metadata == NULL) {
		metadata = json_object();
		json_object_set_new(json, "metadata", metadata);
	}
	json_object_set_new(metadata, "name", json_string(place->name));
	if (place->name_space[0] != '\0') {
		json_object_set_new(metadata, "namespace", json_string(place->name_space));
	}
	if (is_new) {
		char uid[32];

		snprintf(uid, sizeof(uid), "uid-%llu", (unsigned long long)server->version + 1);
		json_object_set_new(metadata, "uid", json_string(uid));
		*at = calloc(1, sizeof(**at));
		ASSERT(*at != NULL);
		(*at)->place = *place;
		(*at)->place.sub[0] = '\0';
	} else {
		json_t *uid = json_object_get(json_object_get((*at)->json, "metadata"), "uid");

		json_object_set(metadata, "uid", uid);
		json_decref((*at)->json);
	}
	(*at)->json = json;
	add_change(server, is_new ? "ADDED" : "MODIFIED", &(*at)->place, json);
	return *at;
}

static bool drop(struct kube_server *server, const struct place *place)
{
	struct object **at = find(server, place);
	struct object *object = *at;

	if (object == NULL) {
		return false;
	}
	*at = object->next;
	add_change(server, "DELETED", &object->place, object->json);
	json_decref(object->json);
	free(object);
	return true;
}

/* RFC 7396. */
static void merge(json_t *target, const json_t *patch)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)patch, key, value)
	{
		json_t *old = json_object_get(target, key);

		if (json_is_null(value)) {
			json_object_del(target, key);
		} else if (!json_is_object(value)) {
			json_object_set(target, key, value);
		} else {
			if (!json_is_object(old)) {
				old = json_object();
				json_object_set_new(target, key, old);
			}
			merge(old, value);
		}
	}
}

/* ---- answers ---- */

static enum MHD_Result answer_text(struct MHD_Connection *connection, int status, char *text,
	unsigned after_s)
{
	struct MHD_Response *response =
		MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
	enum MHD_Result rv;

	ASSERT(response != NULL);
	MHD_add_response_header(response, "Content-Type", "application/json");
	if (after_s > 0) {
		char seconds[16];

		snprintf(seconds, sizeof(seconds), "%u", after_s);
		MHD_add_response_header(response, "Retry-After", seconds);
	}
	rv = MHD_queue_response(connection, (unsigned)status, response);
	MHD_destroy_response(response);
	return rv;
}

/* Makes the Status object of an error. */
static char *make_status(int status, const char *reason, const char *message)
{
	json_t *json = json_pack("{s:s, s:s, s:s, s:s, s:s, s:i}", "kind", "Status", "apiVersion",
		"v1", "status", "Failure", "reason", reason, "message", message, "code", status);
	char *text = json_dumps(json, JSON_COMPACT);

	json_decref(json);
	ASSERT(text != NULL);
	return text;
}

struct outcome {
	int status;
	char *text; /* to be freed */
};

static struct outcome fail(int status, const char *reason, const char *format, ...)
{
	char message[512];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	return (struct outcome){status, make_status(status, reason, message)};
}

static struct outcome succeed(int status, const json_t *json)
{
	return (struct outcome){status, json_dumps(json, JSON_COMPACT)};
}

/* Makes a page of a list: "VERSION:OFFSET" is the token of the next one. */
static struct outcome list(struct kube_server *server, const struct place *place,
	const char *limit_text, const char *token, const struct watching *selector)
{
	unsigned limit = limit_text != NULL ? (unsigned)strtoul(limit_text, NULL, 10) : 0;
	unsigned long long version = server->version, off = 0, i = 0;
	json_t *items = json_array();
	json_t *page = json_pack("{s:s, s:s, s:{}, s:o}", "kind", "List", "apiVersion", "v1",
		"metadata", "items", items);
	struct outcome outcome;

	if (token != NULL && sscanf(token, "%llu:%llu", &version, &off) != 2) {
		json_decref(page);
		return fail(400, "BadRequest", "continue key is not valid");
	}
	if (token != NULL && version <= server->oldest && server->oldest > 0) {
		json_decref(page);
		return fail(410, "Expired", "The provided continue parameter is too old");
	}
	for (const struct object *o = server->objects; o != NULL; o = o->next) {
		if (!is_in(&o->place, place) ||
			!has_label(o->json, selector->label, selector->value)) {
			continue;
		}
		if (limit > 0 && i == off + limit) {
			char next[64];

			snprintf(next, sizeof(next), "%llu:%llu", version, i);
			json_object_set_new(json_object_get(page, "metadata"), "continue",
				json_string(next));
			break;
		}
		if (i++ >= off) {
			json_array_append(items, o->json);
		}
	}
	set_version(page, version);
	outcome = succeed(200, page);
	json_decref(page);
	return outcome;
}

static const char *version_of(const json_t *json)
{
	return json_string_value(
		json_object_get(json_object_get(json, "metadata"), "resourceVersion"));
}

/* Returns whether a request names another version than the object's. */
static bool conflicts(const json_t *body, const json_t *now)
{
	const char *asked = version_of(body);

	return asked != NULL && strcmp(asked, version_of(now)) != 0;
}

static struct outcome create(struct kube_server *server, struct place place, json_t *body)
{
	const char *name =
		json_string_value(json_object_get(json_object_get(body, "metadata"), "name"));

	if (name == NULL || place.name[0] != '\0') {
		return fail(422, "Invalid", "metadata.name: Required value");
	}
	snprintf(place.name, sizeof(place.name), "%s", name);
	if (*find(server, &place) != NULL) {
		return fail(409, "AlreadyExists", "%s \"%s\" already exists", place.resource,
			place.name);
	}
	return succeed(201, put(server, &place, json_incref(body))->json);
}

/* PUT and PATCH, of an object or its status. */
static struct outcome change(struct kube_server *server, const struct place *place,
	const json_t *body, bool patches)
{
	struct object *object = *find(server, place);
	bool status_only = strcmp(place->sub, "status") == 0;
	json_t *next;

	if (object == NULL) {
		return fail(404, "NotFound", "%s \"%s\" not found", place->resource, place->name);
	}
	if (conflicts(body, object->json)) {
		return fail(409, "Conflict",
			"Operation cannot be fulfilled on %s \"%s\": the object has been modified",
			place->resource, place->name);
	}
	if (status_only) {
		json_t *status = json_object_get(body, "status");

		next = json_deep_copy(object->json);
		if (patches && json_is_object(status)) {
			json_t *wrapped = json_pack("{s:O}", "status", status);

			merge(next, wrapped);
			json_decref(wrapped);
		} else if (!patches && status != NULL) {
			json_object_set(next, "status", status);
		}
	} else {
		json_t *status = json_object_get(object->json, "status");

		next = json_deep_copy(patches ? object->json : body);
		if (patches) {
			merge(next, body);
		}
		if (status != NULL) { /* written by its subresource alone */
			json_object_set(next, "status", status);
		} else {
			json_object_del(next, "status");
		}
	}
	set_version(next, strtoull(version_of(object->json), NULL, 10));
	if (json_equal(next, object->json)) {
		json_decref(next);
		return succeed(200, object->json);
	}
	return succeed(200, put(server, &object->place, next)->json);
}

static struct outcome get(struct kube_server *server, const struct place *place)
{
	const struct object *object = *find(server, place);

	return object != NULL
		? succeed(200, object->json)
		: fail(404, "NotFound", "%s \"%s\" not found", place->resource, place->name);
}

static struct outcome carry_out(struct kube_server *server, struct MHD_Connection *connection,
	const char *method, const struct place *place, const struct watching *selector,
	const struct incoming *in)
{
	json_t *body = in->len_bytes > 0 ? json_loadb(in->body, in->len_bytes, 0, NULL) : NULL;
	struct outcome outcome;

	if (in->len_bytes > 0 && body == NULL) {
		return fail(400, "BadRequest", "the body is no JSON");
	}
	if (strcmp(method, "GET") == 0 && place->name[0] == '\0') {
		outcome = list(server, place,
			MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "limit"),
			MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "continue"),
			selector);
	} else if (strcmp(method, "GET") == 0) {
		outcome = get(server, place);
	} else if (strcmp(method, "POST") == 0) {
		outcome = create(server, *place, body);
	} else if (strcmp(method, "PUT") == 0 || strcmp(method, "PATCH") == 0) {
		outcome = change(server, place, body, method[1] == 'A');
	} else if (strcmp(method, "DELETE") == 0) {
		outcome = get(server, place);
		drop(server, place);
	} else {
		outcome = fail(405, "MethodNotAllowed", "%s is not known", method);
	}
	json_decref(body);
	return outcome;
}

/* ---- watches ---- */

/* Makes the next line of a watch; with the lock. Returns false if there is none yet. */
static bool make_line(struct watching *w)
{
	struct kube_server *server = w->server;

	if (w->version < server->oldest) {
		char *status = make_status(410, "Expired", "too old resource version");
		json_t *object = json_loads(status, 0, NULL);
		json_t *event = json_pack("{s:s, s:o}", "type", "ERROR", "object", object);

		w->line = json_dumps(event, JSON_COMPACT);
		w->over = true;
		json_decref(event);
		free(status);
		return true;
	}
	for (size_t i = 0; i < server->changes_n; i++) {
		const struct change *change = &server->changes[i];
		bool bookmark = strcmp(change->type, "BOOKMARK") == 0;

		if (change->version > w->version &&
			(bookmark ||
				(is_in(&change->place, &w->place) &&
					has_label(change->json, w->label, w->value)))) {
			json_t *event = json_pack("{s:s, s:O}", "type", change->type, "object",
				change->json);

			w->line = json_dumps(event, JSON_COMPACT);
			w->version = change->version;
			json_decref(event);
			return true;
		}
	}
	return false;
}

/* Fits MHD_ContentReaderCallback. */
static ssize_t read_watch(void *user, uint64_t off, char *bytes, size_t size)
{
	struct watching *w = user;
	struct kube_server *server = w->server;
	size_t left, n;

	pthread_mutex_lock(&server->lock);
	while (!server->stopping && w->line == NULL && !w->over &&
		(w->stalls || (w->ended == server->ended && !make_line(w)))) {
		pthread_cond_wait(&server->changed, &server->lock);
	}
	pthread_mutex_unlock(&server->lock);
	if (w->line == NULL) {
		return MHD_CONTENT_READER_END_OF_STREAM;
	}
	left = strlen(w->line) + 1 - w->sent; /* with the line's end, for which the NUL stands */
	if (w->breaks) {
		left = strlen(w->line) / 2 > w->sent ? strlen(w->line) / 2 - w->sent : 0;
		if (left == 0) {
			return MHD_CONTENT_READER_END_WITH_ERROR;
		}
	}
	n = left < size ? left : size;
	memcpy(bytes, w->line + w->sent, n);
	w->sent += n;
	if (w->sent == strlen(w->line) + 1) {
		bytes[n - 1] = '\n';
		free(w->line);
		w->line = NULL;
		w->sent = 0;
	}
	return (ssize_t)n;
}

static void end_watch(void *user)
{
	struct watching *w = user;

	free(w->line);
	free(w);
}

static enum MHD_Result begin_watch(struct kube_server *server, struct MHD_Connection *connection,
	const struct watching *selector, const struct kube_server_fault *fault)
{
	const char *from =
		MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "resourceVersion");
	struct watching *w = malloc(sizeof(*w));
	struct MHD_Response *response;
	enum MHD_Result rv;

	ASSERT(w != NULL);
	*w = *selector;
	w->server = server;
	w->version = from != NULL ? strtoull(from, NULL, 10) : 0;
	w->breaks = fault->kind == KUBE_BREAK;
	w->stalls = fault->kind == KUBE_STALL;
	pthread_mutex_lock(&server->lock);
	w->ended = server->ended;
	pthread_mutex_unlock(&server->lock);
	response =
		MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, read_watch, w, end_watch);
	ASSERT(response != NULL);
	rv = MHD_queue_response(connection, 200, response);
	MHD_destroy_response(response);
	return rv;
}

/* ---- requests ---- */

static void read_selector(struct MHD_Connection *connection, struct watching *selector)
{
	const char *text =
		MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "labelSelector");
	size_t n = text != NULL ? strcspn(text, "=") : 0;

	if (n > 0 && text[n] == '=') {
		snprintf(selector->label, sizeof(selector->label), "%.*s", (int)n, text);
		snprintf(selector->value, sizeof(selector->value), "%s",
			text + n + 1 + (text[n + 1] == '='));
	}
}

static enum MHD_Result treat(struct kube_server *server, struct MHD_Connection *connection,
	const char *path, const char *method, const struct incoming *in)
{
	const char *watch = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "watch");
	struct kube_server_ask ask = {0, method, path, watch != NULL,
		MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization")};
	struct kube_server_fault fault = {KUBE_FINE, 0, NULL, 0};
	struct watching selector = {.server = server};
	struct outcome outcome = {0, NULL};

	read_selector(connection, &selector);
	pthread_mutex_lock(&server->lock);
	ask.nth = ++server->count;
	if (server->hook != NULL) {
		server->hook(server->user, &ask, &fault);
	}
	if (fault.kind == KUBE_ANSWER) {
		outcome = fail(fault.status, fault.reason != NULL ? fault.reason : "", "as asked");
	} else if (fault.kind == KUBE_DROP) {
		outcome.status = 0;
	} else if (!parse(path, &selector.place)) {
		outcome = fail(404, "NotFound", "the server could not find the requested resource");
	} else if (watch == NULL) {
		outcome = carry_out(server, connection, method, &selector.place, &selector, in);
	}
	pthread_mutex_unlock(&server->lock);
	if (fault.kind == KUBE_DROP || fault.kind == KUBE_LOSE) {
		free(outcome.text);
		return MHD_NO;
	}
	return outcome.text != NULL
		? answer_text(connection, outcome.status, outcome.text, fault.after_s)
		: begin_watch(server, connection, &selector, &fault);
}

/* Fits MHD_AccessHandlerCallback. */
static enum MHD_Result handle(void *user, struct MHD_Connection *connection, const char *path,
	const char *method, const char *version, const char *bytes, size_t *len_bytes, void **state)
{
	struct incoming *in = *state;

	if (in == NULL) {
		*state = calloc(1, sizeof(*in));
		return *state != NULL ? MHD_YES : MHD_NO;
	}
	if (*len_bytes > 0) {
		in->body = realloc(in->body, in->len_bytes + *len_bytes);
		ASSERT(in->body != NULL);
		memcpy(in->body + in->len_bytes, bytes, *len_bytes);
		in->len_bytes += *len_bytes;
		*len_bytes = 0;
		return MHD_YES;
	}
	return treat(user, connection, path, method, in);
}

/* Fits MHD_RequestCompletedCallback. */
static void forget(void *user, struct MHD_Connection *connection, void **state,
	enum MHD_RequestTerminationCode code)
{
	struct incoming *in = *state;

	if (in != NULL) {
		free(in->body);
		free(in);
	}
}

/* ---- tests ---- */

struct kube_server *kube_server_start(void)
{
	struct kube_server *server = calloc(1, sizeof(*server));
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	const union MHD_DaemonInfo *info;

	ASSERT(server != NULL);
	pthread_mutex_init(&server->lock, NULL);
	pthread_cond_init(&server->changed, NULL);
	server->version = 100;
	server->daemon =
		MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD, 0,
			NULL, NULL, handle, server, MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&at,
			MHD_OPTION_NOTIFY_COMPLETED, forget, NULL, MHD_OPTION_END);
	ASSERT(server->daemon != NULL);
	info = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT);
	ASSERT(info != NULL && info->port != 0);
	snprintf(server->url, sizeof(server->url), "http://127.0.0.1:%u", info->port);
	return server;
}

void kube_server_stop(struct kube_server *server)
{
	pthread_mutex_lock(&server->lock);
	server->stopping = true;
	pthread_cond_broadcast(&server->changed);
	pthread_mutex_unlock(&server->lock);
	MHD_stop_daemon(server->daemon);
	while (server->objects != NULL) {
		struct object *object = server->objects;

		server->objects = object->next;
		json_decref(object->json);
		free(object);
	}
	for (size_t i = 0; i < server->changes_n; i++) {
		json_decref(server->changes[i].json);
	}
	free(server->changes);
	pthread_cond_destroy(&server->changed);
	pthread_mutex_destroy(&server->lock);
	free(server);
}

const char *kube_server_url(const struct kube_server *server)
{
	return server->url;
}

void kube_server_set_hook(struct kube_server *server, kube_server_hook *hook, void *user)
{
	pthread_mutex_lock(&server->lock);
	server->hook = hook;
	server->user = user;
	server->count = 0;
	pthread_mutex_unlock(&server->lock);
}

unsigned kube_server_count(struct kube_server *server)
{
	unsigned count;

	pthread_mutex_lock(&server->lock);
	count = server->count;
	pthread_mutex_unlock(&server->lock);
	return count;
}

void kube_server_put(struct kube_server *server, const char *path, json_t *object)
{
	struct place place;

	ASSERT(parse(path, &place) && place.name[0] != '\0');
	pthread_mutex_lock(&server->lock);
	put(server, &place, object);
	pthread_mutex_unlock(&server->lock);
}

json_t *kube_server_get(struct kube_server *server, const char *path)
{
	const struct object *object;
	struct place place;
	json_t *copy;

	ASSERT(parse(path, &place) && place.name[0] != '\0');
	pthread_mutex_lock(&server->lock);
	object = *find(server, &place);
	copy = object != NULL ? json_deep_copy(object->json) : NULL;
	pthread_mutex_unlock(&server->lock);
	return copy;
}

bool kube_server_remove(struct kube_server *server, const char *path)
{
	struct place place;
	bool was;

	ASSERT(parse(path, &place) && place.name[0] != '\0');
	pthread_mutex_lock(&server->lock);
	was = drop(server, &place);
	pthread_mutex_unlock(&server->lock);
	return was;
}

void kube_server_compact(struct kube_server *server)
{
	pthread_mutex_lock(&server->lock);
	for (size_t i = 0; i < server->changes_n; i++) {
		json_decref(server->changes[i].json);
	}
	server->changes_n = 0;
	server->version++; /* something else has changed */
	server->oldest = server->version;
	pthread_cond_broadcast(&server->changed);
	pthread_mutex_unlock(&server->lock);
}

void kube_server_end_watches(struct kube_server *server)
{
	pthread_mutex_lock(&server->lock);
	server->ended++;
	pthread_cond_broadcast(&server->changed);
	pthread_mutex_unlock(&server->lock);
}

void kube_server_bookmark(struct kube_server *server)
{
	const struct place nowhere = {.group = ""};
	json_t *object = json_object();

	pthread_mutex_lock(&server->lock);
	add_change(server, "BOOKMARK", &nowhere, object);
	pthread_mutex_unlock(&server->lock);
	json_decref(object);
}
