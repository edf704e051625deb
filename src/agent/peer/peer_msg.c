/* Encodes and decodes messages between agents: see peer_msg.h. Each kind's fields are listed once,
 * for both. The blob, if a kind has one, is its last field. Pure. */
#include "agent/peer/peer_msg.h"

#include "agent/peer/parity.h"
#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"

#include <string.h>

#define CODE_MIN (-127) /* codes of errors lie above, see PAWL_ERRORS */

/* Writes or reads: one of out and in is NULL. */
struct coder {
	struct wire_out *out; /* message being written */
	struct wire_in *in;   /* message being read */
	bool head;            /* writing: the blob's bytes are left out */
	size_t left_out;      /* number of bytes that were */
};

/* ---- values ---- */

static void code_u16(struct coder *c, uint16_t *v)
{
	if (c->out) {
		wire_put_u16(c->out, *v);
	} else {
		*v = wire_get_u16(c->in);
	}
}

static void code_u32(struct coder *c, uint32_t *v)
{
	if (c->out) {
		wire_put_u32(c->out, *v);
	} else {
		*v = wire_get_u32(c->in);
	}
}

static void code_u64(struct coder *c, uint64_t *v)
{
	if (c->out) {
		wire_put_u64(c->out, *v);
	} else {
		*v = wire_get_u64(c->in);
	}
}

/* Codes a PAWL_E code, or 0. */
static void code_code(struct coder *c, int *v)
{
	uint32_t u = (uint32_t)*v;

	code_u32(c, &u);
	*v = (int)u;
	if (c->in && (*v > 0 || *v < CODE_MIN)) {
		c->in->failed = true;
	}
}

/* Codes a string. A string that is read will be printed, or compared with names: one with control
 * characters fails the message. */
static void code_str(struct coder *c, char *s, size_t cap_bytes)
{
	if (c->out) {
		ASSERT(memchr(s, '\0', cap_bytes) != NULL);
		wire_put_str(c->out, s);
		return;
	}
	wire_get_str(c->in, s, cap_bytes);
	for (const char *at = s; *at != '\0'; at++) {
		c->in->failed = c->in->failed || (unsigned char)*at < ' ' || *at == 0x7f;
	}
}

static void code_blob(struct coder *c, struct peer_msg *m)
{
	if (c->in) {
		m->blob = wire_get_blob(c->in, &m->blob_bytes);
		m->blob = m->blob_bytes > 0 ? m->blob : NULL;
		return;
	}
	wire_put_u32(c->out, m->blob_bytes);
	if (c->head) {
		c->left_out = m->blob_bytes;
	} else if (m->blob_bytes > 0) {
		wire_put_raw(c->out, m->blob, m->blob_bytes);
	}
}

static void code_save(struct coder *c, struct peer_save *save)
{
	code_u64(c, &save->run);
	code_u64(c, &save->number);
}

static void code_parity(struct coder *c, struct peer_parity *parity)
{
	code_u32(c, &parity->group);
	code_u32(c, &parity->k);
	code_u32(c, &parity->m);
	code_u32(c, &parity->row);
	code_u32(c, &parity->index);
}

static void code_part(struct coder *c, struct peer_part *part)
{
	code_save(c, &part->save);
	code_u64(c, &part->step);
	code_str(c, part->tag, sizeof(part->tag));
	code_u32(c, &part->world);
	code_u32(c, &part->first_rank);
	code_u32(c, &part->ranks);
	code_parity(c, &part->parity);
}

/* ---- limits ---- */

/* Whether every component of a path, of which there is one at least, can be a name in a folder. */
static bool is_path(const char *path)
{
	const char *at = path;

	for (;;) {
		size_t len = strcspn(at, "/");

		if (len == 0 || (len == 1 && at[0] == '.') ||
			(len == 2 && at[0] == '.' && at[1] == '.')) {
			return false;
		}
		if (at[len] == '\0') {
			return true;
		}
		at += len + 1;
	}
}

static bool is_tag(const char *tag)
{
	return tag[0] != '\0' && tag[0] != '.' && strchr(tag, '/') == NULL;
}

static bool is_part(const struct peer_part *part)
{
	return part->save.run != 0 && is_tag(part->tag) && part->world <= PEER_RANKS_MAX &&
		part->ranks >= 1 && part->ranks <= part->world &&
		part->first_rank <= part->world - part->ranks &&
		peer_parity_is_valid(&part->parity, part->first_rank);
}

/* Whether a blob is bytes of an image, from off on. */
static bool is_block(const struct peer_msg *m)
{
	return m->blob_bytes >= 1 && m->blob_bytes <= PEER_BLOCK &&
		m->off <= UINT64_MAX - m->blob_bytes;
}

