/* The pilot's loop: see slurm_pilot.h.
 *
 * Each look reads the newest want, starts missing parts and ends parts that are not wanted. It
 * writes have if that has changed, or renews have as a heartbeat. Only then does it set the alarm
 * again, which would kill the process. The alarm also fires while a call hangs on a dead file
 * server. */
#include "engine/slurm/pilot/slurm_pilot.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/times.h"
#include "engine/slurm/pilot/slurm_parts.h"
#include "engine/slurm/pilot/slurm_scratch.h"
#include "engine/slurm/slurm_spool.h"
#include "io/address.h"
#include "io/loop.h"

#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEARTBEATS_PER_FENCE 6 /* number of times per fence_ns that have is renewed */

#define RUNTIME_MAX 40u /* bytes of the path of TMPDIR, at most */

_Static_assert(RUNTIME_MAX + sizeof("/pawl-pilot-XXXXXX") <= 64, "it fits pilot.runtime");

struct pilot {
	const struct slurm_pilot_options *options;
	struct loop *loop;
	struct loop_source signals; /* a signalfd */
	struct loop_timer look;
	char directory[SLURM_PATH_MAX]; /* the pilot's directory in the spool */
	char runtime[64];       /* runtime directory (XDG_RUNTIME_DIR) of the parts; "": none */
	struct slurm_have have; /* the pilot's state; parts is NULL between writes */
	struct slurm_scratch scratch;
	struct slurm_parts parts;
	uint64_t want;      /* number of the newest want seen */
	uint64_t number;    /* number of the have written last */
	int64_t gone_at_ns; /* if have.state is going: time at which the pilot is gone */
	int64_t shown_ns;   /* last time at which have was written or renewed */
	bool write_failed;  /* have could not be written, which was logged */
	int rv;             /* result of the run */
	struct pawl_err *err;
};

/* ---- have ---- */

static int write_have(struct pilot *p, int64_t now_ns)
{
	struct wire_out out = {0};
	int rv;

	ASSERT(p->have.parts == NULL);
	p->have.scratch_bytes = slurm_scratch_free(&p->scratch);
	p->have.remaining_ns = p->gone_at_ns > now_ns ? p->gone_at_ns - now_ns : 0;
	p->have.parts = calloc(p->parts.n > 0 ? p->parts.n : 1, sizeof(*p->have.parts));
	if (!p->have.parts) {
		return pawl_err_set(p->err, PAWL_ENOMEM, "out of memory");
	}
	p->have.parts_n = p->parts.n;
	for (uint32_t i = 0; i < p->parts.n; i++) {
		p->have.parts[i] = p->parts.all[i]->have;
	}
	slurm_have_encode(&p->have, &out);
	rv = slurm_spool_put_newer(p->directory, "have", p->number + 1, &out, p->err);
	wire_out_deinit(&out);
	free(p->have.parts);
	p->have.parts = NULL;
	if (rv == 0) {
		p->number++;
		p->shown_ns = now_ns;
		p->parts.changed = false;
	}
	return rv;
}

/* Renews have as a heartbeat. This needs no space on the disk, so a full disk ends no job. */
static int renew_have(struct pilot *p, int64_t now_ns)
{
	int rv;

	ASSERT(p->number > 0); /* register_pilot has written the first */
	rv = slurm_spool_renew(p->directory, "have", p->number, p->err);
	if (rv == 0) {
		p->number++;
		p->shown_ns = now_ns;
	}
	return rv;
}

/* Returns whether the free scratch space differs by more than 1/16 from the reported one: others
 * use the file system as well. */
static bool scratch_room_changed(const struct pilot *p)
{
	uint64_t reported = p->have.scratch_bytes;
	uint64_t free = slurm_scratch_free(&p->scratch);

	return (free > reported ? free - reported : reported - free) > reported / 16;
}

/* Writes have if it has changed, or else renews it if that is due. */
static int show_have(struct pilot *p, int64_t now_ns)
{
	bool due = now_ns >= p->shown_ns + p->options->fence_ns / HEARTBEATS_PER_FENCE;
	int rv = 0;

	if (p->parts.changed ||
		(due && (p->have.state == SLURM_PILOT_GOING || scratch_room_changed(p)))) {
		rv = write_have(p, now_ns);
		due = due && rv != 0;
	}
	if (rv != 0 && !p->write_failed) {
		log_line(LOG_WARNING, "%s; the jobs of this pilot go on", p->err->msg);
	}
	p->write_failed = rv != 0;
	return due ? renew_have(p, now_ns) : 0;
}

/* ---- want ---- */

