/*
 * pawl._core.Door, a join listener, and knock(), a join request. See _core.c and pawl/coll.h.
 *
 * While ranks are admitted at a listener, in a thread without the GIL, no other thread may use it:
 * another admission is refused, no newcomer is counted, and close() takes effect at the end.
 */
#include "_core.h"

struct join_listener {
	PyObject_HEAD struct pawl_join_listener *listener; /* NULL: open failed, or it is closed */
	bool admits;                        /* ranks are admitted at it; guarded by the GIL */
	bool closes;                        /* with admits: it is closed when they are */
	char name[PAWL_JOIN_LISTENER_NAME]; /* name of the listener, for newcomers */
};

static PyObject *join_listener_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct join_listener *self;
	const char *route_hint;
	struct pawl_err err;

	if (!PyArg_ParseTuple(args, "z", &route_hint)) {
		return NULL;
	}
	self = (struct join_listener *)type->tp_alloc(type, 0);
	if (self && pawl_join_listener_open(&self->listener, route_hint, self->name, &err) != 0) {
		Py_DECREF(self);
		return core_raise(&err);
	}
	return (PyObject *)self;
}

static PyObject *join_listener_close(struct join_listener *self, PyObject *unused)
{
	if (self->admits) {
		self->closes = true;
	} else {
		pawl_join_listener_close(self->listener);
		self->listener = NULL;
	}
	Py_RETURN_NONE;
}

static PyObject *join_listener_waiting(struct join_listener *self, PyObject *unused)
{
	return PyLong_FromUnsignedLong(
		self->admits ? 0 : pawl_join_listener_waiting(self->listener));
}

static void join_listener_dealloc(struct join_listener *self)
{
	pawl_join_listener_close(self->listener);
	Py_TYPE(self)->tp_free((PyObject *)self);
}

static struct join_listener *join_listener_of(PyObject *listener)
{
	return Py_IS_TYPE(listener, &core_join_listener_type) ? (struct join_listener *)listener
							      : NULL;
}

bool core_join_listener_enter(PyObject *listener, struct pawl_join_listener **out)
{
	struct join_listener *self = join_listener_of(listener);
	static const struct pawl_err busy = {.code = PAWL_EBUSY,
		.msg = "collectives: another thread admits ranks at this join listener"};

	if (self && self->admits) {
		core_raise(&busy);
		return false;
	}
	*out = self ? self->listener : NULL;
	if (self) {
		self->admits = true;
	}
	return true;
}

void core_join_listener_leave(PyObject *listener)
{
	struct join_listener *self = join_listener_of(listener);

	if (self) {
		self->admits = false;
		if (self->closes) {
			pawl_join_listener_close(self->listener);
			self->listener = NULL;
		}
	}
}

static PyObject *get_name(struct join_listener *self, void *closure)
{
	return PyUnicode_FromString(self->name);
}

PyObject *core_request_join(PyObject *module, PyObject *args)
{
	struct pawl_group *group = NULL;
	struct pawl_err err;
	const char *name;
	double s;
	int rv;

	if (!PyArg_ParseTuple(args, "sd", &name, &s)) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_group_request_join(&group, name, core_timeout_ns(s), &err);
	Py_END_ALLOW_THREADS;
	return rv == 0 ? core_group_wrap(group) : core_raise(&err);
}

static PyMethodDef join_listener_methods[] = {
	{"close", (PyCFunction)join_listener_close, METH_NOARGS, "close()"},
	{"waiting", (PyCFunction)join_listener_waiting, METH_NOARGS,
		"waiting() -> number of waiting newcomers"},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef join_listener_getset[] = {
	{"name", (getter)get_name, NULL, "name for knock(), which newcomers are given", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject core_join_listener_type = {
	PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pawl._core.Door",
	.tp_basicsize = sizeof(struct join_listener),
	.tp_flags = Py_TPFLAGS_DEFAULT,
	.tp_doc = "A listener at which newcomers to a group wait.",
	.tp_new = join_listener_new,
	.tp_dealloc = (destructor)join_listener_dealloc,
	.tp_methods = join_listener_methods,
	.tp_getset = join_listener_getset,
};
