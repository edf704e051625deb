/*
 * Serves one connection, in its own thread: see peers.h, and peer_msg.h for what a client may ask.
 *
 * An error that belongs to a request is its answer, and the connection goes on. After bytes that
 * are no message, or a PEER_HELLO of another job, the answer is the last one. While a part is
 * received, the first error is kept and the rest dropped, as the client listens only at the end.
 */
#include "agent/peer/peers_impl.h"

#include "agent/peer/held.h"
#include "agent/peer/notes.h"
#include "agent/peer/rounds.h"

#include "base/clock.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/text.h"
#include "base/times.h"

#include <stdlib.h>
#include <string.h>

#define HELLO_MAX   1024u      /* bytes of a PEER_HELLO's body, at most: strangers send no more */
#define CONTENT_MAX (1u << 20) /* bytes of memory for answers that are kept between two */
#define BLOB_MAX    (PEER_BODY_MAX - 64u) /* bytes of an answer's blob, at most */

/* ---- answers ---- */

static int answer(struct peers_conn *conn, const struct peer_msg *msg, struct pawl_err *err)
{
	int rv = peer_stream_send(&conn->stream, msg, err);

	return rv == 0 ? peer_stream_flush(&conn->stream, err) : rv;
}

static int answer_error(struct peers_conn *conn, int code, const char *text, struct pawl_err *err)
{
	struct peer_msg msg = {.kind = PEER_ERROR, .code = code};

	text_escape(msg.text, sizeof(msg.text), text);
	return answer(conn, &msg, err);
}

/* Answers a request that has no result but whether it succeeded. */
static int answer_verdict(struct peers_conn *conn, int rv, const struct pawl_err *why,
	struct pawl_err *err)
{
	const struct peer_msg ok = {.kind = PEER_OK};

	return rv == 0 ? answer(conn, &ok, err) : answer_error(conn, rv, why->msg, err);
}

/* Answers with the note in conn->content, or, if rv is not 0, with the reason why. */
static int answer_note(struct peers_conn *conn, int rv, struct pawl_err *why, struct pawl_err *err)
{
	struct wire_out *content = &conn->content;
	struct peer_msg msg = {.kind = PEER_NOTE, .blob = content->bytes};

	if (rv == 0 && content->len_bytes > BLOB_MAX) {
		rv = pawl_err_set(why, PAWL_ELIMIT, "%zu bytes are more than a message has, %u",
			content->len_bytes, BLOB_MAX);
	}
	msg.blob_bytes = rv == 0 ? (uint32_t)content->len_bytes : 0;
	rv = rv == 0 ? answer(conn, &msg, err) : answer_error(conn, rv, why->msg, err);
	if (content->cap_bytes > CONTENT_MAX) {
		wire_out_deinit(content);
	}
	return rv;
}

/* ---- a part that is put here ---- */

/* Forgets the part that was being received; what comes of another one is dropped. */
static void end_part(struct peers_conn *conn)
{
	held_in_close(conn->in);
	conn->in = NULL;
	conn->in_rv = pawl_err_set(&conn->in_err, PAWL_EINVAL,
		"bytes of a part were sent that was not announced");
}

static void receive_part(struct peers_conn *conn, const struct peer_msg *msg)
{
	if (conn->in_rv != 0) {
		return;
	}
	if (msg->kind == PEER_PUT_RECORD) {
		conn->in_rv = held_in_record(conn->in, msg->rank, msg->size_bytes, msg->crc,
			msg->blob, msg->blob_bytes, &conn->in_err);
	} else {
		conn->in_rv = held_in_bytes(conn->in, msg->off, msg->blob, msg->blob_bytes,
			&conn->in_err);
	}
	if (conn->in_rv != 0) { /* the memory may be wanted before the client has sent the rest */
		held_in_close(conn->in);
		conn->in = NULL;
	}
}

static int serve_put(struct peers_conn *conn, const struct peer_msg *msg, struct pawl_err *err)
{
	int rv;

	switch (msg->kind) {
	case PEER_PUT:
		end_part(conn);
		conn->in_rv = held_in_open(&conn->in, conn->peers->held, msg->root, &msg->part,
			&msg->global, msg->len_bytes, &conn->in_err);
		return answer_verdict(conn, conn->in_rv, &conn->in_err, err);
	case PEER_PUT_END:
		rv = conn->in_rv;
		if (rv == 0) {
			rv = held_in_end(conn->in, &conn->in_err);
		}
		rv = answer_verdict(conn, rv, &conn->in_err, err);
		end_part(conn);
		return rv;
	default:
		receive_part(conn, msg);
		return 0;
	}
}

