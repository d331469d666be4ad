/* sipcore._native: the ports of calls' sound. `sipcore.endpoint` wraps them. */
#define _GNU_SOURCE
#include "python_rtp.h"

#include "rtp_ports.h"
#include "rtp_transport.h"

static PyObject *py_rtp_ports(PyObject *self, PyObject *args)
{
    unsigned short first, last;
    (void)self;
    if (!PyArg_ParseTuple(args, "HH", &first, &last))
        return NULL;
    if (!first || last <= first)
        return PyErr_Format(PyExc_ValueError, "RTP needs at least two ports, not %d-%d", first, last);
    rtp_ports_set(first, last);
    Py_RETURN_NONE;
}

static PyObject *py_rtp_ports_left(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyLong_FromLong(rtp_ports_left());
}

static PyObject *py_rtp_ports_missed(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyLong_FromUnsignedLongLong(rtp_ports_missed());
}

static PyObject *py_rtp_symmetric(PyObject *self, PyObject *on)
{
    (void)self;
    int truth = PyObject_IsTrue(on);
    if (truth < 0)
        return NULL;
    rtp_transport_set_symmetric(truth);
    Py_RETURN_NONE;
}

PyMethodDef rtp_methods[] = {
    {"rtp_symmetric", py_rtp_symmetric, METH_O, "rtp_symmetric(on): send to where the peer's RTP comes from."},
    {"rtp_ports", py_rtp_ports, METH_VARARGS, "rtp_ports(first, last): the range; nothing is in use then."},
    {"rtp_ports_left", py_rtp_ports_left, METH_NOARGS, "rtp_ports_left() -> pairs that no call has."},
    {"rtp_ports_missed", py_rtp_ports_missed, METH_NOARGS, "rtp_ports_missed() -> calls that got none since the last look."},
    {NULL, NULL, 0, NULL},
};
