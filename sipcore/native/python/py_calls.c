#include "python/py_calls.h"

#include <string.h>

#include "sip/hangup.h"
#include "sip/reason_header.h"

static PyObject *py_hangup_install(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    if (hangup_install() != 0)
        return PyErr_Format(PyExc_RuntimeError, "no reason can be told for the end of calls");
    Py_RETURN_NONE;
}

static PyObject *py_hangup_remove(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    Py_BEGIN_ALLOW_THREADS
    hangup_remove();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_hangup(PyObject *self, PyObject *args)
{
    int call, status;
    unsigned code;
    const char *reason;
    (void)self;
    if (!PyArg_ParseTuple(args, "iIs", &call, &code, &reason))
        return NULL;
    if (call < 0 || call >= PJSUA_MAX_CALLS)
        return PyErr_Format(PyExc_ValueError, "%d is the number of no call", call);
    Py_BEGIN_ALLOW_THREADS
    status = hangup(call, code, reason);
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(status);
}

static PyObject *py_reason(PyObject *self, PyObject *argument)
{
    char text[REASON_LONGEST];
    long call = PyLong_AsLong(argument);
    (void)self;
    if (call == -1 && PyErr_Occurred())
        return NULL;
    reason_take((pjsua_call_id)call, text);
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

PyMethodDef hangup_methods[] = {
    {"hangup_install", py_hangup_install, METH_NOARGS, "Tell the reason in every message that ends a call."},
    {"hangup_remove", py_hangup_remove, METH_NOARGS, "Do not any more."},
    {"hangup", py_hangup, METH_VARARGS, "hangup(pjsua_call_id, code, Reason) -> PJSIP's status."},
    {"reason", py_reason, METH_O, "reason(pjsua_call_id) -> the Reason headers with which the peer ended it; once."},
    {NULL, NULL, 0, NULL},
};
