/*
 * pawl._core.Stage: the ranks of a pipeline. See _core.c and pawl/stage.h.
 *
 * The stage owns a reference to the object of each value (held), which pawl_stage_released gives
 * back. What a driver calls for each module keeps the GIL: these calls wait for nothing but the
 * stage's lock, and no thread that has that lock wants the GIL. All others drop it.
 *
 * close may be called while other threads use the stage: it leaves, so that they return, and the
 * last one frees the stage. users counts them, under the GIL.
 */
#include "_core_stage.h"

#include <stdio.h>

#define SLICE_NS     100000000 /* longest wait without a check for Ctrl-C */
#define VALUES_LOCAL 8         /* values of a call that need no allocation */

/* ---- using a stage ---- */

static void release(void *held)
{
	Py_DECREF((PyObject *)held);
}

/* Drops the references to objects that the stage no longer needs. */
void core_stage_drain(struct core_stage *self)
{
	void *held;

	while (self->stage && (held = pawl_stage_released(self->stage)) != NULL) {
		release(held);
	}
}

/* Enters a call. False: the stage is closed; an exception is set. */
bool core_stage_enter(struct core_stage *self)
{
	const struct pawl_err err = {PAWL_ECANCELED, 0, "stage: it is closed"};

	if (!self->stage || self->closing) {
		core_raise(&err);
		return false;
	}
	self->users++;
	return true;
}

/* Leaves a call; the last one frees a stage that is to be closed. */
void core_stage_leave(struct core_stage *self)
{
	struct pawl_stage *stage = self->stage;

	self->users--;
	if (self->closing && self->users == 0 && stage) {
		self->stage = NULL;
		pawl_stage_close(stage, release);
	}
}

/* Leaves a call that returned rv. */
PyObject *core_stage_result(struct core_stage *self, int rv, const struct pawl_err *err)
{
	core_stage_leave(self);
	return rv == 0 ? Py_NewRef(Py_None) : core_raise(err);
}

bool core_stage_count(const char *name, Py_ssize_t n, Py_ssize_t wanted)
{
	if (n != wanted) {
		PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, not %zd", name, wanted, n);
	}
	return n == wanted;
}

/* Returns a number of 32 bits; sets an exception if it is none. */
uint32_t core_take_u32(PyObject *number)
{
	unsigned long v = PyLong_AsUnsignedLong(number);

	if (v > UINT32_MAX && !PyErr_Occurred()) {
		PyErr_SetString(PyExc_OverflowError, "a number of 32 bits");
	}
	return (uint32_t)v;
}

/* Reads a task from three numbers. */
struct pawl_pipe_task core_take_task(PyObject *const *numbers)
{
	uint32_t kind = core_take_u32(numbers[0]);
	uint32_t chunk = core_take_u32(numbers[1]);
	struct pawl_pipe_task task = {.kind = (uint8_t)kind,
		.chunk = (uint16_t)chunk,
		.microbatch = core_take_u32(numbers[2])};

	if ((kind > UINT8_MAX || chunk > UINT16_MAX) && !PyErr_Occurred()) {
		PyErr_SetString(PyExc_OverflowError, "no such kind or chunk");
	}
	return task;
}

/* ---- life cycle ---- */

static PyObject *stage_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = {"group", NULL};
	PyObject *group;
	struct core_stage *self;
	struct pawl_err err;
	int rv;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", (char **)names, &group)) {
		return NULL;
	}
	if (group != Py_None && !PyObject_TypeCheck(group, &core_group_type)) {
		PyErr_SetString(PyExc_TypeError, "a Group or None");
		return NULL;
	}
	self = (struct core_stage *)type->tp_alloc(type, 0);
	if (!self) {
		return NULL;
	}
	self->group = Py_NewRef(group);
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_stage_open(&self->stage, core_group(group), &err);
	Py_END_ALLOW_THREADS;
	if (rv != 0) {
		Py_DECREF(self);
		return core_raise(&err);
	}
	return (PyObject *)self;
}

static void leave_pipeline(struct core_stage *self)
{
	self->users++;
	Py_BEGIN_ALLOW_THREADS;
	pawl_stage_leave(self->stage);
	Py_END_ALLOW_THREADS;
	core_stage_leave(self);
}

