/* Objects and uploads in memory: see s3_objects.h. */
#include "s3_objects.h"

#include "base/assert.h"
#include "base/crc.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ETAG_MAX  S3_ETAG_MAX
#define SUM_MAX   32u
#define PARTS_MAX 10000u

struct object {
	char *key;      /* owned */
	uint8_t *bytes; /* owned; NULL: they were dropped */
	size_t len_bytes;
	char etag[ETAG_MAX]; /* with quotes */
	char sum[SUM_MAX];   /* CRC-32C in base64; of parts, that of their CRCs, and "-n" */
	unsigned version;    /* number of the write that made it */
};

struct part {
	uint8_t *bytes; /* owned; NULL: they were dropped, or the part is not there */
	size_t len_bytes;
	char etag[ETAG_MAX];       /* "": the part is not there */
	char sum[9];               /* CRC-32C, in base64 */
	uint32_t crc;              /* CRC-32C */
	uint8_t md5[S3_MD5_BYTES]; /* MD5, with settings.tells_md5 */
};

struct upload {
	struct upload *next;
	char id[32];
	char *key;           /* owned */
	bool sums;           /* parts have checksums */
	struct part *parts;  /* owned; PARTS_MAX */
	char done[ETAG_MAX]; /* etag of the object that it became; "": it is open */
};

struct s3_objects {
	struct object *objects; /* owned; by key */
	size_t n;
	struct upload *uploads; /* owned; the oldest first */
	unsigned versions;      /* etags given so far */
};

/* ---- objects ---- */

struct s3_objects *s3_objects_open(void)
{
	return s3_need(calloc(1, sizeof(struct s3_objects)));
}

static void free_upload(struct upload *upload)
{
	for (unsigned i = 0; i < PARTS_MAX; i++) {
		free(upload->parts[i].bytes);
	}
	free(upload->parts);
	free(upload->key);
	free(upload);
}

void s3_objects_clear(struct s3_objects *objects)
{
	for (size_t i = 0; i < objects->n; i++) {
		free(objects->objects[i].key);
		free(objects->objects[i].bytes);
	}
	objects->n = 0;
	while (objects->uploads != NULL) {
		struct upload *upload = objects->uploads;

		objects->uploads = upload->next;
		free_upload(upload);
	}
}

void s3_objects_close(struct s3_objects *objects)
{
	s3_objects_clear(objects);
	free(objects->objects);
	free(objects);
}

/* Returns the index of the first object whose key is not less. */
static size_t find_place(const struct s3_objects *objects, const char *key)
{
	size_t low = 0, high = objects->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (strcmp(objects->objects[middle].key, key) < 0) {
			low = middle + 1;
		} else {
			high = middle;
		}
	}
	return low;
}

static struct object *find_object(const struct s3_objects *objects, const char *key)
{
	size_t i = find_place(objects, key);

	return i < objects->n && strcmp(objects->objects[i].key, key) == 0 ? &objects->objects[i]
									   : NULL;
}

/* Keeps an object; takes bytes over. */
static struct object *keep_object(struct s3_objects *objects, const char *key, uint8_t *bytes,
	size_t len_bytes, unsigned parts_n)
{
	struct object *object = find_object(objects, key);
	size_t i = find_place(objects, key);

	if (object == NULL) {
		objects->objects =
			s3_need(realloc(objects->objects, (objects->n + 1) * sizeof(*object)));
		object = &objects->objects[i];
		memmove(object + 1, object, (objects->n - i) * sizeof(*object));
		objects->n++;
		*object = (struct object){.key = s3_need(strdup(key))};
	}
	free(object->bytes);
	object->bytes = bytes;
	object->len_bytes = len_bytes;
	object->version = ++objects->versions;
	snprintf(object->etag, sizeof(object->etag), parts_n > 0 ? "\"%032x-%u\"" : "\"%032x\"",
		object->version, parts_n);
	return object;
}

bool s3_objects_hold(const struct s3_objects *objects, const char *key, const void *bytes,
	size_t len_bytes)
{
	const struct object *object = find_object(objects, key);

	return object != NULL && object->len_bytes == len_bytes && object->bytes != NULL &&
		(len_bytes == 0 || memcmp(object->bytes, bytes, len_bytes) == 0);
}

