/*
 * pawl._core.Group and Operation: collectives and messages. See _core.c and pawl/coll.h.
 *
 * An operation's memory must stay until the operation is done, whether or not Python still refers
 * to it. So the group refers to every operation that is not known to be done, in the order of
 * submission. Each submit releases the operations at the front that are done. keep is the object
 * that has the memory of the operation; the operation refers to it until it is done.
 */
#include "_core.h"

#include <stddef.h>
#include <stdio.h>

#define SLICE_NS 100000000 /* longest wait without a check for Ctrl-C */

struct group {
	PyObject_HEAD struct pawl_group *group; /* NULL: open failed */
	unsigned int ranks;                     /* number of ranks */
	char endpoint[PAWL_ENDPOINT_MAX];       /* this rank's endpoint */
	struct operation *first, *last;         /* owned list of operations not known to be done */
	struct group *base; /* owned; the group that was shrunk to this one, or NULL */
};

struct operation {
	PyObject_HEAD struct pawl_work work; /* used by the library until the operation is done */
	struct group *group;                 /* owned */
	struct operation *next;              /* next operation in the group's list */
	PyObject *keep;                      /* owned; see above; NULL: released */
	Py_buffer in_at, out_at; /* tables of an all-to-all; otherwise their obj is NULL */
	bool watched;            /* Group.next still has to return keep */
};

/* ---- Operation ---- */

/* Drops the references to the memory of an operation that is done. */
static void release_memory(struct operation *op)
{
	if (!op->watched) {
		Py_CLEAR(op->keep);
	}
	PyBuffer_Release(&op->in_at);
	PyBuffer_Release(&op->out_at);
}

static void operation_dealloc(struct operation *op)
{
	op->watched = false;
	release_memory(op);
	Py_CLEAR(op->group);
	Py_TYPE(op)->tp_free((PyObject *)op);
}

static int wait_slice(struct operation *op, int64_t timeout_ns, struct pawl_err *err)
{
	int rv;

	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_group_wait(op->group->group, &op->work, timeout_ns, err);
	Py_END_ALLOW_THREADS;
	return rv;
}

static PyObject *operation_wait(struct operation *op, PyObject *const *args, Py_ssize_t n)
{
	double s = n > 0 && args[0] != Py_None ? PyFloat_AsDouble(args[0]) : -1;
	int64_t left_ns = s >= 0 ? core_timeout_ns(s) : INT64_MAX;
	struct pawl_err err;
	int rv = 0;

	if (PyErr_Occurred()) {
		return NULL;
	}
	while (!pawl_work_done(&op->work) || op->work.code != 0) {
		bool was_done = pawl_work_done(&op->work);
		int64_t slice_ns = left_ns < SLICE_NS ? left_ns : SLICE_NS;

		rv = wait_slice(op, slice_ns, &err);
		left_ns -= slice_ns;
		if (rv != PAWL_ETIMEDOUT || was_done || left_ns <= 0) {
			break;
		}
		rv = 0; /* The operation is not done, or was not when the wait returned. */
		if (PyErr_CheckSignals() != 0) {
			return NULL;
		}
	}
	if (pawl_work_done(&op->work)) {
		release_memory(op);
	}
	/* The message in err names the timeout of one slice. */
	if (rv == PAWL_ETIMEDOUT && !pawl_work_done(&op->work)) {
		snprintf(err.msg, sizeof(err.msg),
			"collectives: number %llu is not done within the timeout of %.1f s",
			(unsigned long long)op->work.number, s);
	}
	if (rv != 0) {
		return core_raise(&err);
	}
	Py_RETURN_NONE;
}

static PyObject *operation_watch(struct operation *op, PyObject *unused)
{
	if (!op->watched && pawl_group_watch(op->group->group, &op->work)) {
		op->watched = true;
		Py_INCREF(op); /* reference held until Group.next returns it */
	}
	return PyBool_FromLong(op->watched);
}

