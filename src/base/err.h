/* Fills struct pawl_err. All functions return the code, so that a failing call is one line: return
 * pawl_err_set(err, …). */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "pawl/err.h"

/* Fills err (may be NULL) with code and a printf-style message. Returns code. */
int pawl_err_set(struct pawl_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Returns the code for an errno: ENOSPC and EDQUOT become PAWL_ENOSPC, ENOENT PAWL_ENOENT, EEXIST
 * and ENOTEMPTY PAWL_EEXIST, ENOMEM PAWL_ENOMEM, ETIMEDOUT PAWL_ETIMEDOUT, anything else PAWL_EIO.
 */
int pawl_err_from_sys(int sys);

/* Fills err from errno: ": <strerror>" is appended to the message. Returns the code that
 * pawl_err_from_sys gives. */
int pawl_err_sys(struct pawl_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Puts "<message>: " in front of the message of err, by which a caller adds context. err may be
 * NULL. Returns code. */
int pawl_err_prefix(struct pawl_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
