/* Encodes and decodes messages between agents: see peer_msg.h. Each kind's fields are listed once,
 * for both. The blob, if a kind has one, is its last field. Pure. */
#include "agent/peer/peer_msg.h"

#include "agent/peer/parity.h"
#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/wire_code.h"

#include <string.h>

#define CODE_MIN (-127) /* codes of errors lie above, see PAWL_ERRORS */

/* ---- values ---- */

/* Codes a PAWL_E code, or 0. */
static void code_code(struct wire_coder *c, int *v)
{
	wire_code_i32(c, v);
	if (c->in && (*v > 0 || *v < CODE_MIN)) {
		c->in->failed = true;
	}
}

/* Codes a blob, or, without the blob's bytes, its length. */
static void code_blob(struct wire_coder *c, struct peer_msg *m)
{
	if (c->in) {
		m->blob = wire_get_blob(c->in, &m->blob_bytes);
		m->blob = m->blob_bytes > 0 ? m->blob : NULL;
		return;
	}
	wire_put_u32(c->out, m->blob_bytes);
	if (m->blob) {
		wire_put_raw(c->out, m->blob, m->blob_bytes);
	}
}

static void code_save(struct wire_coder *c, struct peer_save *save)
{
	wire_code_u64(c, &save->run);
	wire_code_u64(c, &save->number);
}

static void code_parity(struct wire_coder *c, struct peer_parity *parity)
{
	wire_code_u32(c, &parity->group);
	wire_code_u32(c, &parity->k);
	wire_code_u32(c, &parity->m);
	wire_code_u32(c, &parity->row);
	wire_code_u32(c, &parity->index);
}

static void code_part(struct wire_coder *c, struct peer_part *part)
{
	code_save(c, &part->save);
	wire_code_u64(c, &part->step);
	wire_code_str(c, part->tag, sizeof(part->tag));
	wire_code_u32(c, &part->world);
	wire_code_u32(c, &part->first_rank);
	wire_code_u32(c, &part->ranks);
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

/* ---- kinds ---- */

static void code_record(struct wire_coder *c, struct peer_msg *m)
{
	wire_code_u32(c, &m->rank);
	wire_code_u64(c, &m->size_bytes);
	wire_code_u32(c, &m->crc);
	code_blob(c, m);
}

static void code_bytes(struct wire_coder *c, struct peer_msg *m)
{
	wire_code_u64(c, &m->off);
	code_blob(c, m);
}

/* Codes what names a part that somebody holds. */
static void code_held(struct wire_coder *c, struct peer_msg *m)
{
	wire_code_u64(c, &m->root);
	code_save(c, &m->part.save);
	wire_code_u32(c, &m->part.first_rank);
	code_parity(c, &m->part.parity);
}

static void code_note(struct wire_coder *c, struct peer_msg *m)
{
	wire_code_u64(c, &m->root);
	wire_code_str(c, m->path, sizeof(m->path));
	if (m->kind == PEER_NOTE_WRITE) {
		code_blob(c, m);
	}
}

/* Codes what a client sends to put a part here. Returns false if the kind is another one. */
static bool code_put(struct wire_coder *c, struct peer_msg *m)
{
	switch (m->kind) {
	case PEER_PUT:
		wire_code_u64(c, &m->root);
		code_part(c, &m->part);
		code_save(c, &m->global);
		wire_code_u64(c, &m->len_bytes);
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

static bool code_from_client(struct wire_coder *c, struct peer_msg *m)
{
	switch (m->kind) {
	case PEER_HELLO:
		wire_code_u16(c, &m->version);
		wire_code_str(c, m->job, sizeof(m->job));
		return true;
	case PEER_NEXT:
		wire_code_u64(c, &m->root);
		code_save(c, &m->save);
		code_save(c, &m->global);
		return true;
	case PEER_DONE:
		wire_code_u64(c, &m->root);
		code_part(c, &m->part);
		code_code(c, &m->code);
		wire_code_str(c, m->text, sizeof(m->text));
		return true;
	case PEER_GET_RECORDS:
		code_held(c, m);
		return true;
	case PEER_GET:
		code_held(c, m);
		wire_code_u64(c, &m->off);
		wire_code_u64(c, &m->len_bytes);
		return true;
	case PEER_NOTE_WRITE:
	case PEER_NOTE_READ:
		code_note(c, m);
		return true;
	case PEER_CHOICE:
		wire_code_u64(c, &m->root);
		code_save(c, &m->save);
		code_save(c, &m->wanted);
		return true;
	default:
		return false;
	}
}

static bool code_from_server(struct wire_coder *c, struct peer_msg *m)
{
	switch (m->kind) {
	case PEER_OK:
		return true;
	case PEER_ERROR:
		code_code(c, &m->code);
		wire_code_str(c, m->text, sizeof(m->text));
		return true;
	case PEER_ROUND:
		code_save(c, &m->save);
		code_save(c, &m->global);
		return true;
	case PEER_RECORD:
		code_record(c, m);
		return true;
	case PEER_BYTES:
		code_bytes(c, m);
		return true;
	case PEER_NOTE:
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
static bool code_body(struct wire_coder *c, struct peer_msg *m)
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
	case PEER_NOTE_WRITE:
	case PEER_NOTE_READ:
		return m->root != 0 && is_path(m->path);
	case PEER_ERROR:
		return m->code != 0;
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
	struct wire_coder coder = {.out = out};
	size_t start = out->len_bytes;
	size_t body_bytes;
	bool known;

	copy.blob = head ? NULL : msg->blob;
	wire_put_u32(out, 0);
	wire_put_u8(out, (uint8_t)msg->kind);
	known = code_body(&coder, &copy);
	ASSERT(known); /* no caller makes up a kind */
	if (out->failed) {
		return;
	}
	body_bytes = out->len_bytes - start - PEER_HEADER + (head ? msg->blob_bytes : 0);
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
	struct wire_coder coder = {.in = &in};

	wire_in_init(&in, body, len_bytes);
	if (len_bytes > PEER_BODY_MAX || !code_body(&coder, &m) || !wire_in_done(&in) ||
		!is_valid(&m)) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"a message of kind %u and %zu bytes is invalid", (unsigned)kind, len_bytes);
	}
	*msg = m;
	return 0;
}
