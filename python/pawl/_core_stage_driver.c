/* pawl._core.Stage: what the driver says. See _core_stage.c. */
#include "_core_stage.h"

PyObject *core_stage_call(struct core_stage *self, PyObject *const *args, Py_ssize_t n)
{
	uint64_t needs[PAWL_STAGE_NEEDS_MAX];
	struct pawl_stage_call call = {.needs = needs};
	uint32_t rank;
	struct pawl_err err;

	if (!core_stage_count("call", n, 8)) {
		return NULL;
	}
	if (!PyTuple_Check(args[6]) || PyTuple_GET_SIZE(args[6]) > PAWL_STAGE_NEEDS_MAX ||
		!PyBytes_Check(args[7]) || PyBytes_GET_SIZE(args[7]) > PAWL_STAGE_BLOB_MAX) {
		PyErr_SetString(PyExc_ValueError, "needs is a tuple, and blob bytes; not too long");
		return NULL;
	}
	rank = core_take_u32(args[0]);
	call.id = PyLong_AsUnsignedLongLong(args[1]);
	call.outs = core_take_u32(args[2]);
	call.task = core_take_task(&args[3]);
	call.needs_n = (uint32_t)PyTuple_GET_SIZE(args[6]);
	for (uint32_t i = 0; i < call.needs_n; i++) {
		needs[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(args[6], (Py_ssize_t)i));
	}
	call.blob = PyBytes_AS_STRING(args[7]);
	call.blob_len = (uint32_t)PyBytes_GET_SIZE(args[7]);
	if (PyErr_Occurred() || !core_stage_enter(self)) {
		return NULL;
	}
	return core_stage_result(self, pawl_stage_call(self->stage, rank, &call, &err), &err);
}

PyObject *core_stage_push(struct core_stage *self, PyObject *const *args, Py_ssize_t n)
{
	uint32_t from;
	uint32_t to;
	uint64_t value;
	struct pawl_err err;

	if (!core_stage_count("push", n, 3)) {
		return NULL;
	}
	from = core_take_u32(args[0]);
	value = PyLong_AsUnsignedLongLong(args[1]);
	to = core_take_u32(args[2]);
	if (PyErr_Occurred() || !core_stage_enter(self)) {
		return NULL;
	}
	return core_stage_result(self, pawl_stage_push(self->stage, from, value, to, &err), &err);
}

PyObject *core_stage_free(struct core_stage *self, PyObject *const *args, Py_ssize_t n)
{
	uint32_t rank;
	uint64_t value;
	struct pawl_err err;
	int rv;

	if (!core_stage_count("free", n, 2)) {
		return NULL;
	}
	rank = core_take_u32(args[0]);
	value = PyLong_AsUnsignedLongLong(args[1]);
	if (PyErr_Occurred() || !core_stage_enter(self)) {
		return NULL;
	}
	rv = pawl_stage_free(self->stage, rank, value, &err);
	core_stage_drain(self);
	return core_stage_result(self, rv, &err);
}

PyObject *core_stage_flush(struct core_stage *self, PyObject *const *args, Py_ssize_t n)
{
	uint32_t kind;
	uint32_t microbatch;
	struct pawl_err err;
	int rv;

	if (!core_stage_count("flush", n, 2)) {
		return NULL;
	}
	kind = core_take_u32(args[0]);
	microbatch = core_take_u32(args[1]);
	if (PyErr_Occurred() || !core_stage_enter(self)) {
		return NULL;
	}
	rv = pawl_stage_flush(self->stage, (enum pawl_pipe_kind)kind, microbatch, &err);
	return core_stage_result(self, rv, &err);
}

PyObject *core_stage_note(struct core_stage *self, PyObject *args)
{
	unsigned int rank;
	Py_buffer bytes;
	struct pawl_err err;
	int rv;

	if (!PyArg_ParseTuple(args, "Iy*", &rank, &bytes)) {
		return NULL;
	}
	if (bytes.len > UINT32_MAX || !core_stage_enter(self)) {
		PyBuffer_Release(&bytes);
		return PyErr_Occurred() ? NULL : PyErr_NoMemory();
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_stage_note(self->stage, rank, bytes.buf, (uint32_t)bytes.len, &err);
	Py_END_ALLOW_THREADS;
	PyBuffer_Release(&bytes);
	return core_stage_result(self, rv, &err);
}

/* Calls a function that takes only the stage. */
static PyObject *run(struct core_stage *self,
	int (*function)(struct pawl_stage *, struct pawl_err *))
{
	struct pawl_err err;
	int rv;

	if (!core_stage_enter(self)) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = function(self->stage, &err);
	Py_END_ALLOW_THREADS;
	core_stage_drain(self);
	return core_stage_result(self, rv, &err);
}

PyObject *core_stage_end(struct core_stage *self, PyObject *unused)
{
	return run(self, pawl_stage_end);
}

PyObject *core_stage_send(struct core_stage *self, PyObject *unused)
{
	return run(self, pawl_stage_send);
}

PyObject *core_stage_watch(struct core_stage *self, PyObject *number)
{
	uint64_t value = PyLong_AsUnsignedLongLong(number);
	struct pawl_err err;

	if (PyErr_Occurred() || !core_stage_enter(self)) {
		return NULL;
	}
	return core_stage_result(self, pawl_stage_watch(self->stage, value, &err), &err);
}
