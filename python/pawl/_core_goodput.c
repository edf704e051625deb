/* pawl._core: goodput, its fit, learning rates and the gradient's noise, from pawl/adapt.h. Tuples
 * are its structs, field by field; see _core.pyi. */
#include "_core.h"

#include "pawl/adapt.h"

#include <math.h>

#define PROFILES_MAX 65536 /* profiles in one fit, at most */

static bool raise_if(bool wrong, const char *why)
{
	if (wrong) {
		PyErr_SetString(PyExc_ValueError, why);
	}
	return wrong;
}

/* ---- tuples ---- */

static int take_perf(PyObject *tuple, void *out)
{
	struct pawl_perf *p = out;

	return PyArg_ParseTuple(tuple, "dddddddd", &p->alpha_c, &p->beta_c, &p->alpha_r, &p->beta_r,
		&p->alpha_n, &p->beta_n, &p->delta_n, &p->gamma);
}

static int take_noise(PyObject *tuple, void *out)
{
	struct pawl_noise *noise = out;

	return PyArg_ParseTuple(tuple, "dd", &noise->sqr, &noise->var);
}

static int take_place(PyObject *tuple, void *out)
{
	struct pawl_placement *place = out;

	return PyArg_ParseTuple(tuple, "III", &place->nodes, &place->replicas,
		       &place->max_per_node) &&
		!raise_if(place->nodes < 1 || place->replicas < place->nodes,
			"a placement needs at least one node, and a replica on each");
}

static int take_batch(PyObject *tuple, void *out)
{
	struct pawl_batch *batch = out;

	return PyArg_ParseTuple(tuple, "II", &batch->atomic, &batch->accum) &&
		!raise_if(batch->atomic < 1, "an atomic batch needs at least one sample");
}

static int take_bounds(PyObject *tuple, void *out)
{
	struct pawl_batch_bounds *b = out;
	int accumulate;

	if (!PyArg_ParseTuple(tuple, "IIIIp", &b->init, &b->max, &b->atomic_min, &b->atomic_max,
		    &accumulate)) {
		return 0;
	}
	b->accumulate = accumulate;
	return !raise_if(b->init < 1 || b->max < b->init || b->atomic_min < 1 ||
			b->atomic_max < b->atomic_min,
		"batches: 1 <= init <= max and 1 <= least <= most");
}

static int take_rule(PyObject *tuple, void *out)
{
	struct pawl_lr_rule *rule = out;
	int by_gain;

	if (!PyArg_ParseTuple(tuple, "pdd", &by_gain, &rule->power, &rule->warmup)) {
		return 0;
	}
	rule->by_gain = by_gain;
	return 1;
}

/* ---- functions ---- */

static PyObject *core_step_s(PyObject *module, PyObject *args)
{
	struct pawl_perf perf;
	struct pawl_placement place;
	struct pawl_batch batch;

	if (!PyArg_ParseTuple(args, "O&O&O&", take_perf, &perf, take_place, &place, take_batch,
		    &batch)) {
		return NULL;
	}
	return PyFloat_FromDouble(pawl_step_s(&perf, &place, &batch));
}

static PyObject *core_gain(PyObject *module, PyObject *args)
{
	struct pawl_noise noise;
	double scale;

	if (!PyArg_ParseTuple(args, "O&d", take_noise, &noise, &scale)) {
		return NULL;
	}
	return PyFloat_FromDouble(pawl_gain(&noise, scale));
}

static PyObject *core_lr_factor(PyObject *module, PyObject *args)
{
	struct pawl_lr_rule rule;
	struct pawl_noise noise;
	double scale;
	double progress;

	if (!PyArg_ParseTuple(args, "O&O&dd", take_rule, &rule, take_noise, &noise, &scale,
		    &progress)) {
		return NULL;
	}
	return PyFloat_FromDouble(pawl_lr_factor(&rule, &noise, scale, progress));
}

