/* What the parts of the extension share: errors, types, functions. */
#ifndef PAWL_CORE_H
#define PAWL_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "pawl/ckpt.h"
#include "pawl/coll.h"

/* Raises pawl._core.PawlError from err (with .code and .name) and returns NULL. */
PyObject *core_raise(const struct pawl_err *err);
/* Seconds (a float, or None for ever) to milliseconds; -2 with an exception set if it is
 * neither. */
int core_timeout(PyObject *seconds);

/* The numbers of a tuple of ndim; false with an exception. at has PAWL_TENSOR_DIMS_MAX. */
bool core_take_list(PyObject *tuple, uint64_t *at, uint32_t ndim);

extern PyTypeObject core_session_type;
extern PyTypeObject core_restore_type;
extern PyTypeObject core_copier_type;
extern PyTypeObject core_group_type;
extern PyTypeObject core_operation_type;
extern PyTypeObject core_door_type;
extern PyTypeObject core_noise_type;
/* Takes over taken. */
PyObject *core_restore_new(struct pawl_restore *taken);
PyObject *core_open_root(PyObject *module, PyObject *args);
/* Takes over group, which has joined. */
PyObject *core_group_wrap(struct pawl_group *group);
/* A Door's; NULL: it is None. */
struct pawl_door *core_door(PyObject *door);
PyObject *core_knock(PyObject *module, PyObject *args);

extern PyMethodDef core_adapt_functions[];
extern PyMethodDef core_goodput_functions[];

#endif
