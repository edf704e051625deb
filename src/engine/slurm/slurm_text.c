/* Parses lines of fields that end with '|': see slurm_text.h. */
#include "engine/slurm/slurm_text.h"

#include "base/err.h"
#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELD_MAX  512u
#define KILL_MAX_S 86400u
#define MIB_MAX    (1ull << 40) /* an EiB */

static const struct {
	const char *name;
	enum slurm_squeue_state state;
} states[] = {
	{"PENDING", SLURM_PENDING},
	{"REQUEUED", SLURM_PENDING},
	{"REQUEUE_HOLD", SLURM_PENDING},
	{"REQUEUE_FED", SLURM_PENDING},
	{"SPECIAL_EXIT", SLURM_PENDING},
	{"RESV_DEL_HOLD", SLURM_PENDING},
	{"CONFIGURING", SLURM_PENDING},
	{"RUNNING", SLURM_ACTIVE},
	{"COMPLETING", SLURM_ENDING},
	{"RESIZING", SLURM_ACTIVE},
	{"SIGNALING", SLURM_ACTIVE},
	{"STAGE_OUT", SLURM_ENDING},
	{"SUSPENDED", SLURM_SUSPENDED},
	{"STOPPED", SLURM_SUSPENDED},
	{"COMPLETED", SLURM_OVER},
	{"FAILED", SLURM_OVER},
	{"TIMEOUT", SLURM_CUT_OFF}, /* decided by the controller's clock */
	{"OUT_OF_MEMORY", SLURM_OVER},
	{"DEADLINE", SLURM_CUT_OFF},
	{"BOOT_FAIL", SLURM_CUT_OFF},
	{"CANCELLED", SLURM_CUT_OFF},
	{"NODE_FAIL", SLURM_CUT_OFF},
	{"PREEMPTED", SLURM_CUT_OFF},
	{"REVOKED", SLURM_CUT_OFF},
};

/* Reads a field, which must end with '|' on this line. */
static bool take_field(const char **at, char *field, size_t cap_bytes)
{
	size_t len = strcspn(*at, "|\n");

	if ((*at)[len] != '|' || len >= cap_bytes) {
		return false;
	}
	memcpy(field, *at, len);
	field[len] = '\0';
	*at += len + 1;
	return true;
}

/* Reads the rest of the line up to its last '|', whatever it contains; cut to fit. */
static bool take_rest(const char **at, char *field, size_t cap_bytes)
{
	size_t len = strcspn(*at, "\n");
	size_t kept = len > 0 ? len - 1 : 0;

	if (len == 0 || (*at)[kept] != '|') {
		return false;
	}
	snprintf(field, cap_bytes, "%.*s", (int)(kept < FIELD_MAX ? kept : FIELD_MAX), *at);
	*at += len;
	return true;
}

/* Moves past the end of a line. A missing newline means that the output was cut off, and more lines
 * may be missing. */
static bool end_line(const char **at)
{
	bool good = **at == '\n';

	*at += good;
	return good;
}

static bool read_number(const char *text, uint64_t most, uint64_t *number)
{
	size_t len = strspn(text, "0123456789");

	if (len == 0 || len > 19 || text[len] != '\0') {
		return false;
	}
	*number = strtoull(text, NULL, 10);
	return *number <= most;
}

static bool read_state(const char *text, enum slurm_squeue_state *state)
{
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
		if (strcmp(states[i].name, text) == 0) {
			*state = states[i].state;
			return true;
		}
	}
	return false;
}

static int bad_line(const char *command, const char *line, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_ECORRUPT, "%s prints unexpected output: %.*s", command,
		(int)strcspn(line, "\n"), line);
}