static PyObject *operation_release(struct operation *op, PyObject *unused)
{
	Py_BEGIN_ALLOW_THREADS;
	pawl_group_release(op->group->group, &op->work);
	Py_END_ALLOW_THREADS;
	Py_RETURN_NONE;
}

static PyObject *get_done(struct operation *op, void *closure)
{
	return PyBool_FromLong(pawl_work_done(&op->work));
}

static PyObject *get_failed(struct operation *op, void *closure)
{
	return PyBool_FromLong(pawl_work_done(&op->work) && op->work.code != 0);
}

static PyObject *get_source(struct operation *op, void *closure)
{
	return PyLong_FromUnsignedLong(op->work.from);
}

static PyMethodDef operation_methods[] = {
	{"wait", (PyCFunction)(void (*)(void))operation_wait, METH_FASTCALL, "wait(timeout=None)"},
	{"watch", (PyCFunction)operation_watch, METH_NOARGS,
		"watch() -> whether Group.next will return it"},
	{"release", (PyCFunction)operation_release, METH_NOARGS,
		"release() begins an operation submitted with held=True; once"},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef operation_getset[] = {
	{"done", (getter)get_done, NULL, "whether it has succeeded or failed", NULL},
	{"failed", (getter)get_failed, NULL, "whether it has failed", NULL},
	{"source", (getter)get_source, NULL, "sender of a received message", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject core_operation_type = {
	PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pawl._core.Operation",
	.tp_basicsize = sizeof(struct operation),
	.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.tp_doc = "A collective or a message under way.",
	.tp_dealloc = (destructor)operation_dealloc,
	.tp_methods = operation_methods,
	.tp_getset = operation_getset,
};

/* ---- Group ---- */

static PyObject *group_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = {"rank", "ranks", "toward", NULL};
	const char *route_hint = NULL;
	struct group *self;
	struct pawl_err err;
	unsigned int rank;
	unsigned int ranks;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "II|z", (char **)names, &rank, &ranks,
		    &route_hint)) {
		return NULL;
	}
	self = (struct group *)type->tp_alloc(type, 0);
	if (self) {
		self->ranks = ranks;
	}
	if (self &&
		pawl_group_open(&self->group, rank, ranks, route_hint, self->endpoint, &err) != 0) {
		Py_DECREF(self);
		return core_raise(&err);
	}
	return (PyObject *)self;
}

/* Releases the operations at the front of the list that are done. */
static void reap(struct group *self)
{
	while (self->first && pawl_work_done(&self->first->work)) {
		struct operation *op = self->first;

		self->first = op->next;
		release_memory(op);
		Py_DECREF(op);
	}
}

