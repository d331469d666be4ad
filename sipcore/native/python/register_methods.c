/* Functions of sipcore._native: REGISTER, OPTIONS and the accounts of trunks. */
#include "python/methods.h"

#include "python/pj_objects.h"
#include "trunks/account.h"
#include "trunks/auth_challenge.h"
#include "trunks/qualify.h"
#include "trunks/register.h"
#include "trunks/registration_flow.h"

#include <pjsua-lib/pjsua_internal.h>

static const char *const outcome_names[] = {"answered", "timeout", "unresolved", "unreachable", "unsupported_challenge"};

static PyObject *on_outcome, *on_lost, *on_qualify_result;

/* Takes ownership of `arguments`. `function` only posts to the event loop. */
static void call(PyObject *function, PyObject *arguments)
{
    PyObject *result = function && arguments ? PyObject_CallObject(function, arguments) : NULL;
    if (!result)
        PyErr_WriteUnraisable(function);
    Py_XDECREF(result);
    Py_XDECREF(arguments);
}

static void report_outcome(const register_outcome_t *outcome)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *reason = PyUnicode_DecodeUTF8(outcome->reason, (Py_ssize_t)strlen(outcome->reason), "replace");
    call(on_outcome, Py_BuildValue("LsiNsIii", outcome->token, outcome_names[outcome->kind], outcome->code, reason,
                                   outcome->source, outcome->expires_s, outcome->retry_after_s, outcome->min_expires_s));
    PyGILState_Release(state);
}

static void report_flow_lost(pjsua_acc_id account)
{
    PyGILState_STATE state = PyGILState_Ensure();
    call(on_lost, Py_BuildValue("(i)", account));
    PyGILState_Release(state);
}

static void report_qualify_result(long long token, bool answered, int code, long long microseconds, const char *why)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *text = PyUnicode_DecodeUTF8(why, (Py_ssize_t)strlen(why), "replace");
    call(on_qualify_result, Py_BuildValue("LOiLN", token, answered ? Py_True : Py_False, code, microseconds, text));
    PyGILState_Release(state);
}

static PyObject *py_register_install(PyObject *self, PyObject *args)
{
    PyObject *outcome, *lost;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO", &outcome, &lost))
        return NULL;
    Py_XSETREF(on_outcome, Py_NewRef(outcome));
    Py_XSETREF(on_lost, Py_NewRef(lost));
    account_install();
    if (register_install(report_outcome) != 0 || registration_flow_install(report_flow_lost) != 0)
        return PyErr_Format(PyExc_RuntimeError, "registrations cannot be sent");
    Py_RETURN_NONE;
}