/* Whether a blob is a list of names, each with its NUL and none empty. */
static bool is_names(const uint8_t *blob, uint32_t blob_bytes)
{
	if (blob_bytes == 0) {
		return true;
	}
	for (uint32_t i = 0; i < blob_bytes; i++) {
		if (blob[i] == '\0' && (i == 0 || blob[i - 1] == '\0')) {
			return false;
		}
	}
	return blob[blob_bytes - 1] == '\0';
}

/* ---- kinds ---- */

/* Codes the number of parts, and the parts: those of the caller, or those that are in msg->blob
 * afterwards. */
static void code_parts(struct coder *c, struct peer_msg *m)
{
	struct peer_part part;

	ASSERT(c->in || m->parts_n <= PEER_PARTS_MAX);
	code_u32(c, &m->parts_n);
	if (c->out) {
		for (uint32_t i = 0; i < m->parts_n; i++) {
			part = m->parts[i];
			code_part(c, &part);
		}
		return;
	}
	m->blob = m->parts_n > 0 ? c->in->at : NULL;
	m->blob_bytes = (uint32_t)wire_in_left(c->in);
	c->in->failed = c->in->failed || m->parts_n > PEER_PARTS_MAX;
	for (uint32_t i = 0; i < m->parts_n && !c->in->failed; i++) {
		code_part(c, &part);
		c->in->failed = c->in->failed || !is_part(&part);
	}
}

static void code_record(struct coder *c, struct peer_msg *m)
{
	code_u32(c, &m->rank);
	code_u64(c, &m->size_bytes);
	code_u32(c, &m->crc);
	code_blob(c, m);
}

static void code_bytes(struct coder *c, struct peer_msg *m)
{
	code_u64(c, &m->off);
	code_blob(c, m);
}

/* Codes what names a part that somebody holds. */
static void code_held(struct coder *c, struct peer_msg *m)
{
	code_u64(c, &m->root);
	code_save(c, &m->part.save);
	code_u32(c, &m->part.first_rank);
	code_parity(c, &m->part.parity);
}

static void code_note(struct coder *c, struct peer_msg *m)
{
	code_u64(c, &m->root);
	code_str(c, m->path, sizeof(m->path));
	if (m->kind == PEER_NOTE_WRITE) {
		code_blob(c, m);
	}
}

/* Codes what a client sends to put a part here. Returns false if the kind is another one. */
static bool code_put(struct coder *c, struct peer_msg *m)
{
	switch (m->kind) {
	case PEER_PUT:
		code_u64(c, &m->root);
		code_part(c, &m->part);
		code_save(c, &m->global);
		code_u64(c, &m->len_bytes);
		return true;
	case PEER_PUT_RECORD:
		code_record(c, m);
		return true;
	case PEER_PUT_BYTES:
		code_bytes(c, m);
		return true;
	case PEER_PUT_END:
		return true;
	default:
		return false;
	}
}

static bool code_from_client(struct coder *c, struct peer_msg *m)
{
	switch (m->kind) {
	case PEER_HELLO:
		code_u16(c, &m->version);
		code_str(c, m->job, sizeof(m->job));
		return true;
	case PEER_NEXT:
		code_u64(c, &m->root);
		code_save(c, &m->save);
		code_save(c, &m->global);
		return true;
	case PEER_DONE:
		code_u64(c, &m->root);
		code_part(c, &m->part);
		code_code(c, &m->code);
		code_str(c, m->text, sizeof(m->text));
		return true;
	case PEER_LIST:
		code_u64(c, &m->root);
		return true;
	case PEER_GET_RECORDS:
		code_held(c, m);
		return true;
	case PEER_GET:
		code_held(c, m);
		code_u64(c, &m->off);
		code_u64(c, &m->len_bytes);
		return true;
	case PEER_NOTE_WRITE:
	case PEER_NOTE_READ:
	case PEER_NOTE_LIST:
	case PEER_NOTE_REMOVE:
		code_note(c, m);
		return true;
	case PEER_CHOICE:
		code_u64(c, &m->root);
		code_save(c, &m->save);
		code_save(c, &m->wanted);
		return true;
	default:
		return false;
	}
}

static bool code_from_server(struct coder *c, struct peer_msg *m)
{
	switch (m->kind) {
	case PEER_OK:
		return true;
	case PEER_ERROR:
		code_code(c, &m->code);
		code_str(c, m->text, sizeof(m->text));
		return true;
	case PEER_ROUND:
		code_save(c, &m->save);
		code_save(c, &m->global);
		return true;
	case PEER_LISTED:
		code_parts(c, m);
		return true;
	case PEER_RECORD:
		code_record(c, m);
		return true;
	case PEER_BYTES:
		code_bytes(c, m);
		return true;
	case PEER_NOTE:
	case PEER_NAMES:
		code_blob(c, m);
		return true;
	case PEER_CHOSEN:
		code_save(c, &m->save);
		return true;
	default:
		return false;
	}
}