/* ---- parts that are asked for ---- */

static int send_records(struct peers_conn *conn, const struct held_part *part, struct pawl_err *err)
{
	const struct peer_part *info = held_part_info(part);
	int rv = 0;

	for (uint32_t i = 0; i < info->ranks && rv == 0; i++) {
		struct peer_msg record = {.kind = PEER_RECORD, .rank = info->first_rank + i};

		held_part_record(part, record.rank, &record.blob, &record.blob_bytes,
			&record.size_bytes);
		record.crc = crc32c(0, record.blob, record.blob_bytes);
		rv = peer_stream_send(&conn->stream, &record, err);
	}
	return rv == 0 ? peer_stream_flush(&conn->stream, err) : rv;
}

static int send_image(struct peers_conn *conn, const struct held_part *part,
	const struct peer_msg *msg, struct pawl_err *err)
{
	uint64_t end = msg->off + msg->len_bytes;
	uint64_t off = msg->off;
	int rv = 0;

	if (!conn->block) {
		conn->block = FAULT_MEM("peer.block", malloc(PEER_BLOCK));
	}
	if (!conn->block) {
		return answer_error(conn, PAWL_ENOMEM, "no memory to read a part", err);
	}
	while (off < end && rv == 0) {
		struct peer_msg bytes = {.kind = PEER_BYTES,
			.off = off,
			.blob = conn->block,
			.blob_bytes = end - off < PEER_BLOCK ? (uint32_t)(end - off) : PEER_BLOCK};
		struct pawl_err why;

		rv = held_part_read(part, off, conn->block, bytes.blob_bytes, &why);
		if (rv != 0) {
			return answer_error(conn, rv, why.msg, err);
		}
		rv = peer_stream_send(&conn->stream, &bytes, err);
		off += bytes.blob_bytes;
	}
	return rv == 0 ? peer_stream_flush(&conn->stream, err) : rv;
}

static int serve_get(struct peers_conn *conn, const struct peer_msg *msg, struct pawl_err *err)
{
	struct held *held = conn->peers->held;
	const struct peer_part *asked = &msg->part;
	struct held_part *part = asked->parity.k == 0
		? held_find(held, msg->root, &asked->save, asked->first_rank)
		: held_find_sum(held, msg->root, &asked->save, &asked->parity, asked->first_rank);
	uint64_t size_bytes = part ? held_part_size(part) : 0;
	int rv;

	if (!part || held_part_info(part)->first_rank != msg->part.first_rank) {
		rv = answer_error(conn, PAWL_ENOENT, "this host does not hold that part any more",
			err);
	} else if (msg->kind == PEER_GET_RECORDS) {
		rv = send_records(conn, part, err);
	} else if (msg->len_bytes == 0 || msg->len_bytes > size_bytes ||
		msg->off > size_bytes - msg->len_bytes) {
		rv = answer_error(conn, PAWL_EINVAL, "bytes are asked for that the part has not",
			err);
	} else {
		rv = send_image(conn, part, msg, err);
	}
	held_release(part);
	return rv;
}

/* ---- rounds and notes ---- */

static int serve_next(struct peers_conn *conn, const struct peer_msg *msg, struct pawl_err *err)
{
	struct peer_msg round = {.kind = PEER_ROUND, .save = msg->save, .global = msg->global};
	struct pawl_err why;
	int rv = rounds_next(conn->peers->rounds, msg->root, &round.save, &round.global,
		times_ns(TIME_PEER_NEXT), &why);

	return rv == 0 ? answer(conn, &round, err) : answer_error(conn, rv, why.msg, err);
}

static int serve_choice(struct peers_conn *conn, const struct peer_msg *msg, struct pawl_err *err)
{
	struct peer_msg chosen = {.kind = PEER_CHOSEN, .save = msg->save};
	struct pawl_err why;
	int rv;

	if (msg->wanted.run != 0) {
		rounds_want(conn->peers->rounds, msg->root, &msg->wanted);
	}
	rv = rounds_next_chosen(conn->peers->rounds, msg->root, &chosen.save,
		times_ns(TIME_PEER_CHOICE), &why);
	return rv == 0 ? answer(conn, &chosen, err) : answer_error(conn, rv, why.msg, err);
}