static PyObject *py_register_remove(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    Py_BEGIN_ALLOW_THREADS
    register_remove();
    registration_flow_remove();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_qualify_install(PyObject *self, PyObject *on_result)
{
    (void)self;
    Py_XSETREF(on_qualify_result, Py_NewRef(on_result));
    if (qualify_install(report_qualify_result) != 0)
        return PyErr_Format(PyExc_RuntimeError, "the OPTIONS module did not install");
    Py_RETURN_NONE;
}

static PyObject *py_qualify_remove(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    qualify_install(NULL);
    Py_RETURN_NONE;
}

static PyObject *failed(pj_status_t status)
{
    char text[PJ_ERR_MSG_SIZE];
    pj_strerror(status, text, sizeof text);
    return PyErr_Format(PyExc_ConnectionError, "%s", text);
}

static PyObject *py_register_send(PyObject *self, PyObject *args)
{
    register_params_t params;
    char contact[PJSIP_MAX_URL_SIZE];
    pj_status_t status;
    (void)self;
    if (!PyArg_ParseTuple(args, "iLssssIIs(ss)", &params.account, &params.token, &params.registrar, &params.aor,
                          &params.contact, &params.former, &params.cseq, &params.expires_s, &params.call_id, &params.user,
                          &params.password))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = register_send(&params, contact, sizeof contact);
    Py_END_ALLOW_THREADS
    return status == PJ_SUCCESS ? PyUnicode_DecodeUTF8(contact, (Py_ssize_t)strlen(contact), "replace") : failed(status);
}

/* A function of an account's number. */
static PyObject *with_account(PyObject *argument, void (*function)(pjsua_acc_id))
{
    long account = PyLong_AsLong(argument);
    if (account == -1 && PyErr_Occurred())
        return NULL;
    if (account < 0 || account >= PJSUA_MAX_ACC)
        return PyErr_Format(PyExc_ValueError, "no account has the number %ld", account);
    Py_BEGIN_ALLOW_THREADS
    function((pjsua_acc_id)account);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_register_abandon(PyObject *self, PyObject *argument)
{
    (void)self;
    return with_account(argument, register_abandon);
}

static PyObject *py_register_keep_alive(PyObject *self, PyObject *argument)
{
    (void)self;
    return with_account(argument, registration_flow_keep_alive);
}

static PyObject *py_register_drop(PyObject *self, PyObject *argument)
{
    (void)self;
    return with_account(argument, register_drop);
}

static PyObject *py_account_set_route(PyObject *self, PyObject *args)
{
    const char *routes[2];
    int account, count = 0;
    pj_status_t status;
    (void)self;
    if (!PyArg_ParseTuple(args, "i|ss", &account, &routes[0], &routes[1]))
        return NULL;
    count = (int)PyTuple_GET_SIZE(args) - 1;
    Py_BEGIN_ALLOW_THREADS
    status = account_set_route(account, routes, count);
    Py_END_ALLOW_THREADS
    return status == PJ_SUCCESS ? Py_NewRef(Py_None) : failed(status);
}

static PyObject *py_account_delete(PyObject *self, PyObject *args)
{
    int account;
    PyObject *address;
    bool gone;
    (void)self;
    if (!PyArg_ParseTuple(args, "iO!", &account, &PyLong_Type, &address))
        return NULL;
    void *object = PyLong_AsVoidPtr(address);
    if (!object)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "no account object");
    Py_BEGIN_ALLOW_THREADS
    gone = account < 0 || account >= PJSUA_MAX_ACC || account_delete((pjsua_acc_id)account);
    if (gone)
        pj_account_detach(object);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(gone);
}

static PyObject *py_account_detach(PyObject *self, PyObject *address)
{
    (void)self;
    void *object = PyLong_AsVoidPtr(address);
    if (!object)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "no account object");
    pj_account_detach(object);
    Py_RETURN_NONE;
}

static PyObject *py_qualify_send(PyObject *self, PyObject *args)
{
    int account;
    const char *uri;
    long long token;
    pj_status_t status;
    (void)self;
    if (!PyArg_ParseTuple(args, "isL", &account, &uri, &token))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = qualify_send(account, uri, token);
    Py_END_ALLOW_THREADS
    return status == PJ_SUCCESS ? Py_NewRef(Py_None) : failed(status);
}

static PyObject *py_challenge_nonce_prefix(PyObject *self, PyObject *argument)
{
    const char *mark = PyUnicode_AsUTF8(argument);
    (void)self;
    if (!mark)
        return NULL;
    auth_challenge_set_nonce_prefix(mark);
    Py_RETURN_NONE;
}

PyMethodDef register_methods[] = {
    METHOD(register_install, METH_VARARGS, "register_install(on_outcome, on_lost): callbacks on PJSIP's threads."),
    METHOD(register_remove, METH_NOARGS, "Report nothing more."),
    METHOD(register_send, METH_VARARGS, "register_send(...) -> the Contact that was sent."),
    METHOD(register_abandon, METH_O, "register_abandon(account): stop waiting for the response."),
    METHOD(register_keep_alive, METH_O, "register_keep_alive(account): keep the NAT binding of a UDP registration."),
    METHOD(register_drop, METH_O, "register_drop(account): release its connection, report nothing more."),
    METHOD(account_set_route, METH_VARARGS, "account_set_route(account, *routes): Route values, two at most."),
    METHOD(account_delete, METH_VARARGS, "account_delete(account, address of its pjsua2 object) -> False while it has calls."),
    METHOD(account_detach, METH_O, "account_detach(address of a pjsua2 account): its end deletes no account of PJSUA."),
    METHOD(qualify_install, METH_O, "qualify_install(on_result): a callback on PJSIP's threads."),
    METHOD(qualify_remove, METH_NOARGS, "Report nothing more."),
    METHOD(challenge_nonce_prefix, METH_O, "challenge_nonce_prefix(prefix of our own nonces)."),
    METHOD(qualify_send, METH_VARARGS, "qualify_send(account, uri, token)."),
    {NULL, NULL, 0, NULL},
};
