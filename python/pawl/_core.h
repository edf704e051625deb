/* Shared parts of the extension: errors, types, functions. */
#ifndef PAWL_CORE_H
#define PAWL_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "pawl/ckpt.h"
#include "pawl/coll.h"

/* Raises pawl._core.PawlError from err (with .code and .name) and returns NULL. */
PyObject *core_raise(const struct pawl_err *err);
/* Converts seconds (a float, or None for ever) to milliseconds. Returns -2 with an exception set if
 * seconds is neither. */
int core_timeout(PyObject *seconds);
/* Converts seconds to nanoseconds: 0 for less than 0, and 292 years for more than that. */
int64_t core_timeout_ns(double s);

/* Copies the numbers of a tuple of ndim to at, which has room for PAWL_TENSOR_DIMS_MAX. Returns
 * false with an exception set if it cannot. */
bool core_take_list(PyObject *tuple, uint64_t *at, uint32_t ndim);

extern PyTypeObject core_session_type;
extern PyTypeObject core_restore_type;
extern PyTypeObject core_copier_type;
extern PyTypeObject core_group_type;
extern PyTypeObject core_operation_type;
extern PyTypeObject core_join_listener_type;
extern PyTypeObject core_noise_type;
extern PyTypeObject core_stage_type;
extern PyTypeObject core_stage_buffer_type;
/* Wraps taken, and owns it from now on. */
PyObject *core_restore_new(struct pawl_restore *taken);
PyObject *core_open_root(PyObject *module, PyObject *args);
/* Wraps group, which has joined, and owns it from now on. */
PyObject *core_group_wrap(struct pawl_group *group);
/* Returns the group of a Group object; NULL for None. */
struct pawl_group *core_group(PyObject *group);
/* Begin and end an admission at a Door object, or at None, whose listener is NULL. Between them the
 * caller may be without the GIL. enter returns false with an exception set if another thread is
 * there. */
bool core_join_listener_enter(PyObject *listener, struct pawl_join_listener **out);
void core_join_listener_leave(PyObject *listener);
PyObject *core_request_join(PyObject *module, PyObject *args);

/* Adds the types of stages and their constants. Returns -1 with an exception set if it cannot. */
int core_add_stage(PyObject *module);

extern PyMethodDef core_adapt_functions[];
extern PyMethodDef core_goodput_functions[];
extern PyMethodDef core_pipe_functions[];

#endif