static int serve_done(struct peers_conn *conn, const struct peer_msg *msg, struct pawl_err *err)
{
	rounds_done(conn->peers->rounds, msg->root, &msg->part, msg->code, msg->text);
	return answer_verdict(conn, 0, NULL, err);
}

static int serve_note(struct peers_conn *conn, const struct peer_msg *msg, struct pawl_err *err)
{
	struct notes *notes = conn->peers->notes;
	struct pawl_err why;
	int rv;

	if (msg->kind == PEER_NOTE_WRITE) {
		rv = notes_write(notes, msg->root, msg->path, msg->blob, msg->blob_bytes, &why);
		return answer_verdict(conn, rv, &why, err);
	}
	wire_out_reset(&conn->content);
	rv = notes_read(notes, msg->root, msg->path, &conn->content, &why);
	return answer_note(conn, rv, &why, err);
}

/* ---- the connection ---- */

/* Answers one request. Returns an error if the connection is to end. */
static int serve_request(struct peers_conn *conn, const struct peer_msg *msg, struct pawl_err *err)
{
	switch (msg->kind) {
	case PEER_NEXT:
		return serve_next(conn, msg, err);
	case PEER_DONE:
		return serve_done(conn, msg, err);
	case PEER_CHOICE:
		return serve_choice(conn, msg, err);
	case PEER_PUT:
	case PEER_PUT_RECORD:
	case PEER_PUT_BYTES:
	case PEER_PUT_END:
		return serve_put(conn, msg, err);
	case PEER_GET_RECORDS:
	case PEER_GET:
		return serve_get(conn, msg, err);
	case PEER_NOTE_WRITE:
	case PEER_NOTE_READ:
		return serve_note(conn, msg, err);
	default:
		return pawl_err_set(err, PAWL_ECORRUPT, "it sent a message of kind %d as a request",
			(int)msg->kind);
	}
}

/* Receives PEER_HELLO. PAWL_EMISMATCH: it is of another job. */
static int take_hello(struct peers_conn *conn, struct pawl_err *err)
{
	struct peer_msg msg;
	int rv = peer_stream_receive(&conn->stream, &msg, PEER_STREAM_FOREVER, HELLO_MAX, err);

	if (rv != 0) {
		return rv;
	}
	if (msg.kind != PEER_HELLO || msg.version != PEER_VERSION) {
		return pawl_err_set(err, PAWL_ECORRUPT, "it did not begin with its job");
	}
	if (strcmp(msg.job, conn->peers->job) != 0) {
		return pawl_err_set(err, PAWL_EMISMATCH,
			"the agent of job %s was asked by one of job %s", conn->peers->job,
			msg.job);
	}
	peers_know(conn);
	conn->stream.due_ns = PEER_STREAM_FOREVER;
	return answer_verdict(conn, 0, NULL, err);
}

static int serve(struct peers_conn *conn, struct pawl_err *err)
{
	struct peer_msg msg;
	int rv = peer_stream_start(&conn->stream, conn->peers->tls, conn->peers->has_token, true,
		err);

	if (rv != 0) {
		return rv;
	}
	rv = take_hello(conn, err);
	while (rv == 0) {
		rv = peer_stream_receive(&conn->stream, &msg, PEER_STREAM_FOREVER, PEER_BODY_MAX,
			err);
		if (rv == 0) {
			rv = serve_request(conn, &msg, err);
		}
	}
	if (rv != PAWL_EPEER && rv != PAWL_ETIMEDOUT && rv != PAWL_ECANCELED) {
		answer_error(conn, rv, err->msg, NULL);
		peer_stream_linger(&conn->stream);
	}
	return rv;
}

void peers_serve(struct peers_conn *conn)
{
	struct pawl_err err;
	int rv;

	end_part(conn);
	conn->stream.due_ns = clock_add_ns(clock_mono_ns(), times_ns(TIME_PEER_CONNECT));
	rv = serve(conn, &err);
	peers_complain(conn, rv, err.msg);
	held_in_close(conn->in);
	conn->in = NULL;
	wire_out_deinit(&conn->content);
	free(conn->block);
}
