/* Reports a root's troubles to people: in the log, and through the first rank of this host. See
 * news.h. */
#include "agent/root.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/times.h"

#include <stdio.h>
#include <string.h>

#define LINE_MAX_BYTES (PAWL_ERR_MSG_MAX + 128) /* bytes of a text with its count */

/* Returns the rank that tells people: the first here that was welcomed. NULL: there is none. */
static struct agent_conn *find_teller(const struct agent_root *root)
{
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		struct agent_conn *conn = root->ranks[r].conn;

		if (conn && conn->welcome && !conn->closing) {
			return conn;
		}
	}
	return NULL;
}

static void send_news(struct agent_conn *conn, const char *path, const char *text)
{
	struct frame_news news;

	snprintf(news.text, sizeof(news.text), "%s: %s", path, text);
	conn_send(conn, PROTO_NEWS, 0, &news);
}

static void say(struct agent_root *root, enum log_level level, const char *text)
{
	struct agent_conn *teller = find_teller(root);

	log_line(level, "%s: %s", root->path, text);
	if (teller && !root->agent->heard) {
		send_news(teller, root->path, text);
	}
}

void root_news(struct agent_root *root, const struct news_item *item)
{
	struct news_state *state = &root->news[item->kind];
	int64_t now_ns = clock_mono_ns();
	char text[LINE_MAX_BYTES];

	switch (news_decide(state, item, now_ns, times_ns(TIME_NEWS_AGAIN))) {
	case NEWS_LASTS:
		snprintf(text, sizeof(text), "%s (%llu times in %.0f min)", item->text,
			(unsigned long long)state->times,
			(double)(now_ns - state->since_ns) / (60.0 * NS_PER_S));
		say(root, LOG_WARNING, text);
		break;
	case NEWS_BEGINS:
		say(root, LOG_WARNING, item->text);
		break;
	case NEWS_ENDS:
		say(root, LOG_INFO, item->text);
		break;
	default:
		break;
	}
}

void root_news_greet(struct agent_conn *conn)
{
	const struct agent_root *root = conn->root;

	if (root->agent->heard || find_teller(root) != conn) {
		return;
	}
	for (int kind = 0; kind < NEWS_KINDS; kind++) {
		if (root->news[kind].lasts) {
			send_news(conn, root->path, root->news[kind].text);
		}
	}
}

const struct news_state *root_trouble(const struct agent_root *root)
{
	static const enum news_kind order[] = {NEWS_SAVE, NEWS_SLOW, NEWS_HISTORY, NEWS_RETAIN};

	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		if (root->news[order[i]].lasts) {
			return &root->news[order[i]];
		}
	}
	return NULL;
}
