/*
 * Membership files over HTTP, for launchers (`pawl run --door URL`) that have no file system in
 * common. The scheduler keeps, for each job, the text of its membership file and what each launcher
 * shows of its ranks (launch/membership/membership.h). A launcher reports what is new with it, and
 * waits for what is new with others. docs/sched.md has the requests.
 *
 * All is in memory alone. A membership that begins anew, as after a restart of the scheduler, has
 * another instance number, by which launchers notice, and report again what they know. The newest
 * of these reports counts, whatever their order, and any change since counts more.
 *
 * Pure, but for memory. For one thread.
 */
#ifndef DAEMON_MEMBERSHIPS_H
#define DAEMON_MEMBERSHIPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct memberships;
struct pawl_err;

#define MEMBERSHIPS_MAX           4096u
#define MEMBERSHIPS_KEY_MAX       80u         /* bytes of a job's key, terminator included */
#define MEMBERSHIPS_TEXT_MAX      (48u << 10) /* bytes of a membership file, terminator included */
#define MEMBERSHIPS_ALIVE_MAX     64u /* bytes of what a launcher shows, terminator included */
#define MEMBERSHIPS_LAUNCHERS_MAX 1024u
#define MEMBERSHIPS_WAIT_MAX_S    60u /* seconds that a launcher may wait for news */

/* What a launcher sends. */
struct launcher_report {
	uint32_t launcher; /* below MEMBERSHIPS_LAUNCHERS_MAX */
	uint64_t instance; /* as in the last answer; 0: there was none */
	uint64_t version;  /* version in that answer */
	bool fresh;        /* the job begins: all reports before are forgotten */
	const char *text;  /* membership file; "": there is none; NULL: as before */
	bool restates;     /* text is from that answer, and no change */
	const char *alive; /* ranks that live there; "": none; NULL: as before */
	void *json;        /* memory of the texts; owned */
};

/* Reads a report. PAWL_EINVAL: it is malformed, or breaks a limit. */
int launcher_report_read(struct launcher_report *report, const void *bytes, size_t len_bytes,
	struct pawl_err *err);
void launcher_report_deinit(struct launcher_report *report); /* zeroed is fine */

/* instance: a number greater than that of any scheduler before, such as the time; not 0. NULL: no
 * memory. */
struct memberships *memberships_open(uint64_t instance);
void memberships_close(struct memberships *memberships); /* NULL is fine */
/* Takes a report. *changed: others have news. PAWL_ENOMEM; PAWL_ELIMIT: there are too
 * many memberships. */
int memberships_take(struct memberships *memberships, const char *key,
	const struct launcher_report *report, int64_t now_ns, bool *changed, struct pawl_err *err);
/* Returns whether a membership has something that a launcher does not know. */
bool memberships_has_news(const struct memberships *memberships, const char *key, uint64_t instance,
	uint64_t version);
/* Makes the answer to a launcher, as JSON, which the caller frees. NULL: no memory. */
char *memberships_answer(const struct memberships *memberships, const char *key, uint32_t launcher,
	int64_t now_ns);
/* Removes the memberships of which no launcher has reported since. */
void memberships_forget(struct memberships *memberships, int64_t since_ns);

#endif