/* Begins the end of the pilot. */
static void leave(struct pilot *p)
{
	int64_t wait_ns = p->options->kill_wait_ns;

	if (p->parts.leaving) {
		return;
	}
	p->have.state = SLURM_PILOT_GOING;
	p->gone_at_ns = clock_mono_ns() + wait_ns;
	p->parts.changed = true;
	slurm_parts_leave(&p->parts, wait_ns - wait_ns / 4); /* before Slurm kills the pilot */
}

/* Reads the newest want and applies it. PAWL_ENOENT: the engine has given this pilot up. */
static int read_want(struct pilot *p)
{
	struct slurm_want want;
	uint64_t number;
	uint8_t *bytes;
	size_t len_bytes;
	char name[32];
	int rv = slurm_spool_newest(p->directory, "want", &number, p->err);

	if (rv != 0 || number <= p->want) {
		return rv;
	}
	snprintf(name, sizeof(name), "want.%016llx", (unsigned long long)number);
	rv = slurm_spool_get(p->directory, name, &bytes, &len_bytes, p->err);
	if (rv == PAWL_ENOENT) {
		return 0; /* a newer want replaced it, which the next look reads */
	}
	if (rv != 0) {
		return rv;
	}
	rv = slurm_want_decode(bytes, len_bytes, &want, p->err);
	if (rv == 0) {
		p->want = number;
		slurm_parts_apply(&p->parts, &want);
		if (want.leave) {
			leave(p);
		}
		free(want.parts);
	}
	free(bytes);
	return rv;
}

static void stop(struct pilot *p, int rv)
{
	p->rv = rv;
	loop_stop(p->loop);
}

/* Writes have if needed. Returns true once the last have, of state SLURM_PILOT_LEFT, is written. */
static bool update_have(struct pilot *p, int64_t now_ns, int *rv)
{
	bool last = p->parts.leaving && slurm_parts_alive(&p->parts) == 0;

	if (last) {
		p->have.state = SLURM_PILOT_LEFT;
		p->parts.changed = true;
	}
	*rv = show_have(p, now_ns);
	return last && *rv == 0 && !p->parts.changed;
}

static void look(struct pilot *p)
{
	int64_t now_ns = clock_mono_ns();
	int rv;

	slurm_parts_look(&p->parts, now_ns);
	rv = read_want(p);
	if (rv == PAWL_ENOENT) {
		log_line(LOG_ERROR, "%s is gone: the scheduler has given this pilot up",
			p->directory);
		stop(p, 0);
		return;
	}
	if (rv == 0 && update_have(p, now_ns, &rv)) {
		stop(p, 0);
		return;
	}
	if (rv == 0) {
		alarm((unsigned)(p->options->fence_ns / NS_PER_S));
	} else {
		log_line(LOG_WARNING, "%s", p->err->msg);
	}
	loop_timer_start(p->loop, &p->look, now_ns + times_ns(TIME_PILOT_LOOK));
}

static void on_look(struct loop_timer *timer)
{
	look(timer->user);
}

static void on_signal(struct loop_source *source, uint32_t events)
{
	struct pilot *p = source->user;
	int signal;

	while ((signal = loop_read_signal(source)) != 0) {
		if (signal == SIGUSR1 && p->have.state == SLURM_PILOT_UP) {
			p->have.state = SLURM_PILOT_GOING;
			p->gone_at_ns = clock_mono_ns() + p->options->notice_ns;
			p->parts.changed = true;
		} else if (signal == SIGTERM || signal == SIGINT) {
			leave(p);
		}
	}
	loop_timer_start(p->loop, &p->look, clock_mono_ns());
}

/* ---- identity ---- */

static bool read_number(const char *name, uint64_t *number)
{
	const char *text = getenv(name);
	char *end;

	if (!text || *text < '0' || *text > '9') {
		return false;
	}
	*number = strtoull(text, &end, 10);
	return *end == '\0';
}

/* Finds this host's address on the route to another host. If the route does not leave this host,
 * other hosts may not reach that address; then the host's own address is used. */
static void find_address(struct pilot *p, const char *route_to)
{
	char *address = p->have.address;
	char own[ADDRESS_MAX];
	bool found = address_find(route_to, address, NULL) == 0;

	if ((!found || address_is_local(address)) && address_own(own, NULL) == 0) {
		snprintf(address, sizeof(p->have.address), "%s", own);
	} else if (!found) {
		snprintf(address, sizeof(p->have.address), "%s", p->have.host);
	}
}

