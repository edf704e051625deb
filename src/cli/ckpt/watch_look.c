/*
 * A root at one moment: see watch_look.h.
 *
 * Nothing here takes the root's lock, not even to test it: a job could be refused in that instant.
 * /proc/locks shows whether a process on this machine holds it.
 */
#include "cli/ckpt/watch_look.h"

#include "agent/persist/history.h"
#include "base/err.h"
#include "cli/interrupt.h"
#include "store/store.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HISTORY_FILE "checkpointHistories.csv"
#define COLUMNS_MAX  64u /* columns of the history, at most */

/* ---- the history ---- */

/* Cuts a line at the commas that are not quoted; fields point into the line. Returns the number of
 * fields. */
static size_t cut_line(char *line, char **fields)
{
	size_t n = 0;
	char *at = line;

	while (at != NULL && n < COLUMNS_MAX) {
		char *end = *at == '"' ? strchr(at + 1, '"') : at;

		fields[n++] = *at == '"' ? at + 1 : at;
		if (*at == '"' && end != NULL) {
			*end++ = '\0';
		}
		at = end != NULL ? strchr(end, ',') : NULL;
		if (at != NULL) {
			*at++ = '\0';
		}
	}
	return n;
}

/* Returns the field of that name; NULL: there is none. Counts columns from the right, because a
 * job's name, on the left, may have commas. */
static const char *find_field(char **header, size_t header_n, char **row, size_t row_n,
	const char *name)
{
	for (size_t i = 0; i < header_n; i++) {
		if (strcmp(header[i], name) == 0 && header_n - i <= row_n) {
			return row[row_n - (header_n - i)];
		}
	}
	return NULL;
}

static double read_number(const char *field)
{
	char *end;
	double number;

	if (field == NULL) {
		return -1;
	}
	number = strtod(field, &end);
	return end != field && number >= 0 ? number : -1;
}

static void read_fields(struct look_tag *tag, char *header_line, char *row_line)
{
	char *header[COLUMNS_MAX];
	char *row[COLUMNS_MAX];
	size_t header_n = cut_line(header_line, header);
	size_t row_n = cut_line(row_line, row);
	const char *name = find_field(header, header_n, row, row_n, "tag");

	if (name == NULL || strcmp(name, tag->info.tag) != 0) {
		return;
	}
	tag->has_row = true;
	tag->stall_ms = read_number(find_field(header, header_n, row, row_n, "stall_ms"));
	tag->persist_ms = read_number(find_field(header, header_n, row, row_n, "persist_ms"));
	tag->mib_per_s = read_number(find_field(header, header_n, row, row_n, "mib_per_s"));
}

/* Returns a copy of the line at text, without its end; the caller frees it. NULL: no memory, or no
 * end. */
static char *copy_line(const char *text)
{
	const char *end = strchr(text, '\n');

	return end != NULL ? strndup(text, (size_t)(end - text)) : NULL;
}

void look_read_row(struct look_tag *tag, const char *history)
{
	char field[CKPT_TAG_MAX + 2];
	const char *end = strrchr(history, '\n'); /* text after the last line end is torn */
	const char *last = NULL;
	char *header;
	char *row;

	snprintf(field, sizeof(field), ",%s,", tag->info.tag);
	for (const char *at = history; (at = strstr(at, field)) != NULL && at < end; at++) {
		last = at;
	}
	if (last == NULL) {
		return;
	}
	while (last > history && last[-1] != '\n') {
		last--;
	}
	header = copy_line(history);
	row = copy_line(last);
	if (header != NULL && row != NULL) {
		read_fields(tag, header, row);
	}
	free(header);
	free(row);
}

/* ---- the job ---- */

/* Returns whether a process on this machine holds the root's lock. */
static bool is_locked(const char *root)
{
	char hidden[PATH_MAX];

	return tags_root_in_use(root, ckpt_hidden_dir(root, hidden));
}

/* ---- the tags ---- */

/* Adds the tags that are being written, after the others. A tag that is being replaced is listed
 * twice. Returns the number of tags added. */
static size_t add_writing(struct look *look, struct tags_root *root,
	const struct tag_leftover *left, size_t left_n)
{
	size_t n = 0;

	for (size_t i = 0; i < left_n; i++) {
		struct look_tag *tag = &look->tags[look->tags_n + n];

		if (!look->running || !left[i].draft) {
			continue;
		}
		*tag = (struct look_tag){.state = LOOK_WRITING};
		snprintf(tag->info.tag, sizeof(tag->info.tag), "%s", left[i].tag);
		tag_parse(left[i].tag, &tag->info.step);
		tag->info.size_bytes = tags_root_measure(root, left[i].name);
		n++;
	}
	return n;
}

static void add_tags(struct look *look, const struct tag_info *tags, size_t n, const char *history)
{
	for (size_t i = 0; i < n; i++) {
		struct look_tag *tag = &look->tags[look->tags_n++];
		bool complete = tags[i].state == TAG_COMPLETE;

		*tag = (struct look_tag){.info = tags[i],
			.state = complete ? LOOK_COMPLETE : LOOK_BROKEN,
			.stall_ms = -1,
			.persist_ms = -1,
			.mib_per_s = -1};
		look->bytes += complete ? tags[i].size_bytes : 0;
		if (history != NULL) {
			look_read_row(tag, history);
		}
	}
}

static int fill(struct look *look, struct tags_root *root, struct pawl_err *err)
{
	struct tag_leftover *left = NULL;
	struct tag_info *tags = NULL;
	void *history = NULL;
	size_t left_n = 0;
	size_t tags_n = 0;
	size_t len_bytes;
	int rv = tags_leftovers(root, &left, &left_n, err);

	if (rv == 0) {
		rv = tags_list(root, &interrupt_stop, &tags, &tags_n, err);
	}
	if (rv == 0) {
		look->tags = calloc(tags_n + left_n + 1, sizeof(*look->tags));
		rv = look->tags != NULL ? 0 : pawl_err_set(err, PAWL_ENOMEM, "%zu tags", tags_n);
	}
	if (rv == 0) {
		/* Read the history after the tags: a row is written after its tag. */
		store_read_small(tags_root_store(root), HISTORY_FILE, &history, &len_bytes,
			ROWS_FILE_MAX, NULL);
		add_tags(look, tags, tags_n, history);
		look->tags_n += add_writing(look, root, left, left_n);
		free(history);
	}
	free(left);
	free(tags);
	return rv;
}

int look_take(struct look *look, const char *root, struct pawl_err *err)
{
	struct tags_root *opened;
	int rv = ckpt_open(&opened, root, err);

	*look = (struct look){.exists = rv == 0};
	if (rv == PAWL_ENOENT) {
		return 0;
	}
	if (rv != 0) {
		return rv;
	}
	tags_root_holder(opened, look->holder);
	look->locked = is_locked(root);
	look_ask(look, root);
	rv = fill(look, opened, err);
	tags_root_close(opened);
	return rv;
}

void look_ask(struct look *look, const char *root)
{
	char path[PATH_MAX];

	look->agent = (struct watch_agent){.answered = false};
	if (look->locked && realpath(root, path) != NULL) {
		watch_agent_ask(&look->agent, look->holder, path);
	}
	look->running = look->locked && (!look->agent.answered || look->agent.ranks > 0);
}

void look_deinit(struct look *look)
{
	free(look->tags);
	*look = (struct look){.exists = false};
}

uint64_t look_stamp(const char *root)
{
	char hidden[PATH_MAX];

	return tags_root_stamp(root, ckpt_hidden_dir(root, hidden), HISTORY_FILE);
}
