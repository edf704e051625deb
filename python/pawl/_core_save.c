/* How pawl._core.Session makes a save, at once or part by part, and what holds for its bytes until
 * they are copied. */
#include "_core_session.h"

/* The buffers of a part, borrowed for one call. */
struct borrowed {
	Py_buffer pickle, tensors, spans;
	int buffers_n; /* how many of the three are borrowed, in this order */
};

static void release_parts(struct borrowed *borrowed, Py_ssize_t n)
{
	for (Py_ssize_t i = 0; borrowed && i < n; i++) {
		if (borrowed[i].buffers_n > 2) {
			PyBuffer_Release(&borrowed[i].spans);
		}
		if (borrowed[i].buffers_n > 1) {
			PyBuffer_Release(&borrowed[i].tensors);
		}
		if (borrowed[i].buffers_n > 0) {
			PyBuffer_Release(&borrowed[i].pickle);
		}
	}
	PyMem_Free(borrowed);
}

static int borrow_part(PyObject *item, struct borrowed *borrowed, struct pawl_ckpt_part *part)
{
	PyObject *pickle;
	PyObject *tensors;
	PyObject *spans;
	int shared;
	int raw = 0;

	if (!PyTuple_Check(item) ||
		!PyArg_ParseTuple(item, "spOOO|p", &part->name, &shared, &pickle, &tensors, &spans,
			&raw)) {
		PyErr_SetString(PyExc_TypeError,
			"a part is (name, shared, pickle, tensors, spans[, raw])");
		return -1;
	}
	if (PyObject_GetBuffer(pickle, &borrowed->pickle, PyBUF_SIMPLE) != 0) {
		return -1;
	}
	borrowed->buffers_n = 1;
	if (PyObject_GetBuffer(tensors, &borrowed->tensors, PyBUF_SIMPLE) != 0) {
		return -1;
	}
	borrowed->buffers_n = 2;
	if (PyObject_GetBuffer(spans, &borrowed->spans, PyBUF_SIMPLE) != 0) {
		return -1;
	}
	borrowed->buffers_n = 3;
	if (borrowed->spans.len % (Py_ssize_t)sizeof(struct pawl_ckpt_span) != 0 ||
		borrowed->tensors.len > UINT32_MAX) {
		PyErr_SetString(PyExc_ValueError, "spans must be rows of four uint64");
		return -1;
	}
	part->shared = shared;
	part->raw = raw;
	part->pickle = borrowed->pickle.buf;
	part->pickle_bytes = (uint64_t)borrowed->pickle.len;
	part->tensors = borrowed->tensors.buf;
	part->tensors_bytes = (uint32_t)borrowed->tensors.len;
	part->spans = borrowed->spans.buf;
	part->spans_n = (uint32_t)((size_t)borrowed->spans.len / sizeof(struct pawl_ckpt_span));
	return 0;
}

/* The save to make; tag NULL: the one named after step. */
struct which {
	const char *tag;
	uint64_t step;
	uint32_t flags;
	bool watch;
};

