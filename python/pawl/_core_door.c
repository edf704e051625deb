/* pawl._core.Door, and knock(), by which newcomers join a group. See _core.c and pawl/coll.h. */
#include "_core.h"

struct door {
	PyObject_HEAD struct pawl_door *door; /* NULL: it did not open, or is closed */
	char name[PAWL_DOOR_NAME];            /* name of the door, which newcomers are given */
};

static PyObject *door_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct door *self;
	const char *toward;
	struct pawl_err err;

	if (!PyArg_ParseTuple(args, "z", &toward)) {
		return NULL;
	}
	self = (struct door *)type->tp_alloc(type, 0);
	if (self && pawl_door_open(&self->door, toward, self->name, &err) != 0) {
		Py_DECREF(self);
		return core_raise(&err);
	}
	return (PyObject *)self;
}

static PyObject *door_close(struct door *self, PyObject *unused)
{
	pawl_door_close(self->door);
	self->door = NULL;
	Py_RETURN_NONE;
}

static PyObject *door_waiting(struct door *self, PyObject *unused)
{
	return PyLong_FromUnsignedLong(pawl_door_waiting(self->door));
}

static void door_dealloc(struct door *self)
{
	pawl_door_close(self->door);
	Py_TYPE(self)->tp_free((PyObject *)self);
}

struct pawl_door *core_door(PyObject *door)
{
	return Py_IS_TYPE(door, &core_door_type) ? ((struct door *)door)->door : NULL;
}

static PyObject *get_name(struct door *self, void *closure)
{
	return PyUnicode_FromString(self->name);
}

PyObject *core_knock(PyObject *module, PyObject *args)
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
	rv = pawl_group_knock(&group, name, (int64_t)(s * 1e9), &err);
	Py_END_ALLOW_THREADS;
	return rv == 0 ? core_group_wrap(group) : core_raise(&err);
}

static PyMethodDef door_methods[] = {
	{"close", (PyCFunction)door_close, METH_NOARGS, "close()"},
	{"waiting", (PyCFunction)door_waiting, METH_NOARGS, "waiting() -> how many"},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef door_getset[] = {
	{"name", (getter)get_name, NULL, "what newcomers are told", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject core_door_type = {
	PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pawl._core.Door",
	.tp_basicsize = sizeof(struct door),
	.tp_flags = Py_TPFLAGS_DEFAULT,
	.tp_doc = "Where newcomers to a group wait.",
	.tp_new = door_new,
	.tp_dealloc = (destructor)door_dealloc,
	.tp_methods = door_methods,
	.tp_getset = door_getset,
};