struct s3_look s3_objects_look(const struct s3_objects *objects, const char *key)
{
	const struct object *object = find_object(objects, key);
	struct s3_look look = {0};

	if (object != NULL) {
		look.version = object->version;
		s3_write_base64(crc32c(0, object->bytes, object->len_bytes), look.sum);
	}
	return look;
}

/* Compares an If-Match with an etag. */
static bool matches(const struct s3_settings *settings, const char *match, const char *etag)
{
	size_t len_bytes = strlen(etag) - 2;

	if (!settings->bare_etags) {
		return strcmp(match, etag) == 0;
	}
	return strlen(match) == len_bytes && strncmp(match, etag + 1, len_bytes) == 0;
}

/* Answers with an error if a condition does not hold. Returns whether they all do. */
static bool check_conditions(const struct s3_settings *settings, const struct s3_request *request,
	const struct object *object, struct s3_answer *answer)
{
	const char *none = s3_request_field(request, "if-none-match");
	const char *match = s3_request_field(request, "if-match");

	if (settings->ignores_conditions && request->kind != S3_GET) {
		return true;
	}
	if (match != NULL && object == NULL) {
		s3_answer_error(request, answer, 404, "NoSuchKey", "");
		return false;
	}
	if ((none != NULL && strcmp(none, "*") == 0 && object != NULL) ||
		(match != NULL && !matches(settings, match, object->etag))) {
		s3_answer_error(request, answer, 412, "PreconditionFailed", "");
		return false;
	}
	return true;
}

/* Answers with an error if the body is not what its checksum says. */
static bool check_sum(const struct s3_request *request, char sum[9], struct s3_answer *answer)
{
	const char *want = s3_request_field(request, "x-amz-checksum-crc32c");

	s3_write_base64(crc32c(0, request->body, request->body_bytes), sum);
	if (want == NULL) {
		return true;
	}
	if (strcmp(want, sum) != 0) {
		s3_answer_error(request, answer, 400, "BadDigest", "");
		return false;
	}
	s3_answer_field(answer, "x-amz-checksum-crc32c: %s", sum);
	return true;
}

static uint8_t *copy_bytes(const void *from, size_t len_bytes)
{
	uint8_t *bytes = s3_need(malloc(len_bytes + 1));

	if (len_bytes > 0) {
		memcpy(bytes, from, len_bytes);
	}
	return bytes;
}

/* Returns the bytes that are kept of a body; NULL: none. */
static uint8_t *keep_body(const struct s3_settings *settings, const struct s3_request *request)
{
	return settings->drops_bytes && request->body_bytes > S3_KEPT_MAX
		? NULL
		: copy_bytes(request->body, request->body_bytes);
}

void s3_objects_put(struct s3_objects *objects, const char *key, const void *bytes,
	size_t len_bytes)
{
	keep_object(objects, key, copy_bytes(bytes, len_bytes), len_bytes, 0);
}

static void put_object(struct s3_objects *objects, const struct s3_settings *settings,
	const struct s3_request *request, struct s3_answer *answer)
{
	struct object *object = find_object(objects, request->key);
	char sum[9];

	if (!check_conditions(settings, request, object, answer) ||
		!check_sum(request, sum, answer)) {
		return;
	}
	object = keep_object(objects, request->key, keep_body(settings, request),
		request->body_bytes, 0);
	memcpy(object->sum, sum, sizeof(sum));
	if (settings->tells_md5) {
		s3_write_md5(request->body, request->body_bytes, 0, object->etag, NULL);
	}
	s3_answer_field(answer, "ETag: %s", object->etag);
}

/* Adds bytes of an object; zeros, if they were dropped. */
static void add_bytes(const struct object *object, size_t from, size_t to, struct s3_text *body)
{
	static const char zeros[65536];

	if (object->bytes != NULL) {
		s3_text_add(body, object->bytes + from, to - from);
		return;
	}
	for (size_t n; from < to; from += n) {
		n = to - from < sizeof(zeros) ? to - from : sizeof(zeros);
		s3_text_add(body, zeros, n);
	}
}

