/* Reports a root's alerts to users: in the log, and through the first rank of this host. See
 * alerts.h. */
#include "agent/root.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/times.h"

#include <stdio.h>
#include <string.h>

#define LINE_MAX_BYTES (PAWL_ERR_MSG_MAX + 128) /* bytes of a text with its count */

/* Returns the rank that reports to users: the first here that was welcomed. NULL: there is none. */
static struct agent_conn *find_reporter(const struct agent_root *root)
{
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		struct agent_conn *conn = root->ranks[r].conn;

		if (conn && conn->welcomed && !conn->closing) {
			return conn;
		}
	}
	return NULL;
}

static void send_alert(struct agent_conn *conn, const char *path, const char *text)
{
	struct frame_notification notification;

	snprintf(notification.text, sizeof(notification.text), "%s: %s", path, text);
	conn_send(conn, PROTO_NOTIFICATION, 0, &notification);
}

static void report_alert(struct agent_root *root, enum log_level level, const char *text)
{
	struct agent_conn *reporter = find_reporter(root);

	log_line(level, "%s: %s", root->path, text);
	if (reporter && !root->agent->log_visible) {
		send_alert(reporter, root->path, text);
	}
}

void root_alert(struct agent_root *root, const struct alert *alert)
{
	struct alert_state *state = &root->alerts[alert->kind];
	int64_t now_ns = clock_mono_ns();
	char text[LINE_MAX_BYTES];

	switch (alert_decide(state, alert, now_ns, times_ns(TIME_ALERT_AGAIN))) {
	case ALERT_REPEATS:
		snprintf(text, sizeof(text), "%s (%llu times in %.0f min)", alert->text,
			(unsigned long long)state->count,
			(double)(now_ns - state->since_ns) / (60.0 * NS_PER_S));
		report_alert(root, LOG_WARNING, text);
		break;
	case ALERT_BEGINS:
		report_alert(root, LOG_WARNING, alert->text);
		break;
	case ALERT_ENDS:
		report_alert(root, LOG_INFO, alert->text);
		break;
	default:
		break;
	}
}

void root_send_alerts(struct agent_conn *conn)
{
	const struct agent_root *root = conn->root;

	if (root->agent->log_visible || find_reporter(root) != conn) {
		return;
	}
	for (int kind = 0; kind < ALERT_KINDS; kind++) {
		if (root->alerts[kind].active) {
			send_alert(conn, root->path, root->alerts[kind].text);
		}
	}
}

const struct alert_state *root_worst_alert(const struct agent_root *root)
{
	static const enum alert_kind order[] = {ALERT_SAVE, ALERT_SLOW, ALERT_HISTORY, ALERT_RETAIN,
		ALERT_REPLICA};

	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		if (root->alerts[order[i]].active) {
			return &root->alerts[order[i]];
		}
	}
	return NULL;
}
