/* Functions of sipcore._native: RTP ports and PJSUA's call table, for `sipcore.endpoint`. */
#define _GNU_SOURCE
#include "python/methods.h"

#include "rtp/media_transport.h"
#include "rtp/port_pool.h"
#include "sip/call_table.h"

#include <pjmedia-codec/g722.h>

static PyObject *py_rtp_ports(PyObject *self, PyObject *args)
{
    unsigned short first, last, begin = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "HH|H", &first, &last, &begin))
        return NULL;
    if (!first || last <= first)
        return PyErr_Format(PyExc_ValueError, "RTP needs at least two ports, not %d-%d", first, last);
    port_pool_set(first, last, begin);
    Py_RETURN_NONE;
}

static PyObject *py_rtp_ports_left(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyLong_FromLong(port_pool_left());
}

static PyObject *py_rtp_ports_take_exhaustions(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyLong_FromUnsignedLongLong(port_pool_take_exhaustions());
}

static PyObject *py_rtp_symmetric(PyObject *self, PyObject *on)
{
    (void)self;
    int truth = PyObject_IsTrue(on);
    if (truth < 0)
        return NULL;
    media_transport_set_symmetric(truth);
    Py_RETURN_NONE;
}

/* PJMEDIA's own shift of 2 takes 16-bit samples for 14-bit ones and a factor of 2. Asterisk, FreeSWITCH, baresip and
 * FFmpeg keep full scale as full scale, as ITU-T G.191's code does: with 2, they hear us and we them 6 dB off. */
#define G722_PCM_SHIFT 1

static PyObject *py_g722_full_scale(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    if (pjmedia_codec_g722_set_pcm_shift(G722_PCM_SHIFT) != PJ_SUCCESS)
        return PyErr_Format(PyExc_RuntimeError, "PJMEDIA refuses the level of G.722");
    Py_RETURN_NONE;
}

static PyObject *py_call_table_make_room(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    Py_BEGIN_ALLOW_THREADS
    call_table_make_room();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_call_table_used(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyLong_FromUnsignedLong(call_table_used());
}

PyMethodDef rtp_methods[] = {
    METHOD(rtp_symmetric, METH_O, "rtp_symmetric(on): symmetric RTP (RFC 4961)."),
    METHOD(rtp_ports, METH_VARARGS, "rtp_ports(first, last, first pair): set the range of ports, none in use."),
    METHOD(rtp_ports_left, METH_NOARGS, "rtp_ports_left() -> free pairs."),
    METHOD(rtp_ports_take_exhaustions, METH_NOARGS,
           "rtp_ports_take_exhaustions() -> calls without ports since the last call."),
    METHOD(g722_full_scale, METH_NOARGS, "G.722 keeps the level of 16-bit samples. After PJSUA's start."),
    METHOD(call_table_make_room, METH_NOARGS, "Free entries of calls that were hung up if the table is full."),
    METHOD(call_table_used, METH_NOARGS, "call_table_used() -> entries in use."),
    {NULL, NULL, 0, NULL},
};
