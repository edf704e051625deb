/*
 * pawl._core: the extension. Thin: it parses arguments, borrows buffers, drops the GIL, calls one
 * public function of libpawl and maps the error. Policy, defaults and everything of torch live in
 * the .py files; _core.pyi says what each call takes and returns.
 */
#include "_core.h"

#include "pawl/env.h"
#include "pawl/inspect.h"

#include <time.h>

#define NAMES_BYTES (64u << 10) /* of the list of diverged partitions */

static PyObject *pawl_error; /* the exception type */

PyObject *core_raise(const struct pawl_err *err)
{
	PyObject *exc = PyObject_CallFunction(pawl_error, "s", err->msg);
	PyObject *code = PyLong_FromLong(err->code);
	PyObject *name = PyUnicode_FromString(pawl_err_name(err->code));

	if (exc && code && name && PyObject_SetAttrString(exc, "code", code) == 0 &&
		PyObject_SetAttrString(exc, "name", name) == 0) {
		PyErr_SetObject(pawl_error, exc);
	}
	Py_XDECREF(exc);
	Py_XDECREF(code);
	Py_XDECREF(name);
	return NULL;
}

int core_timeout(PyObject *seconds)
{
	double s;

	if (seconds == Py_None) {
		return -1;
	}
	s = PyFloat_AsDouble(seconds);
	if (s == -1.0 && PyErr_Occurred()) {
		return -2;
	}
	return s <= 0 ? 0 : s > 2e6 ? 2000000000 : (int)(s * 1000);
}

/* ---- Session ---- */

struct session {
	PyObject_HEAD struct pawl_ckpt *ckpt; /* NULL once closed */
	int users;                            /* calls in progress without the GIL */
};

/* Any number of calls may be in libpawl at once, but none may begin after close did. Called with
 * the GIL, which guards both fields. */
static struct pawl_ckpt *enter(struct session *self)
{
	if (!self->ckpt) {
		PyErr_SetString(PyExc_ValueError, "this checkpointer is closed");
		return NULL;
	}
	self->users++;
	return self->ckpt;
}

static void leave(struct session *self)
{
	self->users--;
}

static int session_init(struct session *self, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = {"root", "job", "rank", "world", "attempt", "keep",
		"keep_every", "persist_every_ms", "memory_bytes", "socket", "program", "watch",
		NULL};
	struct pawl_ckpt_options options = {0};
	struct pawl_err err;
	struct pawl_ckpt *ckpt;
	PyObject *root = NULL;
	unsigned long long keep_every;
	unsigned long long every_ms;
	unsigned long long memory;
	int watch;
	int rv;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&sIII$IKKKzzp", (char **)names,
		    PyUnicode_FSConverter, &root, &options.job, &options.rank, &options.world,
		    &options.attempt, &options.keep, &keep_every, &every_ms, &memory,
		    &options.socket, &options.program, &watch)) {
		return -1;
	}
	options.root = PyBytes_AS_STRING(root);
	options.keep_every = keep_every;
	options.persist_every_ms = every_ms;
	options.memory_bytes = memory;
	options.watch = watch;
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_ckpt_open(&ckpt, &options, &err);
	Py_END_ALLOW_THREADS;
	Py_DECREF(root);
	if (rv != 0) {
		core_raise(&err);
		return -1;
	}
	self->ckpt = ckpt;
	return 0;
}

static PyObject *session_close(struct session *self, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = {"timeout", NULL};
	PyObject *seconds = Py_None;
	struct pawl_ckpt *ckpt = self->ckpt;
	int timeout_ms;
	int rv;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", (char **)names, &seconds) ||
		(timeout_ms = core_timeout(seconds)) == -2) {
		return NULL;
	}
	if (!ckpt) {
		Py_RETURN_TRUE;
	}
	self->ckpt = NULL; /* nobody enters any more; who is in may leave */
	for (int64_t waited_ms = 0; self->users > 0; waited_ms++) {
		if (timeout_ms >= 0 && waited_ms > timeout_ms) {
			self->ckpt = ckpt;
			PyErr_SetString(PyExc_RuntimeError,
				"close: another thread is in a call on this checkpointer");
			return NULL;
		}
		Py_BEGIN_ALLOW_THREADS;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		Py_END_ALLOW_THREADS;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_ckpt_close(ckpt, timeout_ms, NULL);
	Py_END_ALLOW_THREADS;
	return PyBool_FromLong(rv == 0);
}