int slurm_queue_next(const char **at, struct slurm_row *row, struct pawl_err *err)
{
	const char *line = *at;
	char number[32];
	char restart[32];
	char state[64];
	uint64_t restarts;

	if (**at == '\0') {
		return 0;
	}
	if (!take_field(at, number, sizeof(number)) || !take_field(at, state, sizeof(state)) ||
		!take_field(at, restart, sizeof(restart)) ||
		!take_field(at, row->name, sizeof(row->name)) ||
		!take_field(at, row->node, sizeof(row->node)) ||
		!take_rest(at, row->reason, sizeof(row->reason))) {
		return bad_line("squeue", line, err);
	}
	if (!end_line(at) || !read_number(number, UINT64_MAX, &row->slurm_job) ||
		!read_number(restart, UINT32_MAX, &restarts) || !read_state(state, &row->state)) {
		return bad_line("squeue", line, err);
	}
	row->restart = (uint32_t)restarts;
	return 1;
}

int slurm_nodes_next(const char **at, char node[CORE_NAME_MAX], bool *drained, struct pawl_err *err)
{
	const char *line = *at;
	char complete[256];
	char longer[256];

	if (**at == '\0') {
		return 0;
	}
	if (!take_field(at, node, CORE_NAME_MAX) || !take_field(at, complete, sizeof(complete)) ||
		!take_field(at, longer, sizeof(longer)) || !end_line(at) ||
		(complete[0] == '\0' && longer[0] == '\0')) {
		return bad_line("sinfo", line, err);
	}
	/* "mixed+drain", "drained", "draining*" */
	*drained = strstr(complete, "drain") != NULL || strstr(longer, "drain") != NULL;
	return 1;
}

int slurm_sizes_next(const char **at, struct slurm_node_row *row, struct pawl_err *err)
{
	const char *line = *at;
	char cpus[32];
	char memory[32];
	char disk[32];
	uint64_t n;
	size_t len;

	if (**at == '\0') {
		return 0;
	}
	if (!take_field(at, row->node, sizeof(row->node)) ||
		!take_field(at, row->partition, sizeof(row->partition)) ||
		!take_field(at, cpus, sizeof(cpus)) || !take_field(at, memory, sizeof(memory)) ||
		!take_field(at, disk, sizeof(disk)) || !end_line(at) ||
		!read_number(cpus, UINT32_MAX, &n) ||
		!read_number(memory, MIB_MAX, &row->memory_mib) ||
		!read_number(disk, MIB_MAX, &row->disk_mib)) {
		return bad_line("sinfo", line, err);
	}
	row->cpus = (uint32_t)n;
	len = strlen(row->partition);
	row->is_default = len > 0 && row->partition[len - 1] == '*';
	row->partition[len - row->is_default] = '\0';
	return 1;
}

int slurm_submitted(const char *text, uint64_t *slurm_job, struct pawl_err *err)
{
	char number[32];
	size_t len = strcspn(text, ";\n"); /* ";cluster" follows where there are several */

	if (len >= sizeof(number) || !strchr(text, '\n')) {
		return bad_line("sbatch", text, err);
	}
	memcpy(number, text, len);
	number[len] = '\0';
	return read_number(number, UINT64_MAX, slurm_job) && *slurm_job > 0
		? 0
		: bad_line("sbatch", text, err);
}

int slurm_kill_wait(const char *text, int64_t *ns, struct pawl_err *err)
{
	for (const char *line = text; *line != '\0'; line += strcspn(line, "\n")) {
		uint64_t s;
		char number[32];
		size_t len;

		line += *line == '\n';
		if (strncmp(line, "KillWait", 8) != 0) {
			continue;
		}
		line += 8 + strspn(line + 8, " =");
		len = strspn(line, "0123456789");
		if (len >= sizeof(number) || !strchr(line, '\n')) {
			break;
		}
		memcpy(number, line, len);
		number[len] = '\0';
		if (read_number(number, KILL_MAX_S, &s)) {
			*ns = (int64_t)s * NS_PER_S;
			return 0;
		}
	}
	return pawl_err_set(err, PAWL_ENOENT, "the output has no KillWait");
}
