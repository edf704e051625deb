/* Errors as values: see err.h. Only this file converts errno values to our codes. */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Appends ": text", cut off where msg is full. */
static void append_reason(char *msg, const char *text)
{
	strncat(msg, ": ", PAWL_ERR_MSG_MAX - 1 - strlen(msg));
	strncat(msg, text, PAWL_ERR_MSG_MAX - 1 - strlen(msg));
}

static int fill_err(struct pawl_err *err, int code, int sys, const char *fmt, va_list args)
{
	char reason[128];

	if (err == NULL) {
		return code;
	}
	err->code = code;
	err->sys = sys;
	vsnprintf(err->msg, sizeof(err->msg), fmt, args);
	if (sys != 0) {
		append_reason(err->msg, strerror_r(sys, reason, sizeof(reason)));
	}
	return code;
}

int pawl_err_set(struct pawl_err *err, int code, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fill_err(err, code, 0, fmt, args);
	va_end(args);
	return code;
}

int pawl_err_from_sys(int sys)
{
	switch (sys) {
	case ENOSPC:
	case EDQUOT:
		return PAWL_ENOSPC;
	case ENOENT:
		return PAWL_ENOENT;
	case EEXIST:
	case ENOTEMPTY:
		return PAWL_EEXIST;
	case ENOMEM:
		return PAWL_ENOMEM;
	case ETIMEDOUT:
		return PAWL_ETIMEDOUT;
	default:
		return PAWL_EIO;
	}
}

int pawl_err_sys(struct pawl_err *err, const char *fmt, ...)
{
	int sys = errno; /* saved before anything below can change it */
	int code = pawl_err_from_sys(sys);
	va_list args;

	va_start(args, fmt);
	fill_err(err, code, sys, fmt, args);
	va_end(args);
	return code;
}

int pawl_err_prefix(struct pawl_err *err, int code, const char *fmt, ...)
{
	char msg[PAWL_ERR_MSG_MAX];
	va_list args;

	if (err == NULL) {
		return code;
	}
	va_start(args, fmt);
	vsnprintf(msg, sizeof(msg), fmt, args);
	va_end(args);
	append_reason(msg, err->msg);
	memcpy(err->msg, msg, sizeof(msg));
	err->code = code;
	return code;
}

const char *pawl_err_name(int code)
{
	switch (code) {
	case PAWL_OK:
		return "PAWL_OK";
#define X(name, value, text)                                                                       \
	case name:                                                                                 \
		return #name;
		PAWL_ERRORS(X)
#undef X
	default:
		return "PAWL_E?";
	}
}
