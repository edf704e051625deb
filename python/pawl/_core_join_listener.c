/* pawl._core.Door, a join listener, and knock(), a join request. See _core.c and pawl/coll.h. */
#include "_core.h"

struct join_listener {
	PyObject_HEAD struct pawl_join_listener *listener; /* NULL: open failed, or it is closed */
	char name[PAWL_JOIN_LISTENER_NAME];                /* name of the listener, for newcomers */
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
	pawl_join_listener_close(self->listener);
	self->listener = NULL;
	Py_RETURN_NONE;
}

static PyObject *join_listener_waiting(struct join_listener *self, PyObject *unused)
{
	return PyLong_FromUnsignedLong(pawl_join_listener_waiting(self->listener));
}

static void join_listener_dealloc(struct join_listener *self)
{
	pawl_join_listener_close(self->listener);
	Py_TYPE(self)->tp_free((PyObject *)self);
}

struct pawl_join_listener *core_join_listener(PyObject *listener)
{
	return Py_IS_TYPE(listener, &core_join_listener_type)
		? ((struct join_listener *)listener)->listener
		: NULL;
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
	rv = pawl_group_request_join(&group, name, (int64_t)(s * 1e9), &err);
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
