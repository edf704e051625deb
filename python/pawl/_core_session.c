/* pawl._core.Session: a rank's connection to its agent. See _core.c. Its saves are made in
 * _core_save.c. */
#include "_core_session.h"

#include <time.h>

#define NAMES_BYTES (64u << 10) /* size of the buffer for the names of diverged partitions */

static bool is_finalizing(void)
{
#if PY_VERSION_HEX >= 0x030d0000
	return Py_IsFinalizing();
#else
	return _Py_IsFinalizing();
#endif
}

/* Asks Python whether nothing changed. Without an answer the save counts as changed: a lost save is
 * better than a wrong one. */
static bool call_changed(struct session *self, uint64_t id, int *part, int *storage)
{
	PyObject *found;
	bool unchanged;

	if (!self->find_changed) {
		return true;
	}
	found = PyObject_CallFunction(self->find_changed, "OK", (PyObject *)self,
		(unsigned long long)id);
	unchanged = found == Py_None;
	if (!found || (!unchanged && !PyArg_ParseTuple(found, "ii", part, storage))) {
		PyErr_WriteUnraisable(self->find_changed);
	}
	Py_XDECREF(found);
	return unchanged;
}

/* Callback of pawl_ckpt_options; runs on a thread of the session. */
static bool unchanged(void *user, uint64_t id, int *part, int *storage)
{
	PyGILState_STATE state;
	bool answer;

	if (is_finalizing()) {
		return false; /* Python cannot be called any more */
	}
	state = PyGILState_Ensure();
	answer = call_changed(user, id, part, storage);
	PyGILState_Release(state);
	return answer;
}

struct pawl_ckpt *core_session_enter(struct session *self)
{
	if (!self->ckpt) {
		PyErr_SetString(PyExc_ValueError, "this checkpointer is closed");
		return NULL;
	}
	self->users++;
	return self->ckpt;
}

void core_session_leave(struct session *self)
{
	self->users--;
}

