/* Functions of sipcore._native: records of dialogs, OPTIONS in them, and the end of a former process's dialogs. */
#include "python/methods.h"

#include "sip/dialog_record.h"
#include "trunks/dialog_probe.h"
#include "trunks/orphaned_dialog.h"

#include <string.h>

static PyObject *on_orphaned_dialog, *on_probe_response;

static void report_orphaned_dialog(long long token, int status, const char *reason)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *text = PyUnicode_DecodeUTF8(reason, (Py_ssize_t)strlen(reason), "replace");
    PyObject *result = text && on_orphaned_dialog ? PyObject_CallFunction(on_orphaned_dialog, "LiO", token, status, text) : NULL;
    if (!result)
        PyErr_WriteUnraisable(on_orphaned_dialog);
    Py_XDECREF(result);
    Py_XDECREF(text);
    PyGILState_Release(gil);
}

static PyObject *routes_of(const dialog_record_t *record)
{
    PyObject *routes = PyTuple_New(record->route_count);
    for (int i = 0; routes && i < record->route_count; i++) {
        PyObject *route = PyBytes_FromString(record->route[i]);
        if (!route)
            Py_CLEAR(routes);
        else
            PyTuple_SET_ITEM(routes, i, route);
    }
    return routes;
}

static PyObject *invite_of(const dialog_record_invite_t *invite)
{
    if (!*invite->branch)
        return PyTuple_New(0);
    return Py_BuildValue("(yyyyy)", invite->branch, invite->sent_by, invite->transport, invite->address, invite->server_name);
}

static PyObject *py_dialog_record(PyObject *self, PyObject *argument)
{
    const long number = PyLong_AsLong(argument);
    bool found;
    (void)self;
    if (number == -1 && PyErr_Occurred())
        return NULL;
    if (number < 0 || number >= PJSUA_MAX_CALLS)
        return PyErr_Format(PyExc_ValueError, "%ld is the number of no call", number);
    dialog_record_t *record = PyMem_Malloc(sizeof *record);
    if (!record)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
    found = dialog_record_of((pjsua_call_id)number, record);
    Py_END_ALLOW_THREADS
    PyObject *result = !found ? Py_NewRef(Py_None)
                              : Py_BuildValue("(yyyyyyINN)", record->call_id, record->local, record->local_tag, record->remote,
                                              record->remote_tag, record->target, record->cseq, routes_of(record),
                                              invite_of(&record->invite));
    PyMem_Free(record);
    return result;
}

static PyObject *py_orphaned_dialog_install(PyObject *self, PyObject *on_result)
{
    (void)self;
    Py_XSETREF(on_orphaned_dialog, Py_NewRef(on_result));
    if (orphaned_dialog_install(report_orphaned_dialog) != 0)
        return PyErr_Format(PyExc_RuntimeError, "the module of orphaned dialogs did not install");
    Py_RETURN_NONE;
}

