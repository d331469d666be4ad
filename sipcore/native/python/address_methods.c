/* Functions of sipcore._native: local addresses and the media address policy. */
#include "python/methods.h"

#include "net/ip_literal.h"
#include "net/sdp.h"
#include "rtp/media_address_policy.h"
#include "sip/local_address.h"

#define MAX_NETWORKS 1000

/* NULL with an exception set when an item is no text, or there are too many. */
static ip_set_t *networks_of(PyObject *tuple)
{
    const char *texts[MAX_NETWORKS];
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    if (count > MAX_NETWORKS) {
        PyErr_Format(PyExc_ValueError, "at most %d networks", MAX_NETWORKS);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (!(texts[i] = PyUnicode_AsUTF8(PyTuple_GET_ITEM(tuple, i))))
            return NULL;
    ip_set_t *networks = ip_set_create(texts, (int)count);
    return networks ? networks : (ip_set_t *)PyErr_NoMemory();
}

static PyObject *py_local_address_set(PyObject *self, PyObject *args)
{
    const char *bound, *public_address;
    PyObject *networks;
    (void)self;
    if (!PyArg_ParseTuple(args, "ssO!", &bound, &public_address, &PyTuple_Type, &networks))
        return NULL;
    ip_set_t *local = networks_of(networks);
    if (!local)
        return NULL;
    local_address_set(bound, public_address, local);
    Py_RETURN_NONE;
}

static PyObject *py_media_networks(PyObject *self, PyObject *args)
{
    PyObject *allowed, *forbidden;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &allowed, &PyTuple_Type, &forbidden))
        return NULL;
    ip_set_t *networks = networks_of(allowed), *refused = networks ? networks_of(forbidden) : NULL;
    if (!refused) {
        ip_set_free(networks);
        return NULL;
    }
    media_address_policy_set(networks, refused);
    Py_RETURN_NONE;
}

static PyObject *py_media_address_class(PyObject *self, PyObject *args)
{
    static const char *const names[] = {"held", "signalling", "allowed", "unlisted", "forbidden"};
    const char *text, *from;
    pj_sockaddr parsed, peer;
    (void)self;
    if (!PyArg_ParseTuple(args, "ss", &text, &from))
        return NULL;
    const pj_str_t address = pj_str((char *)text), source = pj_str((char *)from);
    if (!ip_literal_parse(&address, &parsed) || !ip_literal_parse(&source, &peer))
        return PyErr_Format(PyExc_ValueError, "no IP address");
    return PyUnicode_FromString(names[media_address_classify(&parsed, &peer)]);
}

static PyObject *py_local_address_install(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    if (local_address_install() != 0)
        return PyErr_Format(PyExc_RuntimeError, "the local address module did not install");
    Py_RETURN_NONE;
}

static PyObject *py_local_address_remove(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    Py_BEGIN_ALLOW_THREADS
    local_address_remove();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_local_address_accounts(PyObject *self, PyObject *args)
{
    int v4, v6;
    (void)self;
    if (!PyArg_ParseTuple(args, "ii", &v4, &v6))
        return NULL;
    local_address_set_accounts(v4, v6);
    Py_RETURN_NONE;
}

static PyObject *py_local_address_towards(PyObject *self, PyObject *text)
{
    const char *host = PyUnicode_AsUTF8(text);
    char found[PJ_INET6_ADDRSTRLEN];
    pj_sockaddr peer, ours;
    (void)self;
    if (!host)
        return NULL;
    const pj_str_t name = pj_str((char *)host);
    if (!ip_literal_parse(&name, &peer) || !local_address_towards(&peer, &ours))
        Py_RETURN_NONE;
    return PyUnicode_FromString(pj_sockaddr_print(&ours, found, sizeof found, 0));
}

PyMethodDef address_methods[] = {
    METHOD(local_address_set, METH_VARARGS, "local_address_set(bound, public address, local networks): as texts."),
    METHOD(media_networks, METH_VARARGS, "media_networks(allowed, forbidden): networks for the addresses in SDP, as texts."),
    METHOD(media_address_class, METH_VARARGS, "media_address_class(address, SIP peer) -> whether it may receive media."),
    METHOD(local_address_install, METH_NOARGS, "Write the local address into outgoing messages."),
    METHOD(local_address_remove, METH_NOARGS, "Stop writing addresses."),
    METHOD(local_address_accounts, METH_VARARGS, "local_address_accounts(IPv4 account, IPv6 account): -1 for none."),
    METHOD(local_address_towards, METH_O, "local_address_towards(address) -> local address, or None without a route."),
    {NULL, NULL, 0, NULL},
};
