/* Rows of checkpointHistories.csv: see history.h. */
#include "agent/persist/history.h"

#include "base/clock.h"
#include "base/err.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The header of the first versions, which wrote a job's name as it was, commas included. */
#define HEADER_1                                                                                   \
	"time,job,attempt,step,tag,level,files,bytes,stall_ms,stage_ms,persist_ms,mib_per_s"
#define COMMAS_1    10u /* behind the job */
#define DAMAGED_MAX 16u /* tags without a row that may be found damaged at a start, at most */

/* Places of the columns. */
enum { COL_TIME, COL_STEP = 3, COL_TAG = 4, COL_LEVEL = 5, COLS = 16 };

static const char *const levels[] = {[HISTORY_FAILED] = "failed",
	[HISTORY_COMMITTED] = "committed",
	[HISTORY_DURABLE] = "durable"};

_Static_assert(sizeof(levels) / sizeof(levels[0]) == HISTORY_DURABLE + 1, "each level has a word");

static void put_ms(struct wire_out *out, uint64_t ns)
{
	if (ns > 0) {
		rows_put(out, "%.3f", (double)ns / NS_PER_MS);
	}
	rows_put(out, ",");
}

void history_put(struct wire_out *out, const struct history_row *row, const char *job,
	int64_t at_ns)
{
	char at[ROWS_TIME_MAX];
	char begun[ROWS_TIME_MAX];

	rows_put(out, "%s,", rows_time(at, at_ns, false));
	rows_put_text(out, job, false);
	rows_put(out, "%u,%" PRIu64 ",", row->attempt, row->step);
	rows_put_text(out, row->tag, false);
	rows_put(out, "%s,", levels[row->level]);
	if (row->files > 0) {
		rows_put(out, "%u,%" PRIu64 ",", row->files, row->size_bytes);
	} else {
		rows_put(out, ",,");
	}
	put_ms(out, row->stall_ns);
	put_ms(out, row->stage_ns);
	put_ms(out, row->persist_ns);
	if (row->persist_ns > 0) {
		rows_put(out, "%.1f",
			(double)row->size_bytes / (1 << 20) / ((double)row->persist_ns / NS_PER_S));
	}
	rows_put(out, ",%s,%u,", rows_time(begun, row->begun_ns, true), row->ranks);
	rows_put_text(out, row->partitions, false);
	rows_put_text(out, row->why, true);
}

bool history_upgrade(struct wire_out *out, char *line)
{
	char *job = strchr(line, ',');
	char *rest = line + strlen(line);

	for (unsigned commas = 0; commas < COMMAS_1; commas++) {
		rest = memrchr(line, ',', (size_t)(rest - line));
		if (!rest) {
			return false;
		}
	}
	if (rest <= job) {
		return false;
	}
	*job++ = '\0';
	*rest++ = '\0';
	wire_put_raw(out, line, strlen(line));
	wire_put_u8(out, ',');
	rows_put_text(out, job, false);
	wire_put_raw(out, rest, strlen(rest));
	rows_put(out, ",,,,\n");
	return true;
}

/* Rewrites the older file under this header, by one rename. */
static int upgrade_file(struct tags_root *root, char *lines, struct pawl_err *err)
{
	struct wire_out out = {0};
	char *line = lines;
	char *end;
	int rv;

	rows_put(&out, HISTORY_HEADER);
	for (; (end = strchr(line, '\n')) != NULL; line = end + 1) {
		*end = '\0';
		history_upgrade(&out, line);
	}
	rv = out.failed
		? pawl_err_set(err, PAWL_ENOMEM, "no memory to rewrite " HISTORY_FILE)
		: store_publish(tags_root_store(root), HISTORY_FILE, out.bytes, out.len_bytes, err);
	wire_out_deinit(&out);
	return rv;
}

/* Reads the file, first bringing it to this header if it has an older one. Returns PAWL_ENOENT if
 * there is no file (any more). */
static int read_file(const struct rows *rows, struct tags_root *root, char **text,
	struct pawl_err *err)
{
	void *bytes = NULL;
	char *end;
	size_t len;
	int rv = store_read_small(tags_root_store(root), HISTORY_FILE, &bytes, &len, ROWS_FILE_MAX,
		err);

	if (rv == 0 && strncmp(bytes, HEADER_1 "\n", strlen(HEADER_1) + 1) == 0) {
		end = strchr(bytes, '\n');
		rv = upgrade_file(root, end + 1, err);
		free(bytes);
		bytes = NULL;
		rv = rv != 0 ? rv
			     : store_read_small(tags_root_store(root), HISTORY_FILE, &bytes, &len,
				       ROWS_FILE_MAX, err);
	}
	if (rv == PAWL_ELIMIT || rv == PAWL_EINVAL ||
		(rv == 0 && strncmp(bytes, HISTORY_HEADER, strlen(HISTORY_HEADER)) != 0)) {
		rv = rows_put_aside(rows, root,
			rv == 0 ? "its header is not that of this version" : err->msg, err);
		rv = rv == 0 ? PAWL_ENOENT : rv;
	}
	if (rv != 0) {
		free(bytes);
		return rv;
	}
	*text = bytes;
	return 0;
}

/* The tags of a root, and which of them need a row. */
struct missing_rows {
	struct tag_step *tags; /* ascending by step */
	bool *lacks_row;       /* one for each tag */
	size_t n;              /* number of tags */
};