static PyObject *py_orphaned_dialog_remove(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    Py_BEGIN_ALLOW_THREADS
    orphaned_dialog_remove();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static bool set_text(char *to, size_t size, const char *from)
{
    const bool fits = strlen(from) < size;
    if (fits)
        strcpy(to, from);
    else
        PyErr_Format(PyExc_ValueError, "a text of the dialog has more than %zu bytes", size - 1);
    return fits;
}

#define SET_TEXT(field, from) set_text(field, sizeof(field), from)

static bool read_routes(PyObject *routes, dialog_record_t *record)
{
    const Py_ssize_t count = PyTuple_GET_SIZE(routes);
    if (count > DIALOG_RECORD_MAX_ROUTES) {
        PyErr_Format(PyExc_ValueError, "a dialog has %d routes at most", DIALOG_RECORD_MAX_ROUTES);
        return false;
    }
    record->route_count = (int)count;
    for (Py_ssize_t i = 0; i < count; i++) {
        const char *route = PyBytes_AsString(PyTuple_GET_ITEM(routes, i));
        if (!route || !SET_TEXT(record->route[i], route))
            return false;
    }
    return true;
}

static bool read_invite(PyObject *texts, dialog_record_invite_t *invite)
{
    const char *branch, *sent_by, *transport, *address, *server_name;
    memset(invite, 0, sizeof *invite);
    if (!PyTuple_GET_SIZE(texts))
        return true;
    return PyArg_ParseTuple(texts, "yyyyy", &branch, &sent_by, &transport, &address, &server_name) &&
           SET_TEXT(invite->branch, branch) && SET_TEXT(invite->sent_by, sent_by) && SET_TEXT(invite->transport, transport) &&
           SET_TEXT(invite->address, address) && SET_TEXT(invite->server_name, server_name);
}

static bool read_record(PyObject *given, dialog_record_t *record)
{
    const char *call_id, *local, *local_tag, *remote, *remote_tag, *target;
    PyObject *routes, *invite;
    return PyArg_ParseTuple(given, "yyyyyyIO!O!", &call_id, &local, &local_tag, &remote, &remote_tag, &target, &record->cseq,
                            &PyTuple_Type, &routes, &PyTuple_Type, &invite) &&
           SET_TEXT(record->call_id, call_id) && SET_TEXT(record->local, local) && SET_TEXT(record->local_tag, local_tag) &&
           SET_TEXT(record->remote, remote) && SET_TEXT(record->remote_tag, remote_tag) && SET_TEXT(record->target, target) &&
           read_routes(routes, record) && read_invite(invite, &record->invite);
}

static PyObject *end_orphaned_dialog(PyObject *args, orphaned_dialog_params_t *params)
{
    PyObject *record;
    pj_status_t status;
    char text[PJ_ERR_MSG_SIZE];
    if (!PyArg_ParseTuple(args, "LO!s(ss)", &params->token, &PyTuple_Type, &record, &params->reason, &params->user,
                          &params->password) ||
        !read_record(record, &params->record))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = orphaned_dialog_end(params);
    Py_END_ALLOW_THREADS
    if (status == PJ_SUCCESS)
        Py_RETURN_NONE;
    pj_strerror(status, text, sizeof text);
    return PyErr_Format(PyExc_ConnectionError, "%s", text);
}

static PyObject *py_orphaned_dialog_end(PyObject *self, PyObject *args)
{
    (void)self;
    orphaned_dialog_params_t *params = PyMem_Malloc(sizeof *params);
    if (!params)
        return PyErr_NoMemory();
    PyObject *result = end_orphaned_dialog(args, params);
    PyMem_Free(params);
    return result;
}

static void report_probe_response(long long token, int status)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *result = on_probe_response ? PyObject_CallFunction(on_probe_response, "Li", token, status) : NULL;
    if (!result)
        PyErr_WriteUnraisable(on_probe_response);
    Py_XDECREF(result);
    PyGILState_Release(gil);
}

static PyObject *py_dialog_probe_install(PyObject *self, PyObject *on_response)
{
    (void)self;
    Py_XSETREF(on_probe_response, Py_NewRef(on_response));
    if (dialog_probe_install(report_probe_response) != 0)
        return PyErr_Format(PyExc_RuntimeError, "the module of OPTIONS in dialogs did not install");
    Py_RETURN_NONE;
}

static PyObject *py_dialog_probe_remove(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    Py_BEGIN_ALLOW_THREADS
    dialog_probe_remove();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_dialog_probe_send(PyObject *self, PyObject *args)
{
    int call_id;
    long long token;
    pj_status_t status;
    char text[PJ_ERR_MSG_SIZE];
    (void)self;
    if (!PyArg_ParseTuple(args, "iL", &call_id, &token))
        return NULL;
    if (call_id < 0 || call_id >= PJSUA_MAX_CALLS)
        return PyErr_Format(PyExc_ConnectionError, "the call has ended");
    Py_BEGIN_ALLOW_THREADS
    status = dialog_probe_send(call_id, token);
    Py_END_ALLOW_THREADS
    if (status == PJ_SUCCESS)
        Py_RETURN_NONE;
    pj_strerror(status, text, sizeof text);
    return PyErr_Format(PyExc_ConnectionError, "%s", text);
}

PyMethodDef dialog_methods[] = {
    METHOD(dialog_record, METH_O,
           "dialog_record(pjsua_call_id) -> (Call-ID, local URI, local tag, remote URI, remote tag, target, CSeq number, routes, "
           "INVITE), or None; the INVITE is () or (branch, sent-by, transport, address, server name)."),
    METHOD(dialog_probe_install, METH_O,
           "dialog_probe_install(on_response): on_response(token, status), with status 0 when there was no response."),
    METHOD(dialog_probe_remove, METH_NOARGS, "Report nothing more about OPTIONS in dialogs."),
    METHOD(dialog_probe_send, METH_VARARGS,
           "dialog_probe_send(pjsua_call_id, token): send OPTIONS in the call's dialog. Raises ConnectionError."),
    METHOD(orphaned_dialog_install, METH_O, "orphaned_dialog_install(on_result): on_result(token, status or 0, reason)."),
    METHOD(orphaned_dialog_remove, METH_NOARGS, "Report nothing more about orphaned dialogs."),
    METHOD(orphaned_dialog_end, METH_VARARGS,
           "orphaned_dialog_end(token, record, Reason, (user, password)). Raises ConnectionError and ValueError."),
    {NULL, NULL, 0, NULL},
};