static void session_dealloc(struct session *self)
{
	if (self->ckpt) {
		Py_BEGIN_ALLOW_THREADS;
		pawl_ckpt_close(self->ckpt, 0, NULL);
		Py_END_ALLOW_THREADS;
	}
	Py_TYPE(self)->tp_free((PyObject *)self);
}

/* A part's buffers, borrowed for one call. */
struct borrowed {
	Py_buffer pickle, tensors, spans;
	int held; /* how many of the three, in this order */
};

static void release_parts(struct borrowed *held, Py_ssize_t n)
{
	for (Py_ssize_t i = 0; held && i < n; i++) {
		if (held[i].held > 2) {
			PyBuffer_Release(&held[i].spans);
		}
		if (held[i].held > 1) {
			PyBuffer_Release(&held[i].tensors);
		}
		if (held[i].held > 0) {
			PyBuffer_Release(&held[i].pickle);
		}
	}
	PyMem_Free(held);
}

static int borrow_part(PyObject *item, struct borrowed *held, struct pawl_ckpt_part *part)
{
	PyObject *pickle;
	PyObject *tensors;
	PyObject *spans;
	int shared;

	if (!PyTuple_Check(item) ||
		!PyArg_ParseTuple(item, "spOOO", &part->name, &shared, &pickle, &tensors, &spans)) {
		PyErr_SetString(PyExc_TypeError,
			"a part is (name, shared, pickle, tensors, spans)");
		return -1;
	}
	if (PyObject_GetBuffer(pickle, &held->pickle, PyBUF_SIMPLE) != 0) {
		return -1;
	}
	held->held = 1;
	if (PyObject_GetBuffer(tensors, &held->tensors, PyBUF_SIMPLE) != 0) {
		return -1;
	}
	held->held = 2;
	if (PyObject_GetBuffer(spans, &held->spans, PyBUF_SIMPLE) != 0) {
		return -1;
	}
	held->held = 3;
	if (held->spans.len % (Py_ssize_t)sizeof(struct pawl_ckpt_span) != 0 ||
		held->tensors.len > UINT32_MAX) {
		PyErr_SetString(PyExc_ValueError, "spans must be rows of four uint64");
		return -1;
	}
	part->shared = shared;
	part->pickle = held->pickle.buf;
	part->pickle_bytes = (uint64_t)held->pickle.len;
	part->tensors = held->tensors.buf;
	part->tensors_bytes = (uint32_t)held->tensors.len;
	part->spans = held->spans.buf;
	part->spans_n = (uint32_t)((size_t)held->spans.len / sizeof(struct pawl_ckpt_span));
	return 0;
}