/* Adds the bytes of a range, or of the whole object. */
static void get_object(struct s3_objects *objects, const struct s3_settings *settings,
	const struct s3_request *request, struct s3_answer *answer)
{
	const struct object *object = find_object(objects, request->key);
	const char *range = s3_request_field(request, "range");
	size_t from = 0, to;

	if (object == NULL) {
		s3_answer_error(request, answer, 404, "NoSuchKey", "");
		return;
	}
	if (!check_conditions(settings, request, object, answer)) {
		return;
	}
	to = object->len_bytes;
	if (range != NULL && sscanf(range, "bytes=%zu-%zu", &from, &to) == 2) {
		to = to + 1 < object->len_bytes ? to + 1 : object->len_bytes;
		if (from >= object->len_bytes) {
			s3_answer_error(request, answer, 416, "InvalidRange", "");
			return;
		}
		answer->status = 206;
		s3_answer_field(answer, "Content-Range: bytes %zu-%zu/%zu", from, to - 1,
			object->len_bytes);
	}
	s3_answer_field(answer, "ETag: %s", object->etag);
	if (s3_request_field(request, "x-amz-checksum-mode") != NULL && !settings->tells_md5 &&
		!settings->tells_nothing) {
		s3_answer_field(answer, "x-amz-checksum-crc32c: %s", object->sum);
	}
	s3_answer_field(answer, "Content-Type: binary/octet-stream");
	answer->length_bytes = to - from;
	if (request->kind != S3_HEAD) {
		add_bytes(object, from, to, &answer->body);
	}
}

static void delete_object(struct s3_objects *objects, const struct s3_request *request,
	struct s3_answer *answer)
{
	struct object *object = find_object(objects, request->key);

	answer->status = 204;
	if (object != NULL) {
		free(object->key);
		free(object->bytes);
		objects->n--;
		memmove(object, object + 1,
			(size_t)(objects->objects + objects->n - object) * sizeof(*object));
	}
}

/* ---- lists ---- */

/* Where a list is. */
struct listing {
	char prefix[S3_NAME_MAX];
	char delimiter[8];
	char after[S3_NAME_MAX]; /* the page begins behind this key, or what begins with it */
	bool encoded;
	unsigned keys_max;
};

static void add_key(const struct listing *listing, struct s3_text *body, const char *key)
{
	if (listing->encoded) {
		s3_text_encode(body, key);
		return;
	}
	for (; *key != '\0'; key++) {
		const char *entity = *key == '&' ? "&amp;" : *key == '<' ? "&lt;" : NULL;

		if (entity != NULL) {
			s3_text_print(body, "%s", entity);
		} else {
			s3_text_add(body, key, 1);
		}
	}
}

/* Returns the length of the common prefix that a key belongs to; 0: it stands for itself. */
static size_t common_bytes(const struct listing *listing, const char *key)
{
	size_t skip = strlen(listing->prefix);
	const char *at =
		listing->delimiter[0] != '\0' ? strstr(key + skip, listing->delimiter) : NULL;

	return at != NULL ? (size_t)(at - key) + strlen(listing->delimiter) : 0;
}

static bool is_before(const struct listing *listing, const char *key)
{
	size_t len_bytes = strlen(listing->after);
	bool folder = len_bytes > 0 && listing->delimiter[0] != '\0' &&
		listing->after[len_bytes - 1] == '/';

	return len_bytes > 0 &&
		(strcmp(key, listing->after) <= 0 ||
			(folder && strncmp(key, listing->after, len_bytes) == 0));
}

/* Writes the results of a page. Returns whether there are more; last: the last one on it. */
static bool list_page(const struct s3_objects *objects, const struct listing *listing,
	struct s3_text *body, char last[S3_NAME_MAX])
{
	size_t skip = strlen(listing->prefix);
	bool later = strcmp(listing->after, listing->prefix) > 0;
	const char *begin = later ? listing->after : listing->prefix;
	unsigned n = 0;

