/*
 * pawl._core: the extension. Thin: it parses arguments, borrows buffers, drops the GIL, calls one
 * public function of libpawl and maps the error. Policy, defaults and everything about torch live
 * in the .py files; _core.pyi says what each call takes and returns.
 */
#include "_core.h"
#include "base/times.h"

#include "pawl/env.h"
#include "pawl/inspect.h"

static PyObject *pawl_error; /* the exception type PawlError */

PyObject *core_raise(const struct pawl_err *err)
{
	/* a name in the message may not be UTF-8, and a long message is cut anywhere */
	PyObject *msg = PyUnicode_DecodeUTF8(err->msg, (Py_ssize_t)strlen(err->msg), "replace");
	PyObject *exc = msg ? PyObject_CallFunctionObjArgs(pawl_error, msg, NULL) : NULL;
	PyObject *code = PyLong_FromLong(err->code);
	PyObject *name = PyUnicode_FromString(pawl_err_name(err->code));
	PyObject *sys = PyLong_FromLong(err->sys);

	if (exc && code && name && sys && PyObject_SetAttrString(exc, "code", code) == 0 &&
		PyObject_SetAttrString(exc, "name", name) == 0 &&
		PyObject_SetAttrString(exc, "errno", sys) == 0) {
		PyErr_SetObject(pawl_error, exc);
	}
	Py_XDECREF(msg);
	Py_XDECREF(exc);
	Py_XDECREF(code);
	Py_XDECREF(name);
	Py_XDECREF(sys);
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
	return !(s > 0) ? 0 : s > 2e6 ? 2000000000 : (int)(s * 1000);
}

int64_t core_timeout_ns(double s)
{
	return clock_ns_of(s);
}

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

bool core_take_list(PyObject *tuple, uint64_t *at, uint32_t ndim)
{
	if (PyTuple_GET_SIZE(tuple) != (Py_ssize_t)ndim || ndim > PAWL_TENSOR_DIMS_MAX) {
		PyErr_SetString(PyExc_ValueError, "too many dimensions, or not as many everywhere");
		return false;
	}
	for (uint32_t i = 0; i < ndim; i++) {
		at[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(tuple, i));
	}
	return !PyErr_Occurred();
}

/* Reads a row of the table from (name, dtype, shape, storage, offset) or, for a shard, from (…,
 * shape of the whole, first element). */
static bool take_tensor(PyObject *item, struct pawl_tensor *tensor)
{
	PyObject *shape;
	PyObject *global = NULL;
	PyObject *start = NULL;
	const char *name;
	const char *dtype;
	unsigned long long off;

	if (!PyArg_ParseTuple(item, "ssO!IK|O!O!", &name, &dtype, &PyTuple_Type, &shape,
		    &tensor->storage, &off, &PyTuple_Type, &global, &PyTuple_Type, &start)) {
		return false;
	}
	tensor->offset_bytes = off;
	tensor->ndim = (uint32_t)PyTuple_GET_SIZE(shape);
	tensor->sharded = start != NULL;
	snprintf(tensor->name, sizeof(tensor->name), "%s", name);
	snprintf(tensor->dtype, sizeof(tensor->dtype), "%s", dtype);
	return core_take_list(shape, tensor->shape, tensor->ndim) &&
		(!start ||
			(core_take_list(global, tensor->global, tensor->ndim) &&
				core_take_list(start, tensor->start, tensor->ndim)));
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
			"a list of (name, dtype, shape, storage, offset_bytes[, global, start])");
		return NULL;
	}
	for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
		if (!take_tensor(PyList_GET_ITEM(list, i), &tensor)) {
			goto free_table;
		}
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

static PyObject *build_list(const uint64_t *at, uint32_t ndim)
{
	PyObject *tuple = PyTuple_New((Py_ssize_t)ndim);

	for (uint32_t i = 0; tuple && i < ndim; i++) {
		PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, PyLong_FromUnsignedLongLong(at[i]));
	}
	return tuple;
}

/* Builds the tuple of a tensor. Py_BuildValue raises if an argument is NULL, and releases the
 * others. */
