/*
 * Rebuilds pieces of a part that no host holds as it is, or holds undamaged: see fetch.h.
 *
 * The part is a data row of its group (parity.h). The same bytes of k other rows, parts and sums,
 * are read, and give back those of the part, whose pieces are then verified as if a host had sent
 * them. A piece that comes out damaged is rebuilt again with one of the rows left out, each in
 * turn, as long as there are enough others.
 */
#include "agent/peer/fetch_impl.h"
#include "agent/peer/held.h"
#include "agent/peer/peer_link.h"
#include "agent/peer/peers.h"
#include "base/err.h"
#include "base/fault.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ---- */

/* Finds all rows of a part's group that the plan names. */
static int find_rows(struct fetch_rows *rows, struct peer_fetch *fetch,
	const struct fetch_part *part, struct pawl_err *err)
{
	const struct peer_parity *parity = &part->sums[0].parity;

	*rows = (struct fetch_rows){.own = parity->index};
	for (uint32_t i = 0; i < fetch->parts_n; i++) {
		struct fetch_part *other = &fetch->parts[i];
		const struct peer_parity *in = other->sums_n > 0 ? &other->sums[0].parity : NULL;

		if (in != NULL && in->group == parity->group && in->index < parity->k) {
			rows->parts[in->index] = other;
		}
	}
	for (uint32_t i = 0; i < part->sums_n; i++) {
		if (part->sums[i].parity.row < parity->m) {
			rows->sums[part->sums[i].parity.row] = &part->sums[i];
		}
	}
	return parity_init(&rows->code, parity->k, parity->m, err);
}

/* Whether a source is not to be asked before the others: its host is lost, or not in the run. */
static bool is_lost(const struct peer_fetch *fetch, const struct recover_source *source)
{
	uint32_t host;

	return fetch_host_of(fetch, source, &host, NULL) != 0 || fetch->hosts[host].lost;
}

/* Returns where to read a row, if possible from a host that is not lost. NULL: nowhere. */
static const struct recover_source *source_of(const struct peer_fetch *fetch,
	const struct fetch_rows *rows, uint32_t row)
{
	const struct fetch_part *part;

	if (row >= rows->code.k) {
		return rows->sums[row - rows->code.k];
	}
	part = rows->parts[row];
	for (uint32_t i = 0; part != NULL && i < part->sources_n; i++) {
		if (!is_lost(fetch, &part->sources[i])) {
			return &part->sources[i];
		}
	}
	return part != NULL && part->sources_n > 0 ? &part->sources[0] : NULL;
}

static int read_held(struct peer_fetch *fetch, const struct recover_source *source, uint64_t off,
	uint32_t len_bytes, uint8_t *out, struct pawl_err *err)
{
	struct held_part *held = fetch_held(fetch, source);
	int rv = held != NULL ? held_part_read(held, off, out, len_bytes, err)
			      : pawl_err_set(err, PAWL_ENOENT, "this host holds the part no more");

	held_release(held);
	return rv;
}

static int read_remote(struct peer_fetch *fetch, const struct recover_source *source, uint32_t host,
	uint64_t off, uint32_t len_bytes, uint8_t *out, struct pawl_err *err)
{
	uint64_t end = off + len_bytes;
	struct peer_link *link = NULL;
	struct peer_msg msg;
	int rv;

	fetch_request_msg(fetch, source, PEER_GET, &msg);
	msg.off = off;
	msg.len_bytes = len_bytes;
	rv = fetch_link(fetch, host, &link, err);
	rv = rv == 0 ? peer_link_send(link, &msg, err) : rv;
	while (rv == 0 && off < end) {
		struct peer_msg reply;

		rv = fetch_receive_bytes(link, off, end, &reply, err);
		if (rv == 0) {
			memcpy(out, reply.blob, reply.blob_bytes);
			out += reply.blob_bytes;
			off += reply.blob_bytes;
		}
	}
	if (rv != 0) {
		fetch_lose(fetch, host); /* other answers may still be on their way */
	}
	return rv;
}

/* Reads bytes of a row. Behind the end of a part they are zeros. */
static int read_row(struct peer_fetch *fetch, const struct fetch_rows *rows, uint32_t row,
	uint64_t off, uint32_t len_bytes, uint8_t *out, struct pawl_err *err)
{
	const struct recover_source *source = source_of(fetch, rows, row);
	uint32_t n = len_bytes;
	uint32_t host;
	int rv;

	if (row < rows->code.k) {
		uint64_t size_bytes = rows->parts[row]->image.size_bytes;
		uint64_t left = size_bytes > off ? size_bytes - off : 0;

		n = left < n ? (uint32_t)left : n;
		memset(out + n, 0, len_bytes - n);
	}
	rv = fetch_host_of(fetch, source, &host, err);
	if (rv == 0 && n > 0) {
		rv = host == fetch->map->own ? read_held(fetch, source, off, n, out, err)
					     : read_remote(fetch, source, host, off, n, out, err);
	}
	return rv == 0 ? 0
		       : pawl_err_prefix(err, rv, "step %" PRIu64 ", rank %" PRIu32 "'s host",
				 fetch->plan->step, source->host);
}

/* ---- bytes ---- */