	last[0] = '\0';
	for (size_t i = find_place(objects, begin); i < objects->n; i++) {
		const struct object *object = &objects->objects[i];
		size_t common = 0;

		if (strncmp(object->key, listing->prefix, skip) != 0) {
			break;
		}
		common = common_bytes(listing, object->key);
		if (is_before(listing, object->key) ||
			(common > 0 && strlen(last) == common &&
				strncmp(object->key, last, common) == 0)) {
			continue;
		}
		if (n++ == listing->keys_max) {
			return true;
		}
		snprintf(last, S3_NAME_MAX, "%.*s", common > 0 ? (int)common : (int)S3_NAME_MAX - 1,
			object->key);
		s3_text_print(body, common > 0 ? "<CommonPrefixes><Prefix>" : "<Contents><Key>");
		add_key(listing, body, last);
		if (common > 0) {
			s3_text_print(body, "</Prefix></CommonPrefixes>");
		} else {
			s3_text_print(body,
				"</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
				"<ETag>&quot;%.*s&quot;</ETag><Size>%zu</Size>"
				"<StorageClass>STANDARD</StorageClass></Contents>",
				(int)strlen(object->etag) - 2, object->etag + 1, object->len_bytes);
		}
	}
	return false;
}

static void list_objects(struct s3_objects *objects, const struct s3_settings *settings,
	const struct s3_request *request, struct s3_answer *answer)
{
	struct listing listing = {.keys_max = 1000};
	char value[S3_LINE_MAX];
	char last[S3_NAME_MAX];
	bool more;

	s3_request_param(request, "prefix", listing.prefix, sizeof(listing.prefix));
	s3_request_param(request, "delimiter", listing.delimiter, sizeof(listing.delimiter));
	if (s3_request_param(request, "continuation-token", value, sizeof(value))) {
		ASSERT(strncmp(value, "behind:", 7) == 0);
		snprintf(listing.after, sizeof(listing.after), "%.*s", (int)S3_NAME_MAX - 1,
			value + 7);
	}
	if (s3_request_param(request, "max-keys", value, sizeof(value))) {
		listing.keys_max = (unsigned)strtoul(value, NULL, 10);
	}
	if (settings->page_max > 0 && listing.keys_max > settings->page_max) {
		listing.keys_max = settings->page_max;
	}
	listing.encoded = s3_request_param(request, "encoding-type", value, sizeof(value));
	s3_answer_field(answer, "Content-Type: application/xml");
	s3_text_print(&answer->body,
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		"<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/"
		"2006-03-01/\"><Name>" S3_BUCKET "</Name><Prefix>");
	add_key(&listing, &answer->body, listing.prefix);
	s3_text_print(&answer->body, "</Prefix><MaxKeys>%u</MaxKeys>", listing.keys_max);
	more = list_page(objects, &listing, &answer->body, last);
	s3_text_print(&answer->body, "<IsTruncated>%s</IsTruncated>", more ? "true" : "false");
	if (more) {
		s3_text_print(&answer->body, "<NextContinuationToken>behind:");
		listing.encoded = false;
		add_key(&listing, &answer->body, last);
		s3_text_print(&answer->body, "</NextContinuationToken>");
	}
	s3_text_print(&answer->body, "</ListBucketResult>");
}

/* ---- uploads in parts ---- */

unsigned s3_objects_uploads(const struct s3_objects *objects)
{
	unsigned n = 0;

	for (const struct upload *u = objects->uploads; u != NULL; u = u->next) {
		n += u->done[0] == '\0';
	}
	return n;
}

/* Returns the upload that a request names, or answers that there is none. */
static struct upload *find_upload(struct s3_objects *objects, const struct s3_request *request,
	struct s3_answer *answer)
{
	char id[S3_LINE_MAX];
	struct upload *upload = objects->uploads;

	s3_request_param(request, "uploadId", id, sizeof(id));
	while (upload != NULL &&
		(strcmp(upload->id, id) != 0 || strcmp(upload->key, request->key) != 0)) {
		upload = upload->next;
	}
	if (upload == NULL) {
		s3_answer_error(request, answer, 404, "NoSuchUpload", "");
	}
	return upload;
}

