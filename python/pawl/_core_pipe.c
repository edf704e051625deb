/* pawl._core: the plan of a pipeline, pawl_pipe_choose of pawl/pipe.h, for Python. Tuples are its
 * structs, field by field, and the result is a dict; see _core.pyi. */
#include "_core.h"

#include "pawl/pipe.h"

/* What a call takes: arrays that are converted, and what they are converted from. */
struct request {
	PyObject *rows;               /* a tuple; keeps the units' names */
	struct pawl_pipe_unit *units; /* as many as rows */
	double *speeds;               /* one a stage, or NULL */
	uint64_t *caps_bytes;         /* one a stage, or NULL */
	struct pawl_pipe_setting setting;
};

/* ---- arguments ---- */

static void request_deinit(struct request *request)
{
	PyMem_Free(request->units);
	PyMem_Free(request->speeds);
	PyMem_Free(request->caps_bytes);
	Py_XDECREF(request->rows);
}

/* Reads one unit from a tuple; a stage below 0 is any. */
static bool take_unit(PyObject *row, struct pawl_pipe_unit *unit)
{
	unsigned long long bytes[4];
	int stage;

	if (!PyTuple_Check(row)) {
		PyErr_SetString(PyExc_TypeError, "a unit is a tuple");
		return false;
	}
	if (!PyArg_ParseTuple(row, "sdddKKKIKi", &unit->name, &unit->forward_s, &unit->backward_s,
		    &unit->weight_s, &bytes[0], &bytes[1], &bytes[2], &unit->tied, &bytes[3],
		    &stage)) {
		return false;
	}
	unit->param_bytes = bytes[0];
	unit->saved_bytes = bytes[1];
	unit->cut_bytes = bytes[2];
	unit->tied_bytes = bytes[3];
	unit->stage = stage < 0 ? PAWL_PIPE_ANY_STAGE : (uint32_t)stage;
	return true;
}

static bool take_units(struct request *request, PyObject *units)
{
	Py_ssize_t n;

	request->rows = PySequence_Tuple(units);
	if (!request->rows) {
		return false;
	}
	n = PyTuple_GET_SIZE(request->rows);
	request->units = PyMem_Calloc((size_t)n + 1, sizeof(*request->units));
	if (!request->units) {
		PyErr_NoMemory();
		return false;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		if (!take_unit(PyTuple_GET_ITEM(request->rows, i), &request->units[i])) {
			return false;
		}
	}
	return true;
}

/* Checks that a list of something for each stage, or None, has as many entries as stages. Returns
 * the number, 0 for None, or -1 with an exception set. */
static Py_ssize_t check_each(PyObject *list, uint32_t stages, const char *what)
{
	if (list == Py_None) {
		return 0;
	}
	if (!PyTuple_Check(list) || PyTuple_GET_SIZE(list) != (Py_ssize_t)stages) {
		PyErr_Format(PyExc_ValueError, "%s: a tuple with an entry for each stage", what);
		return -1;
	}
	return (Py_ssize_t)stages;
}

static bool take_speeds(struct request *request, PyObject *list)
{
	Py_ssize_t n = check_each(list, request->setting.stages, "speeds");

	if (n <= 0) {
		return n == 0;
	}
	request->speeds = PyMem_Calloc((size_t)n, sizeof(*request->speeds));
	if (!request->speeds) {
		PyErr_NoMemory();
		return false;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		request->speeds[i] = PyFloat_AsDouble(PyTuple_GET_ITEM(list, i));
	}
	request->setting.speeds = request->speeds;
	return !PyErr_Occurred();
}

/* Reads the stages' memory; None is no limit. */
static bool take_caps(struct request *request, PyObject *list)
{
	Py_ssize_t n = check_each(list, request->setting.stages, "caps");

	if (n <= 0) {
		return n == 0;
	}
	request->caps_bytes = PyMem_Calloc((size_t)n, sizeof(*request->caps_bytes));
	if (!request->caps_bytes) {
		PyErr_NoMemory();
		return false;
	}
	for (Py_ssize_t i = 0; i < n && !PyErr_Occurred(); i++) {
		PyObject *cap = PyTuple_GET_ITEM(list, i);

		request->caps_bytes[i] =
			cap == Py_None ? PAWL_PIPE_NO_CAP : PyLong_AsUnsignedLongLong(cap);
	}
	request->setting.caps_bytes = request->caps_bytes;
	return !PyErr_Occurred();
}

