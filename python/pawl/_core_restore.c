/* pawl._core.Restore: a checkpoint being read, by a worker or by a tool. Thin, like _core.c. */
#include "_core.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct restore {
	PyObject_HEAD struct pawl_restore *restore; /* NULL once closed */
	struct pawl_restore_info info;              /* description of the checkpoint */
	/* Guards restore, which one thread at a time may use, GIL or not. Taken without the GIL,
	 * which ranks below it. */
	pthread_mutex_t lock;
};

PyObject *core_restore_new(struct pawl_restore *taken)
{
	struct restore *self = PyObject_New(struct restore, &core_restore_type);

	if (!self) {
		pawl_restore_close(taken);
		return NULL;
	}
	self->restore = taken;
	pthread_mutex_init(&self->lock, NULL);
	pawl_restore_info(taken, &self->info);
	return (PyObject *)self;
}

static void restore_dealloc(struct restore *self)
{
	pawl_restore_close(self->restore);
	pthread_mutex_destroy(&self->lock);
	PyObject_Free(self);
}

static void lock(struct restore *self)
{
	Py_BEGIN_ALLOW_THREADS;
	pthread_mutex_lock(&self->lock);
	Py_END_ALLOW_THREADS;
}

/* Waits for the calls of other threads, so that close ends nothing that is in use. Returns false
 * with an exception set if the restore is closed; otherwise leave must follow. */
static bool enter(struct restore *self)
{
	lock(self);
	if (self->restore) {
		return true;
	}
	pthread_mutex_unlock(&self->lock);
	PyErr_SetString(PyExc_ValueError, "this restore is closed");
	return false;
}

static void leave(struct restore *self)
{
	pthread_mutex_unlock(&self->lock);
}

/* Returns the index of the partition that arg names; -1 with an exception set if there is none. */
static long take_index(const struct restore *self, PyObject *arg)
{
	long index = PyLong_AsLong(arg);

	if (PyErr_Occurred()) {
		return -1;
	}
	if (index < 0 || index >= (long)self->info.parts_n) {
		PyErr_SetString(PyExc_IndexError, "no such partition");
		return -1;
	}
	return index;
}

/* Converts a list of indices. The caller frees the result; NULL with an exception set. */
static uint32_t *take_indices(const struct restore *self, PyObject *list, Py_ssize_t *n)
{
	PyObject *fast = PySequence_Fast(list, "a sequence of indices");
	uint32_t *indices;

	if (!fast) {
		return NULL;
	}
	*n = PySequence_Fast_GET_SIZE(fast);
	indices = PyMem_New(uint32_t, *n + 1);
	for (Py_ssize_t i = 0; indices && i < *n; i++) {
		long index = take_index(self, PySequence_Fast_GET_ITEM(fast, i));

		if (index < 0) {
			PyMem_Free(indices);
			Py_DECREF(fast);
			return NULL;
		}
		indices[i] = (uint32_t)index;
	}
	Py_DECREF(fast);
	return indices ? indices : (uint32_t *)PyErr_NoMemory();
}