static void drop_upload(struct s3_objects *objects, struct upload *upload)
{
	struct upload **at = &objects->uploads;

	while (*at != upload) {
		at = &(*at)->next;
	}
	*at = upload->next;
	free_upload(upload);
}

static void begin_upload(struct s3_objects *objects, const struct s3_request *request,
	struct s3_answer *answer)
{
	struct upload *upload = s3_need(calloc(1, sizeof(*upload)));
	struct upload **end = &objects->uploads;
	const char *algorithm = s3_request_field(request, "x-amz-checksum-algorithm");

	while (*end != NULL) {
		end = &(*end)->next;
	}
	*end = upload;
	snprintf(upload->id, sizeof(upload->id), "upload+%u/=", ++objects->versions);
	upload->key = s3_need(strdup(request->key));
	upload->parts = s3_need(calloc(PARTS_MAX, sizeof(*upload->parts)));
	upload->sums = algorithm != NULL && strcmp(algorithm, "CRC32C") == 0;
	s3_text_print(&answer->body,
		"<InitiateMultipartUploadResult><Bucket>" S3_BUCKET "</Bucket><UploadId>%s"
		"</UploadId></InitiateMultipartUploadResult>",
		upload->id);
}

static void put_part(struct s3_objects *objects, const struct s3_settings *settings,
	const struct s3_request *request, struct s3_answer *answer)
{
	struct upload *upload = find_upload(objects, request, answer);
	char value[16];
	unsigned number;
	struct part *part;

	if (upload == NULL) {
		return;
	}
	s3_request_param(request, "partNumber", value, sizeof(value));
	number = (unsigned)strtoul(value, NULL, 10);
	if (number < 1 || number > PARTS_MAX || upload->done[0] != '\0') {
		s3_answer_error(request, answer, 400, "InvalidArgument", "");
		return;
	}
	if (upload->sums && s3_request_field(request, "x-amz-checksum-crc32c") == NULL) {
		s3_answer_error(request, answer, 400, "InvalidRequest", "");
		return;
	}
	part = &upload->parts[number - 1];
	if (!check_sum(request, value, answer)) {
		return;
	}
	memcpy(part->sum, value, sizeof(part->sum));
	free(part->bytes);
	part->bytes = keep_body(settings, request);
	part->len_bytes = request->body_bytes;
	part->crc = crc32c(0, request->body, request->body_bytes);
	snprintf(part->etag, sizeof(part->etag), "\"%032x\"", ++objects->versions);
	if (settings->tells_md5) {
		s3_write_md5(request->body, request->body_bytes, 0, part->etag, part->md5);
	}
	s3_answer_field(answer, "ETag: %s", part->etag);
}

/* Gets the text of an element before end, with quotes decoded. Returns whether it is there. */
static bool between(const char *from, const char *end, const char *tag, char *out,
	size_t size_bytes)
{
	char opens[32];
	const char *at, *close;
	size_t n = 0;

	snprintf(opens, sizeof(opens), "<%s>", tag);
	at = strstr(from, opens);
	close = at != NULL ? strchr(at + 1, '<') : NULL;
	if (close == NULL || close > end) {
		return false;
	}
	for (at += strlen(opens); at < close; at++) {
		bool quote = strncmp(at, "&quot;", 6) == 0 || strncmp(at, "&#34;", 5) == 0;

		ASSERT(n + 1 < size_bytes);
		out[n++] = (char)(quote ? '"' : *at);
		at += quote ? strcspn(at, ";") : 0;
	}
	out[n] = '\0';
	return true;
}

