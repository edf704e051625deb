/* Asks the agent of a root's job about the root: see watch_agent.h. */
#include "cli/ckpt/watch_agent.h"

#include "base/times.h"
#include "ipc/link.h"
#include "ipc/socket_path.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Reads "gpt" from "job gpt (pid 1 on host)". False: holder has another form. */
static bool read_job(const char *holder, char job[CKPT_JOB_MAX])
{
	static const char begin[] = "job ";
	const char *end = NULL;

	for (const char *at = holder; (at = strstr(at, " (pid ")) != NULL; at++) {
		end = at;
	}
	if (end == NULL || strncmp(holder, begin, strlen(begin)) != 0 ||
		end < holder + strlen(begin)) {
		return false;
	}
	holder += strlen(begin);
	return snprintf(job, CKPT_JOB_MAX, "%.*s", (int)(end - holder), holder) < (int)CKPT_JOB_MAX;
}

/* Ignores events: they are for ranks. */
static void on_event(void *user, struct link *link, uint16_t type, const union frame_event *event)
{
}

static void read_answer(struct watch_agent *agent, const struct link_reply *reply)
{
	struct frame_stated answer;

	if (link_reply_get(reply, PROTO_STATED, &answer, sizeof(answer), NULL) != 0) {
		return;
	}
	agent->ranks = answer.ranks;
	snprintf(agent->undurable, sizeof(agent->undurable), "%s", answer.tag);
	agent->trouble_key = (int)answer.key;
	snprintf(agent->trouble, sizeof(agent->trouble), "%s", answer.text);
	agent->answered = true;
}

void watch_agent_ask(struct watch_agent *agent, const char *holder, const char *root)
{
	struct link_reply reply = {0};
	struct wire_out out = {NULL};
	struct frame_state request;
	char job[CKPT_JOB_MAX];
	char socket[PATH_MAX];
	struct link *link;

	*agent = (struct watch_agent){.answered = false};
	if (!read_job(holder, job) || agent_socket_path(job, socket, sizeof(socket), NULL) != 0 ||
		access(socket, F_OK) != 0 || link_open(&link, socket, on_event, NULL, NULL) != 0) {
		return;
	}
	snprintf(request.job, sizeof(request.job), "%s", job);
	snprintf(request.root, sizeof(request.root), "%s", root);
	if (link_call(link, &out, PROTO_STATE, &request, times_ms(TIME_WATCH_ASK), &reply, NULL) ==
		0) {
		read_answer(agent, &reply);
	}
	link_reply_deinit(&reply);
	wire_out_deinit(&out);
	link_close(link);
}

bool watch_agent_same(const struct watch_agent *a, const struct watch_agent *b)
{
	return a->answered == b->answered && (a->ranks > 0) == (b->ranks > 0) &&
		(a->trouble[0] != '\0') == (b->trouble[0] != '\0') &&
		a->trouble_key == b->trouble_key &&
		(a->ranks > 0 || strcmp(a->undurable, b->undurable) == 0);
}