/* Finds a schedule by its name; raises and returns false if there is none. */
static bool take_schedule(const char *name, enum pawl_pipe_schedule *schedule)
{
	for (int i = 0; i < PAWL_PIPE_SCHEDULES; i++) {
		if (strcmp(pawl_pipe_schedule_name(i), name) == 0) {
			*schedule = i;
			return true;
		}
	}
	PyErr_Format(PyExc_ValueError, "there is no schedule %s", name);
	return false;
}

static bool take_setting(struct request *request, PyObject *tuple)
{
	struct pawl_pipe_setting *to = &request->setting;
	const char *schedule;
	PyObject *speeds;
	PyObject *caps;
	unsigned int tied;
	int busy;

	if (!PyArg_ParseTuple(tuple, "IIOO(ddp)sIIIdd", &to->stages, &to->microbatches, &speeds,
		    &caps, &to->link.bytes_per_s, &to->link.latency_s, &busy, &schedule, &to->each,
		    &to->inflight, &tied, &to->memory_weight, &to->state_factor)) {
		return false;
	}
	to->link.busy = busy;
	to->tied = tied;
	return take_schedule(schedule, &to->schedule) && take_speeds(request, speeds) &&
		take_caps(request, caps);
}

/* ---- result ---- */

/* Returns a list of n entries, each by a function of its index; NULL with an exception set. */
static PyObject *build_each(const void *from, uint32_t n,
	PyObject *(*build)(const void *, uint32_t))
{
	PyObject *list = PyList_New((Py_ssize_t)n);

	for (uint32_t i = 0; list && i < n; i++) {
		PyObject *item = build(from, i);

		if (!item) {
			Py_CLEAR(list);
			break;
		}
		PyList_SET_ITEM(list, (Py_ssize_t)i, item);
	}
	return list;
}

/* A plan and its report. */
struct made {
	struct pawl_pipe_plan plan;
	struct pawl_pipe_report report;
	uint32_t at; /* first task of the stage, or first holder of the copies, that is built */
};

static PyObject *build_task(const void *from, uint32_t i)
{
	const struct made *made = from;
	const struct pawl_pipe_task *task = &made->plan.tasks[made->at + i];

	return Py_BuildValue("(BHI)", task->kind, task->chunk, task->microbatch);
}

static PyObject *build_stage(const void *from, uint32_t i)
{
	struct made made = *(const struct made *)from;
	const struct pawl_pipe_stage *stage = &made.plan.stage[i];
	const struct pawl_pipe_stage_report *report = &made.report.stage[i];
	bool capped = stage->cap_bytes != PAWL_PIPE_NO_CAP;
	PyObject *cap = capped ? PyLong_FromUnsignedLongLong(stage->cap_bytes) : Py_NewRef(Py_None);

	made.at = made.plan.first[i];
	return Py_BuildValue("{s:K,s:N,s:d,s:I,s:K,s:N}", "state_bytes",
		(unsigned long long)stage->state_bytes, "cap_bytes", cap, "busy_s", report->busy_s,
		"peak_live", report->peak_live, "peak_bytes",
		(unsigned long long)report->peak_bytes, "tasks",
		build_each(&made, made.plan.first[i + 1] - made.plan.first[i], build_task));
}

static PyObject *build_chunk(const void *from, uint32_t i)
{
	const struct pawl_pipe_chunk *chunk = &((const struct made *)from)->plan.chunks[i];

	return Py_BuildValue("{s:I,s:I,s:I,s:d,s:d,s:d,s:K,s:K}", "stage", chunk->stage, "first",
		chunk->first, "units", chunk->units, "forward_s", chunk->forward_s, "backward_s",
		chunk->backward_s, "weight_s", chunk->weight_s, "saved_bytes",
		(unsigned long long)chunk->saved_bytes, "in_bytes",
		(unsigned long long)chunk->in_bytes);
}

