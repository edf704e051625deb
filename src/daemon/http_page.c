/* A page of nodes and jobs, which reloads itself: see http_impl.h. It has no script, and loads
 * nothing else. Text of users is escaped, for HTML and for the reader (base/text.h). */
#include "daemon/http_impl.h"

#include "base/text.h"
#include "daemon/sched_msg_json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PAGE_JOBS_MAX 500u
#define ROW_MAX       (SCHED_MSG_PLACE_MAX + 64u)
#define SHOWN_MAX     (4u * ROW_MAX) /* an escape has four times the bytes of what it shows */

static const char header[] =
	"<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">"
	"<meta http-equiv=\"refresh\" content=\"5\"><title>pawl</title><style>"
	"body{font:14px system-ui,sans-serif;margin:2em;color:#222;background:#fff}"
	"table{border-collapse:collapse;margin-bottom:2em}"
	"th,td{text-align:left;padding:.25em 1em .25em 0;border-bottom:1px solid #ddd}"
	"</style></head><body>\n";

static void put_text(struct wire_out *out, const char *text)
{
	wire_put_raw(out, text, strlen(text));
}

static void put_escaped(struct wire_out *out, const char *text)
{
	char shown[SHOWN_MAX];

	text_escape(shown, sizeof(shown), text);
	for (text = shown; *text != '\0'; text++) {
		switch (*text) {
		case '<':
			put_text(out, "&lt;");
			break;
		case '>':
			put_text(out, "&gt;");
			break;
		case '&':
			put_text(out, "&amp;");
			break;
		case '"':
			put_text(out, "&quot;");
			break;
		default:
			wire_put_u8(out, (uint8_t)*text);
		}
	}
}

__attribute__((format(printf, 2, 3))) static void put_cell(struct wire_out *out, const char *fmt,
	...)
{
	char text[ROW_MAX];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	put_text(out, "<td>");
	put_escaped(out, text);
	put_text(out, "</td>");
}

static void put_nodes(const struct daemon *d, struct wire_out *out)
{
	const struct core_node *nodes;
	uint32_t n = core_nodes(d->core, &nodes);

	put_text(out, "<table><tr><th>node<th>state<th>type<th>slots used</tr>\n");
	for (uint32_t i = 0; i < n; i++) {
		struct sched_msg_node row;

		if (daemon_describe_node(d, &nodes[i], &row)) {
			put_text(out, "<tr>");
			put_cell(out, "%s", row.name);
			put_cell(out, "%s", sched_msg_node_state(&row));
			put_cell(out, "%s", row.type);
			put_cell(out, "%u of %u", row.used, row.slots);
			put_text(out, "</tr>\n");
		}
	}
	put_text(out, "</table>\n");
}

static void put_job(struct wire_out *out, const struct sched_msg_job *row)
{
	char user[CORE_NAME_MAX];

	put_text(out, "<tr>");
	put_cell(out, "%llu", (unsigned long long)row->id);
	put_cell(out, "%s", row->name);
	put_cell(out, "%s", sched_msg_user_name(row->owner, user, sizeof(user)));
	put_cell(out, "%s", row->state);
	put_cell(out, "%u of %u to %u", row->replicas, row->least, row->most);
	put_cell(out, "%.0f s", row->ran_s);
	if (row->goodput > 0) {
		put_cell(out, "%.4g", row->goodput);
	} else {
		put_cell(out, "-");
	}
	put_cell(out, "%s", row->replicas > 0 ? row->place : row->reason);
	put_text(out, "</tr>\n");
}

void http_page(const struct daemon *d, struct wire_out *out)
{
	const struct core_job *const *jobs;
	uint32_t n = core_jobs(d->core, &jobs);
	uint32_t shown = 0;

	put_text(out, header);
	put_nodes(d, out);
	put_text(out,
		"<table><tr><th>job<th>name<th>user<th>state<th>replicas<th>ran"
		"<th>samples/s<th>on</tr>\n");
	for (uint32_t i = 0; i < n && shown < PAGE_JOBS_MAX; i++) {
		struct sched_msg_job row;

		if (jobs[i]->state < CORE_DONE) {
			daemon_describe(d, jobs[i], &row);
			put_job(out, &row);
			shown++;
		}
	}
	put_text(out, "</table></body></html>\n");
}