static PyObject *build_tensor(const struct pawl_tensor *tensor)
{
	PyObject *name =
		PyUnicode_DecodeUTF8(tensor->name, (Py_ssize_t)strlen(tensor->name), "replace");

	if (!tensor->sharded) {
		return Py_BuildValue("(NsNIK)", name, tensor->dtype,
			build_list(tensor->shape, tensor->ndim), tensor->storage,
			(unsigned long long)tensor->offset_bytes);
	}
	return Py_BuildValue("(NsNIKNN)", name, tensor->dtype,
		build_list(tensor->shape, tensor->ndim), tensor->storage,
		(unsigned long long)tensor->offset_bytes, build_list(tensor->global, tensor->ndim),
		build_list(tensor->start, tensor->ndim));
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
	PyObject *name = PyUnicode_DecodeFSDefault(tag->tag); /* a tag's name need not be UTF-8 */
	PyObject *why = PyUnicode_DecodeUTF8(tag->why, (Py_ssize_t)strlen(tag->why), "replace");

	if (!name || !why) {
		Py_XDECREF(name);
		Py_XDECREF(why);
		return NULL;
	}
	return Py_BuildValue("{s:K,s:N,s:s,s:K,s:O,s:d,s:I,s:N}", "step",
		(unsigned long long)tag->step, "tag", name, "level",
		tag->complete ? "durable" : "broken", "size", (unsigned long long)tag->size_bytes,
		"pinned", tag->pinned ? Py_True : Py_False, "created",
		(double)tag->created_ns / 1e9, "world", tag->world, "why", why);
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

static PyObject *core_read_file(PyObject *module, PyObject *args)
{
	const char *root, *file;
	PyObject *content;
	struct pawl_err err;
	void *bytes;
	size_t len_bytes;
	int rv;

	if (!PyArg_ParseTuple(args, "ss", &root, &file)) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_root_read(root, file, &bytes, &len_bytes, &err);
	Py_END_ALLOW_THREADS;
	if (rv == PAWL_ENOENT) {
		Py_RETURN_NONE;
	}
	if (rv != 0) {
		return core_raise(&err);
	}
	content = PyBytes_FromStringAndSize(bytes, (Py_ssize_t)len_bytes);
	free(bytes);
	return content;
}

static PyObject *core_bucket_name(PyObject *module, PyObject *address)
{
	const char *text = PyUnicode_AsUTF8(address);
	char name[PAWL_BUCKET_NAME_MAX];
	struct pawl_err err;
	int rv;

	if (!text) {
		return NULL;
	}
	rv = pawl_bucket_name(text, name, &err);
	if (rv == 0) {
		Py_RETURN_NONE;
	}
	return rv < 0 ? core_raise(&err) : PyUnicode_FromString(name);
}

static PyObject *core_time_s(PyObject *module, PyObject *name)
{
	const char *text = PyUnicode_AsUTF8(name);
	enum times_name row;

	if (!text) {
		return NULL;
	}
	row = times_find(text);
	if (row == TIMES_N) {
		return PyErr_Format(PyExc_KeyError, "%s", text);
	}
	return PyFloat_FromDouble((double)times_ns(row) / NS_PER_S);
}

/* The exit status of this process that replaces the interpreter's. */
static struct {
	pid_t pid;      /* process it applies to, not its forks; 0: none set */
	int status;     /* exit status to end with */
	int instead_of; /* exit status that is replaced */
} exit_override;

/* Replaces the exit status. Python is already finalized: only buffered output is flushed. */
static void override_exit(int status, void *unused)
{
	if (exit_override.pid == getpid() && status == exit_override.instead_of) {
		fflush(NULL);
		_exit(exit_override.status);
	}
}

static PyObject *core_exit_with(PyObject *module, PyObject *args)
{
	bool known = exit_override.pid == getpid();
	int status;
	int instead_of;

	if (!PyArg_ParseTuple(args, "ii", &status, &instead_of)) {
		return NULL;
	}
	exit_override.pid = getpid();
	exit_override.status = status;
	exit_override.instead_of = instead_of;
	if (!known && on_exit(override_exit, NULL) != 0) {
		return PyErr_NoMemory();
	}
	Py_RETURN_NONE;
}

static PyMethodDef core_functions[] = {
	{"env", core_env, METH_NOARGS, "env() -> rank, world, job… from the launcher's variables"},
	{"encode_tensors", core_encode_tensors, METH_O, "encode_tensors(list) -> bytes"},
	{"decode_tensors", core_decode_tensors, METH_O, "decode_tensors(bytes) -> list"},
	{"open_root", core_open_root, METH_VARARGS,
		"open_root(root, step | tag | None) -> Restore"},
	{"list_root", core_list_root, METH_VARARGS, "list_root(root) -> list of dict"},
	{"read_file", core_read_file, METH_VARARGS, "read_file(root, file) -> bytes | None"},
	{"bucket_name", core_bucket_name, METH_O,
		"bucket_name(root) -> address in its one form | None"},
	{"exit_with", core_exit_with, METH_VARARGS,
		"exit_with(status, instead_of): if this process ends with instead_of, it ends with "
		"status"},
	{"time_s", core_time_s, METH_O, "time_s(name) -> seconds, of the table in base/times.h"},
	{"knock", core_request_join, METH_VARARGS,
		"knock(name of a join listener, timeout) -> Group"},
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

	if (!module || PyType_Ready(&core_session_type) < 0 ||
		PyType_Ready(&core_restore_type) < 0 || PyType_Ready(&core_copier_type) < 0 ||
		PyType_Ready(&core_group_type) < 0 || PyType_Ready(&core_operation_type) < 0 ||
		PyType_Ready(&core_join_listener_type) < 0 || PyType_Ready(&core_noise_type) < 0) {
		Py_XDECREF(module);
		return NULL;
	}
	pawl_error = PyErr_NewExceptionWithDoc("pawl.PawlError",
		"An error of libpawl: .code is its negative PAWL_E number, .name the number's "
		"name.",
		PyExc_RuntimeError, NULL);
	if (PyModule_AddObjectRef(module, "PawlError", pawl_error) < 0 ||
		PyModule_AddFunctions(module, core_adapt_functions) < 0 ||
		PyModule_AddFunctions(module, core_goodput_functions) < 0 ||
		PyModule_AddFunctions(module, core_pipe_functions) < 0 ||
		PyModule_AddObjectRef(module, "Session", (PyObject *)&core_session_type) < 0 ||
		PyModule_AddObjectRef(module, "Restore", (PyObject *)&core_restore_type) < 0 ||
		PyModule_AddObjectRef(module, "Copier", (PyObject *)&core_copier_type) < 0 ||
		PyModule_AddObjectRef(module, "Group", (PyObject *)&core_group_type) < 0 ||
		PyModule_AddObjectRef(module, "Door", (PyObject *)&core_join_listener_type) < 0 ||
		PyModule_AddObjectRef(module, "Noise", (PyObject *)&core_noise_type) < 0 ||
		core_add_stage(module) < 0 ||
		PyModule_AddStringConstant(module, "version", PAWL_VERSION) < 0) {
		Py_DECREF(module);
		return NULL;
	}
	return module;
}
