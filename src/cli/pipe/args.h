/* Options that the commands of `pawl pipe` share: what is wanted of a pipeline. */
#ifndef CLI_PIPE_ARGS_H
#define CLI_PIPE_ARGS_H

#include "cli/cli.h"
#include "cli/pipe/model.h"

#define ARGS_LIST_MAX 16u /* numbers of stages, or of microbatches, that are compared at once */
#define ARGS_PINS_MAX 64u /* units that are put on stages */

/* Indexes of the shared options in the tables of the commands. */
enum pipe_option {
	PIPE_STAGES,
	PIPE_MICROBATCHES,
	PIPE_SCHEDULE,
	PIPE_EACH,
	PIPE_INFLIGHT,
	PIPE_TIED,
	PIPE_MEMORY,
	PIPE_SPEEDS,
	PIPE_LINK,
	PIPE_STATE,
	PIPE_WEIGHT,
	PIPE_PIN,
	PIPE_JSON,
	PIPE_OPTIONS
};

/* Rows of the options that mean the same in each command, for its table. */
#define PIPE_SAME_OPTIONS                                                                          \
	[PIPE_EACH] = {"--chunks", 0, "V", "chunks of a stage, if interleaved (best of 2 to 4)"},  \
	[PIPE_INFLIGHT] = {"--in-flight", 0, "K", "microbatches in flight at most, if listed"},    \
	[PIPE_TIED] = {"--tied", 0, "HOW", "tied units: replicate or visit (the faster one)"},     \
	[PIPE_MEMORY] = {"--memory", 0, "SIZE,…", "memory of each stage, or one for all: 16GiB"},  \
	[PIPE_SPEEDS] = {"--speeds", 0, "X,…", "speed of each stage (1)"},                         \
	[PIPE_LINK] = {"--link", 0, "RATE[,S]", "bytes/s, and seconds of latency (the model's)"},  \
	[PIPE_STATE] = {"--state-factor", 0, "X", "bytes of state per byte of parameters (4)"},    \
	[PIPE_WEIGHT] = {"--memory-weight", 0, "W", "balance memory, too, as SMP does (0)"},       \
	[PIPE_PIN] = {"--pin", 0, "UNIT=STAGE", "put a unit on a stage; repeatable"}

/* The shared part of a command line, and the model that it names. */
struct pipe_args {
	const char *path;                     /* file of the model; NULL: not given */
	uint32_t stages[ARGS_LIST_MAX];       /* --stages */
	uint32_t stages_n;                    /* entries in stages */
	uint32_t microbatches[ARGS_LIST_MAX]; /* --microbatches */
	uint32_t microbatches_n;              /* entries in microbatches; 0: by the stages */
	bool schedules[PAWL_PIPE_SCHEDULES];  /* --schedule: those that are named */
	uint64_t caps[PAWL_PIPE_STAGES_MAX];  /* --memory */
	uint32_t caps_n;                      /* entries in caps; 0: not given */
	double speeds[PAWL_PIPE_STAGES_MAX];  /* --speeds */
	uint32_t speeds_n;                    /* entries in speeds; 0: not given */
	const char *pins[ARGS_PINS_MAX];      /* --pin, each as given */
	uint32_t pins_n;                      /* entries in pins */
	bool has_link;                        /* --link was given */
	bool has_state;                       /* --state-factor was given */
	bool json;                            /* --json */
	struct pawl_pipe_setting setting;     /* what other options have set */
	struct pipe_model model;              /* read by pipe_args_load */
};

/* Reads a shared option or an argument. Returns false after an error, which has been printed. */
bool pipe_args_read(const struct cli_command *command, int what, const char *value,
	struct pipe_args *args);
/* Checks the command line, and reads the model. Returns an exit code; errors have been printed. */
int pipe_args_load(const struct cli_command *command, struct pipe_args *args);
/* Sets the setting for one number of stages and of microbatches. Returns false after an error,
 * which has been printed. */
bool pipe_args_set(const struct cli_command *command, struct pipe_args *args, uint32_t stages,
	uint32_t microbatches, enum pawl_pipe_schedule schedule);

#endif