static int session_init(struct session *self, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = {"root", "job", "rank", "world", "attempt", "keep",
		"keep_every", "persist_every_ms", "memory_bytes", "socket", "program", "watch",
		"hidden", "named", "full_every", "host_first", "host_ranks", "find_changed",
		"replicas", "parity", NULL};
	struct pawl_ckpt_options options = {.replicas = PAWL_CKPT_REPLICAS_DEFAULT};
	struct pawl_err err;
	struct pawl_ckpt *ckpt;
	PyObject *root = NULL;
	PyObject *find_changed = NULL;
	unsigned long long keep_every = 0;
	unsigned long long every_ms = 0;
	unsigned long long memory = 0;
	int watch = 0;
	int named = 0;
	int parity = 0;
	int rv;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&sIII|$IKKKzzpzpIIIOIp", (char **)names,
		    PyUnicode_FSConverter, &root, &options.job, &options.rank, &options.world,
		    &options.attempt, &options.keep, &keep_every, &every_ms, &memory,
		    &options.socket, &options.program, &watch, &options.hidden, &named,
		    &options.full_every, &options.host_first, &options.host_ranks, &find_changed,
		    &options.replicas, &parity)) {
		return -1;
	}
	options.root = PyBytes_AS_STRING(root);
	options.keep_every = keep_every;
	options.persist_every_ms = every_ms;
	options.memory_bytes = memory;
	options.watch = watch;
	options.named = named;
	options.parity = parity;
	options.unchanged = find_changed ? unchanged : NULL;
	options.user = self;
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_ckpt_open(&ckpt, &options, &err);
	Py_END_ALLOW_THREADS;
	Py_DECREF(root);
	if (rv != 0) {
		core_raise(&err);
		return -1;
	}
	self->ckpt = ckpt;
	self->find_changed = Py_XNewRef(find_changed);
	return 0;
}

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static PyObject *session_close(struct session *self, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = {"timeout", NULL};
	PyObject *seconds = Py_None;
	struct pawl_ckpt *ckpt = self->ckpt;
	struct pawl_err err;
	int64_t due_ns;
	int timeout_ms;
	int rv;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", (char **)names, &seconds) ||
		(timeout_ms = core_timeout(seconds)) == -2) {
		return NULL;
	}
	if (!ckpt) {
		Py_RETURN_NONE;
	}
	self->ckpt = NULL; /* no call may begin any more; those in progress may end */
	due_ns = timeout_ms >= 0 ? now_ns() + timeout_ms * INT64_C(1000000) : INT64_MAX;
	while (self->users > 0) {
		if (now_ns() > due_ns) {
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
	rv = pawl_ckpt_close(ckpt, 0, &err);
	Py_END_ALLOW_THREADS;
	return rv == 0 ? Py_NewRef(Py_None) : core_raise(&err);
}

static void session_dealloc(struct session *self)
{
	Py_CLEAR(self->find_changed); /* there is no caller left to report it to */
	if (self->ckpt) {
		Py_BEGIN_ALLOW_THREADS;
		pawl_ckpt_close(self->ckpt, 0, NULL);
		Py_END_ALLOW_THREADS;
	}
	Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *session_status(struct session *self, PyObject *arg)
{
	unsigned long long id = PyLong_AsUnsignedLongLong(arg);
	struct pawl_ckpt_status status;
	struct pawl_ckpt *ckpt;
	struct pawl_err err;
	int rv;

	if (PyErr_Occurred() || !(ckpt = core_session_enter(self))) {
		return NULL;
	}
	rv = pawl_ckpt_status(ckpt, id, &status, &err);
	core_session_leave(self);
	if (rv != 0) {
		return core_raise(&err);
	}
	return Py_BuildValue("(iisiii{s:K,s:K})", (int)status.level, status.code, status.why,
		(int)status.proof, status.part, status.storage, "stall_ns",
		(unsigned long long)status.stall_ns, "stage_ns",
		(unsigned long long)status.stage_ns);
}

/* Returns True, or False if the wait timed out or was canceled, or raises. */
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
		(timeout_ms = core_timeout(seconds)) == -2 || !(ckpt = core_session_enter(self))) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_ckpt_wait(ckpt, id, (enum pawl_ckpt_level)level, timeout_ms, &err);
	Py_END_ALLOW_THREADS;
	core_session_leave(self);
	if (rv == 0 || rv == PAWL_ETIMEDOUT || rv == PAWL_ECANCELED) {
		return PyBool_FromLong(rv == 0);
	}
	return core_raise(&err);
}

static PyObject *session_flush(struct session *self, PyObject *seconds)
{
	int timeout_ms = core_timeout(seconds);
	struct pawl_ckpt *ckpt;
	struct pawl_err err;
	int rv;

	if (timeout_ms == -2 || !(ckpt = core_session_enter(self))) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_ckpt_flush(ckpt, timeout_ms, &err);
	Py_END_ALLOW_THREADS;
	core_session_leave(self);
	return rv == 0 ? Py_NewRef(Py_None) : core_raise(&err);
}

static PyObject *session_pin(struct session *self, PyObject *args)
{
	const char *tag;
	int pinned;
	struct pawl_ckpt *ckpt;
	struct pawl_err err;
	int rv;

	if (!PyArg_ParseTuple(args, "sp", &tag, &pinned) || !(ckpt = core_session_enter(self))) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_ckpt_pin(ckpt, tag, pinned, &err);
	Py_END_ALLOW_THREADS;
	core_session_leave(self);
	if (rv != 0) {
		return core_raise(&err);
	}
	Py_RETURN_NONE;
}

static PyObject *session_remove(struct session *self, PyObject *arg)
{
	const char *tag = PyUnicode_AsUTF8(arg);
	struct pawl_ckpt *ckpt;
	struct pawl_err err;
	int rv;

	if (!tag || !(ckpt = core_session_enter(self))) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_ckpt_remove(ckpt, tag, &err);
	Py_END_ALLOW_THREADS;
	core_session_leave(self);
	return rv == 0 ? Py_NewRef(Py_None) : core_raise(&err);
}