/* Returns false if there is no such kind. */
static bool code_body(struct coder *c, struct peer_msg *m)
{
	return code_put(c, m) || code_from_client(c, m) || code_from_server(c, m);
}

/* Checks the limits that the rest of the program relies on. */
static bool is_valid(const struct peer_msg *m)
{
	switch (m->kind) {
	case PEER_HELLO:
		return m->job[0] != '\0';
	case PEER_NEXT:
	case PEER_LIST:
	case PEER_CHOICE:
		return m->root != 0;
	case PEER_DONE:
	case PEER_PUT:
		return m->root != 0 && is_part(&m->part);
	case PEER_GET_RECORDS:
	case PEER_GET:
		return m->root != 0 && m->part.save.run != 0 &&
			m->part.first_rank < PEER_RANKS_MAX &&
			peer_parity_is_valid(&m->part.parity, m->part.first_rank) &&
			m->off <= UINT64_MAX - m->len_bytes;
	case PEER_PUT_RECORD:
	case PEER_RECORD:
		return m->rank < PEER_RANKS_MAX;
	case PEER_PUT_BYTES:
	case PEER_BYTES:
		return is_block(m);
	case PEER_NOTE_LIST:
		return m->root != 0 && (m->path[0] == '\0' || is_path(m->path));
	case PEER_NOTE_WRITE:
	case PEER_NOTE_READ:
	case PEER_NOTE_REMOVE:
		return m->root != 0 && is_path(m->path);
	case PEER_ERROR:
		return m->code != 0;
	case PEER_NAMES:
		return is_names(m->blob, m->blob_bytes);
	default:
		return true;
	}
}

/* ---- messages ---- */

uint64_t peer_root(const char *path)
{
	size_t len = strlen(path);

	return (uint64_t)crc32c(0, path, len) << 32 | crc32_zip(0, path, len);
}

bool peer_save_is(const struct peer_save *a, const struct peer_save *b)
{
	return a->run != 0 && a->run == b->run && a->number == b->number;
}

bool peer_parity_is_valid(const struct peer_parity *parity, uint32_t first_rank)
{
	if (parity->k == 0) {
		return parity->group == 0 && parity->m == 0 && parity->row == 0 &&
			parity->index == 0;
	}
	return parity->group <= first_rank && parity->k <= PARITY_DATA_MAX &&
		parity->index < parity->k && parity->m <= PARITY_ROWS_MAX &&
		parity->row < parity->m;
}

static void put(struct wire_out *out, const struct peer_msg *msg, bool head)
{
	struct peer_msg copy = *msg;
	struct coder coder = {.out = out, .head = head};
	size_t start = out->len_bytes;
	size_t body_bytes;
	bool known;

	wire_put_u32(out, 0);
	wire_put_u8(out, (uint8_t)msg->kind);
	known = code_body(&coder, &copy);
	ASSERT(known); /* no caller makes up a kind */
	if (out->failed) {
		return;
	}
	body_bytes = out->len_bytes - start - PEER_HEADER + coder.left_out;
	if (body_bytes > PEER_BODY_MAX) {
		out->failed = out->too_large = true;
		return;
	}
	wire_patch_u32(out, start, (uint32_t)body_bytes);
}

void peer_msg_put(struct wire_out *out, const struct peer_msg *msg)
{
	put(out, msg, false);
}

void peer_msg_put_head(struct wire_out *out, const struct peer_msg *msg)
{
	put(out, msg, true);
}

int peer_msg_get(struct peer_msg *msg, uint8_t kind, const uint8_t *body, size_t len_bytes,
	struct pawl_err *err)
{
	struct peer_msg m = {.kind = kind};
	struct wire_in in;
	struct coder coder = {.in = &in};

	wire_in_init(&in, body, len_bytes);
	if (len_bytes > PEER_BODY_MAX || !code_body(&coder, &m) || !wire_in_done(&in) ||
		!is_valid(&m)) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"a message of kind %u and %zu bytes is invalid", (unsigned)kind, len_bytes);
	}
	*msg = m;
	return 0;
}

void peer_msg_part(const struct peer_msg *msg, uint32_t i, struct peer_part *part)
{
	struct wire_in in;
	struct coder coder = {.in = &in};

	ASSERT(msg->kind == PEER_LISTED && i < msg->parts_n);
	wire_in_init(&in, msg->blob, msg->blob_bytes);
	for (uint32_t at = 0; at <= i; at++) {
		code_part(&coder, part);
	}
	ASSERT(!in.failed); /* peer_msg_get has read all of them */
}
