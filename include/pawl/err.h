/* Errors as values: one set of codes, and a struct with a message for people. */
#ifndef PAWL_ERR_H
#define PAWL_ERR_H

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Name, value, general meaning; msg of struct pawl_err says what failed in each case. */
#define PAWL_ERRORS(X)                                                                             \
	X(PAWL_ENOMEM, -1, "out of memory")                                                        \
	X(PAWL_EIO, -2, "a system call or device failed")                                          \
	X(PAWL_ENOSPC, -3, "no space left")                                                        \
	X(PAWL_ENOENT, -4, "not found")                                                            \
	X(PAWL_EEXIST, -5, "exists already")                                                       \
	X(PAWL_EINVAL, -6, "invalid argument")                                                     \
	X(PAWL_ECORRUPT, -7, "stored bytes are not what was written")                              \
	X(PAWL_EBUSY, -8, "in use by another process")                                             \
	X(PAWL_ETIMEDOUT, -9, "timed out")                                                         \
	X(PAWL_EPEER, -10, "a rank or the agent is gone")                                          \
	X(PAWL_ECHANGED, -11, "the source changed while it was copied")                            \
	X(PAWL_EMISMATCH, -12, "ranks disagree")                                                   \
	X(PAWL_ENOTSUP, -13, "not supported here")                                                 \
	X(PAWL_ECANCELED, -14, "canceled")                                                         \
	X(PAWL_ELIMIT, -15, "a stated limit is exceeded")

enum pawl_code {
	PAWL_OK = 0,
#define X(name, value, text) name = value,
	PAWL_ERRORS(X)
#undef X
};

#define PAWL_ERR_MSG_MAX 512 /* bytes of a message, terminator included; longer ones are cut */

/* The last parameter of every call that can fail. May be NULL. Filled only when the call fails. */
struct pawl_err {
	int code;                   /* negative PAWL_E code that the call returned */
	int sys;                    /* errno behind the error, or 0 */
	char msg[PAWL_ERR_MSG_MAX]; /* "save step 1200: write optim: No space left on device" */
};

/* Returns "PAWL_ENOSPC" for -3; "PAWL_E?" for an unknown number. Static string. Any thread. */
const char *pawl_err_name(int code);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
