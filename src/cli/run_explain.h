/* pawl run --explain: records traces of the job, and explains them at its end. */
#ifndef CLI_RUN_EXPLAIN_H
#define CLI_RUN_EXPLAIN_H

struct pawl_err;

/* Lets the ranks write traces into the directory PAWL_TRACE, or else into a new one. PAWL_EIO. */
int run_explain_begin(struct pawl_err *err);
/* Explains the traces, and removes what run_explain_begin made. An error is only printed. */
void run_explain_end(void);

#endif