static PyObject *stage_leave(struct core_stage *self, PyObject *unused)
{
	if (self->stage && !self->closing) {
		leave_pipeline(self);
	}
	Py_RETURN_NONE;
}

static PyObject *stage_close(struct core_stage *self, PyObject *unused)
{
	if (self->stage && !self->closing) {
		self->closing = true;
		leave_pipeline(self);
	}
	Py_RETURN_NONE;
}

static void stage_dealloc(struct core_stage *self)
{
	Py_XDECREF(stage_close(self, NULL));
	Py_CLEAR(self->group);
	Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Reads a sequence of tasks. Returns memory for PyMem_Free, or NULL with an exception set. */
static struct pawl_pipe_task *take_tasks(PyObject *list, Py_ssize_t *n)
{
	PyObject *fast =
		PySequence_Fast(list, "begin takes a sequence of (kind, chunk, microbatch)");
	struct pawl_pipe_task *tasks = NULL;

	if (fast) {
		*n = PySequence_Fast_GET_SIZE(fast);
		tasks = PyMem_Calloc((size_t)*n + 1, sizeof(*tasks));
	}
	if (fast && !tasks) {
		PyErr_NoMemory();
	}
	for (Py_ssize_t i = 0; tasks && i < *n; i++) {
		PyObject *item = PySequence_Fast_GET_ITEM(fast, i);

		if (PyTuple_Check(item) && PyTuple_GET_SIZE(item) == 3) {
			tasks[i] = core_take_task(((PyTupleObject *)item)->ob_item);
		} else {
			PyErr_SetString(PyExc_TypeError, "a task is (kind, chunk, microbatch)");
		}
		if (PyErr_Occurred()) {
			PyMem_Free(tasks);
			tasks = NULL;
		}
	}
	Py_XDECREF(fast);
	return tasks;
}

static PyObject *stage_begin(struct core_stage *self, PyObject *list)
{
	Py_ssize_t n = 0;
	struct pawl_pipe_task *tasks = take_tasks(list, &n);
	struct pawl_err err;
	int rv;

	if (!tasks || !core_stage_enter(self)) {
		PyMem_Free(tasks);
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_stage_begin(self->stage, tasks, n < UINT32_MAX ? (uint32_t)n : UINT32_MAX, &err);
	Py_END_ALLOW_THREADS;
	PyMem_Free(tasks);
	core_stage_drain(self);
	return core_stage_result(self, rv, &err);
}

/* ---- every rank ---- */

/* Fills a value from (meta, address, nbytes, held); the value borrows held. */
static bool take_value(struct pawl_stage_value *value, uint64_t id, PyObject *const *items)
{
	unsigned long long address = PyLong_AsUnsignedLongLong(items[1]);

	value->id = id;
	value->data = (const void *)(uintptr_t)address;
	value->len_bytes = PyLong_AsUnsignedLongLong(items[2]);
	value->held = items[3];
	if (PyErr_Occurred()) {
		return false;
	}
	if (!PyBytes_Check(items[0]) || PyBytes_GET_SIZE(items[0]) > PAWL_STAGE_META_MAX) {
		PyErr_Format(PyExc_ValueError, "meta is at most %u bytes", PAWL_STAGE_META_MAX);
		return false;
	}
	value->meta_len = (uint32_t)PyBytes_GET_SIZE(items[0]);
	memcpy(value->meta, PyBytes_AS_STRING(items[0]), value->meta_len);
	return true;
}

static PyObject *stage_put(struct core_stage *self, PyObject *const *args, Py_ssize_t n)
{
	struct pawl_stage_value value;
	uint64_t id;
	struct pawl_err err;
	int rv;

	if (!core_stage_count("put", n, 5)) {
		return NULL;
	}
	id = PyLong_AsUnsignedLongLong(args[0]);
	if (!take_value(&value, id, args + 1) || !core_stage_enter(self)) {
		return NULL;
	}
	Py_INCREF(args[4]);
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_stage_put(self->stage, &value, &err);
	Py_END_ALLOW_THREADS;
	if (rv != 0) {
		Py_DECREF(args[4]);
	}
	core_stage_drain(self);
	return core_stage_result(self, rv, &err);
}

static PyObject *stage_supply(struct core_stage *self, PyObject *const *args, Py_ssize_t n)
{
	uint64_t id;
	void *address;
	struct pawl_err err;
	int rv;

	if (!core_stage_count("supply", n, 2)) {
		return NULL;
	}
	id = PyLong_AsUnsignedLongLong(args[0]);
	address = PyLong_AsVoidPtr(args[1]);
	if (PyErr_Occurred() || !core_stage_enter(self)) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_stage_supply(self->stage, id, address, &err);
	Py_END_ALLOW_THREADS;
	core_stage_drain(self);
	return core_stage_result(self, rv, &err);
}

/* Ends a call whose values have been read. */
static PyObject *end_call(struct core_stage *self, uint64_t call,
	const struct pawl_stage_value *values, uint32_t n)
{
	struct pawl_err err;
	int rv;

	if (!core_stage_enter(self)) {
		return NULL;
	}
	for (uint32_t i = 0; i < n; i++) {
		Py_INCREF((PyObject *)values[i].held);
	}
	if (self->event.kind == PAWL_STAGE_CALL && self->event.call.id == call) {
		self->event.kind = PAWL_STAGE_NOTHING;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_stage_done(self->stage, call, values, n, &err);
	Py_END_ALLOW_THREADS;
	for (uint32_t i = 0; i < n && rv != 0; i++) {
		Py_DECREF((PyObject *)values[i].held);
	}
	core_stage_drain(self);
	return core_stage_result(self, rv, &err);
}

static PyObject *stage_done(struct core_stage *self, PyObject *const *args, Py_ssize_t n)
{
	struct pawl_stage_value local[VALUES_LOCAL];
	struct pawl_stage_value *values = local;
	PyObject *made = NULL;
	Py_ssize_t made_n;
	uint64_t call;

	if (!core_stage_count("done", n, 2)) {
		return NULL;
	}
	call = PyLong_AsUnsignedLongLong(args[0]);
	if (PyErr_Occurred()) {
		return NULL;
	}
	if (!PyList_Check(args[1]) || PyList_GET_SIZE(args[1]) > PAWL_STAGE_OUTS_MAX) {
		PyErr_SetString(PyExc_TypeError,
			"done takes a list of (meta, address, nbytes, held)");
		return NULL;
	}
	made_n = PyList_GET_SIZE(args[1]);
	if (made_n > VALUES_LOCAL) {
		values = PyMem_Calloc((size_t)made_n, sizeof(*values));
		if (!values) {
			return PyErr_NoMemory();
		}
	}
	for (Py_ssize_t i = 0; i < made_n; i++) {
		PyObject *item = PyList_GET_ITEM(args[1], i);

		if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 4) {
			PyErr_SetString(PyExc_TypeError,
				"a value is (meta, address, nbytes, held)");
			goto free_values;
		}
		if (!take_value(&values[i], call + (uint64_t)i, ((PyTupleObject *)item)->ob_item)) {
			goto free_values;
		}
	}
	made = end_call(self, call, values, (uint32_t)made_n);
free_values:
	if (values != local) {
		PyMem_Free(values);
	}
	return made;
}

/* Waits for an event in slices, without the GIL. Returns the result of pawl_stage_next; 1: an
 * exception is set. */
static int wait_event(struct core_stage *self, double seconds, struct pawl_stage_event *event,
	struct pawl_err *err)
{
	int64_t left_ns = seconds >= 0 && seconds < 9e9 ? (int64_t)(seconds * 1e9) : INT64_MAX;
	int rv = pawl_stage_next(self->stage, 0, event, err);

	while (rv == 0 && event->kind == PAWL_STAGE_NOTHING && left_ns > 0) {
		int64_t slice_ns = left_ns < SLICE_NS ? left_ns : SLICE_NS;

		core_stage_drain(self);
		Py_BEGIN_ALLOW_THREADS;
		rv = pawl_stage_next(self->stage, slice_ns, event, err);
		Py_END_ALLOW_THREADS;
		left_ns -= slice_ns;
		if (event->kind == PAWL_STAGE_NOTHING && PyErr_CheckSignals() != 0) {
			return 1;
		}
	}
	return rv;
}

static PyObject *stage_next(struct core_stage *self, PyObject *const *args, Py_ssize_t n)
{
	struct pawl_stage_event event = {.kind = PAWL_STAGE_NOTHING};
	double seconds = n > 0 && args[0] != Py_None ? PyFloat_AsDouble(args[0]) : -1;
	PyObject *built = NULL;
	struct pawl_err err;
	int rv;

	if (PyErr_Occurred() || n > 1 || !core_stage_enter(self)) {
		return n > 1 ? core_stage_count("next", n, 1), NULL : NULL;
	}
	if (n > 0 && args[0] != Py_None && seconds < 0) {
		seconds = 0;
	}
	self->event.kind = PAWL_STAGE_NOTHING;
	rv = wait_event(self, seconds, &event, &err);
	if (rv == 0) {
		self->event = event;
		built = core_stage_event(self, &event);
	} else if (rv != 1) {
		core_raise(&err);
	}
	core_stage_drain(self);
	core_stage_leave(self);
	return built;
}

/* Returns a value of the last event; NULL: it has none with this number. */
static struct pawl_stage_value *find_value(const struct core_stage *self, uint64_t id)
{
	const struct pawl_stage_event *event = &self->event;
	uint32_t n = event->kind == PAWL_STAGE_CALL ? event->call.needs_n
		: event->kind == PAWL_STAGE_ARRIVED || event->kind == PAWL_STAGE_WANTED ? 1
											: 0;

	for (uint32_t i = 0; i < n; i++) {
		if (event->values[i]->id == id) {
			return event->values[i];
		}
	}
	return NULL;
}

static PyObject *stage_keep(struct core_stage *self, PyObject *const *args, Py_ssize_t n)
{
	struct pawl_stage_value *value;
	uint64_t id;
	void *before;

	if (!core_stage_count("keep", n, 2)) {
		return NULL;
	}
	id = PyLong_AsUnsignedLongLong(args[0]);
	if (PyErr_Occurred() || !core_stage_enter(self)) {
		return NULL;
	}
	value = find_value(self, id);
	if (value) {
		before = pawl_stage_replace(self->stage, value, Py_NewRef(args[1]));
		Py_XDECREF((PyObject *)before);
	} else {
		PyErr_Format(PyExc_KeyError, "value %llu is not one of the last event's",
			(unsigned long long)id);
	}
	core_stage_leave(self);
	return value ? Py_NewRef(Py_None) : NULL;
}

static PyObject *stage_fail(struct core_stage *self, PyObject *arg)
{
	Py_buffer bytes;
	struct pawl_err err;
	int rv;

	if (PyObject_GetBuffer(arg, &bytes, PyBUF_SIMPLE) != 0) {
		return NULL;
	}
	if (bytes.len > UINT32_MAX || !core_stage_enter(self)) {
		PyBuffer_Release(&bytes);
		return PyErr_Occurred() ? NULL : PyErr_NoMemory();
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_stage_fail(self->stage, bytes.buf, (uint32_t)bytes.len, &err);
	Py_END_ALLOW_THREADS;
	PyBuffer_Release(&bytes);
	return core_stage_result(self, rv, &err);
}

static PyObject *stage_current(struct core_stage *self, PyObject *unused)
{
	struct pawl_pipe_task task;
	bool found;

	if (!core_stage_enter(self)) {
		return NULL;
	}
	found = pawl_stage_current(self->stage, &task);
	core_stage_leave(self);
	return found ? Py_BuildValue("(iii)", task.kind, task.chunk, (int)task.microbatch)
		     : Py_NewRef(Py_None);
}

static PyObject *stage_expect(struct core_stage *self, PyObject *seconds)
{
	double busy_s = PyFloat_AsDouble(seconds);

	if (PyErr_Occurred() || !core_stage_enter(self)) {
		return NULL;
	}
	pawl_stage_expect(self->stage, busy_s < 1e9 ? (int64_t)(busy_s * 1e9) : 0);
	core_stage_leave(self);
	Py_RETURN_NONE;
}

static PyObject *stage_stats(struct core_stage *self, PyObject *unused)
{
	struct pawl_stage_stats s = {0};

	if (!core_stage_enter(self)) {
		return NULL;
	}
	pawl_stage_stats(self->stage, &s);
	core_stage_drain(self);
	core_stage_leave(self);
	return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "calls_issued",
		(unsigned long long)s.calls_issued, "calls_done", (unsigned long long)s.calls_done,
		"values_sent", (unsigned long long)s.values_sent, "values_bytes",
		(unsigned long long)s.values_bytes, "frames_sent",
		(unsigned long long)s.frames_sent, "frames_bytes",
		(unsigned long long)s.frames_bytes, "values_now", (unsigned long long)s.values_now,
		"bytes_now", (unsigned long long)s.bytes_now, "bytes_most",
		(unsigned long long)s.bytes_most);
}

#define FAST(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL

static PyMethodDef stage_methods[] = {
	{"begin", (PyCFunction)stage_begin, METH_O, "begin([(kind, chunk, microbatch), ...])"},
	{"expect", (PyCFunction)stage_expect, METH_O,
		"expect(seconds): how long this rank is busy in a step, by the plan"},
	{"call", FAST(core_stage_call),
		"call(rank, id, outs, kind, chunk, microbatch, needs, blob)"},
	{"push", FAST(core_stage_push), "push(from_rank, value, to_rank)"},
	{"free", FAST(core_stage_free), "free(rank, value)"},
	{"flush", FAST(core_stage_flush), "flush(kind, microbatch)"},
	{"note", (PyCFunction)core_stage_note, METH_VARARGS, "note(rank, bytes)"},
	{"end", (PyCFunction)core_stage_end, METH_NOARGS, "end()"},
	{"send", (PyCFunction)core_stage_send, METH_NOARGS, "send()"},
	{"watch", (PyCFunction)core_stage_watch, METH_O, "watch(value)"},
	{"put", FAST(stage_put), "put(value, meta, address, nbytes, held)"},
	{"supply", FAST(stage_supply), "supply(value, address): the bytes of a wanted value"},
	{"next", FAST(stage_next), "next(timeout=None) -> event, or None"},
	{"done", FAST(stage_done), "done(call, [(meta, address, nbytes, held), ...])"},
	{"keep", FAST(stage_keep),
		"keep(value, held): replaces the object of a value of the last event"},
	{"fail", (PyCFunction)stage_fail, METH_O, "fail(bytes)"},
	{"current", (PyCFunction)stage_current, METH_NOARGS,
		"current() -> first task that is not drained, or None"},
	{"stats", (PyCFunction)stage_stats, METH_NOARGS, "stats() -> dict"},
	{"leave", (PyCFunction)stage_leave, METH_NOARGS, "leave()"},
	{"close", (PyCFunction)stage_close, METH_NOARGS, "close()"},
	{NULL, NULL, 0, NULL},
};

PyTypeObject core_stage_type = {
	PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pawl._core.Stage",
	.tp_basicsize = sizeof(struct core_stage),
	.tp_flags = Py_TPFLAGS_DEFAULT,
	.tp_doc = "A rank of a pipeline: calls, and the values that they take and make.",
	.tp_new = stage_new,
	.tp_dealloc = (destructor)stage_dealloc,
	.tp_methods = stage_methods,
};

int core_add_stage(PyObject *module)
{
	if (PyType_Ready(&core_stage_type) < 0 || PyType_Ready(&core_stage_buffer_type) < 0 ||
		PyModule_AddObjectRef(module, "Stage", (PyObject *)&core_stage_type) < 0 ||
		PyModule_AddObjectRef(module, "StageBuffer", (PyObject *)&core_stage_buffer_type) <
			0 ||
		PyModule_AddIntConstant(module, "STAGE_CALL", PAWL_STAGE_CALL) < 0 ||
		PyModule_AddIntConstant(module, "STAGE_NOTE", PAWL_STAGE_NOTE) < 0 ||
		PyModule_AddIntConstant(module, "STAGE_ARRIVED", PAWL_STAGE_ARRIVED) < 0 ||
		PyModule_AddIntConstant(module, "STAGE_WANTED", PAWL_STAGE_WANTED) < 0 ||
		PyModule_AddIntConstant(module, "STAGE_END", PAWL_STAGE_END) < 0 ||
		PyModule_AddIntConstant(module, "STAGE_FAILED", PAWL_STAGE_FAILED) < 0) {
		return -1;
	}
	return 0;
}