static PyObject *session_pending(struct session *self, PyObject *unused)
{
	struct pawl_ckpt_pending pending[PAWL_CKPT_PENDING_MAX];
	uint32_t n = 0;
	struct pawl_ckpt *ckpt = core_session_enter(self);
	struct pawl_err err;
	PyObject *list;
	int rv;

	if (!ckpt) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_ckpt_pending(ckpt, pending, &n, &err);
	Py_END_ALLOW_THREADS;
	core_session_leave(self);
	if (rv != 0) {
		return core_raise(&err);
	}
	list = PyList_New(0);
	for (uint32_t i = 0; list && i < n; i++) {
		PyObject *item =
			Py_BuildValue("(Ks)", (unsigned long long)pending[i].step, pending[i].tag);

		if (!item || PyList_Append(list, item) != 0) {
			Py_CLEAR(list);
		}
		Py_XDECREF(item);
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
	if (PyErr_Occurred() || !(ckpt = core_session_enter(self))) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_ckpt_restore(ckpt, step != Py_None, number, timeout_ms, &restore, &err);
	Py_END_ALLOW_THREADS;
	core_session_leave(self);
	if (rv == PAWL_ENOENT) {
		Py_RETURN_NONE;
	}
	return rv == 0 ? core_restore_new(restore) : core_raise(&err);
}

static PyObject *session_find(struct session *self, PyObject *args)
{
	const char *tag;
	PyObject *seconds;
	struct pawl_restore *restore;
	struct pawl_ckpt *ckpt;
	struct pawl_err err;
	int timeout_ms;
	int rv;

	if (!PyArg_ParseTuple(args, "zO", &tag, &seconds) ||
		(timeout_ms = core_timeout(seconds)) == -2 || !(ckpt = core_session_enter(self))) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_ckpt_find(ckpt, tag, timeout_ms, &restore, &err);
	Py_END_ALLOW_THREADS;
	core_session_leave(self);
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

	if (!names || !(ckpt = core_session_enter(self))) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	pawl_ckpt_report_imports(ckpt, names, (size_t)len,
		NULL); /* failure is fine: this only makes restarts faster */
	Py_END_ALLOW_THREADS;
	core_session_leave(self);
	Py_RETURN_NONE;
}

static char due_closure; /* closure of due is its address; closure of stopping is NULL */

static PyObject *get_answer(struct session *self, void *due)
{
	struct pawl_ckpt *ckpt = core_session_enter(self);
	bool yes;

	if (!ckpt) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	yes = due ? pawl_ckpt_due(ckpt) : pawl_ckpt_stopping(ckpt);
	Py_END_ALLOW_THREADS;
	core_session_leave(self);
	return PyBool_FromLong(yes);
}

static PyObject *session_stop(struct session *self, PyObject *unused)
{
	struct pawl_ckpt *ckpt = core_session_enter(self);

	if (!ckpt) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	pawl_ckpt_stop(ckpt);
	Py_END_ALLOW_THREADS;
	core_session_leave(self);
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

static PyObject *session_next_notification(struct session *self, PyObject *waits)
{
	char text[PAWL_CKPT_NOTIFICATION_MAX];
	struct pawl_ckpt *ckpt = self->ckpt ? core_session_enter(self) : NULL;
	bool wait = waits == Py_True;
	bool any;

	if (!ckpt) {
		Py_RETURN_NONE;
	}
	Py_BEGIN_ALLOW_THREADS;
	any = wait ? pawl_ckpt_await_notification(ckpt, text, sizeof(text))
		   : pawl_ckpt_next_notification(ckpt, text, sizeof(text));
	Py_END_ALLOW_THREADS;
	core_session_leave(self);
	return any ? PyUnicode_DecodeFSDefault(text) : Py_NewRef(Py_None);
}

static PyObject *session_end_notifications(struct session *self, PyObject *unused)
{
	if (self->ckpt) {
		pawl_ckpt_end_notifications(self->ckpt);
	}
	Py_RETURN_NONE;
}

static PyObject *get_best_proof(struct session *self, void *closure)
{
	const char *why_not = "";
	bool can = self->ckpt && pawl_ckpt_can_watch(self->ckpt, &why_not);

	return Py_BuildValue("(is)", can, can || !why_not ? "" : why_not);
}

static PyMethodDef session_methods[] = {
	{"save", (PyCFunction)core_session_save, METH_VARARGS, "save(step, parts, watch) -> id"},
	{"save_tag", (PyCFunction)core_session_save_tag, METH_VARARGS,
		"save_tag(tag, step, flags, parts, watch) -> id"},
	{"begin", (PyCFunction)core_session_begin, METH_VARARGS, "begin(tag, step, flags) -> id"},
	{"add", (PyCFunction)core_session_add, METH_O, "add(part)"},
	{"commit", (PyCFunction)core_session_commit, METH_NOARGS, "commit()"},
	{"drop", (PyCFunction)core_session_drop, METH_O, "drop(why)"},
	{"abandon", (PyCFunction)core_session_abandon, METH_O,
		"abandon(why): this process ends because of an error"},
	{"fence", (PyCFunction)core_session_fence, METH_O, "fence(groups)"},
	{"announce", (PyCFunction)core_session_announce, METH_O,
		"announce(step): a save is about to come; announce(None): it is not"},
	{"withdraw", (PyCFunction)core_session_withdraw, METH_VARARGS,
		"withdraw(id, part, storage)"},
	{"status", (PyCFunction)session_status, METH_O,
		"status(id) -> (level, code, message, proof, part, storage, timings)"},
	{"wait", (PyCFunction)session_wait, METH_VARARGS, "wait(id, level, timeout) -> bool"},
	{"flush", (PyCFunction)session_flush, METH_O,
		"flush(timeout): makes the newest save durable, or raises why it is not"},
	{"next_notification", (PyCFunction)session_next_notification, METH_O,
		"next_notification(wait) -> str | None; wait: until there is one"},
	{"end_notifications", (PyCFunction)session_end_notifications, METH_NOARGS,
		"end_notifications(): next_notification returns None from now on"},
	{"pin", (PyCFunction)session_pin, METH_VARARGS, "pin(tag, pinned)"},
	{"remove", (PyCFunction)session_remove, METH_O, "remove(tag)"},
	{"pending", (PyCFunction)session_pending, METH_NOARGS,
		"pending() -> (step, tag) of what is committed in memory, not yet durable"},
	{"restore", (PyCFunction)session_restore, METH_VARARGS,
		"restore(step, timeout) -> Restore | None"},
	{"find", (PyCFunction)session_find, METH_VARARGS,
		"find(tag, timeout) -> Restore | None, of this rank alone"},
	{"stop", (PyCFunction)session_stop, METH_NOARGS,
		"stop(): a signal asked this rank to stop"},
	{"imports", (PyCFunction)session_imports, METH_O, "imports(names)"},
	{"close", (PyCFunction)(void (*)(void))session_close, METH_VARARGS | METH_KEYWORDS,
		"close(timeout=None): waits for calls of other threads; raises as flush(0) does"},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef session_getset[] = {
	{"stopping", (getter)get_answer, NULL, "this rank must stop", NULL},
	{"due", (getter)get_answer, NULL, "a save is worth it now", &due_closure},
	{"diverged", (getter)get_diverged, NULL, "partitions whose replicas differ", NULL},
	{"best_proof", (getter)get_best_proof, NULL, "(1 if the kernel can watch, else 0; why not)",
		NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject core_session_type = {
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
