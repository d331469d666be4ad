/* Functions of sipcore._native: calls, their callbacks and how they end. */
#define _GNU_SOURCE
#include "python/methods.h"

#include "pump/pump.h"
#include "python/pj_objects.h"
#include "rtp/media_transport.h"
#include "rtp/port_pool.h"
#include "rtp/send_consent.h"
#include "rtp/srtp.h"
#include "sip/codec_list.h"
#include "sip/hangup.h"
#include "sip/local_address.h"
#include "sip/reason_header.h"
#include "sip/refer.h"
#include "sip/replaces.h"

#include <pjsua-lib/pjsua_internal.h>
#include <string.h>

/* A callee's 3xx would make PJSUA call its Contact. With "stop" instead, the call would end as if we had ended it. */
static pjsip_redirect_op refuse_redirection(pjsua_call_id call, const pjsip_uri *target, const pjsip_event *event)
{
    (void)call, (void)target, (void)event;
    return PJSIP_REDIRECT_REJECT;
}

static void on_sdp_created(pjsua_call_id call, pjmedia_sdp_session *sdp, pj_pool_t *pool, const pjmedia_sdp_session *remote)
{
    codec_list_on_sdp_created(call, sdp);
    local_address_on_sdp_created(call, sdp, pool, remote);
}

/* pjsua2's own versions of these callbacks would enter Python on PJSIP's threads for every call. */
static PyObject *py_install_callbacks(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    pjsua_callback *callback = &pjsua_var.ua_cfg.cb;
    callback->on_stream_created2 = pump_on_stream_created;
    callback->on_call_sdp_created = on_sdp_created;
    callback->on_stream_precreate = NULL;
    callback->on_stream_destroyed = NULL;
    reason_header_hook(callback);
    send_consent_hook(callback);
    callback->on_call_media_event = NULL;
    callback->on_create_media_transport = media_transport_create;
    callback->on_call_media_transport_state = port_pool_on_media_state;
    refer_hook(callback);
    callback->on_call_replace_request = NULL;
    replaces_hook(callback);
    codec_list_hook(callback);
    callback->on_call_redirected = refuse_redirection;
    Py_RETURN_NONE;
}

/* PJSUA does not report a 100: only the transaction knows whether the peer has responded at all. */
static PyObject *py_invite_status(PyObject *self, PyObject *argument)
{
    long number = PyLong_AsLong(argument);
    pjsua_call *call = NULL;
    pjsip_dialog *dialog = NULL;
    int status = 0;
    (void)self;
    if (number == -1 && PyErr_Occurred())
        return NULL;
    if (number < 0 || number >= PJSUA_MAX_CALLS)
        return PyLong_FromLong(0);
    Py_BEGIN_ALLOW_THREADS
    if (acquire_call("invite status", (pjsua_call_id)number, &call, &dialog) == PJ_SUCCESS) {
        if (call->inv && call->inv->invite_tsx)
            status = call->inv->invite_tsx->status_code;
        if (dialog)
            pjsip_dlg_dec_lock(dialog);
    }
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(status);
}

