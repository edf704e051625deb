/* Jobs and nodes as JSON: see sched_msg_json.h. */
#include "daemon/sched_msg_json.h"

#include "base/clock.h"

#include <jansson.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *sched_msg_user_name(uint32_t uid, char *buf, size_t cap_bytes)
{
	const struct passwd *user = getpwuid(uid);

	if (user) {
		snprintf(buf, cap_bytes, "%s", user->pw_name);
	} else {
		snprintf(buf, cap_bytes, "%u", uid);
	}
	return buf;
}

const char *sched_msg_node_state(const struct sched_msg_node *node)
{
	return core_node_state_name((enum core_node_state)node->state);
}

json_t *sched_msg_text_json(const char *text)
{
	json_t *string = json_string(text);
	char *plain;

	if (string) {
		return string;
	}
	plain = strdup(text);
	for (char *c = plain; c && *c != '\0'; c++) {
		if ((unsigned char)*c >= 0x80) {
			*c = '?';
		}
	}
	string = json_string(plain ? plain : "");
	free(plain);
	return string;
}

static json_t *json_known(bool known, double number)
{
	return known ? json_real(number) : json_null();
}

static json_t *json_when(int64_t wall_ns)
{
	return json_known(wall_ns > 0, (double)wall_ns / NS_PER_S);
}

json_t *sched_msg_job_json(const struct sched_msg_job *j)
{
	char user[CORE_NAME_MAX];

	return json_pack(
		"{s:I, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:s, s:o, s:o, s:f, s:i, "
		"s:i, s:i, s:o, s:o}",
		"id", (json_int_t)j->id, "name", j->name, "user",
		sched_msg_user_name(j->owner, user, sizeof(user)), "queue", j->queue, "state",
		j->state, "reason", j->reason, "priority", (int)j->priority, "replicas",
		(int)j->replicas, "least", (int)j->least, "most", (int)j->most, "nodes", j->place,
		"submitted", json_when(j->submitted_ns), "since", json_when(j->since_ns), "ran_s",
		j->ran_s, "restarts", (int)j->restarts, "failures", (int)j->failures, "exit_code",
		(int)j->exit_code, "goodput", json_known(j->goodput > 0, j->goodput), "left_s",
		json_known(j->left_s >= 0, j->left_s));
}

json_t *sched_msg_lines_json(const char *text)
{
	json_t *lines = json_array();

	while (*text != '\0') {
		size_t len = strcspn(text, "\n");
		char *line = strndup(text, len);

		json_array_append_new(lines, line ? sched_msg_text_json(line) : NULL);
		free(line);
		text += len + (text[len] == '\n');
	}
	return lines;
}

json_t *sched_msg_shown_json(const struct sched_msg_shown *s)
{
	json_t *all = sched_msg_job_json(&s->job);

	json_object_set_new(all, "goodput_more", json_known(s->more > 0, s->more));
	json_object_set_new(all, "goodput_fewer", json_known(s->fewer > 0, s->fewer));
	json_object_set_new(all, "explanation", sched_msg_lines_json(s->explanation));
	json_object_set_new(all, "remark", sched_msg_lines_json(s->remark));
	json_object_set_new(all, "cwd", sched_msg_text_json(s->cwd));
	json_object_set_new(all, "log_dir", sched_msg_text_json(s->log_dir));
	return all;
}

json_t *sched_msg_node_json(const struct sched_msg_node *n)
{
	return json_pack("{s:s, s:s, s:i, s:i, s:s, s:b, s:f}", "name", n->name, "type", n->type,
		"slots", (int)n->slots, "used", (int)n->used, "state", sched_msg_node_state(n),
		"spot", (int)n->spot, "price", n->price);
}
