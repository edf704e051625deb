/* pawl run --explain: traces of the job, and at its end what they say. */
#ifndef CLI_RUN_EXPLAIN_H
#define CLI_RUN_EXPLAIN_H

struct pawl_err;

/* Has the ranks leave traces, in a directory of PAWL_TRACE or else a new one. PAWL_EIO. */
int run_explain_begin(struct pawl_err *err);
/* Prints what they say; removes what begin made. What fails is only told. */
void run_explain_end(void);

#endif
