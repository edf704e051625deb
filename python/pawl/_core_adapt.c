/* pawl._core: how often to save, the pure arithmetic of pawl/adapt.h, for Python. */
#include "_core.h"

#include "pawl/adapt.h"

#include <math.h>

/* Checks that numbers are above 0 and finite; otherwise raises and returns false. */
static bool check_positive(const double *numbers, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!(numbers[i] > 0) || isinf(numbers[i])) {
			PyErr_SetString(PyExc_ValueError,
				"times and rates must be over 0 and finite");
			return false;
		}
	}
	return true;
}

static PyObject *adapt_interval_young(PyObject *module, PyObject *args)
{
	double in[2];

	if (!PyArg_ParseTuple(args, "dd", &in[0], &in[1]) || !check_positive(in, 2)) {
		return NULL;
	}
	return PyFloat_FromDouble(pawl_interval_young(in[0], in[1]));
}

static PyObject *adapt_interval_daly(PyObject *module, PyObject *args)
{
	double in[2];

	if (!PyArg_ParseTuple(args, "dd", &in[0], &in[1]) || !check_positive(in, 2)) {
		return NULL;
	}
	return PyFloat_FromDouble(pawl_interval_daly(in[0], in[1]));
}

static PyObject *adapt_interval_overhead(PyObject *module, PyObject *args)
{
	double in[3];
	double restart_s;

	if (!PyArg_ParseTuple(args, "dddd", &in[0], &in[1], &restart_s, &in[2]) ||
		!check_positive(in, 3)) {
		return NULL;
	}
	if (!(restart_s >= 0)) {
		PyErr_SetString(PyExc_ValueError, "a restart takes at least 0 seconds");
		return NULL;
	}
	return PyFloat_FromDouble(pawl_interval_overhead(in[0], in[1], restart_s, in[2]));
}

static PyObject *adapt_rate_bounds(PyObject *module, PyObject *args)
{
	unsigned long long failures;
	double time_s;
	double confidence;
	double low_s;
	double high_s;

	if (!PyArg_ParseTuple(args, "Kdd", &failures, &time_s, &confidence) ||
		!check_positive(&time_s, 1)) {
		return NULL;
	}
	if (!(confidence > 0 && confidence < 1)) {
		PyErr_SetString(PyExc_ValueError, "confidence must be between 0 and 1");
		return NULL;
	}
	pawl_rate_bounds(failures, time_s, confidence, &low_s, &high_s);
	return Py_BuildValue("(dd)", low_s, high_s);
}

PyMethodDef core_adapt_functions[] = {
	{"interval_young", adapt_interval_young, METH_VARARGS,
		"interval_young(cost, mtbf) -> seconds"},
	{"interval_daly", adapt_interval_daly, METH_VARARGS,
		"interval_daly(cost, mtbf) -> seconds"},
	{"interval_overhead", adapt_interval_overhead, METH_VARARGS,
		"interval_overhead(interval, cost, restart, mtbf) -> time lost per time of work"},
	{"rate_bounds", adapt_rate_bounds, METH_VARARGS,
		"rate_bounds(failures, time, confidence) -> (low, high), per second"},
	{NULL, NULL, 0, NULL},
};