static PyObject *save_parts(struct session *self, PyObject *list, const struct which *which)
{
	struct pawl_err err;
	struct pawl_ckpt *ckpt;
	PyObject *result = NULL;
	Py_ssize_t n = PyList_GET_SIZE(list);
	struct pawl_ckpt_part *parts = PyMem_Calloc((size_t)n + 1, sizeof(*parts));
	struct borrowed *borrowed = PyMem_Calloc((size_t)n + 1, sizeof(*borrowed));
	uint64_t id = 0;
	int rv = 0;

	if (!parts || !borrowed) {
		PyErr_NoMemory();
		goto release;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		if (borrow_part(PyList_GET_ITEM(list, i), &borrowed[i], &parts[i]) != 0) {
			goto release;
		}
	}
	ckpt = core_session_enter(self);
	if (!ckpt) {
		goto release;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = which->tag
		? pawl_ckpt_save_tag(ckpt, which->tag, which->step, which->flags, parts,
			  (uint32_t)n, which->watch, &id, &err)
		: pawl_ckpt_save(ckpt, which->step, parts, (uint32_t)n, which->watch, &id, &err);
	Py_END_ALLOW_THREADS;
	core_session_leave(self);
	result = rv == 0 ? PyLong_FromUnsignedLongLong(id) : core_raise(&err);
release:
	release_parts(borrowed, borrowed ? n : 0);
	PyMem_Free(parts);
	return result;
}

PyObject *core_session_save(struct session *self, PyObject *args)
{
	unsigned long long step;
	PyObject *list;
	int watch;

	if (!PyArg_ParseTuple(args, "KO!p", &step, &PyList_Type, &list, &watch)) {
		return NULL;
	}
	return save_parts(self, list, &(struct which){.step = step, .watch = watch});
}

/* Reads a step; None: PAWL_STEP_NONE. Returns false with an exception set if it is no step. */
static bool read_step(PyObject *step, uint64_t *number)
{
	*number = step == Py_None ? PAWL_STEP_NONE : PyLong_AsUnsignedLongLong(step);
	return !PyErr_Occurred();
}

PyObject *core_session_save_tag(struct session *self, PyObject *args)
{
	struct which which = {0};
	PyObject *step;
	PyObject *list;
	unsigned flags;
	int watch;

	if (!PyArg_ParseTuple(args, "sOIO!p", &which.tag, &step, &flags, &PyList_Type, &list,
		    &watch) ||
		!read_step(step, &which.step)) {
		return NULL;
	}
	which.flags = flags;
	which.watch = watch;
	return save_parts(self, list, &which);
}

PyObject *core_session_begin(struct session *self, PyObject *args)
{
	const char *tag;
	PyObject *step;
	unsigned flags;
	uint64_t number;
	uint64_t id = 0;
	struct pawl_ckpt *ckpt;
	struct pawl_err err;
	int rv;

	if (!PyArg_ParseTuple(args, "sOI", &tag, &step, &flags) || !read_step(step, &number) ||
		!(ckpt = core_session_enter(self))) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_ckpt_begin(ckpt, tag, number, flags, &id, &err);
	Py_END_ALLOW_THREADS;
	core_session_leave(self);
	return rv == 0 ? PyLong_FromUnsignedLongLong(id) : core_raise(&err);
}

PyObject *core_session_add(struct session *self, PyObject *item)
{
	struct pawl_ckpt_part part;
	struct borrowed *borrowed = PyMem_Calloc(1, sizeof(*borrowed));
	struct pawl_ckpt *ckpt;
	struct pawl_err err;
	int rv = -1;

	if (!borrowed) {
		return PyErr_NoMemory();
	}
	if (borrow_part(item, borrowed, &part) == 0 && (ckpt = core_session_enter(self))) {
		Py_BEGIN_ALLOW_THREADS;
		rv = pawl_ckpt_add(ckpt, &part, &err);
		Py_END_ALLOW_THREADS;
		core_session_leave(self);
		if (rv != 0) {
			core_raise(&err);
		}
	}
	release_parts(borrowed, 1);
	return rv == 0 ? Py_NewRef(Py_None) : NULL;
}

PyObject *core_session_commit(struct session *self, PyObject *unused)
{
	struct pawl_ckpt *ckpt = core_session_enter(self);
	struct pawl_err err;
	int rv;

	if (!ckpt) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_ckpt_commit(ckpt, &err);
	Py_END_ALLOW_THREADS;
	core_session_leave(self);
	return rv == 0 ? Py_NewRef(Py_None) : core_raise(&err);
}

PyObject *core_session_drop(struct session *self, PyObject *arg)
{
	const char *why = PyUnicode_AsUTF8(arg);
	struct pawl_ckpt *ckpt;

	if (!why || !(ckpt = core_session_enter(self))) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	pawl_ckpt_drop(ckpt, why);
	Py_END_ALLOW_THREADS;
	core_session_leave(self);
	Py_RETURN_NONE;
}

PyObject *core_session_abandon(struct session *self, PyObject *arg)
{
	const char *why = PyUnicode_AsUTF8(arg);

	if (!why) {
		return NULL;
	}
	if (self->ckpt) {
		pawl_ckpt_abandon(self->ckpt, why);
	}
	Py_RETURN_NONE;
}

PyObject *core_session_fence(struct session *self, PyObject *arg)
{
	unsigned long long groups = PyLong_AsUnsignedLongLong(arg);
	struct pawl_ckpt *ckpt;

	if (PyErr_Occurred() || !(ckpt = core_session_enter(self))) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	pawl_ckpt_fence(ckpt, groups);
	Py_END_ALLOW_THREADS;
	core_session_leave(self);
	Py_RETURN_NONE;
}

PyObject *core_session_announce(struct session *self, PyObject *arg)
{
	bool back = arg == Py_None;
	unsigned long long step = back ? 0 : PyLong_AsUnsignedLongLong(arg);
	struct pawl_ckpt *ckpt;

	if (PyErr_Occurred() || !(ckpt = core_session_enter(self))) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	if (back) {
		pawl_ckpt_skip(ckpt);
	} else {
		pawl_ckpt_announce(ckpt, step);
	}
	Py_END_ALLOW_THREADS;
	core_session_leave(self);
	Py_RETURN_NONE;
}

PyObject *core_session_withdraw(struct session *self, PyObject *args)
{
	unsigned long long id;
	int part;
	int storage;
	struct pawl_ckpt *ckpt;

	if (!PyArg_ParseTuple(args, "Kii", &id, &part, &storage) ||
		!(ckpt = core_session_enter(self))) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	pawl_ckpt_withdraw(ckpt, id, part, storage);
	Py_END_ALLOW_THREADS;
	core_session_leave(self);
	Py_RETURN_NONE;
}