static int make_buffers(struct peer_fetch *fetch, uint32_t k, struct pawl_err *err)
{
	if (fetch->rows_n < k + 1) {
		free(fetch->rows);
		fetch->rows_n = 0;
		fetch->rows = FAULT_MEM("fetch.rows", malloc((size_t)(k + 1) * FETCH_ROW_BYTES));
		if (fetch->rows == NULL) {
			return pawl_err_set(err, PAWL_ENOMEM,
				"no memory to rebuild a part from those of %" PRIu32 " hosts", k);
		}
		fetch->rows_n = k + 1;
	}
	return 0;
}

/* Whether a row is to be read in this pass: first those of hosts that are not lost. */
static bool is_of_pass(const struct peer_fetch *fetch, const struct fetch_rows *rows, uint32_t row,
	unsigned pass)
{
	const struct recover_source *source = source_of(fetch, rows, row);

	return row != rows->own && source != NULL && (rows->left_out >> row & 1) == 0 &&
		(rows->used >> row & 1) == 0 && is_lost(fetch, source) == (pass == 1);
}

/* Reads k rows, into the first k buffers; fills in which. */
static int read_rows(struct fetch_run *run, uint32_t len_bytes, uint32_t have[PARITY_DATA_MAX],
	struct pawl_err *err)
{
	struct fetch_rows *rows = run->rows;
	struct peer_fetch *fetch = run->fetch;
	struct pawl_err last = {.msg = "nobody holds the others"};
	uint32_t k = rows->code.k;
	uint32_t n = 0;

	rows->used = 0;
	for (uint32_t i = 0; i < 2 * (k + rows->code.m) && n < k; i++) {
		uint32_t row = i % (k + rows->code.m);

		if (!is_of_pass(fetch, rows, row, i / (k + rows->code.m))) {
			continue;
		}
		if (read_row(fetch, rows, row, run->piece.off, len_bytes,
			    fetch->rows + (size_t)n * FETCH_ROW_BYTES, &last) == 0) {
			rows->used |= 1ull << row;
			have[n++] = row;
		}
		if (fetch_interrupted(fetch)) {
			return pawl_err_set(err, PAWL_ECANCELED, "the fetch was closed");
		}
	}
	return n == k ? 0
		      : pawl_err_set(err, PAWL_EPEER,
				"ranks %" PRIu32 " to %" PRIu32 " of step %" PRIu64
				" cannot be rebuilt: %" PRIu32 " of %" PRIu32
				" hosts answered that it takes (%.150s)",
				run->part->first_rank, run->part->first_rank + run->part->ranks - 1,
				fetch->plan->step, n, k, last.msg);
}

int fetch_read_rebuilt(struct fetch_run *run, struct pawl_err *err)
{
	struct peer_fetch *fetch = run->fetch;
	const struct parity *code = &run->rows->code;
	uint32_t len_bytes = (uint32_t)(run->end - run->piece.off);
	const uint8_t *rows[PARITY_DATA_MAX];
	uint32_t have[PARITY_DATA_MAX];
	uint8_t *out;
	int rv = make_buffers(fetch, code->k, err);

	rv = rv == 0 ? read_rows(run, len_bytes, have, err) : rv;
	if (rv != 0) {
		return rv;
	}
	for (uint32_t i = 0; i < code->k; i++) {
		rows[i] = fetch->rows + (size_t)i * FETCH_ROW_BYTES;
	}
	out = fetch->rows + (size_t)code->k * FETCH_ROW_BYTES;
	rv = parity_rebuild(code, have, rows, run->rows->own, len_bytes, out, err);
	return rv == 0 ? fetch_take_bytes(run, out, len_bytes, err) : rv;
}

/* Whether there are more rows than are needed. */
static bool has_spare(const struct peer_fetch *fetch, const struct fetch_rows *rows)
{
	uint32_t n = 0;

	for (uint32_t row = 0; row < rows->code.k + rows->code.m; row++) {
		n += row != rows->own && source_of(fetch, rows, row) != NULL;
	}
	return n > rows->code.k;
}

int fetch_rebuild(struct peer_fetch *fetch, struct fetch_part *part, uint64_t off, uint64_t end,
	struct pawl_err *err)
{
	struct fetch_rows rows;
	uint64_t all; /* bit set of the rows to be left out in turn: those that were used */
	int rv = find_rows(&rows, fetch, part, err);

	if (rv != 0) {
		return rv;
	}
	rv = fetch_bring_from(&(struct fetch_run){.fetch = fetch, .part = part, .rows = &rows}, off,
		end, err);
	all = has_spare(fetch, &rows) ? rows.used : 0;
	for (uint32_t row = 0; rv == PAWL_ECORRUPT && row < rows.code.k + rows.code.m; row++) {
		struct fetch_run run = {.fetch = fetch, .part = part, .rows = &rows};
		struct pawl_err other;

		if ((all >> row & 1) == 0) {
			continue;
		}
		rows.left_out = 1ull << row;
		if (fetch_bring_from(&run, off, end, &other) == 0) {
			rv = 0;
		} else if (fetch_interrupted(fetch) || run.broken) {
			*err = other;
			rv = other.code;
		}
	}
	parity_deinit(&rows.code);
	return rv;
}