static PyObject *py_srtp_keying(PyObject *self, PyObject *argument)
{
    static const char *const names[] = {NULL, "sdes", "dtls"};
    char peer[PJ_INET6_ADDRSTRLEN];
    bool signalling = false;
    enum srtp_keying found;
    long call = PyLong_AsLong(argument);
    (void)self;
    if (call == -1 && PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    found = srtp_keying_of((pjsua_call_id)call, peer, sizeof peer, &signalling);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("(zsN)", names[found], peer, PyBool_FromLong(signalling));
}

static PyObject *py_srtp_require(PyObject *self, PyObject *on)
{
    (void)self;
    int truth = PyObject_IsTrue(on);
    if (truth == -1)
        return NULL;
    srtp_require(truth);
    Py_RETURN_NONE;
}

/* Names of codecs, preferred first. False with a Python error. */
static bool parse_codecs(PyObject *names, codec_list_t *list)
{
    *list = 0;
    PyObject *sequence = PySequence_Fast(names, "codecs are a sequence of names");
    if (!sequence)
        return false;
    bool valid = true;
    for (Py_ssize_t i = 0; valid && i < PySequence_Fast_GET_SIZE(sequence); i++) {
        const char *name = PyUnicode_AsUTF8(PySequence_Fast_GET_ITEM(sequence, i));
        valid = name && codec_list_add(list, name);
        if (name && !valid)
            PyErr_Format(PyExc_ValueError, "%s is no codec, or is there twice", name);
    }
    Py_DECREF(sequence);
    return valid;
}

static PyObject *py_codecs_install(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    if (codec_list_install() != 0)
        return PyErr_Format(PyExc_RuntimeError, "the module for codecs did not install");
    Py_RETURN_NONE;
}

static PyObject *py_codecs_remove(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    Py_BEGIN_ALLOW_THREADS
    codec_list_remove();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_codecs_of_next_invites(PyObject *self, PyObject *names)
{
    codec_list_t list;
    (void)self;
    if (!parse_codecs(names, &list))
        return NULL;
    codec_list_of_next_invites(list);
    Py_RETURN_NONE;
}

static PyObject *py_limit_codecs(PyObject *self, PyObject *args)
{
    int call;
    PyObject *names;
    codec_list_t list;
    bool offered;
    pj_status_t status;
    (void)self;
    if (!PyArg_ParseTuple(args, "iO", &call, &names) || !parse_codecs(names, &list))
        return NULL;
    if (call < 0 || call >= PJSUA_MAX_CALLS)
        return PyErr_Format(PyExc_ValueError, "%d is the number of no call", call);
    Py_BEGIN_ALLOW_THREADS
    status = codec_list_limit(call, list, &offered);
    Py_END_ALLOW_THREADS
    if (status == PJ_ETIMEDOUT)
        return PyErr_Format(PyExc_BlockingIOError, "another thread works with the call");
    return PyBool_FromLong(status != PJ_SUCCESS || offered);
}

static PyObject *py_detach_call(PyObject *self, PyObject *args)
{
    int call;
    PyObject *address;
    (void)self;
    if (!PyArg_ParseTuple(args, "iO!", &call, &PyLong_Type, &address))
        return NULL;
    void *object = PyLong_AsVoidPtr(address);
    if (!object)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "no call object");
    pump_detach_call(call);
    pj_call_detach(object);
    Py_RETURN_NONE;
}

static PyObject *py_hangup_install(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    if (hangup_install() != 0)
        return PyErr_Format(PyExc_RuntimeError, "the hangup module did not install");
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

static PyObject *py_take_peer_reason(PyObject *self, PyObject *argument)
{
    char text[REASON_HEADER_SIZE];
    long call = PyLong_AsLong(argument);
    (void)self;
    if (call == -1 && PyErr_Occurred())
        return NULL;
    reason_header_take((pjsua_call_id)call, text);
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

PyMethodDef call_methods[] = {
    METHOD(install_callbacks, METH_NOARGS, "install_callbacks(): replace pjsua2's callbacks that need no Python."),
    METHOD(invite_status, METH_O, "invite_status(pjsua_call_id) -> latest status of a response to our INVITE, or 0."),
    METHOD(srtp_keying, METH_O, "srtp_keying(pjsua_call_id) -> (keying, SIP peer, SIP encrypted)."),
    METHOD(srtp_require, METH_O, "srtp_require(on): whether calls that this thread makes offer RTP/SAVP."),
    METHOD(codecs_install, METH_NOARGS, "codecs_install(): keep lists of codecs for dialogs."),
    METHOD(codecs_remove, METH_NOARGS, "codecs_remove(): as codecs_install, after the last call."),
    METHOD(codecs_of_next_invites, METH_O, "codecs_of_next_invites(names): of calls that this thread makes; (): all."),
    METHOD(limit_codecs, METH_VARARGS,
           "limit_codecs(pjsua_call_id, names) -> whether an inbound call, not answered yet, offers one of them."),
    METHOD(detach_call, METH_VARARGS, "detach_call(pjsua_call_id, address of its pj::Call): the call is over."),
    METHOD(hangup_install, METH_NOARGS, "Add our Reason header to every message that ends a call."),
    METHOD(hangup_remove, METH_NOARGS, "Stop adding Reason headers."),
    METHOD(hangup, METH_VARARGS, "hangup(pjsua_call_id, code, Reason) -> PJSIP's status."),
    METHOD(take_peer_reason, METH_O,
           "take_peer_reason(pjsua_call_id) -> Reason headers of the peer's BYE, CANCEL or response; once."),
    {NULL, NULL, 0, NULL},
};
