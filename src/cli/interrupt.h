/* Catches Ctrl-C and other signals that end a command, so that the command can clean up first. */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include "ckpt/tags.h"

/* Catches SIGINT, SIGTERM and SIGHUP from now on. A signal ends only calls that wait, with
 * EINTR. */
void interrupt_catch(void);
/* Returns the signal that came, or 0. */
int interrupt_signal(void);
/* Returns 0, or PAWL_ECANCELED if a signal came. */
int interrupt_check(struct pawl_err *err);
/* Stops a search through many tags once a signal has come. */
extern const struct tags_stop interrupt_stop;

#endif