static PyObject *restore_read(struct restore *self, PyObject *list)
{
	struct pawl_err err;
	Py_ssize_t n = 0;
	uint32_t *indices = take_indices(self, list, &n);
	int rv = 0;

	if (!indices || !enter(self)) {
		PyMem_Free(indices);
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	for (Py_ssize_t i = 0; i < n && rv == 0; i++) {
		rv = pawl_restore_read(self->restore, indices[i], &err);
	}
	Py_END_ALLOW_THREADS;
	leave(self);
	PyMem_Free(indices);
	if (rv != 0) {
		return core_raise(&err);
	}
	Py_RETURN_NONE;
}

static PyObject *restore_pickle(struct restore *self, PyObject *arg)
{
	long index = take_index(self, arg);
	struct pawl_err err;
	PyObject *bytes = NULL;
	const void *pickle;
	uint64_t len;
	int rv;

	if (index < 0 || !enter(self)) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_restore_pickle(self->restore, (uint32_t)index, &pickle, &len, &err);
	Py_END_ALLOW_THREADS;
	if (rv == 0) {
		bytes = PyBytes_FromStringAndSize(pickle, (Py_ssize_t)len);
	}
	leave(self);
	return rv == 0 ? bytes : core_raise(&err);
}

static PyObject *restore_storages(struct restore *self, PyObject *arg)
{
	long index = take_index(self, arg);
	PyObject *list;

	if (index < 0 || !enter(self)) {
		return NULL;
	}
	list = PyList_New((Py_ssize_t)pawl_restore_storages(self->restore, (uint32_t)index));
	for (Py_ssize_t s = 0; list && s < PyList_GET_SIZE(list); s++) {
		PyList_SET_ITEM(list, s,
			PyLong_FromUnsignedLongLong(pawl_restore_storage_bytes(self->restore,
				(uint32_t)index, (uint32_t)s)));
	}
	leave(self);
	return list;
}

static PyObject *restore_tensors(struct restore *self, PyObject *arg)
{
	long index = take_index(self, arg);
	struct pawl_restore_part part;
	PyObject *bytes;

	if (index < 0 || !enter(self)) {
		return NULL;
	}
	pawl_restore_part(self->restore, (uint32_t)index, &part);
	bytes = PyBytes_FromStringAndSize(part.tensors, (Py_ssize_t)part.tensors_bytes);
	leave(self);
	return bytes;
}

/* the type of pawl_restore_read_needed and of make_copies */
typedef int copies_fn(struct pawl_restore *restore, const struct pawl_restore_copy *copies,
	size_t n, struct pawl_err *err);

/* Wraps pawl_restore_copy, which takes a const restore, in the type copies_fn. */
static int make_copies(struct pawl_restore *restore, const struct pawl_restore_copy *copies,
	size_t n, struct pawl_err *err)
{
	return pawl_restore_copy(restore, copies, n, err);
}

static PyObject *with_copies(struct restore *self, PyObject *arg, copies_fn *call)
{
	struct pawl_err err;
	Py_buffer spec;
	int rv;

	if (PyObject_GetBuffer(arg, &spec, PyBUF_SIMPLE) != 0) {
		return NULL;
	}
	if (spec.len % (Py_ssize_t)sizeof(struct pawl_restore_copy) != 0) {
		PyBuffer_Release(&spec);
		PyErr_SetString(PyExc_ValueError, "copies must be 5-tuples of uint64");
		return NULL;
	}
	if (!enter(self)) {
		PyBuffer_Release(&spec);
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = call(self->restore, spec.buf, (size_t)spec.len / sizeof(struct pawl_restore_copy),
		&err);
	Py_END_ALLOW_THREADS;
	leave(self);
	PyBuffer_Release(&spec);
	if (rv != 0) {
		return core_raise(&err);
	}
	Py_RETURN_NONE;
}

static PyObject *restore_read_needed(struct restore *self, PyObject *arg)
{
	return with_copies(self, arg, pawl_restore_read_needed);
}

static PyObject *restore_copy(struct restore *self, PyObject *arg)
{
	return with_copies(self, arg, make_copies);
}

static PyObject *restore_reshard(struct restore *self, PyObject *args)
{
	uint64_t lists[3][PAWL_TENSOR_DIMS_MAX];
	struct pawl_restore_box box = {.global = lists[0], .start = lists[1], .shape = lists[2]};
	struct pawl_restore_copy *copies = NULL;
	PyObject *tuples[3];
	PyObject *bytes = NULL;
	unsigned long long dst;
	struct pawl_err err;
	size_t n = 0;
	int rv;

	if (!PyArg_ParseTuple(args, "sssIO!O!O!K", &box.part, &box.tensor, &box.dtype,
		    &box.item_bytes, &PyTuple_Type, &tuples[0], &PyTuple_Type, &tuples[1],
		    &PyTuple_Type, &tuples[2], &dst)) {
		return NULL;
	}
	box.ndim = (uint32_t)PyTuple_GET_SIZE(tuples[0]);
	for (int i = 0; i < 3; i++) {
		if (!core_take_list(tuples[i], lists[i], box.ndim)) {
			return NULL;
		}
	}
	box.dst = dst;
	if (!enter(self)) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_restore_reshard(self->restore, &box, &copies, &n, &err);
	Py_END_ALLOW_THREADS;
	leave(self);
	if (rv == 0) {
		bytes = PyBytes_FromStringAndSize((const char *)copies,
			(Py_ssize_t)(n * sizeof(*copies)));
	}
	free(copies);
	return rv == 0 ? bytes : core_raise(&err);
}

static PyObject *restore_vote(struct restore *self, PyObject *args)
{
	int verdict;
	const char *why;
	PyObject *seconds;
	enum pawl_verdict all = PAWL_VERDICT_GO;
	struct pawl_err err;
	int timeout_ms;
	int rv;

	if (!PyArg_ParseTuple(args, "isO", &verdict, &why, &seconds) ||
		(timeout_ms = core_timeout(seconds)) == -2 || !enter(self)) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_restore_vote(self->restore, (enum pawl_verdict)verdict, why, timeout_ms, &all,
		&err);
	Py_END_ALLOW_THREADS;
	leave(self);
	return rv == 0 ? PyLong_FromLong((long)all) : core_raise(&err);
}

static PyObject *restore_mark_damaged(struct restore *self, PyObject *arg)
{
	const char *why = PyUnicode_AsUTF8(arg);

	if (!why || !enter(self)) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	pawl_restore_mark_damaged(self->restore, why);
	Py_END_ALLOW_THREADS;
	leave(self);
	Py_RETURN_NONE;
}

static PyObject *restore_close(struct restore *self, PyObject *unused)
{
	struct pawl_restore *taken;

	lock(self);
	taken = self->restore;
	self->restore = NULL;
	leave(self);
	Py_BEGIN_ALLOW_THREADS;
	pawl_restore_close(taken);
	Py_END_ALLOW_THREADS;
	Py_RETURN_NONE;
}

static PyObject *get_step(struct restore *self, void *closure)
{
	return PyLong_FromUnsignedLongLong(self->info.step);
}

static PyObject *get_tag(struct restore *self, void *closure)
{
	PyObject *tag = NULL;

	if (enter(self)) {
		tag = PyUnicode_DecodeFSDefault(self->info.tag);
		leave(self);
	}
	return tag;
}

static PyObject *get_world(struct restore *self, void *closure)
{
	return PyLong_FromUnsignedLong(self->info.world);
}

static PyObject *get_source(struct restore *self, void *closure)
{
	return PyUnicode_FromString(self->info.memory ? "memory" : "store");
}

static PyObject *get_parts(struct restore *self, void *closure)
{
	PyObject *list;

	if (!enter(self)) {
		return NULL;
	}
	list = PyList_New(0);
	for (uint32_t p = 0; list && p < self->info.parts_n; p++) {
		struct pawl_restore_part part;
		PyObject *item;

		pawl_restore_part(self->restore, p, &part);
		item = Py_BuildValue("(sLK)", part.name, (long long)part.rank,
			(unsigned long long)part.size_bytes);
		if (!item || PyList_Append(list, item) != 0) {
			Py_CLEAR(list);
		}
		Py_XDECREF(item);
	}
	leave(self);
	return list;
}

static PyObject *get_files(struct restore *self, void *closure)
{
	PyObject *list;

	if (!enter(self)) {
		return NULL;
	}
	list = PyList_New(0);
	for (uint32_t p = 0; list && p < self->info.parts_n; p++) {
		struct pawl_restore_part part;
		PyObject *item;

		pawl_restore_part(self->restore, p, &part);
		item = Py_BuildValue("(sO)", part.file, part.raw ? Py_True : Py_False);
		if (!item || PyList_Append(list, item) != 0) {
			Py_CLEAR(list);
		}
		Py_XDECREF(item);
	}
	leave(self);
	return list;
}

PyObject *core_open_root(PyObject *module, PyObject *args)
{
	PyObject *root;
	PyObject *which;
	struct pawl_restore *taken;
	struct pawl_err err;
	const char *tag = NULL;
	unsigned long long step = 0;
	int rv;

	if (!PyArg_ParseTuple(args, "O&O", PyUnicode_FSConverter, &root, &which)) {
		return NULL;
	}
	if (PyUnicode_Check(which)) {
		tag = PyUnicode_AsUTF8(which);
	} else if (which != Py_None) {
		step = PyLong_AsUnsignedLongLong(which);
	}
	if (PyErr_Occurred()) {
		Py_DECREF(root);
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = tag ? pawl_restore_open_tag(PyBytes_AS_STRING(root), tag, &taken, &err)
		 : pawl_restore_open(PyBytes_AS_STRING(root), which != Py_None, step, &taken, &err);
	Py_END_ALLOW_THREADS;
	Py_DECREF(root);
	return rv == 0 ? core_restore_new(taken) : core_raise(&err);
}

static PyMethodDef restore_methods[] = {
	{"read", (PyCFunction)restore_read, METH_O, "read(indices): reads and verifies"},
	{"pickle", (PyCFunction)restore_pickle, METH_O,
		"pickle(i) -> bytes, verified; may come before read"},
	{"storages", (PyCFunction)restore_storages, METH_O, "storages(i) -> sizes in bytes"},
	{"tensors", (PyCFunction)restore_tensors, METH_O, "tensors(i) -> bytes of the table"},
	{"need", (PyCFunction)restore_read_needed, METH_O,
		"need(spec): reads and verifies what the copies of spec need"},
	{"reshard", (PyCFunction)restore_reshard, METH_VARARGS,
		"reshard(part, tensor, dtype, item_bytes, global, start, shape, dst) -> spec"},
	{"copy", (PyCFunction)restore_copy, METH_O,
		"copy(spec): (part, storage, offset, destination, bytes) each"},
	{"vote", (PyCFunction)restore_vote, METH_VARARGS,
		"vote(verdict, why, timeout) -> verdict of all"},
	{"condemn", (PyCFunction)restore_mark_damaged, METH_O,
		"condemn(why): marks it damaged, so that nobody finds it again"},
	{"close", (PyCFunction)restore_close, METH_NOARGS, "close()"},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef restore_getset[] = {
	{"step", (getter)get_step, NULL, "training step", NULL},
	{"tag", (getter)get_tag, NULL, "directory's name", NULL},
	{"world", (getter)get_world, NULL, "ranks that saved", NULL},
	{"source", (getter)get_source, NULL, "memory or store", NULL},
	{"parts", (getter)get_parts, NULL, "list of (name, rank or -1, bytes)", NULL},
	{"files", (getter)get_files, NULL, "list of (file's name, whether it is raw)", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject core_restore_type = {
	PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pawl._core.Restore",
	.tp_basicsize = sizeof(struct restore),
	.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.tp_doc = "A checkpoint being read.",
	.tp_dealloc = (destructor)restore_dealloc,
	.tp_methods = restore_methods,
	.tp_getset = restore_getset,
};
