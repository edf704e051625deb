/* pawl run --explain: records traces of the job, and explains them at its end. */
#ifndef CLI_RUN_EXPLAIN_H
#define CLI_RUN_EXPLAIN_H

struct pawl_err;

/* Has the ranks leave traces in the directory PAWL_TRACE, or else in a new one. PAWL_EIO. */
int run_explain_begin(struct pawl_err *err);
/* Prints what the traces say, and removes what run_explain_begin made. An error is only printed. */
void run_explain_end(void);

#endif
