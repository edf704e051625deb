/*
 * Notices that this machine goes away, from its cloud or from `pawl notice`: see run.h.
 *
 * The job exits TIME_NOTICE_MARGIN before the machine does. Nothing is gained by an earlier exit,
 * so a job whose machine may go at any moment still gets TIME_NOTICE_LEAST.
 */
#include "agent/agent.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/times.h"
#include "launch/run_impl.h"
#include "notice/notice_watcher.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define TEXT_MAX (NOTICE_TEXT_MAX + 64u)

/* The machine goes away at gone_ns; from is who says so. */
static void stop(struct run *run, int64_t gone_ns, const char *from)
{
	int64_t now_ns = clock_mono_ns();
	int64_t left_ns = gone_ns > now_ns ? gone_ns - now_ns : 0;
	int64_t exit_ns = gone_ns - times_ns(TIME_NOTICE_MARGIN);
	int64_t least_ns = now_ns + times_ns(TIME_NOTICE_LEAST);
	char text[TEXT_MAX];

	if (left_ns < NS_PER_S) {
		snprintf(text, sizeof(text), "notice: this machine goes away now (%s)", from);
	} else {
		snprintf(text, sizeof(text), "notice: this machine goes away in %lld s (%s)",
			(long long)(left_ns / NS_PER_S), from);
	}
	log_line(LOG_INFO, "%s", text);
	run_step(run,
		(struct nodes_event){.kind = NODES_NOTICED,
			.signal = SIGTERM,
			.deadline_ns = exit_ns > least_ns ? exit_ns : least_ns,
			.text = text});
}

static void take_event(void *user, const struct notice_event *event, int64_t gone_ns)
{
	struct run *run = user;

	switch (event->kind) {
	case NOTICE_STOP:
		stop(run, gone_ns, event->text);
		break;
	case NOTICE_ADVICE:
		log_line(LOG_INFO, "notice: %s: the next save is made durable at once",
			event->text);
		agent_save_soon(run->agent);
		run_step(run, (struct nodes_event){.kind = NODES_ADVISED});
		break;
	case NOTICE_TROUBLE:
		log_line(LOG_WARNING, "notice: %s", event->text);
		break;
	case NOTICE_WELL:
		log_line(LOG_INFO, "notice: %s", event->text);
		break;
	case NOTICE_NOTHING:
		break;
	}
}

void run_on_terminated(struct run *run)
{
	const char *text = "SIGTERM: this node leaves the job";

	log_line(LOG_INFO, "%s", text);
	run_step(run,
		(struct nodes_event){.kind = NODES_TERMINATED,
			.signal = SIGTERM,
			.deadline_ns = clock_mono_ns() + run->options->grace_ns,
			.text = text});
}

void run_on_preempt(void *user, int64_t left_ns)
{
	stop(user, clock_mono_ns() + left_ns, "pawl notice");
}

int run_notice_open(struct run *run, struct pawl_err *err)
{
	const struct notice_source *source = &run->options->notice;

	if (source->cloud == NOTICE_NOBODY) {
		if (run->options->notice_text != NULL &&
			strcmp(run->options->notice_text, "auto") == 0) {
			log_line(LOG_INFO,
				"notice: this machine is not one of AWS, GCP or Azure: nobody is "
				"asked whether it goes away");
		}
		return 0;
	}
	log_line(LOG_INFO, "notice: %s is asked whether this machine goes away, at %s",
		notice_cloud_name(source->cloud), source->endpoint);
	return notice_watcher_start(&run->notice, run->loop, source, take_event, run, err);
}
