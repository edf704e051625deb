/* Jobs and nodes, for people: see jobs.h. */
#include "cli/sched/jobs.h"

#include "daemon/sched_msg_json.h"

#include <stdio.h>
#include <string.h>

#define DAY_S 86400.0

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

static void print_job(FILE *to, const struct sched_msg_job *j)
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
	cli_print(to, "%5llu  %-16s %-10s %-12s %8s %9s %9s  %s\n", (unsigned long long)j->id,
		j->name, sched_msg_user_name(j->owner, user, sizeof(user)), state, replicas,
		jobs_span(ran, j->ran_s), left,
		j->replicas > 0   ? j->place
			: j->over ? ""
				  : j->reason);
}

void jobs_print(FILE *to, const struct sched_msg_job *jobs, uint32_t n)
{
	cli_print(to, "%5s  %-16s %-10s %-12s %8s %9s %9s  %s\n", "job", "name", "user", "state",
		"replicas", "ran", "left", "on");
	for (uint32_t i = 0; i < n; i++) {
		print_job(to, &jobs[i]);
	}
}

void jobs_print_nodes(FILE *to, const struct sched_msg_node *nodes, uint32_t n)
{
	cli_print(to, "%-16s %-8s %-10s %11s\n", "node", "state", "type", "slots used");
	for (uint32_t i = 0; i < n; i++) {
		cli_print(to, "%-16s %-8s %-10s %5u of %-3u\n", nodes[i].name,
			sched_msg_node_state(&nodes[i]),
			nodes[i].type[0] != '\0' ? nodes[i].type : "-", nodes[i].used,
			nodes[i].slots);
	}
}