/* Closes the group. It has no operations any more, since each refers to its group. */
static void group_dealloc(struct group *self)
{
	Py_BEGIN_ALLOW_THREADS;
	pawl_group_close(self->group);
	Py_END_ALLOW_THREADS;
	Py_CLEAR(self->base);
	Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *group_join(struct group *self, PyObject *args)
{
	PyObject *list;
	double s;
	PyObject *fast = PyArg_ParseTuple(args, "Od", &list, &s)
		? PySequence_Fast(list, "join takes a list of endpoints")
		: NULL;
	Py_ssize_t n = fast ? PySequence_Fast_GET_SIZE(fast) : 0;
	const char **endpoints = PyMem_Calloc((size_t)n + 1, sizeof(*endpoints));
	struct pawl_err err;
	bool ok = fast && endpoints && n == (Py_ssize_t)self->ranks;
	int rv = 0;

	for (Py_ssize_t i = 0; i < n && ok; i++) {
		endpoints[i] = PyUnicode_AsUTF8(PySequence_Fast_GET_ITEM(fast, i));
		ok = endpoints[i] != NULL;
	}
	if (ok) {
		Py_BEGIN_ALLOW_THREADS;
		rv = pawl_group_join(self->group, endpoints, core_timeout_ns(s), &err);
		Py_END_ALLOW_THREADS;
	}
	PyMem_Free(endpoints);
	Py_XDECREF(fast);
	if (!ok) {
		if (!PyErr_Occurred()) {
			PyErr_SetString(PyExc_ValueError, "join takes one endpoint per rank");
		}
		return NULL;
	}
	return rv == 0 ? Py_NewRef(Py_None) : core_raise(&err);
}

/* Reads the arguments of submit. Returns false with an exception set if one is invalid. */
static bool take_call(struct pawl_coll_call *call, PyObject *const *args)
{
	unsigned long long in;
	unsigned long long out;
	double timeout;

	call->kind = (enum pawl_coll)PyLong_AsLong(args[0]);
	call->op = (enum pawl_reduce_op)PyLong_AsLong(args[1]);
	call->dtype = (enum pawl_dtype)PyLong_AsLong(args[2]);
	call->mean = PyObject_IsTrue(args[3]) == 1;
	call->root = (uint32_t)PyLong_AsUnsignedLongMask(args[4]);
	call->tag = (uint32_t)PyLong_AsUnsignedLongMask(args[5]);
	call->len_bytes = PyLong_AsUnsignedLongLong(args[6]);
	in = PyLong_AsUnsignedLongLong(args[7]);
	out = PyLong_AsUnsignedLongLong(args[8]);
	timeout = PyFloat_AsDouble(args[9]);
	call->in = (const void *)(uintptr_t)in;
	call->out = (void *)(uintptr_t)out;
	call->timeout_ns = core_timeout_ns(timeout);
	call->deferred = PyObject_IsTrue(args[10]) == 1;
	return !PyErr_Occurred();
}

/* Borrows one of the two tables of an all-to-all. */
static bool take_parts(const struct group *self, Py_buffer *at, PyObject *bytes,
	const uint64_t **parts)
{
	if (PyObject_GetBuffer(bytes, at, PyBUF_SIMPLE) != 0) {
		return false;
	}
	*parts = at->buf;
	if ((size_t)at->len != (self->ranks + 1) * sizeof(uint64_t)) {
		PyErr_SetString(PyExc_ValueError,
			"in_at and out_at must have one uint64 per rank, and one more");
		return false;
	}
	return true;
}

static bool submit(struct group *self, struct operation *op, PyObject *const *args, bool parts)
{
	struct pawl_coll_call call = {0};
	struct pawl_err err;

	if (!take_call(&call, args) ||
		(parts &&
			(!take_parts(self, &op->in_at, args[12], &call.in_at) ||
				!take_parts(self, &op->out_at, args[13], &call.out_at)))) {
		return false;
	}
	if (pawl_group_submit(self->group, &op->work, &call, &err) != 0) {
		core_raise(&err);
		return false;
	}
	return true;
}

static PyObject *group_submit(struct group *self, PyObject *const *args, Py_ssize_t n)
{
	struct operation *op;

	if (n != 12 && n != 14) {
		PyErr_SetString(PyExc_TypeError, "submit takes 12 arguments, or 14");
		return NULL;
	}
	reap(self);
	op = (struct operation *)core_operation_type.tp_alloc(&core_operation_type, 0);
	if (!op) {
		return NULL;
	}
	op->group = (struct group *)Py_NewRef(self);
	op->keep = Py_NewRef(args[11]);
	if (!submit(self, op, args, n == 14)) {
		Py_DECREF(op);
		return NULL;
	}
	if (self->first) {
		self->last->next = op;
	} else {
		self->first = op;
	}
	self->last = (struct operation *)Py_NewRef(op);
	return (PyObject *)op;
}

static struct operation *operation_of(struct pawl_work *work)
{
	return (struct operation *)(void *)((char *)work - offsetof(struct operation, work));
}

/* Holds the GIL throughout: without the GIL no operation can be freed. */
static PyObject *group_find_using(struct group *self, PyObject *args)
{
	unsigned long long address;
	unsigned long long bytes;
	struct pawl_work *work;

	if (!PyArg_ParseTuple(args, "KK", &address, &bytes)) {
		return NULL;
	}
	work = pawl_group_find_using(self->group, (const void *)(uintptr_t)address, bytes);
	return Py_NewRef(work ? (PyObject *)operation_of(work) : Py_None);
}

static PyObject *group_next_completion(struct group *self, PyObject *unused)
{
	struct pawl_work *work;
	struct operation *op;
	PyObject *keep;

	Py_BEGIN_ALLOW_THREADS;
	work = pawl_group_next_completion(self->group);
	Py_END_ALLOW_THREADS;
	if (!work) {
		Py_RETURN_NONE;
	}
	op = operation_of(work);
	op->watched = false;
	keep = Py_XNewRef(op->keep);
	Py_DECREF(op);
	return keep;
}

static PyObject *group_leave(struct group *self, PyObject *unused)
{
	Py_BEGIN_ALLOW_THREADS;
	pawl_group_leave(self->group);
	Py_END_ALLOW_THREADS;
	reap(self);
	Py_RETURN_NONE;
}

/* Returns a new Group, which owns group. */
PyObject *core_group_wrap(struct pawl_group *group)
{
	struct group *made = (struct group *)core_group_type.tp_alloc(&core_group_type, 0);

	if (!made) {
		pawl_group_close(group);
		return PyErr_NoMemory();
	}
	made->group = group;
	made->ranks = pawl_group_ranks(group);
	return (PyObject *)made;
}

struct pawl_group *core_group(PyObject *group)
{
	return group == Py_None ? NULL : ((struct group *)group)->group;
}

static PyObject *group_admit(struct group *self, PyObject *args)
{
	struct pawl_group *next = NULL;
	struct pawl_join_listener *listener;
	struct pawl_err err;
	unsigned int most;
	PyObject *where; /* a Door, or None */
	double s;
	int rv;

	if (!PyArg_ParseTuple(args, "OId", &where, &most, &s) ||
		!core_join_listener_enter(where, &listener)) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_group_admit(&next, self->group, listener, most, core_timeout_ns(s), &err);
	Py_END_ALLOW_THREADS;
	core_join_listener_leave(where);
	if (rv != 0) {
		return core_raise(&err);
	}
	return next ? core_group_wrap(next) : Py_NewRef(Py_None);
}

/* Returns (a new Group, for each of its ranks the number in self). */
static PyObject *group_shrink(struct group *self, PyObject *args)
{
	struct pawl_group *next = NULL;
	struct group *made;
	unsigned int least;
	uint32_t *ranks;
	uint32_t n = 0;
	struct pawl_err err;
	PyObject *list;
	double s;
	int rv;

	if (!PyArg_ParseTuple(args, "Id", &least, &s)) {
		return NULL;
	}
	ranks = PyMem_Calloc(self->ranks, sizeof(*ranks));
	if (!ranks) {
		return PyErr_NoMemory();
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_group_shrink(&next, self->group, least, ranks, &n, core_timeout_ns(s), &err);
	Py_END_ALLOW_THREADS;
	made = rv == 0 ? (struct group *)core_group_wrap(next) : NULL;
	list = made ? PyList_New(n) : NULL;
	for (uint32_t i = 0; i < n && list; i++) {
		PyList_SET_ITEM(list, i, PyLong_FromUnsignedLong(ranks[i]));
	}
	PyMem_Free(ranks);
	if (!list) {
		Py_XDECREF(made);
		return rv == 0 ? NULL : core_raise(&err);
	}
	made->base = (struct group *)Py_NewRef(self);
	return Py_BuildValue("(NN)", made, list);
}

static PyObject *get_rank(struct group *self, void *closure)
{
	return PyLong_FromUnsignedLong(pawl_group_rank(self->group));
}

static PyObject *get_ranks(struct group *self, void *closure)
{
	return PyLong_FromUnsignedLong(self->ranks);
}

/* Returns (clock, (count, bytes, blocked, phases) of each kind, (sent, received, sending, last,
 * late) of each peer). Times are in ns. */
static PyObject *group_stats(struct group *self, PyObject *unused)
{
	struct pawl_stats stats;
	uint32_t n = pawl_group_stats(self->group, &stats, NULL, 0);
	struct pawl_peer_stats *peers = PyMem_Calloc(n, sizeof(*peers));
	PyObject *kinds = PyTuple_New(PAWL_COLLS);
	PyObject *others = PyTuple_New(n);

	if (!peers || !kinds || !others) {
		PyMem_Free(peers);
		Py_XDECREF(kinds);
		Py_XDECREF(others);
		return PyErr_NoMemory();
	}
	pawl_group_stats(self->group, &stats, peers, n);
	for (int k = 0; k < PAWL_COLLS; k++) {
		const struct pawl_kind_stats *kind = &stats.kinds[k];
		PyObject *phases = PyTuple_New(PAWL_PHASES);

		for (int p = 0; p < PAWL_PHASES && phases; p++) {
			PyTuple_SET_ITEM(phases, p, PyLong_FromUnsignedLongLong(kind->phase_ns[p]));
		}
		PyTuple_SET_ITEM(kinds, k,
			Py_BuildValue("(KKKN)", (unsigned long long)kind->count,
				(unsigned long long)kind->bytes,
				(unsigned long long)kind->blocked_ns, phases));
	}
	for (uint32_t p = 0; p < n; p++) {
		PyTuple_SET_ITEM(others, p,
			Py_BuildValue("(KKKKK)", (unsigned long long)peers[p].sent_bytes,
				(unsigned long long)peers[p].received_bytes,
				(unsigned long long)peers[p].sending_ns,
				(unsigned long long)peers[p].last_n,
				(unsigned long long)peers[p].late_ns));
	}
	PyMem_Free(peers);
	if (PyErr_Occurred()) {
		Py_DECREF(kinds);
		Py_DECREF(others);
		return NULL;
	}
	return Py_BuildValue("(LNN)", (long long)stats.now_ns, kinds, others);
}

static PyObject *get_endpoint(struct group *self, void *closure)
{
	return PyUnicode_FromString(self->endpoint);
}

static PyMethodDef group_methods[] = {
	{"join", (PyCFunction)group_join, METH_VARARGS,
		"join(cards, timeout); cards: the endpoints of all ranks"},
	{"submit", (PyCFunction)(void (*)(void))group_submit, METH_FASTCALL,
		"submit(kind, op, dtype, mean, root, tag, nbytes, in, out, timeout, held, keep[, "
		"in_at, out_at]) -> Operation"},
	{"using", (PyCFunction)group_find_using, METH_VARARGS,
		"using(address, nbytes) -> the last Operation on that memory, or None"},
	{"next", (PyCFunction)group_next_completion, METH_NOARGS,
		"next() -> keep of the next watched operation that is done, or None"},
	{"shrink", (PyCFunction)group_shrink, METH_VARARGS, "shrink(least, timeout)"},
	{"admit", (PyCFunction)group_admit, METH_VARARGS,
		"admit(listener or None, most, timeout) -> Group, or None"},
	{"leave", (PyCFunction)group_leave, METH_NOARGS, "leave()"},
	{"stats", (PyCFunction)group_stats, METH_NOARGS, "stats() -> (clock, kinds, peers)"},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef group_getset[] = {
	{"card", (getter)get_endpoint, NULL, "this rank's endpoint, for join at all ranks", NULL},
	{"rank", (getter)get_rank, NULL, "number of this rank", NULL},
	{"ranks", (getter)get_ranks, NULL, "number of ranks", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject core_group_type = {
	PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pawl._core.Group",
	.tp_basicsize = sizeof(struct group),
	.tp_flags = Py_TPFLAGS_DEFAULT,
	.tp_doc = "A group of ranks for collectives and messages.",
	.tp_new = group_new,
	.tp_dealloc = (destructor)group_dealloc,
	.tp_methods = group_methods,
	.tp_getset = group_getset,
};
