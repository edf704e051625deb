/* Fuzzes history_row_decode: an accepted row keeps the bounds of its header, and encodes to a line
 * with the same content. */
#include "fuzz.h"

#include "base/assert.h"
#include "daemon/history/history_row.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(const struct history_row *row)
{
	const struct history_job *j = &row->job;

	ASSERT(row->kind <= HISTORY_SCHEDULER && row->t_s >= 0 && row->lost_s >= 0);
	ASSERT(row->kind != HISTORY_NODE ||
		(row->node.slots <= CORE_SLOTS_MAX && row->node.price >= 0 &&
			row->node.name[0] != '\0'));
	ASSERT(j->entries_n <= CORE_MOST_MAX && (row->kind != HISTORY_JOB || j->id > 0));
	for (uint32_t i = 0; i < j->entries_n; i++) {
		ASSERT(j->entries[i].replicas >= 1 && j->entries[i].replicas <= CORE_SLOTS_MAX);
		ASSERT(memchr(j->entries[i].node, 0, sizeof(j->entries[i].node)));
	}
}

static char *encode(const struct history_row *row)
{
	json_t *all = history_row_encode(row);
	char *line = all ? json_dumps(all, JSON_COMPACT) : NULL;

	json_decref(all);
	return line;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	struct history_row row;
	struct history_row again;
	char *line;
	char *line_again;

	if (history_row_decode(&row, (const char *)bytes, len_bytes, NULL) != 0) {
		return 0;
	}
	check(&row);
	line = encode(&row);
	ASSERT(line && history_row_decode(&again, line, strlen(line), NULL) == 0);
	check(&again);
	line_again = encode(&again);
	ASSERT(line_again && strcmp(line, line_again) == 0);
	free(line);
	free(line_again);
	history_row_deinit(&row);
	history_row_deinit(&again);
	return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	static const char *const lines[] = {
		"{\"cluster\":2,\"name\":\"h\",\"virtual\":false,\"t\":17e8,\"policy\":\"pawl\","
		"\"lost\":16e8,\"more\":true}",
		"{\"t\":1700000000.5,\"scheduler\":\"started\",\"policy\":\"pawl\"}",
		"{\"t\":1.5,\"node\":\"n0\",\"pool\":\"\",\"type\":\"A\",\"slots\":4,\"price\":2.5,"
		"\"spot\":true,\"state\":\"up\",\"more\":true}",
		"{\"t\":9.25,\"job\":7,\"name\":\"x\",\"user\":\"ann\",\"queue\":\"q\",\"min\":1,"
		"\"max\":8,\"submitted\":1.5,\"state\":\"running\",\"why\":\"so\",\"at\":{\"n0\":2,"
		"\"n1\":1},\"restarts\":1,\"begun\":2.5,\"goodput\":10.5,\"batch\":64}",
		"{\"t\":9.5,\"job\":8,\"name\":\"x\",\"user\":\"\xc3\xa4\",\"queue\":\"q\","
		"\"min\":1,\"max\":1,\"submitted\":1.5,\"state\":\"failed\",\"why\":\"\",\"at\":{},"
		"\"restarts\":0,\"end\":\"failed\",\"exit\":3}",
	};
	size_t len;

	if (i >= sizeof(lines) / sizeof(*lines)) {
		return 0;
	}
	len = strlen(lines[i]);
	memcpy(buf, lines[i], len);
	return len;
}