/* Reads the next part of the list. Returns where it ends, or NULL: it is wrong, see code. */
static const char *read_part(const struct upload *upload, const char *at, unsigned *number,
	const char **code)
{
	const char *end = strstr(at, "</Part>");
	char value[128];
	const struct part *part;
	unsigned before = *number;

	*number = end != NULL && between(at, end, "PartNumber", value, sizeof(value))
		? (unsigned)strtoul(value, NULL, 10)
		: 0;
	*code = *number > 0 && *number <= before ? "InvalidPartOrder" : "InvalidPart";
	if (*number <= before || *number > PARTS_MAX) {
		return NULL;
	}
	part = &upload->parts[*number - 1];
	if (!between(at, end, "ETag", value, sizeof(value)) || part->etag[0] == '\0' ||
		strcmp(value, part->etag) != 0) {
		return NULL;
	}
	if (upload->sums && !between(at, end, "ChecksumCRC32C", value, sizeof(value))) {
		return NULL;
	}
	return upload->sums && strcmp(value, part->sum) != 0 ? NULL : end;
}

static void answer_completed(const struct upload *upload, struct s3_answer *answer)
{
	s3_answer_field(answer, "Content-Type: application/xml");
	s3_text_print(&answer->body,
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<CompleteMultipartUploadResult>"
		"<Bucket>" S3_BUCKET "</Bucket><ETag>&quot;%.*s&quot;</ETag>"
		"</CompleteMultipartUploadResult>",
		(int)strlen(upload->done) - 2, upload->done + 1);
}

/* Sums up the sums of the first n parts, as S3 does. */
static void sum_parts(const struct upload *upload, const struct s3_settings *settings, unsigned n,
	struct object *object)
{
	struct s3_text crcs = {0};
	struct s3_text md5s = {0};
	char sum[9];

	for (unsigned i = 0; i < n; i++) {
		const struct part *part = &upload->parts[i];
		const uint8_t crc[4] = {(uint8_t)(part->crc >> 24), (uint8_t)(part->crc >> 16),
			(uint8_t)(part->crc >> 8), (uint8_t)part->crc};

		s3_text_add(&crcs, crc, sizeof(crc));
		s3_text_add(&md5s, part->md5, S3_MD5_BYTES);
	}
	s3_write_base64(crc32c(0, crcs.bytes, crcs.len_bytes), sum);
	snprintf(object->sum, sizeof(object->sum), "%s-%u", sum, n);
	if (settings->tells_md5) {
		s3_write_md5(md5s.bytes, md5s.len_bytes, n, object->etag, NULL);
	}
	free(crcs.bytes);
	free(md5s.bytes);
}

static void complete_upload(struct s3_objects *objects, const struct s3_settings *settings,
	const struct s3_request *request, struct s3_answer *answer)
{
	struct upload *upload = find_upload(objects, request, answer);
	uint64_t least = settings->part_min_bytes > 0 ? settings->part_min_bytes : S3_PART;
	const char *at = request->body != NULL ? (const char *)request->body : "";
	const char *code = "MalformedXML";
	struct s3_text bytes = {0};
	struct object *object;
	unsigned number = 0, n = 0;
	size_t len_bytes = 0;
	bool dropped = false;

	if (upload == NULL || upload->done[0] != '\0') {
		if (upload != NULL) {
			answer_completed(upload, answer);
		}
		return;
	}
	while (at != NULL && (at = strstr(at, "<Part>")) != NULL) {
		if (n > 0 && upload->parts[number - 1].len_bytes < least) {
			code = "EntityTooSmall";
			break;
		}
		at = read_part(upload, at, &number, &code);
		n = at != NULL ? n + 1 : 0;
		if (at != NULL) {
			len_bytes += upload->parts[number - 1].len_bytes;
			dropped = dropped || upload->parts[number - 1].bytes == NULL;
		}
		if (at != NULL && !dropped) {
			s3_text_add(&bytes, upload->parts[number - 1].bytes,
				upload->parts[number - 1].len_bytes);
		}
	}
	if (n == 0 || at != NULL) {
		free(bytes.bytes);
		s3_answer_error(request, answer, 400, code, "");
		return;
	}
	if (dropped) {
		free(bytes.bytes);
		bytes.bytes = NULL;
	}
	object = keep_object(objects, request->key, (uint8_t *)bytes.bytes, len_bytes, n);
	sum_parts(upload, settings, n, object);
	snprintf(upload->done, sizeof(upload->done), "%s", object->etag);
	answer_completed(upload, answer);
	if (!settings->completes_again) {
		drop_upload(objects, upload);
	}
}

