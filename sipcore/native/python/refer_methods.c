/* Functions of sipcore._native: REFER of a peer, and ours. */
#include "python/methods.h"

#include "sip/refer.h"
#include "sip/refer_client.h"

#include <pjsua-lib/pjsua_internal.h>

#define MAX_SIPFRAG 512 /* longest body that Python receives */

static PyObject *on_refer_response, *on_refer_notify;

/* Takes ownership of `arguments`. `function` only posts to the event loop. */
static void call(PyObject *function, PyObject *arguments)
{
    PyObject *result = function && arguments ? PyObject_CallObject(function, arguments) : NULL;
    if (!result)
        PyErr_WriteUnraisable(function);
    Py_XDECREF(result);
    Py_XDECREF(arguments);
}

static void report_response(long long token, int status)
{
    PyGILState_STATE state = PyGILState_Ensure();
    call(on_refer_response, Py_BuildValue("Li", token, status));
    PyGILState_Release(state);
}

static void report_notify(const refer_client_notify_t *notify)
{
    PyGILState_STATE state = PyGILState_Ensure();
    const Py_ssize_t length = notify->body.slen < MAX_SIPFRAG ? notify->body.slen : MAX_SIPFRAG;
    PyObject *type = PyUnicode_DecodeLatin1(notify->type.ptr, notify->type.slen, NULL);
    PyObject *subtype = PyUnicode_DecodeLatin1(notify->subtype.ptr, notify->subtype.slen, NULL);
    PyObject *content_type = type && subtype ? PyUnicode_FromFormat("%U/%U", type, subtype) : NULL;
    call(on_refer_notify, Py_BuildValue("LNNy#", notify->token, PyBool_FromLong(notify->terminated), content_type,
                                        notify->body.ptr ? notify->body.ptr : "", length));
    Py_XDECREF(type);
    Py_XDECREF(subtype);
    PyGILState_Release(state);
}

static PyObject *py_refer_respond(PyObject *self, PyObject *args)
{
    int call_id, cseq, code;
    (void)self;
    if (!PyArg_ParseTuple(args, "iii", &call_id, &cseq, &code))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    refer_respond(call_id, cseq, code);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_refer_client_install(PyObject *self, PyObject *args)
{
    PyObject *response, *notify;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO", &response, &notify))
        return NULL;
    Py_XSETREF(on_refer_response, Py_NewRef(response));
    Py_XSETREF(on_refer_notify, Py_NewRef(notify));
    if (refer_client_install(report_response, report_notify) != 0)
        return PyErr_Format(PyExc_RuntimeError, "the REFER module did not install");
    Py_RETURN_NONE;
}

static PyObject *py_refer_client_remove(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    Py_BEGIN_ALLOW_THREADS
    refer_client_remove();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* False after an error. The texts live as long as `lines`. */
static bool read_headers(PyObject *lines, refer_client_params_t *params)
{
    const Py_ssize_t count = PyTuple_GET_SIZE(lines);
    if (count > REFER_CLIENT_MAX_HEADERS) {
        PyErr_Format(PyExc_ValueError, "a REFER has %d headers at most", REFER_CLIENT_MAX_HEADERS);
        return false;
    }
    params->header_count = (int)count;
    for (Py_ssize_t i = 0; i < count; i++) {
        refer_client_header_t *header = &params->headers[i];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(lines, i), "ss", &header->name, &header->value))
            return false;
    }
    return true;
}

static PyObject *py_refer_client_send(PyObject *self, PyObject *args)
{
    refer_client_params_t params = {0};
    PyObject *lines;
    pj_status_t status;
    char reason[PJ_ERR_MSG_SIZE];
    (void)self;
    if (!PyArg_ParseTuple(args, "iLO!(ss)", &params.call, &params.token, &PyTuple_Type, &lines, &params.user,
                          &params.password) ||
        !read_headers(lines, &params))
        return NULL;
    if (params.call < 0 || params.call >= PJSUA_MAX_CALLS)
        return PyErr_Format(PyExc_ValueError, "%d is the number of no call", params.call);
    Py_BEGIN_ALLOW_THREADS
    status = refer_client_send(&params);
    Py_END_ALLOW_THREADS
    if (status == PJ_SUCCESS)
        Py_RETURN_NONE;
    pj_strerror(status, reason, sizeof reason);
    if (status == PJ_ETIMEDOUT)
        return PyErr_Format(PyExc_BlockingIOError, "%s", reason);
    return PyErr_Format(PyExc_ConnectionError, "%s", reason);
}

static PyObject *py_refer_client_end(PyObject *self, PyObject *args)
{
    int call_id;
    long long token;
    (void)self;
    if (!PyArg_ParseTuple(args, "iL", &call_id, &token))
        return NULL;
    if (call_id < 0 || call_id >= PJSUA_MAX_CALLS)
        return PyErr_Format(PyExc_ValueError, "%d is the number of no call", call_id);
    Py_BEGIN_ALLOW_THREADS
    refer_client_end(call_id, token);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_dialog_id(PyObject *self, PyObject *argument)
{
    refer_client_dialog_id_t id;
    bool found;
    const long number = PyLong_AsLong(argument);
    (void)self;
    if (number == -1 && PyErr_Occurred())
        return NULL;
    if (number < 0 || number >= PJSUA_MAX_CALLS)
        return PyErr_Format(PyExc_ValueError, "%ld is the number of no call", number);
    Py_BEGIN_ALLOW_THREADS
    found = refer_client_dialog_id((pjsua_call_id)number, &id);
    Py_END_ALLOW_THREADS
    if (!found)
        return PyErr_Format(PyExc_ConnectionError, "the call has ended");
    return Py_BuildValue("yyy", id.call_id, id.local_tag, id.remote_tag);
}

PyMethodDef refer_methods[] = {
    METHOD(refer_respond, METH_VARARGS, "refer_respond(pjsua_call_id, CSeq number, final status)."),
    METHOD(refer_client_install, METH_VARARGS,
           "refer_client_install(on_response, on_notify): send REFER. on_response(token, status) with status 0 when there was "
           "none; on_notify(token, terminated, content type, body)."),
    METHOD(refer_client_remove, METH_NOARGS, "Report nothing more about REFERs."),
    METHOD(refer_client_send, METH_VARARGS, "refer_client_send(pjsua_call_id, token, headers, (user, password)). Raises BlockingIOError while another thread "
           "holds the call's lock, and ConnectionError."),
    METHOD(refer_client_end, METH_VARARGS, "refer_client_end(pjsua_call_id, token): follow this REFER no longer."),
    METHOD(dialog_id, METH_O, "dialog_id(pjsua_call_id) -> (Call-ID, local tag, remote tag)."),
    {NULL, NULL, 0, NULL},
};
