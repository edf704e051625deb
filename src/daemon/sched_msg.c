/* Requests and replies, and the commands' end of the socket: see control.h. */
#include "daemon/sched_msg.h"

#include "base/err.h"
#include "base/times.h"
#include "ipc/proto.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- rows ---- */

static void put_f64(struct wire_out *out, double x)
{
	uint64_t bits;

	memcpy(&bits, &x, sizeof(bits));
	wire_put_u64(out, bits);
}

static double get_f64(struct wire_in *in)
{
	uint64_t bits = wire_get_u64(in);
	double x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

void sched_msg_job_put(struct wire_out *out, const struct sched_msg_job *j)
{
	wire_put_u64(out, j->id);
	wire_put_str(out, j->name);
	wire_put_str(out, j->queue);
	wire_put_u32(out, j->owner);
	wire_put_str(out, j->state);
	wire_put_str(out, j->reason);
	wire_put_u32(out, (uint32_t)j->priority);
	wire_put_u32(out, j->replicas);
	wire_put_u32(out, j->least);
	wire_put_u32(out, j->most);
	wire_put_str(out, j->place);
	wire_put_u64(out, (uint64_t)j->submitted_ns);
	wire_put_u64(out, (uint64_t)j->since_ns);
	put_f64(out, j->ran_s);
	wire_put_u32(out, j->restarts);
	wire_put_u32(out, j->failures);
	wire_put_u32(out, (uint32_t)j->exit_code);
	put_f64(out, j->goodput);
	put_f64(out, j->left_s);
	wire_put_u8(out, j->over);
}

void sched_msg_job_get(struct wire_in *in, struct sched_msg_job *j)
{
	j->id = wire_get_u64(in);
	wire_get_str(in, j->name, sizeof(j->name));
	wire_get_str(in, j->queue, sizeof(j->queue));
	j->owner = wire_get_u32(in);
	wire_get_str(in, j->state, sizeof(j->state));
	wire_get_str(in, j->reason, sizeof(j->reason));
	j->priority = (int32_t)wire_get_u32(in);
	j->replicas = wire_get_u32(in);
	j->least = wire_get_u32(in);
	j->most = wire_get_u32(in);
	wire_get_str(in, j->place, sizeof(j->place));
	j->submitted_ns = (int64_t)wire_get_u64(in);
	j->since_ns = (int64_t)wire_get_u64(in);
	j->ran_s = get_f64(in);
	j->restarts = wire_get_u32(in);
	j->failures = wire_get_u32(in);
	j->exit_code = (int32_t)wire_get_u32(in);
	j->goodput = get_f64(in);
	j->left_s = get_f64(in);
	j->over = wire_get_u8(in) != 0;
}

void sched_msg_shown_put(struct wire_out *out, const struct sched_msg_shown *s)
{
	sched_msg_job_put(out, &s->job);
	wire_put_str(out, s->explanation);
	wire_put_str(out, s->log_dir);
	wire_put_str(out, s->cwd);
	put_f64(out, s->more);
	put_f64(out, s->fewer);
	wire_put_str(out, s->remark);
	wire_put_str(out, s->home);
}

void sched_msg_shown_get(struct wire_in *in, struct sched_msg_shown *s)
{
	sched_msg_job_get(in, &s->job);
	wire_get_str(in, s->explanation, sizeof(s->explanation));
	wire_get_str(in, s->log_dir, sizeof(s->log_dir));
	wire_get_str(in, s->cwd, sizeof(s->cwd));
	s->more = get_f64(in);
	s->fewer = get_f64(in);
	wire_get_str(in, s->remark, sizeof(s->remark));
	wire_get_str(in, s->home, sizeof(s->home));
}

void sched_msg_node_put(struct wire_out *out, const struct sched_msg_node *n)
{
	wire_put_str(out, n->name);
	wire_put_str(out, n->type);
	wire_put_u32(out, n->slots);
	wire_put_u32(out, n->used);
	wire_put_u8(out, n->state);
	wire_put_u8(out, n->spot);
	put_f64(out, n->price);
}

void sched_msg_node_get(struct wire_in *in, struct sched_msg_node *n)
{
	wire_get_str(in, n->name, sizeof(n->name));
	wire_get_str(in, n->type, sizeof(n->type));
	n->slots = wire_get_u32(in);
	n->used = wire_get_u32(in);
	n->state = wire_get_u8(in);
	n->spot = wire_get_u8(in) != 0;
	n->price = get_f64(in);
}

/* ---- the scheduler's directory ---- */

int sched_user_root(char root[PATH_MAX], struct pawl_err *err)
{
	const char *state = getenv("XDG_STATE_HOME");
	const char *home = getenv("HOME");
	const struct passwd *user = getpwuid(geteuid());
	int len;

	if (geteuid() == 0) {
		len = snprintf(root, PATH_MAX, "%s", SCHED_SYSTEM_ROOT);
	} else if (state && state[0] == '/') {
		len = snprintf(root, PATH_MAX, "%s/pawl", state);
	} else if ((home && home[0] == '/') || user) {
		len = snprintf(root, PATH_MAX, "%s/.local/state/pawl",
			home && home[0] == '/' ? home : user->pw_dir);
	} else {
		return pawl_err_set(err, PAWL_EINVAL,
			"user %u has no home: say where the scheduler is with --root DIR",
			(unsigned)geteuid());
	}
	return len < PATH_MAX ? 0 : pawl_err_set(err, PAWL_EINVAL, "%s: too long", root);
}

static int name_socket(const char *root, struct sockaddr_un *address, struct pawl_err *err)
{
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	return (size_t)snprintf(address->sun_path, sizeof(address->sun_path), "%s/%s", root,
		       SCHED_SOCKET) < sizeof(address->sun_path)
		? 0
		: pawl_err_set(err, PAWL_EINVAL,
			  "%s: the path is too long: a socket in it may have %zu bytes", root,
			  sizeof(address->sun_path) - 1);
}

int sched_find_root(const char *asked, char root[PATH_MAX], struct pawl_err *err)
{
	const char *given = asked ? asked : getenv(SCHED_ROOT_VAR);
	struct sockaddr_un address;
	int rv;

	if (given && given[0] != '\0') {
		return snprintf(root, PATH_MAX, "%s", given) < PATH_MAX
			? 0
			: pawl_err_set(err, PAWL_EINVAL, "%s: the path is too long", given);
	}
	rv = sched_user_root(root, err);
	if (rv == 0) {
		rv = name_socket(root, &address, err);
	}
	if (rv == 0 && access(address.sun_path, F_OK) != 0 &&
		access(SCHED_SYSTEM_ROOT "/" SCHED_SOCKET, F_OK) == 0) {
		snprintf(root, PATH_MAX, "%s", SCHED_SYSTEM_ROOT);
	}
	return rv;
}

/* ---- talking ---- */

struct sched_client {
	struct proto_conn conn;
	struct wire_out out;
	size_t start; /* start of the frame in out */
	uint32_t id;  /* id of the last request */
	char root[PATH_MAX];
};

int sched_client_open(struct sched_client **out, const char *root, struct pawl_err *err)
{
	const struct timeval wait = times_timeval(TIME_SCHED_ANSWER);
	struct sockaddr_un address;
	struct sched_client *client = calloc(1, sizeof(*client));
	int rv = name_socket(root, &address, err);

	if (!client || rv != 0) {
		free(client);
		return rv != 0 ? rv : pawl_err_set(err, PAWL_ENOMEM, "out of memory");
	}
	snprintf(client->root, sizeof(client->root), "%s", root);
	client->conn.refuse_fds = true;
	client->conn.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (client->conn.fd < 0) {
		rv = pawl_err_sys(err, "make a socket");
	} else if (connect(client->conn.fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
		rv = errno == ENOENT || errno == ECONNREFUSED
			? pawl_err_set(err, PAWL_ENOENT,
				  "no scheduler runs in %s: `pawl sched --root %s` starts one, "
				  "--root or " SCHED_ROOT_VAR " says where another is",
				  root, root)
			: pawl_err_sys(err, "the scheduler in %s", root);
	}
	if (rv != 0) {
		sched_client_close(client);
		return rv;
	}
	setsockopt(client->conn.fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	setsockopt(client->conn.fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	*out = client;
	return 0;
}

void sched_client_close(struct sched_client *client)
{
	if (client) {
		proto_conn_close(&client->conn);
		wire_out_deinit(&client->out);
		free(client);
	}
}

int sched_client_peer_uid(const struct sched_client *client, uint32_t *uid, struct pawl_err *err)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(client->conn.fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0) {
		return pawl_err_sys(err, "ask who runs the scheduler in %s", client->root);
	}
	*uid = peer.uid;
	return 0;
}

struct wire_out *sched_client_begin(struct sched_client *client, enum sched_msg_type type)
{
	wire_out_reset(&client->out);
	client->id++;
	client->start = proto_start(&client->out, (enum proto_type)type, client->id);
	wire_put_u16(&client->out, SCHED_MSG_VERSION);
	return &client->out;
}

static int receive(struct sched_client *client, struct proto_frame *frame, struct pawl_err *err)
{
	int rv;

	while ((rv = proto_next(&client->conn, frame, err)) == 0) {
		rv = proto_fill(&client->conn, err);
		if (rv == 0) {
			return pawl_err_set(err, PAWL_ETIMEDOUT,
				"the scheduler in %s has not answered for %u s", client->root,
				times_s(TIME_SCHED_ANSWER));
		}
		if (rv < 0) {
			return pawl_err_prefix(err, rv, "the scheduler in %s", client->root);
		}
	}
	proto_frame_close(frame);
	return rv < 0 ? rv : 0;
}

int sched_client_end(struct sched_client *client, enum sched_msg_type wanted, struct wire_in *in,
	struct pawl_err *err)
{
	struct proto_frame frame;
	char text[PROTO_TEXT_MAX];
	uint32_t code;
	int rv;

	proto_end(&client->out, client->start);
	rv = proto_send(client->conn.fd, &client->out, NULL, 0, err);
	rv = rv == 0 ? receive(client, &frame, err) : rv;
	if (rv != 0) {
		return rv;
	}
	*in = frame.body;
	if (frame.type == SCHED_MSG_ERROR) {
		code = wire_get_u32(in);
		wire_get_str(in, text, sizeof(text));
		return pawl_err_set(err, code > 0 && code < 128 ? -(int)code : PAWL_EIO, "%s",
			text);
	}
	if (frame.type != wanted || frame.id != client->id) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"the scheduler in %s speaks otherwise: is it another version of Pawl?",
			client->root);
	}
	return 0;
}
