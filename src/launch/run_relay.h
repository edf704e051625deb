/*
 * The membership files (membership.h) of a job whose launchers have no file system in common:
 * `pawl run --door URL`. Each launcher has the files in a folder of its own. Its relay reports to a
 * scheduler, at URL, what ranks and launcher write there, and writes there what others have
 * reported (daemon/memberships.h). To ranks and launchers this is a shared folder, whose file
 * server may be away for a while: then nobody joins, and ranks that train go on.
 *
 * One rank writes the membership. Should two ever change it at the same time, the later one counts.
 *
 * A fence (run_fence.h) protects from training twice: whoever watches over the job may start it
 * elsewhere when this machine is cut off.
 *
 * A thread does all this. The functions are for the loop's thread.
 */
#ifndef LAUNCH_RUN_RELAY_H
#define LAUNCH_RUN_RELAY_H

#include <stdbool.h>
#include <stdint.h>

struct pawl_err;
struct run_relay;

/* Strings are copied. */
struct run_relay_options {
	const char *url;   /* "http[s]://HOST[:PORT]/PATH" */
	const char *token; /* "": the URL itself has a secret */
	const char *path;  /* path of the membership file here; files left by others are removed */
	uint32_t launcher; /* number of this launcher */
	bool begins;       /* the job begins here: all reports before are forgotten */
	int64_t fence_ns;  /* as in run_fence.h; 0: none */
};

/* Returns whether an address of --door is a URL, not a file. Pure. */
bool run_relay_is_url(const char *address);
/* Exchanges once, for up to TIME_RELAY_BEGIN, and starts the thread. PAWL_EINVAL: the URL is
 * malformed, or the scheduler refuses this launcher; PAWL_EBUSY: nobody answers; PAWL_ECANCELED: a
 * signal came; PAWL_EIO, PAWL_ENOMEM. */
int run_relay_open(struct run_relay **relay, const struct run_relay_options *options,
	struct pawl_err *err);
/* Reports the last news, for up to TIME_RELAY_END, and removes the files. NULL is fine. */
void run_relay_close(struct run_relay *relay);

#endif
