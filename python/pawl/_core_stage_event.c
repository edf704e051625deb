/* pawl._core.Stage: events as tuples; and StageBuffer, the object of a value from another rank. See
 * _core_stage.c. */
#include "_core_stage.h"

/* Memory of a stage, with the bytes of a value that has arrived. */
struct buffer {
	PyObject_HEAD struct pawl_stage_memory *memory; /* held by this object; NULL: no bytes */
	void *data;                                     /* the bytes */
	Py_ssize_t len;                                 /* number of bytes */
};

/* ---- StageBuffer ---- */

static void buffer_dealloc(struct buffer *self)
{
	pawl_stage_memory_release(self->memory);
	Py_TYPE(self)->tp_free((PyObject *)self);
}

static int buffer_get(PyObject *object, Py_buffer *view, int flags)
{
	struct buffer *self = (struct buffer *)object;

	return PyBuffer_FillInfo(view, object, self->data, self->len, 0, flags);
}

static PyObject *get_address(struct buffer *self, void *closure)
{
	return PyLong_FromVoidPtr(self->data);
}

static PyObject *get_nbytes(struct buffer *self, void *closure)
{
	return PyLong_FromSsize_t(self->len);
}

static PyGetSetDef buffer_getset[] = {
	{"address", (getter)get_address, NULL, "address of the first byte", NULL},
	{"nbytes", (getter)get_nbytes, NULL, "number of bytes", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyBufferProcs buffer_procs = {.bf_getbuffer = buffer_get};

PyTypeObject core_stage_buffer_type = {
	PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pawl._core.StageBuffer",
	.tp_basicsize = sizeof(struct buffer),
	.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.tp_doc = "The bytes of a value that has arrived from another rank; writable.",
	.tp_dealloc = (destructor)buffer_dealloc,
	.tp_as_buffer = &buffer_procs,
	.tp_getset = buffer_getset,
};

/* ---- events ---- */

/* Returns the object of a value of an event: a new StageBuffer, if it has none yet. */
static PyObject *object_of(struct core_stage *self, struct pawl_stage_value *value)
{
	struct buffer *made;

	if (value->held) {
		return Py_NewRef((PyObject *)value->held);
	}
	made = (struct buffer *)core_stage_buffer_type.tp_alloc(&core_stage_buffer_type, 0);
	if (made) {
		made->data = (void *)(uintptr_t)value->data;
		made->len = (Py_ssize_t)value->len_bytes;
		made->memory = pawl_stage_keep(self->stage, value, Py_NewRef(made));
	}
	return (PyObject *)made;
}

static PyObject *build_value(struct core_stage *self, struct pawl_stage_value *value)
{
	return Py_BuildValue("(Ky#N)", (unsigned long long)value->id, value->meta,
		(Py_ssize_t)value->meta_len, object_of(self, value));
}

static PyObject *build_call(struct core_stage *self, const struct pawl_stage_event *event)
{
	const struct pawl_stage_call *call = &event->call;
	PyObject *values = PyList_New(call->needs_n);

	for (uint32_t i = 0; i < call->needs_n && values; i++) {
		PyObject *value = build_value(self, event->values[i]);

		if (value) {
			PyList_SET_ITEM(values, (Py_ssize_t)i, value);
		} else {
			Py_CLEAR(values);
		}
	}
	return values ? Py_BuildValue("(iK(iii)y#N)", PAWL_STAGE_CALL, (unsigned long long)call->id,
				call->task.kind, call->task.chunk, (int)call->task.microbatch,
				(const char *)call->blob, (Py_ssize_t)call->blob_len, values)
		      : NULL;
}

PyObject *core_stage_event(struct core_stage *self, const struct pawl_stage_event *event)
{
	const char *bytes = event->bytes ? event->bytes : "";
	PyObject *object;
	PyObject *built;

	switch (event->kind) {
	case PAWL_STAGE_CALL:
		return build_call(self, event);
	case PAWL_STAGE_NOTE:
		return Py_BuildValue("(iy#)", PAWL_STAGE_NOTE, bytes, (Py_ssize_t)event->len_bytes);
	case PAWL_STAGE_ARRIVED:
	case PAWL_STAGE_WANTED:
		object = object_of(self, event->values[0]);
		built = object
			? Py_BuildValue("(iKy#O)", event->kind,
				  (unsigned long long)event->values[0]->id, event->values[0]->meta,
				  (Py_ssize_t)event->values[0]->meta_len, object)
			: NULL;
		Py_XDECREF(object);
		return built;
	case PAWL_STAGE_END:
		return Py_BuildValue("(i)", PAWL_STAGE_END);
	case PAWL_STAGE_FAILED:
		return Py_BuildValue("(iIy#)", PAWL_STAGE_FAILED, event->rank, bytes,
			(Py_ssize_t)event->len_bytes);
	default:
		Py_RETURN_NONE;
	}
}
