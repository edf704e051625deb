/* Ctrl-C and its like while a command has something half done: noted, so that it can clean up. */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include "ckpt/tags.h"

/* From now on SIGINT, SIGTERM and SIGHUP end no call but those that wait, with EINTR. */
void interrupt_catch(void);
/* The signal that came, or 0. */
int interrupt_signal(void);
/* 0, or PAWL_ECANCELED if a signal came. */
int interrupt_check(struct pawl_err *err);
/* The same as a question: for looks through many tags. */
extern const struct tags_stop interrupt_stop;

#endif
