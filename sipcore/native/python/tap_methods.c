/* Functions of sipcore._native: the message tap, for `sipcore.trace.sip_capture`. */
#include "python/methods.h"

#include "net/message_tap.h"

#include <string.h>

#define ADDRESS (PJ_INET6_ADDRSTRLEN + 10)
#define BATCH (256u << 10)  /* bytes that are turned into Python's objects at once */

static void format_address(char out[ADDRESS], const char *host, int port)
{
    pj_ansi_snprintf(out, ADDRESS, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
}

static PyObject *text_of(const uint8_t **at, uint16_t length)
{
    const char *bytes = (const char *)*at;
    *at += length;
    return PyUnicode_DecodeUTF8(bytes, length, "surrogateescape");
}

static PyObject *message_of(const uint8_t *record)
{
    tap_header_t header;
    char local[ADDRESS], peer[ADDRESS];
    memcpy(&header, record, sizeof header);
    format_address(local, header.local, header.local_port);
    format_address(peer, header.peer, header.peer_port);
    const uint8_t *at = record + sizeof header;
    PyObject *call_id = text_of(&at, header.call_id), *from_tag = text_of(&at, header.from_tag);
    PyObject *to_tag = text_of(&at, header.to_tag), *method = text_of(&at, header.method);
    return Py_BuildValue("(LOsssNNNNIHOy#)", (long long)header.at_ns, header.sent ? Py_True : Py_False, header.transport,
                         local, peer, call_id, from_tag, to_tag, method, header.cseq, header.status,
                         header.with_sdp ? Py_True : Py_False, (const char *)at, (Py_ssize_t)header.text);
}

static PyObject *py_tap_read(PyObject *self, PyObject *unused)
{
    static uint8_t batch[BATCH]; /* the GIL is held */
    uint64_t lost;
    (void)self, (void)unused;
    uint32_t length = tap_read(batch, sizeof batch, &lost);
    PyObject *list = PyList_New(0);
    for (uint32_t at = 0; list && at < length; at += ((tap_header_t *)(batch + at))->size) {
        PyObject *message = message_of(batch + at);
        if (!message || PyList_Append(list, message) != 0)
            Py_CLEAR(list);
        Py_XDECREF(message);
    }
    return list ? Py_BuildValue("(NK)", list, lost) : NULL;
}

static PyObject *py_tap_install(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    if (tap_install() != 0)
        return PyErr_Format(PyExc_RuntimeError, "the tap for SIP messages did not install");
    return PyLong_FromLong(tap_descriptor());
}

static PyObject *py_tap_remove(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    Py_BEGIN_ALLOW_THREADS
    tap_remove();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

PyMethodDef tap_methods[] = {
    METHOD(tap_install, METH_NOARGS, "Begin to copy SIP messages; a descriptor that is readable when there are new ones."),
    METHOD(tap_remove, METH_NOARGS, "Stop copying, and drop the messages that were not read."),
    METHOD(tap_read, METH_NOARGS,
           "tap_read() -> ([message], messages ever lost): a batch of the messages since the last call."),
    {NULL, NULL, 0, NULL},
};