static int read_identity(struct pilot *p)
{
	const char *host = getenv("SLURMD_NODENAME");
	const char *submitted = getenv("SLURM_SUBMIT_HOST");
	uint64_t restart = 0;
	char name[CORE_NAME_MAX];

	read_number("SLURM_RESTART_COUNT", &restart);
	if (!read_number("SLURM_JOB_ID", &p->have.slurm_job) || !host ||
		strlen(host) >= CORE_NAME_MAX || host[0] == '.' || strchr(host, '/')) {
		return pawl_err_set(p->err, PAWL_EINVAL,
			"not in a Slurm job: SLURM_JOB_ID or SLURMD_NODENAME is missing; "
			"pawl sched --engine slurm starts pilots itself");
	}
	p->have.restart = (uint32_t)restart;
	snprintf(p->have.host, sizeof(p->have.host), "%s", host);
	slurm_pilot_name(name, &p->have);
	snprintf(p->directory, sizeof(p->directory), "%s/pilots/%s", p->options->spool, name);
	find_address(p, submitted ? submitted : host);
	log_set_name("pilot");
	log_line(LOG_INFO, "%s, on %s", name, p->have.address);
	return 0;
}

static int register_pilot(struct pilot *p)
{
	struct stat st;

	if (stat(p->options->spool, &st) != 0) {
		return pawl_err_sys(p->err, "%s must be a directory that all nodes see; on %s",
			p->options->spool, p->have.host);
	}
	if (st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
		return pawl_err_set(p->err, PAWL_EINVAL,
			"%s must be owned by this user and have mode 0700", p->options->spool);
	}
	if (mkdir(p->directory, 0700) != 0) { /* an existing directory is another pilot's */
		return pawl_err_sys(p->err, "make %s", p->directory);
	}
	return write_have(p, clock_mono_ns());
}

/* Makes the pilot's runtime directory. A job has one agent per runtime directory, and a host may
 * have two pilots. */
static int make_runtime(struct pilot *p)
{
	const char *base = getenv("TMPDIR");

	if (!base || base[0] != '/' || strlen(base) > RUNTIME_MAX) {
		base = "/tmp"; /* the path of a socket must be short */
	}
	snprintf(p->runtime, sizeof(p->runtime), "%s/pawl-pilot-XXXXXX", base);
	if (!mkdtemp(p->runtime)) {
		p->runtime[0] = '\0';
		return pawl_err_sys(p->err, "make a directory in %s", base);
	}
	return setenv("XDG_RUNTIME_DIR", p->runtime, 1) == 0
		? 0
		: pawl_err_set(p->err, PAWL_ENOMEM, "out of memory");
}

static void open_scratch(struct pilot *p)
{
	const char *base = getenv("TMPDIR");

	if (!base || base[0] != '/') {
		base = "/tmp";
	}
	if (p->options->scratch_n > 0) {
		slurm_scratch_open(&p->scratch, p->have.host, p->options->scratch,
			p->options->scratch_n);
	} else {
		slurm_scratch_open(&p->scratch, p->have.host, &base, 1);
	}
	p->parts.scratch = &p->scratch;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	return remove(path);
}

/* Sets up the handling of signals, before any process is started. SIGALRM keeps its default: it
 * kills the process. */
static int take_signals(struct pilot *p)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGCHLD);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	return loop_add_signals(p->loop, &p->signals, &set, p->err);
}

int slurm_pilot_run(const struct slurm_pilot_options *options, struct pawl_err *err)
{
	struct pawl_err own = {0};
	struct pilot p = {.options = options, .err = &own};
	int rv;

	p.signals = (struct loop_source){.fd = -1, .ready = on_signal, .user = &p};
	p.look = (struct loop_timer){.fired = on_look, .user = &p};
	alarm((unsigned)(options->fence_ns / NS_PER_S));
	rv = read_identity(&p);
	rv = rv == 0 ? loop_open(&p.loop, &own) : rv;
	rv = rv == 0 ? take_signals(&p) : rv;
	p.parts.runtime = p.runtime;
	rv = rv == 0 ? make_runtime(&p) : rv;
	if (rv == 0) {
		open_scratch(&p);
		rv = register_pilot(&p);
	}
	if (rv == 0) {
		look(&p);
		rv = loop_run(p.loop, &own);
	}
	rv = rv == 0 ? p.rv : rv;
	alarm(0);
	if (slurm_parts_alive(&p.parts) == 0) { /* else the next pilot on the node removes it */
		slurm_scratch_close(&p.scratch);
	}
	slurm_parts_deinit(&p.parts); /* keepers that are left die with this process */
	if (p.runtime[0] != '\0') {
		nftw(p.runtime, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	}
	if (p.signals.fd >= 0) {
		close(p.signals.fd);
	}
	loop_close(p.loop);
	if (rv != 0 && err) {
		*err = own;
	}
	return rv;
}