static PyObject *core_goodput(PyObject *module, PyObject *args)
{
	struct pawl_perf perf;
	struct pawl_noise noise;
	struct pawl_placement place;
	struct pawl_batch batch;
	unsigned int init;

	if (!PyArg_ParseTuple(args, "O&O&IO&O&", take_perf, &perf, take_noise, &noise, &init,
		    take_place, &place, take_batch, &batch) ||
		raise_if(init < 1, "an initial batch needs at least one sample")) {
		return NULL;
	}
	return PyFloat_FromDouble(pawl_goodput(&perf, &noise, init, &place, &batch));
}

static PyObject *core_batch_choose(PyObject *module, PyObject *args)
{
	struct pawl_perf perf;
	struct pawl_noise noise;
	struct pawl_batch_bounds bounds;
	struct pawl_placement place;
	struct pawl_batch batch;
	double goodput;

	if (!PyArg_ParseTuple(args, "O&O&O&O&", take_perf, &perf, take_noise, &noise, take_bounds,
		    &bounds, take_place, &place)) {
		return NULL;
	}
	if (!pawl_batch_choose(&perf, &noise, &bounds, &place, &batch, &goodput)) {
		Py_RETURN_NONE;
	}
	return Py_BuildValue("(IId)", batch.atomic, batch.accum, goodput);
}

/* Converts a list of ((nodes, replicas, max_per_node), atomic, grad_s, step_s). The caller frees
 * the result; NULL with an exception set. */
static struct pawl_profile *take_profiles(PyObject *list, uint32_t *n)
{
	Py_ssize_t len = PyList_GET_SIZE(list);
	struct pawl_profile *profiles;

	if (raise_if(len < 1 || len > PROFILES_MAX, "a fit needs 1 to 65536 profiles")) {
		return NULL;
	}
	profiles = PyMem_Calloc((size_t)len, sizeof(*profiles));
	if (!profiles) {
		PyErr_NoMemory();
		return NULL;
	}
	for (Py_ssize_t i = 0; i < len; i++) {
		struct pawl_profile *p = &profiles[i];

		if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "O&Idd", take_place, &p->place,
			    &p->atomic, &p->grad_s, &p->step_s)) {
			PyMem_Free(profiles);
			return NULL;
		}
	}
	*n = (uint32_t)len;
	return profiles;
}

static PyObject *core_perf_fit(PyObject *module, PyObject *args)
{
	struct pawl_perf p = {0};
	struct pawl_profile *profiles;
	struct pawl_err err;
	PyObject *begin;
	PyObject *list;
	uint32_t n;
	int rv;

	if (!PyArg_ParseTuple(args, "OO!", &begin, &PyList_Type, &list) ||
		(begin != Py_None && !take_perf(begin, &p))) {
		return NULL;
	}
	profiles = take_profiles(list, &n);
	if (!profiles) {
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	rv = pawl_perf_fit(&p, profiles, n, &err);
	Py_END_ALLOW_THREADS;
	PyMem_Free(profiles);
	if (rv != 0) {
		return core_raise(&err);
	}
	return Py_BuildValue("(dddddddd)", p.alpha_c, p.beta_c, p.alpha_r, p.beta_r, p.alpha_n,
		p.beta_n, p.delta_n, p.gamma);
}

/* Sums the squares of all spans in a list of (address, elements, address of the second moment or 0,
 * bias correction, eps). */
static PyObject *core_squares(PyObject *module, PyObject *args)
{
	unsigned int type;
	PyObject *list;
	double sum = 0;

	if (!PyArg_ParseTuple(args, "IO!", &type, &PyList_Type, &list) ||
		raise_if(type < PAWL_FLOAT32 || type >= PAWL_DTYPES,
			"squares: the elements must be of a floating-point type")) {
		return NULL;
	}
	for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
		struct pawl_whitening white;
		unsigned long long x;
		unsigned long long n;
		unsigned long long second;

		if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "KKKdd", &x, &n, &second,
			    &white.bias_correction, &white.eps)) {
			return NULL;
		}
		white.second_moment = (const void *)(uintptr_t)second;
		Py_BEGIN_ALLOW_THREADS;
		sum += pawl_squared_norm(type, (const void *)(uintptr_t)x, n,
			second ? &white : NULL);
		Py_END_ALLOW_THREADS;
	}
	return PyFloat_FromDouble(sum);
}

