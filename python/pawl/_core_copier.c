/* pawl._core.Copier: copies of memory that stays in use. See _core.c and pawl/copier.h. */
#include "_core.h"

#include "pawl/copier.h"

struct copier {
	PyObject_HEAD struct pawl_copier *copier; /* NULL: open failed */
	Py_buffer *targets;                       /* targets of the copy in progress, borrowed */
	Py_ssize_t targets_n;                     /* number of entries in targets */
	bool starting;                            /* a thread is in begin; guarded by the GIL */
};

static PyObject *copier_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = {"watch", NULL};
	struct copier *self;
	struct pawl_err err;
	int watch;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "p", (char **)names, &watch)) {
		return NULL;
	}
	self = (struct copier *)type->tp_alloc(type, 0);
	if (self && pawl_copier_open(&self->copier, watch, &err) != 0) {
		Py_DECREF(self);
		return core_raise(&err);
	}
	return (PyObject *)self;
}

static void release_targets(struct copier *self)
{
	for (Py_ssize_t i = 0; i < self->targets_n; i++) {
		PyBuffer_Release(&self->targets[i]);
	}
	PyMem_Free(self->targets);
	self->targets = NULL;
	self->targets_n = 0;
}

static void copier_dealloc(struct copier *self)
{
	Py_BEGIN_ALLOW_THREADS;
	pawl_copier_close(self->copier);
	Py_END_ALLOW_THREADS;
	release_targets(self);
	Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Borrows the targets, and stores their addresses in to. Fails if a target is not as long as its
 * span. */
static bool acquire_targets(struct copier *self, PyObject *list, const struct pawl_ckpt_span *spans,
	void **to, Py_ssize_t n)
{
	self->targets = PyMem_Calloc((size_t)n + 1, sizeof(*self->targets));
	if (!self->targets) {
		PyErr_NoMemory();
		return false;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		Py_buffer *target = &self->targets[i];

		if (PyObject_GetBuffer(PyList_GET_ITEM(list, i), target, PyBUF_WRITABLE) != 0) {
			return false;
		}
		self->targets_n++;
		to[i] = target->buf;
		if ((uint64_t)target->len != spans[i].size_bytes) {
			PyErr_SetString(PyExc_ValueError, "a target must be as long as its span");
			return false;
		}
	}
	return true;
}

static int start(struct copier *self, PyObject *list, const Py_buffer *spans,
	enum pawl_ckpt_proof *proof)
{
	Py_ssize_t n = PyList_GET_SIZE(list);
	void **to = PyMem_Calloc((size_t)n + 1, sizeof(*to));
	struct pawl_err err;
	uint32_t span;
	int rv = -1;

	if (!to) {
		PyErr_NoMemory();
		return -1;
	}
	Py_BEGIN_ALLOW_THREADS;
	/* Waits for the previous copy, whose targets are released next. */
	pawl_copier_wait(self->copier, &span);
	Py_END_ALLOW_THREADS;
	release_targets(self);
	if (acquire_targets(self, list, spans->buf, to, n)) {
		Py_BEGIN_ALLOW_THREADS;
		rv = pawl_copier_begin(self->copier, spans->buf, to, (uint32_t)n, proof, &err);
		Py_END_ALLOW_THREADS;
		if (rv != 0) {
			core_raise(&err);
		}
	}
	if (rv != 0) {
		release_targets(self);
	}
	PyMem_Free(to);
	return rv;
}

static PyObject *copier_begin(struct copier *self, PyObject *args)
{
	Py_buffer spans;
	PyObject *list;
	enum pawl_ckpt_proof proof = PAWL_CKPT_COPIED;
	int rv = -1;

	if (!PyArg_ParseTuple(args, "y*O!", &spans, &PyList_Type, &list)) {
		return NULL;
	}
	if (self->starting) {
		PyErr_SetString(PyExc_RuntimeError, "begin: another thread is in this call");
	} else if ((size_t)spans.len !=
		(size_t)PyList_GET_SIZE(list) * sizeof(struct pawl_ckpt_span)) {
		PyErr_SetString(PyExc_ValueError,
			"spans must be rows of four uint64, one row per target");
	} else {
		self->starting = true;
		rv = start(self, list, &spans, &proof);
		self->starting = false;
	}
	PyBuffer_Release(&spans);
	return rv == 0 ? PyLong_FromLong(proof) : NULL;
}

static PyObject *copier_fence(struct copier *self, PyObject *arg)
{
	unsigned long long groups = PyLong_AsUnsignedLongLong(arg);

	if (PyErr_Occurred()) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	pawl_copier_fence(self->copier, groups);
	Py_END_ALLOW_THREADS;
	Py_RETURN_NONE;
}

static PyObject *copier_wait(struct copier *self, PyObject *unused)
{
	uint32_t span = 0;
	int rv;

	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_copier_wait(self->copier, &span);
	Py_END_ALLOW_THREADS;
	return Py_BuildValue("(iI)", rv, span);
}

static PyObject *get_busy(struct copier *self, void *closure)
{
	return PyBool_FromLong(pawl_copier_busy(self->copier));
}

static PyMethodDef copier_methods[] = {
	{"begin", (PyCFunction)copier_begin, METH_VARARGS, "begin(spans, targets) -> proof"},
	{"fence", (PyCFunction)copier_fence, METH_O, "fence(groups)"},
	{"wait", (PyCFunction)copier_wait, METH_NOARGS, "wait() -> (code, span)"},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef copier_getset[] = {
	{"busy", (getter)get_busy, NULL, "whether a copy is under way", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject core_copier_type = {
	PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pawl._core.Copier",
	.tp_basicsize = sizeof(struct copier),
	.tp_flags = Py_TPFLAGS_DEFAULT,
	.tp_doc = "Copies memory that stays in use.",
	.tp_new = copier_new,
	.tp_dealloc = (destructor)copier_dealloc,
	.tp_methods = copier_methods,
	.tp_getset = copier_getset,
};