/* Marks a tag that has a row, and needs none. */
static void strike_tag(struct missing_rows *missing, uint64_t step, const char *tag)
{
	const struct tag_step *tags = missing->tags;
	size_t lo = 0;
	size_t hi = missing->n;

	while (lo < hi) { /* finds the first tag whose step is not lower */
		size_t mid = lo + (hi - lo) / 2;

		if (tags[mid].step < step) {
			lo = mid + 1;
		} else {
			hi = mid;
		}
	}
	for (; lo < missing->n && tags[lo].step == step; lo++) {
		if (strcmp(tags[lo].tag, tag) == 0) {
			missing->lacks_row[lo] = false;
		}
	}
}

/* Strikes out every tag that has a row of level durable, finds the latest time, and sees whether
 * the file ends in half a row. */
static int strike_known(struct rows *rows, struct tags_root *root, struct missing_rows *missing,
	int64_t *latest_ns, struct pawl_err *err)
{
	char latest[ROWS_TIME_MAX] = "";
	char *fields[COLS];
	char *text = NULL;
	char *line;
	char *end;
	int rv = read_file(rows, root, &text, err);

	if (rv != 0) {
		return rv == PAWL_ENOENT ? 0 : rv;
	}
	line = text + strlen(HISTORY_HEADER);
	for (; (end = strchr(line, '\n')) != NULL; line = end + 1) {
		*end = '\0';
		if (rows_split(line, fields, COLS) != COLS) {
			continue;
		}
		if (strcmp(fields[COL_LEVEL], levels[HISTORY_DURABLE]) == 0) {
			strike_tag(missing, strtoull(fields[COL_STEP], NULL, 10), fields[COL_TAG]);
		}
		if (strcmp(fields[COL_TIME], latest) > 0) {
			snprintf(latest, sizeof(latest), "%s", fields[COL_TIME]);
		}
	}
	rows->torn = *line != '\0';
	*latest_ns = rows_time_ns(latest);
	free(text);
	return 0;
}

/* Leaves the row in rows->taken, where the calling thread writes it from. */
static void put_manifest_row(struct rows *rows, const struct manifest *manifest)
{
	struct history_row row = {.level = HISTORY_DURABLE};

	memcpy(row.tag, manifest->tag, sizeof(row.tag));
	row.step = manifest->step;
	row.attempt = manifest->attempt;
	row.ranks = manifest->world;
	row.files = manifest->parts_n;
	row.size_bytes = manifest_bytes(manifest);
	history_put(&rows->taken, &row, manifest->job, manifest->created_ns);
}

/* Strikes out tags without a row that are not whole. Goes from the newest down until too many are
 * damaged: a tag that a crash left without its row is among the newest, and each start would open
 * all that is damaged. */
static int strike_damaged(struct tags_root *root, struct missing_rows *missing,
	struct pawl_err *err)
{
	unsigned damaged = 0;
	int rv = 0;

	for (size_t i = missing->n; i-- > 0 && rv == 0;) {
		struct manifest manifest;
		struct pawl_err why;
		int bad;

		if (!missing->lacks_row[i]) {
			continue;
		}
		bad = damaged < DAMAGED_MAX ? tag_open(root, missing->tags[i].tag, &manifest, &why)
					    : PAWL_ECORRUPT;
		if (bad == 0) {
			manifest_deinit(&manifest);
			continue;
		}
		missing->lacks_row[i] = false;
		damaged++;
		if (bad != PAWL_ENOENT && bad != PAWL_ECORRUPT && !tag_access_denied(&why)) {
			*err = why;
			rv = bad;
		}
	}
	return rv;
}

static int put_missing_rows(struct rows *rows, struct tags_root *root,
	const struct missing_rows *missing, struct pawl_err *err)
{
	int rv = 0;

	for (size_t i = 0; i < missing->n && rv == 0; i++) {
		struct manifest manifest;

		if (!missing->lacks_row[i]) {
			continue;
		}
		rv = tag_open(root, missing->tags[i].tag, &manifest, err);
		if (rv == 0) {
			put_manifest_row(rows, &manifest);
			manifest_deinit(&manifest);
		} else if (rv == PAWL_ENOENT || rv == PAWL_ECORRUPT) {
			rv = 0; /* damaged or removed since strike_damaged */
		}
	}
	return rv;
}

int history_recover(struct rows *rows, struct tags_root *root, int64_t *latest_ns,
	struct pawl_err *err)
{
	struct missing_rows missing = {NULL};
	int rv = tags_steps(root, NULL, &missing.tags, &missing.n, err);

	*latest_ns = 0;
	if (rv != 0) {
		return rv;
	}
	missing.lacks_row = malloc(missing.n + 1);
	if (!missing.lacks_row) {
		rv = pawl_err_set(err, PAWL_ENOMEM, HISTORY_FILE);
		goto free_tags;
	}
	memset(missing.lacks_row, true, missing.n);
	rv = strike_known(rows, root, &missing, latest_ns, err);
	if (rv == 0) {
		rv = strike_damaged(root, &missing, err);
	}
	if (rv == 0) {
		rv = put_missing_rows(rows, root, &missing, err);
	}
	free(missing.lacks_row);
	rows->taken.failed = false; /* without memory only the row is lost */
free_tags:
	free(missing.tags);
	return rv;
}

int history_mend(struct tags_root *root, struct pawl_err *err)
{
	struct rows rows;
	int64_t latest_ns;
	int rv = rows_init(&rows, HISTORY_FILE, HISTORY_HEADER, err);

	if (rv != 0) {
		return rv;
	}
	rv = history_recover(&rows, root, &latest_ns, err);
	if (rv == 0 && rows.taken.len_bytes > 0) {
		rv = rows_write(&rows, root, true, err);
	}
	rows_deinit(&rows);
	return rv;
}
