/* Jobs and nodes, for people and as JSON: see jobs.h. */
#include "cli/jobs.h"

#include "base/clock.h"

#include <jansson.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#define DAY_S 86400.0

static const char *user_name(uint32_t uid, char *buf, size_t cap)
{
	const struct passwd *user = getpwuid(uid);

	if (user) {
		snprintf(buf, cap, "%s", user->pw_name);
	} else {
		snprintf(buf, cap, "%u", uid);
	}
	return buf;
}

const char *jobs_span(char *buf, double seconds)
{
	uint64_t s = seconds > 0 ? (uint64_t)seconds : 0;

	if (seconds >= DAY_S) {
		snprintf(buf, CLI_TEXT_MAX, "%llud %lluh", (unsigned long long)(s / 86400),
			(unsigned long long)(s / 3600 % 24));
	} else {
		snprintf(buf, CLI_TEXT_MAX, "%llu:%02llu:%02llu", (unsigned long long)(s / 3600),
			(unsigned long long)(s / 60 % 60), (unsigned long long)(s % 60));
	}
	return buf;
}

const char *jobs_node_state(const struct talk_node *node)
{
	static const char *const names[] = {"up", "drained", "going", "lost"};

	return node->state < sizeof(names) / sizeof(*names) ? names[node->state] : "?";
}

static json_t *json_known(bool known, double number)
{
	return known ? json_real(number) : json_null();
}

static json_t *json_when(int64_t wall_ns)
{
	return wall_ns > 0 ? json_real((double)wall_ns / NS_PER_S) : json_null();
}

json_t *jobs_json(const struct talk_job *j)
{
	char user[CORE_NAME_MAX];

	return json_pack(
		"{s:I, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:s, s:o, s:o, s:f, s:i, "
		"s:i, s:i, s:o, s:o}",
		"id", (json_int_t)j->id, "name", j->name, "user",
		user_name(j->owner, user, sizeof(user)), "queue", j->queue, "state", j->state,
		"reason", j->reason, "priority", (int)j->priority, "replicas", (int)j->replicas,
		"least", (int)j->least, "most", (int)j->most, "nodes", j->place, "submitted",
		json_when(j->submitted_ns), "since", json_when(j->since_ns), "ran_s", j->ran_s,
		"restarts", (int)j->restarts, "failures", (int)j->failures, "exit_code",
		(int)j->exit_code, "goodput", json_known(j->goodput > 0, j->goodput), "left_s",
		json_known(j->left_s >= 0, j->left_s));
}

json_t *jobs_node_json(const struct talk_node *n)
{
	return json_pack("{s:s, s:s, s:i, s:i, s:s, s:b, s:f}", "name", n->name, "type", n->type,
		"slots", (int)n->slots, "used", (int)n->used, "state", jobs_node_state(n), "spot",
		(int)n->spot, "price", n->price);
}

static void print_job(const struct talk_job *j)
{
	char user[CORE_NAME_MAX];
	char ran[CLI_TEXT_MAX];
	char left[CLI_TEXT_MAX] = "-";
	char replicas[48] = "-";
	char state[CORE_NAME_MAX + 16];

	if (j->left_s >= 0) {
		jobs_span(left, j->left_s);
	}
	if (!j->over) {
		snprintf(replicas, sizeof(replicas), "%u/%u", j->replicas, j->most);
	}
	snprintf(state, sizeof(state), "%s", j->state);
	if (strcmp(j->state, "failed") == 0 && j->exit_code != 0) {
		snprintf(state, sizeof(state), "failed (%d)", j->exit_code);
	}
	printf("%5llu  %-16s %-10s %-12s %8s %9s %9s  %s\n", (unsigned long long)j->id, j->name,
		user_name(j->owner, user, sizeof(user)), state, replicas, jobs_span(ran, j->ran_s),
		left,
		j->replicas > 0   ? j->place
			: j->over ? ""
				  : j->reason);
}

void jobs_print(const struct talk_job *jobs, uint32_t n)
{
	printf("%5s  %-16s %-10s %-12s %8s %9s %9s  %s\n", "job", "name", "user", "state",
		"replicas", "ran", "left", "on");
	for (uint32_t i = 0; i < n; i++) {
		print_job(&jobs[i]);
	}
}

void jobs_print_nodes(const struct talk_node *nodes, uint32_t n)
{
	printf("%-16s %-8s %-10s %11s\n", "node", "state", "type", "slots used");
	for (uint32_t i = 0; i < n; i++) {
		printf("%-16s %-8s %-10s %5u of %-3u\n", nodes[i].name, jobs_node_state(&nodes[i]),
			nodes[i].type[0] != '\0' ? nodes[i].type : "-", nodes[i].used,
			nodes[i].slots);
	}
}