static PyObject *session_save(struct session *self, PyObject *args)
{
	unsigned long long step;
	PyObject *list;
	int watch;
	struct pawl_err err;
	struct pawl_ckpt *ckpt;
	struct pawl_ckpt_part *parts;
	struct borrowed *held;
	PyObject *result = NULL;
	Py_ssize_t n;
	uint64_t id = 0;
	int rv = 0;

	if (!PyArg_ParseTuple(args, "KO!p", &step, &PyList_Type, &list, &watch)) {
		return NULL;
	}
	n = PyList_GET_SIZE(list);
	parts = PyMem_Calloc((size_t)n + 1, sizeof(*parts));
	held = PyMem_Calloc((size_t)n + 1, sizeof(*held));
	if (!parts || !held) {
		PyErr_NoMemory();
		goto release;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		if (borrow_part(PyList_GET_ITEM(list, i), &held[i], &parts[i]) != 0) {
			goto release;
		}
	}
	ckpt = enter(self);
	if (!ckpt) {
		goto release;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_ckpt_save(ckpt, step, parts, (uint32_t)n, watch, &id, &err);
	Py_END_ALLOW_THREADS;
	leave(self);
	result = rv == 0 ? PyLong_FromUnsignedLongLong(id) : core_raise(&err);
release:
	release_parts(held, held ? n : 0);
	PyMem_Free(parts);
	return result;
}

static PyObject *session_fence(struct session *self, PyObject *arg)
{
	unsigned long long groups = PyLong_AsUnsignedLongLong(arg);
	struct pawl_ckpt *ckpt;

	if (PyErr_Occurred() || !(ckpt = enter(self))) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	pawl_ckpt_fence(ckpt, groups);
	Py_END_ALLOW_THREADS;
	leave(self);
	Py_RETURN_NONE;
}

static PyObject *session_ask(struct session *self, PyObject *arg)
{
	bool back = arg == Py_None;
	unsigned long long step = back ? 0 : PyLong_AsUnsignedLongLong(arg);
	struct pawl_ckpt *ckpt;

	if (PyErr_Occurred() || !(ckpt = enter(self))) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	if (back) {
		pawl_ckpt_unask(ckpt);
	} else {
		pawl_ckpt_ask(ckpt, step);
	}
	Py_END_ALLOW_THREADS;
	leave(self);
	Py_RETURN_NONE;
}

static PyObject *session_withdraw(struct session *self, PyObject *args)
{
	unsigned long long id;
	int part;
	int storage;
	struct pawl_ckpt *ckpt;

	if (!PyArg_ParseTuple(args, "Kii", &id, &part, &storage) || !(ckpt = enter(self))) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	pawl_ckpt_withdraw(ckpt, id, part, storage);
	Py_END_ALLOW_THREADS;
	leave(self);
	Py_RETURN_NONE;
}

static PyObject *session_status(struct session *self, PyObject *arg)
{
	unsigned long long id = PyLong_AsUnsignedLongLong(arg);
	struct pawl_ckpt_status status;
	struct pawl_ckpt *ckpt;
	struct pawl_err err;
	int rv;

	if (PyErr_Occurred() || !(ckpt = enter(self))) {
		return NULL;
	}
	rv = pawl_ckpt_status(ckpt, id, &status, &err);
	leave(self);
	if (rv != 0) {
		return core_raise(&err);
	}
	return Py_BuildValue("(iisiii{s:K,s:K})", (int)status.level, status.code, status.why,
		(int)status.proof, status.part, status.storage, "stall_ns",
		(unsigned long long)status.stall_ns, "stage_ns",
		(unsigned long long)status.stage_ns);
}

/* True, False for the waiting that merely did not succeed, an exception for anything else. */
static PyObject *yes_no(int rv, const struct pawl_err *err)
{
	if (rv == 0) {
		Py_RETURN_TRUE;
	}
	if (rv == PAWL_ETIMEDOUT || rv == PAWL_ECANCELED) {
		Py_RETURN_FALSE;
	}
	return core_raise(err);
}

static PyObject *session_wait(struct session *self, PyObject *args)
{
	unsigned long long id;
	int level;
	PyObject *seconds;
	struct pawl_ckpt *ckpt;
	struct pawl_err err;
	int timeout_ms;
	int rv;

	if (!PyArg_ParseTuple(args, "KiO", &id, &level, &seconds) ||
		(timeout_ms = core_timeout(seconds)) == -2 || !(ckpt = enter(self))) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_ckpt_wait(ckpt, id, (enum pawl_ckpt_level)level, timeout_ms, &err);
	Py_END_ALLOW_THREADS;
	leave(self);
	return yes_no(rv, &err);
}

static PyObject *session_flush(struct session *self, PyObject *seconds)
{
	int timeout_ms = core_timeout(seconds);
	struct pawl_ckpt *ckpt;
	struct pawl_err err;
	int rv;

	if (timeout_ms == -2 || !(ckpt = enter(self))) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_ckpt_flush(ckpt, timeout_ms, &err);
	Py_END_ALLOW_THREADS;
	leave(self);
	return yes_no(rv, &err);
}

static PyObject *session_pin(struct session *self, PyObject *args)
{
	unsigned long long step;
	int pinned;
	struct pawl_ckpt *ckpt;
	struct pawl_err err;
	int rv;

	if (!PyArg_ParseTuple(args, "Kp", &step, &pinned) || !(ckpt = enter(self))) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_ckpt_pin(ckpt, step, pinned, &err);
	Py_END_ALLOW_THREADS;
	leave(self);
	if (rv != 0) {
		return core_raise(&err);
	}
	Py_RETURN_NONE;
}

static PyObject *session_pending(struct session *self, PyObject *unused)
{
	uint64_t steps[2];
	uint32_t n = 0;
	struct pawl_ckpt *ckpt = enter(self);
	struct pawl_err err;
	PyObject *list;
	int rv;

	if (!ckpt) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_ckpt_pending(ckpt, steps, &n, &err);
	Py_END_ALLOW_THREADS;
	leave(self);
	if (rv != 0) {
		return core_raise(&err);
	}
	list = PyList_New(0);
	for (uint32_t i = 0; list && i < n; i++) {
		PyObject *step = PyLong_FromUnsignedLongLong(steps[i]);

		if (!step || PyList_Append(list, step) != 0) {
			Py_CLEAR(list);
		}
		Py_XDECREF(step);
	}
	return list;
}

static PyObject *session_restore(struct session *self, PyObject *args)
{
	PyObject *step;
	PyObject *seconds;
	struct pawl_restore *restore;
	struct pawl_ckpt *ckpt;
	struct pawl_err err;
	unsigned long long number = 0;
	int timeout_ms;
	int rv;

	if (!PyArg_ParseTuple(args, "OO", &step, &seconds) ||
		(timeout_ms = core_timeout(seconds)) == -2) {
		return NULL;
	}
	if (step != Py_None) {
		number = PyLong_AsUnsignedLongLong(step);
	}
	if (PyErr_Occurred() || !(ckpt = enter(self))) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_ckpt_restore(ckpt, step != Py_None, number, timeout_ms, &restore, &err);
	Py_END_ALLOW_THREADS;
	leave(self);
	if (rv == PAWL_ENOENT) {
		Py_RETURN_NONE;
	}
	return rv == 0 ? core_restore_new(restore) : core_raise(&err);
}

static PyObject *session_imports(struct session *self, PyObject *arg)
{
	Py_ssize_t len;
	const char *names = PyUnicode_AsUTF8AndSize(arg, &len);
	struct pawl_ckpt *ckpt;

	if (!names || !(ckpt = enter(self))) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	pawl_ckpt_imports(ckpt, names, (size_t)len, NULL); /* only makes restarts faster */
	Py_END_ALLOW_THREADS;
	leave(self);
	Py_RETURN_NONE;
}

static PyObject *get_stopping(struct session *self, void *closure)
{
	struct pawl_ckpt *ckpt = enter(self);
	bool stop;

	if (!ckpt) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	stop = pawl_ckpt_stopping(ckpt);
	Py_END_ALLOW_THREADS;
	leave(self);
	return PyBool_FromLong(stop);
}

static PyObject *session_stop(struct session *self, PyObject *unused)
{
	struct pawl_ckpt *ckpt = enter(self);

	if (!ckpt) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	pawl_ckpt_stop(ckpt);
	Py_END_ALLOW_THREADS;
	leave(self);
	Py_RETURN_NONE;
}

static PyObject *get_diverged(struct session *self, void *closure)
{
	char *names = PyMem_Calloc(1, NAMES_BYTES);
	PyObject *text = NULL;
	PyObject *list = NULL;

	if (names && self->ckpt) {
		pawl_ckpt_diverged(self->ckpt, names, NAMES_BYTES);
	}
	text = names ? PyUnicode_DecodeFSDefault(names) : PyErr_NoMemory();
	list = text ? PyObject_CallMethod(text, "splitlines", NULL) : NULL;
	Py_XDECREF(text);
	PyMem_Free(names);
	return list;
}

static PyObject *get_notes(struct session *self, void *closure)
{
	char note[PAWL_CKPT_WHY_MAX];
	PyObject *list = PyList_New(0);

	while (list && self->ckpt && pawl_ckpt_note(self->ckpt, note, sizeof(note))) {
		PyObject *text = PyUnicode_DecodeFSDefault(note);

		if (!text || PyList_Append(list, text) != 0) {
			Py_CLEAR(list);
		}
		Py_XDECREF(text);
	}
	return list;
}

static PyObject *get_best_proof(struct session *self, void *closure)
{
	const char *why_not = "";
	bool can = self->ckpt && pawl_ckpt_can_watch(self->ckpt, &why_not);

	return Py_BuildValue("(is)", can, can || !why_not ? "" : why_not);
}

static PyMethodDef session_methods[] = {
	{"save", (PyCFunction)session_save, METH_VARARGS, "save(step, parts, watch) -> id"},
	{"fence", (PyCFunction)session_fence, METH_O, "fence(groups)"},
	{"ask", (PyCFunction)session_ask, METH_O, "ask(step), or ask(None) to take it back"},
	{"withdraw", (PyCFunction)session_withdraw, METH_VARARGS, "withdraw(id, part, storage)"},
	{"status", (PyCFunction)session_status, METH_O,
		"status(id) -> (level, code, message, proof, part, storage, timings)"},
	{"wait", (PyCFunction)session_wait, METH_VARARGS, "wait(id, level, timeout) -> bool"},
	{"flush", (PyCFunction)session_flush, METH_O, "flush(timeout) -> bool"},
	{"pin", (PyCFunction)session_pin, METH_VARARGS, "pin(step, pinned)"},
	{"pending", (PyCFunction)session_pending, METH_NOARGS,
		"pending() -> steps committed in memory, not yet durable"},
	{"restore", (PyCFunction)session_restore, METH_VARARGS,
		"restore(step, timeout) -> Restore | None"},
	{"stop", (PyCFunction)session_stop, METH_NOARGS,
		"stop(): a signal asked this rank to stop"},
	{"imports", (PyCFunction)session_imports, METH_O, "imports(names)"},
	{"close", (PyCFunction)(void (*)(void))session_close, METH_VARARGS | METH_KEYWORDS,
		"close(timeout=None) -> bool"},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef session_getset[] = {
	{"stopping", (getter)get_stopping, NULL, "a notice came", NULL},
	{"diverged", (getter)get_diverged, NULL, "partitions whose replicas differ", NULL},
	{"notes", (getter)get_notes, NULL, "things to say once", NULL},
	{"best_proof", (getter)get_best_proof, NULL, "(1 if the kernel can watch, else 0; why not)",
		NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject session_type = {
	PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pawl._core.Session",
	.tp_basicsize = sizeof(struct session),
	.tp_flags = Py_TPFLAGS_DEFAULT,
	.tp_doc = "A rank's connection to its agent.",
	.tp_new = PyType_GenericNew,
	.tp_init = (initproc)session_init,
	.tp_dealloc = (destructor)session_dealloc,
	.tp_methods = session_methods,
	.tp_getset = session_getset,
};

/* ---- functions ---- */

static PyObject *core_env(PyObject *module, PyObject *unused)
{
	struct pawl_env env;
	struct pawl_err err;

	if (pawl_env_resolve(NULL, NULL, &env, &err) != 0) {
		return core_raise(&err);
	}
	return Py_BuildValue("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:s,s:s,s:s}", "rank", env.rank, "world",
		env.world, "local_rank", env.local_rank, "local_world", env.local_world,
		"node_rank", env.node_rank, "nodes", env.nodes, "attempt", env.attempt, "job",
		env.job, "source", env.source, "job_source", env.job_source);
}

static int read_shape(PyObject *shape, struct pawl_tensor *tensor)
{
	Py_ssize_t n = PyTuple_GET_SIZE(shape);

	if (n > (Py_ssize_t)PAWL_TENSOR_DIMS_MAX) {
		PyErr_SetString(PyExc_ValueError, "too many dimensions");
		return -1;
	}
	tensor->ndim = (uint32_t)n;
	for (Py_ssize_t i = 0; i < n; i++) {
		tensor->shape[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(shape, i));
	}
	return PyErr_Occurred() ? -1 : 0;
}

static PyObject *core_encode_tensors(PyObject *module, PyObject *list)
{
	struct pawl_tensor tensor;
	struct pawl_err err;
	PyObject *result = NULL;
	void *table = NULL;
	size_t table_bytes = 0;

	if (!PyList_Check(list)) {
		PyErr_SetString(PyExc_TypeError,
			"a list of (name, dtype, shape, storage, offset_bytes)");
		return NULL;
	}
	for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
		const char *name;
		const char *dtype;
		PyObject *shape;
		unsigned long long off;

		if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "ssO!IK", &name, &dtype,
			    &PyTuple_Type, &shape, &tensor.storage, &off) ||
			read_shape(shape, &tensor) != 0) {
			goto free_table;
		}
		tensor.offset_bytes = off;
		snprintf(tensor.name, sizeof(tensor.name), "%s", name);
		snprintf(tensor.dtype, sizeof(tensor.dtype), "%s", dtype);
		if (pawl_tensor_append(&table, &table_bytes, &tensor, &err) != 0) {
			core_raise(&err);
			goto free_table;
		}
	}
	result = PyBytes_FromStringAndSize(table, (Py_ssize_t)table_bytes);
free_table:
	free(table);
	return result;
}

static PyObject *build_tensor(const struct pawl_tensor *tensor)
{
	PyObject *shape = PyTuple_New((Py_ssize_t)tensor->ndim);
	PyObject *name =
		PyUnicode_DecodeUTF8(tensor->name, (Py_ssize_t)strlen(tensor->name), "replace");

	for (uint32_t i = 0; shape && i < tensor->ndim; i++) {
		PyTuple_SET_ITEM(shape, (Py_ssize_t)i,
			PyLong_FromUnsignedLongLong(tensor->shape[i]));
	}
	if (!shape || !name) {
		Py_XDECREF(shape);
		Py_XDECREF(name);
		return NULL;
	}
	return Py_BuildValue("(NsNIK)", name, tensor->dtype, shape, tensor->storage,
		(unsigned long long)tensor->offset_bytes);
}

static PyObject *core_decode_tensors(PyObject *module, PyObject *arg)
{
	struct pawl_tensor tensor;
	struct pawl_err err;
	Py_buffer table;
	PyObject *list = PyList_New(0);
	size_t off = 0;
	int more = 1;

	if (!list || PyObject_GetBuffer(arg, &table, PyBUF_SIMPLE) != 0) {
		Py_XDECREF(list);
		return NULL;
	}
	while (list &&
		(more = pawl_tensor_decode(table.buf, (size_t)table.len, &off, &tensor, &err)) >
			0) {
		PyObject *item = build_tensor(&tensor);

		if (!item || PyList_Append(list, item) != 0) {
			Py_CLEAR(list);
		}
		Py_XDECREF(item);
	}
	PyBuffer_Release(&table);
	if (list && more < 0) {
		Py_DECREF(list);
		return core_raise(&err);
	}
	return list;
}

static PyObject *build_tag(const struct pawl_tag *tag)
{
	return Py_BuildValue("{s:K,s:s,s:s,s:K,s:O,s:d,s:I,s:s}", "step",
		(unsigned long long)tag->step, "tag", tag->tag, "level",
		tag->complete ? "durable" : "broken", "size", (unsigned long long)tag->size_bytes,
		"pinned", tag->pinned ? Py_True : Py_False, "created",
		(double)tag->created_ns / 1e9, "world", tag->world, "why", tag->why);
}

static PyObject *core_list_root(PyObject *module, PyObject *args)
{
	PyObject *root;
	struct pawl_tag *tags = NULL;
	struct pawl_err err;
	size_t n = 0;
	PyObject *list = NULL;
	int rv;

	if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &root)) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_tags_list(PyBytes_AS_STRING(root), &tags, &n, &err);
	Py_END_ALLOW_THREADS;
	Py_DECREF(root);
	if (rv != 0) {
		return core_raise(&err);
	}
	list = PyList_New(0);
	for (size_t i = 0; list && i < n; i++) {
		PyObject *item = build_tag(&tags[i]);

		if (!item || PyList_Append(list, item) != 0) {
			Py_CLEAR(list);
		}
		Py_XDECREF(item);
	}
	free(tags);
	return list;
}