PyMethodDef core_goodput_functions[] = {
	{"step_s", core_step_s, METH_VARARGS, "step_s(perf, place, batch) -> seconds"},
	{"gain", core_gain, METH_VARARGS, "gain(noise, scale) -> 1 to scale"},
	{"lr_factor", core_lr_factor, METH_VARARGS,
		"lr_factor(rule, noise, scale, progress) -> factor"},
	{"goodput", core_goodput, METH_VARARGS,
		"goodput(perf, noise, init, place, batch) -> samples/s"},
	{"batch_choose", core_batch_choose, METH_VARARGS,
		"batch_choose(perf, noise, bounds, place) -> (atomic, accum, goodput) or None"},
	{"perf_fit", core_perf_fit, METH_VARARGS, "perf_fit(perf or None, profiles) -> perf"},
	{"squares", core_squares, METH_VARARGS, "squares(dtype, spans) -> squared norm"},
	{NULL, NULL, 0, NULL},
};

/* ---- pawl._core.Noise ---- */

struct noise {
	PyObject_HEAD struct pawl_gns gns;
};

static PyObject *noise_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct pawl_gns gns = {0};
	struct noise *self;

	if (!PyArg_ParseTuple(args, "|(dddddddd)", &gns.age, &gns.weight, &gns.weight2, &gns.sqr,
		    &gns.var, &gns.sqr2, &gns.var2, &gns.cross)) {
		return NULL;
	}
	self = (struct noise *)type->tp_alloc(type, 0);
	if (self) {
		self->gns = gns;
	}
	return (PyObject *)self;
}

static PyObject *noise_add(struct noise *self, PyObject *args)
{
	struct pawl_gns_step step;

	if (!PyArg_ParseTuple(args, "dddd", &step.local, &step.total, &step.count, &step.scale) ||
		raise_if(!(step.count > 1) || !(step.scale > 0) || isinf(step.scale),
			"noise needs more than one gradient, and a finite scale over 0")) {
		return NULL;
	}
	return PyBool_FromLong(pawl_gns_add(&self->gns, &step));
}

static PyObject *noise_age(struct noise *self, PyObject *args)
{
	double scale;

	if (!PyArg_ParseTuple(args, "d", &scale) ||
		raise_if(!(scale > 0) || isinf(scale), "scale must be over 0 and finite")) {
		return NULL;
	}
	pawl_gns_age(&self->gns, scale);
	Py_RETURN_NONE;
}

static PyObject *noise_moments(struct noise *self, PyObject *unused)
{
	struct pawl_noise noise;

	pawl_gns_noise(&self->gns, &noise);
	return Py_BuildValue("(dd)", noise.sqr, noise.var);
}

static PyObject *noise_interval(struct noise *self, PyObject *unused)
{
	double low;
	double high;

	if (!pawl_gns_interval(&self->gns, &low, &high)) {
		Py_RETURN_NONE;
	}
	return Py_BuildValue("(dd)", low, high);
}

static PyObject *noise_state(struct noise *self, PyObject *unused)
{
	const struct pawl_gns *gns = &self->gns;

	return Py_BuildValue("(dddddddd)", gns->age, gns->weight, gns->weight2, gns->sqr, gns->var,
		gns->sqr2, gns->var2, gns->cross);
}

static PyMethodDef noise_methods[] = {
	{"add", (PyCFunction)noise_add, METH_VARARGS,
		"add(local, total, count, scale) -> False if a norm is not finite"},
	{"age", (PyCFunction)noise_age, METH_VARARGS, "age(scale): counts a step"},
	{"moments", (PyCFunction)noise_moments, METH_NOARGS, "moments() -> (sqr, var)"},
	{"interval", (PyCFunction)noise_interval, METH_NOARGS,
		"interval() -> (low, high) of var / sqr, or None"},
	{"state", (PyCFunction)noise_state, METH_NOARGS, "state() -> argument of Noise()"},
	{NULL, NULL, 0, NULL},
};

PyTypeObject core_noise_type = {
	PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pawl._core.Noise",
	.tp_basicsize = sizeof(struct noise),
	.tp_flags = Py_TPFLAGS_DEFAULT,
	.tp_doc = "Running averages of a gradient's squared norm and variance.",
	.tp_new = noise_new,
	.tp_methods = noise_methods,
};