/* Markers are not kept to: one page has all. */
static void list_uploads(const struct s3_objects *objects, const struct s3_request *request,
	struct s3_answer *answer)
{
	char prefix[S3_NAME_MAX];

	s3_request_param(request, "prefix", prefix, sizeof(prefix));
	s3_text_print(&answer->body, "<ListMultipartUploadsResult><Bucket>" S3_BUCKET "</Bucket>");
	for (const struct upload *u = objects->uploads; u != NULL; u = u->next) {
		if (u->done[0] == '\0' && strncmp(u->key, prefix, strlen(prefix)) == 0) {
			s3_text_print(&answer->body, "<Upload><Key>");
			s3_text_encode(&answer->body, u->key);
			s3_text_print(&answer->body, "</Key><UploadId>%s</UploadId></Upload>",
				u->id);
		}
	}
	s3_text_print(&answer->body,
		"<IsTruncated>false</IsTruncated></ListMultipartUploadsResult>");
}

static void list_parts(struct s3_objects *objects, const struct s3_settings *settings,
	const struct s3_request *request, struct s3_answer *answer)
{
	struct upload *upload = find_upload(objects, request, answer);
	char value[16] = "";
	unsigned n = 0, last = 0;
	unsigned page_max = settings->page_max > 0 ? settings->page_max : 1000;

	if (upload == NULL) {
		return;
	}
	s3_request_param(request, "part-number-marker", value, sizeof(value));
	s3_text_print(&answer->body, "<ListPartsResult><UploadId>%s</UploadId>", upload->id);
	for (unsigned i = (unsigned)strtoul(value, NULL, 10); i < PARTS_MAX; i++) {
		const struct part *part = &upload->parts[i];

		if (part->etag[0] == '\0') {
			continue;
		}
		if (n++ == page_max) {
			s3_text_print(&answer->body,
				"<NextPartNumberMarker>%u</NextPartNumberMarker>", last);
			break;
		}
		last = i + 1;
		s3_text_print(&answer->body,
			"<Part><PartNumber>%u</PartNumber><ETag>&quot;%.*s&quot;</ETag>"
			"<Size>%zu</Size>",
			last, (int)strlen(part->etag) - 2, part->etag + 1, part->len_bytes);
		if (!settings->tells_md5 && !settings->tells_nothing) {
			s3_text_print(&answer->body, "<ChecksumCRC32C>%s</ChecksumCRC32C>",
				part->sum);
		}
		s3_text_print(&answer->body, "</Part>");
	}
	s3_text_print(&answer->body, "<IsTruncated>%s</IsTruncated></ListPartsResult>",
		n > page_max ? "true" : "false");
}

/* ---- all kinds ---- */

void s3_objects_do(struct s3_objects *objects, const struct s3_settings *settings,
	const struct s3_request *request, struct s3_answer *answer)
{
	struct upload *upload;

	answer->status = 200;
	if (strcmp(request->bucket, S3_BUCKET) != 0) {
		s3_answer_error(request, answer, 404, "NoSuchBucket", "");
		return;
	}
	switch (request->kind) {
	case S3_PUT:
		put_object(objects, settings, request, answer);
		break;
	case S3_GET:
	case S3_HEAD:
		get_object(objects, settings, request, answer);
		break;
	case S3_DELETE:
		delete_object(objects, request, answer);
		break;
	case S3_LIST:
		list_objects(objects, settings, request, answer);
		break;
	case S3_BEGIN:
		begin_upload(objects, request, answer);
		break;
	case S3_PART_PUT:
		put_part(objects, settings, request, answer);
		break;
	case S3_COMPLETE:
		complete_upload(objects, settings, request, answer);
		break;
	case S3_ABORT:
		upload = find_upload(objects, request, answer);
		if (upload != NULL) {
			drop_upload(objects, upload);
			answer->status = 204;
		}
		break;
	case S3_PARTS:
		list_parts(objects, settings, request, answer);
		break;
	default:
		list_uploads(objects, request, answer);
	}
}
