/* Shared by the parts of Stage: see _core_stage.c. */
#ifndef PAWL_CORE_STAGE_H
#define PAWL_CORE_STAGE_H

#include "_core.h"

#include "pawl/stage.h"

/* A rank's stage. The GIL guards the fields. */
struct core_stage {
	PyObject_HEAD struct pawl_stage *stage; /* NULL: closed */
	PyObject *group;                        /* owned; Group of the stage, or None */
	unsigned int users;                     /* threads in a call */
	bool closing;                           /* close was called */
	/* The last event; its values stay until the call is done, or the next event. */
	struct pawl_stage_event event;
};

/* Enters a call. False: the stage is closed; an exception is set. */
bool core_stage_enter(struct core_stage *self);
/* Leaves a call; the last one frees a stage that is to be closed. */
void core_stage_leave(struct core_stage *self);
/* Leaves a call that returned rv. Returns None, or NULL with an exception set. */
PyObject *core_stage_result(struct core_stage *self, int rv, const struct pawl_err *err);
/* Drops the references to objects that the stage no longer needs. */
void core_stage_drain(struct core_stage *self);

/* Returns whether a call has the arguments that it takes; if not, sets an exception. */
bool core_stage_count(const char *name, Py_ssize_t n, Py_ssize_t wanted);
/* Returns a number of 32 bits; sets an exception if it is none. */
uint32_t core_take_u32(PyObject *number);
/* Reads a task from three numbers. Sets an exception if they are none. */
struct pawl_pipe_task core_take_task(PyObject *const *numbers);

/* Returns an event as a tuple, or None. */
PyObject *core_stage_event(struct core_stage *self, const struct pawl_stage_event *event);

/* What the driver says. */
PyObject *core_stage_call(struct core_stage *self, PyObject *const *args, Py_ssize_t n);
PyObject *core_stage_push(struct core_stage *self, PyObject *const *args, Py_ssize_t n);
PyObject *core_stage_free(struct core_stage *self, PyObject *const *args, Py_ssize_t n);
PyObject *core_stage_flush(struct core_stage *self, PyObject *const *args, Py_ssize_t n);
PyObject *core_stage_note(struct core_stage *self, PyObject *args);
PyObject *core_stage_end(struct core_stage *self, PyObject *unused);
PyObject *core_stage_send(struct core_stage *self, PyObject *unused);
PyObject *core_stage_watch(struct core_stage *self, PyObject *number);

#endif
