/* Functions of sipcore._native: SIP over TLS. */
#include "python/methods.h"

#include "tls/tls_listener.h"

#include <string.h>

static PyObject *error_of(pj_status_t status)
{
    char reason[PJ_ERR_MSG_SIZE];
    pj_strerror(status, reason, sizeof reason);
    PyErr_SetString(PyExc_OSError, reason);
    return NULL;
}

static PyObject *py_tls_open(PyObject *self, PyObject *args)
{
    const char *host, *name;
    int port;
    tls_files_t files;
    pj_status_t status;
    (void)self;
    if (!PyArg_ParseTuple(args, "sis(ssss)", &host, &port, &name, &files.certificate, &files.key, &files.authorities,
                          &files.folder))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = tls_listener_open(host, port, name, &files);
    Py_END_ALLOW_THREADS
    return status == PJ_SUCCESS ? Py_NewRef(Py_None) : error_of(status);
}

static PyObject *py_tls_reload(PyObject *self, PyObject *args)
{
    tls_files_t files;
    pj_status_t status;
    (void)self;
    if (!PyArg_ParseTuple(args, "(ssss)", &files.certificate, &files.key, &files.authorities, &files.folder))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = tls_listener_reload(&files);
    Py_END_ALLOW_THREADS
    return status == PJ_SUCCESS ? Py_NewRef(Py_None) : error_of(status);
}

static PyObject *py_tls_clear_listeners(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    tls_listener_clear();
    Py_RETURN_NONE;
}

static PyObject *py_tls_apply_filters(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyBool_FromLong(tls_listener_apply_filters());
}

static PyObject *py_tls_verify(PyObject *self, PyObject *on)
{
    (void)self;
    tls_peer_set_verify(PyObject_IsTrue(on) == 1);
    Py_RETURN_NONE;
}

/* Peers' certificates put names into the text. */
static PyObject *text_of(const char *words)
{
    return PyUnicode_DecodeUTF8(words, (Py_ssize_t)strlen(words), "replace");
}

static PyObject *py_tls_events(PyObject *self, PyObject *unused)
{
    static tls_event_t events[TLS_EVENTS];
    uint64_t more = 0;
    (void)self, (void)unused;
    int count = tls_take_events(events, &more);
    PyObject *list = PyList_New(count);
    for (int i = 0; list && i < count; i++)
        PyList_SET_ITEM(list, i, Py_BuildValue("(sNK)", events[i].peer, text_of(events[i].reason), events[i].count));
    return list ? Py_BuildValue("(NK)", list, more) : NULL;
}

PyMethodDef tls_methods[] = {
    METHOD(tls_open, METH_VARARGS, "tls_open(host, port, name, files): listen; port 0: connect only."),
    METHOD(tls_reload, METH_VARARGS, "tls_reload(files): use other files for new connections."),
    METHOD(tls_clear_listeners, METH_NOARGS, "Remove all listeners, which PJSUA closes."),
    METHOD(tls_apply_filters, METH_NOARGS, "tls_apply_filters() -> False if a TLS port is not open."),
    METHOD(tls_verify, METH_O, "tls_verify(on): verify the certificates of peers that we connect to."),
    METHOD(tls_events, METH_NOARGS, "tls_events() -> ([(peer, reason, count)], further failures)."),
    {NULL, NULL, 0, NULL},
};