static PyMethodDef core_functions[] = {
	{"env", core_env, METH_NOARGS, "env() -> rank, world, job… from the launcher's variables"},
	{"encode_tensors", core_encode_tensors, METH_O, "encode_tensors(list) -> bytes"},
	{"decode_tensors", core_decode_tensors, METH_O, "decode_tensors(bytes) -> list"},
	{"open_root", core_open_root, METH_VARARGS, "open_root(root, step) -> Restore"},
	{"list_root", core_list_root, METH_VARARGS, "list_root(root) -> list of dict"},
	{NULL, NULL, 0, NULL},
};

static struct PyModuleDef core_module = {
	PyModuleDef_HEAD_INIT,
	.m_name = "pawl._core",
	.m_doc = "libpawl, as Python sees it. Private: use the package.",
	.m_size = -1,
	.m_methods = core_functions,
};

PyMODINIT_FUNC PyInit__core(void)
{
	PyObject *module = PyModule_Create(&core_module);

	if (!module || PyType_Ready(&session_type) < 0 || PyType_Ready(&core_restore_type) < 0) {
		Py_XDECREF(module);
		return NULL;
	}
	pawl_error = PyErr_NewExceptionWithDoc("pawl.PawlError",
		"An error of libpawl: .code is its negative PAWL_E number, .name the number's "
		"name.",
		PyExc_RuntimeError, NULL);
	if (PyModule_AddObjectRef(module, "PawlError", pawl_error) < 0 ||
		PyModule_AddObjectRef(module, "Session", (PyObject *)&session_type) < 0 ||
		PyModule_AddObjectRef(module, "Restore", (PyObject *)&core_restore_type) < 0 ||
		PyModule_AddStringConstant(module, "version", PAWL_VERSION) < 0) {
		Py_DECREF(module);
		return NULL;
	}
	return module;
}