static PyObject *build_holder(const void *from, uint32_t i)
{
	const struct made *made = from;

	return PyLong_FromUnsignedLong(made->plan.holders[made->at + i]);
}

static PyObject *build_copies(const void *from, uint32_t i)
{
	struct made made = *(const struct made *)from;
	const struct pawl_pipe_copies *copies = &made.plan.copies[i];

	made.at = copies->first;
	return Py_BuildValue("{s:I,s:K,s:N}", "tied", copies->tied, "bytes",
		(unsigned long long)copies->len_bytes, "stages",
		build_each(&made, copies->stages, build_holder));
}

static PyObject *build_option(const void *from, uint32_t i)
{
	const struct pawl_pipe_option *option =
		&((const struct pawl_pipe_options *)from)->option[i];
	PyObject *why =
		PyUnicode_DecodeUTF8(option->why, (Py_ssize_t)strlen(option->why), "replace");

	if (option->code == 0) {
		Py_XDECREF(why);
		why = Py_NewRef(Py_None);
	}
	return Py_BuildValue("{s:s,s:I,s:O,s:d,s:d,s:K,s:N}", "schedule",
		pawl_pipe_schedule_name(option->schedule), "each", option->each, "visits",
		option->visits ? Py_True : Py_False, "step_s", option->step_s, "bubble",
		option->bubble, "peak_bytes", (unsigned long long)option->peak_bytes, "refused",
		why);
}

static PyObject *build_plan(const struct made *made, const struct pawl_pipe_options *options)
{
	const struct pawl_pipe_plan *plan = &made->plan;
	const struct pawl_pipe_report *report = &made->report;

	return Py_BuildValue("{s:s,s:I,s:I,s:O,s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:N,s:N,s:N,s:N,s:I}",
		"schedule", pawl_pipe_schedule_name(plan->schedule), "each", plan->each, "inflight",
		plan->inflight, "visits", plan->visits ? Py_True : Py_False, "largest_s",
		plan->largest_s, "value", plan->value, "bound", plan->bound, "step_s",
		report->step_s, "finish_s", report->finish_s, "bound_s", report->bound_s, "bubble",
		report->bubble, "stages", build_each(made, plan->stages, build_stage), "chunks",
		build_each(made, plan->chunks_n, build_chunk), "copies",
		build_each(made, plan->copies_n, build_copies), "options",
		build_each(options, options->n, build_option), "chosen", options->chosen);
}

static PyObject *pipe_choose(PyObject *module, PyObject *args)
{
	struct request request = {0};
	struct pawl_pipe_options options = {0};
	struct made made = {0};
	struct pawl_err err;
	PyObject *result = NULL;
	PyObject *setting;
	PyObject *units;
	int rv;

	if (!PyArg_ParseTuple(args, "OO!", &units, &PyTuple_Type, &setting) ||
		!take_units(&request, units) || !take_setting(&request, setting)) {
		goto deinit;
	}
	if (PyTuple_GET_SIZE(request.rows) > PAWL_PIPE_UNITS_MAX) {
		PyErr_Format(PyExc_ValueError, "more than %u units", PAWL_PIPE_UNITS_MAX);
		goto deinit;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_pipe_choose(&made.plan, &made.report, &options, request.units,
		(uint32_t)PyTuple_GET_SIZE(request.rows), &request.setting, &err);
	Py_END_ALLOW_THREADS;
	result = rv == 0 ? build_plan(&made, &options) : core_raise(&err);
	pawl_pipe_plan_deinit(&made.plan);
	pawl_pipe_report_deinit(&made.report);
deinit:
	request_deinit(&request);
	return result;
}

PyMethodDef core_pipe_functions[] = {
	{"pipe_choose", pipe_choose, METH_VARARGS, "pipe_choose(units, setting) -> plan, a dict"},
	{NULL, NULL, 0, NULL},
};
