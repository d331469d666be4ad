#include "python_address.h"

#include "address.h"
#include "literal.h"
#include "sdp.h"

#define NETWORKS_MOST 1000

static PyObject *py_address_set(PyObject *self, PyObject *args)
{
    const char *bound, *public_address, *texts[NETWORKS_MOST];
    PyObject *networks;
    (void)self;
    if (!PyArg_ParseTuple(args, "ssO!", &bound, &public_address, &PyTuple_Type, &networks))
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(networks);
    if (count > NETWORKS_MOST)
        return PyErr_Format(PyExc_ValueError, "at most %d local networks", NETWORKS_MOST);
    for (Py_ssize_t i = 0; i < count; i++)
        if (!(texts[i] = PyUnicode_AsUTF8(PyTuple_GET_ITEM(networks, i))))
            return NULL;
    address_set(bound, public_address, sources_make(texts, (int)count));
    Py_RETURN_NONE;
}

static PyObject *py_address_install(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    if (address_install() != 0)
        return PyErr_Format(PyExc_RuntimeError, "our addresses cannot be told");
    Py_RETURN_NONE;
}

static PyObject *py_address_remove(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    Py_BEGIN_ALLOW_THREADS
    address_remove();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_address_accounts(PyObject *self, PyObject *args)
{
    int v4, v6;
    (void)self;
    if (!PyArg_ParseTuple(args, "ii", &v4, &v6))
        return NULL;
    address_set_accounts(v4, v6);
    Py_RETURN_NONE;
}

static PyObject *py_address_towards(PyObject *self, PyObject *text)
{
    const char *host = PyUnicode_AsUTF8(text);
    char found[PJ_INET6_ADDRSTRLEN];
    pj_sockaddr peer, ours;
    (void)self;
    if (!host)
        return NULL;
    const pj_str_t name = pj_str((char *)host);
    if (!literal_address(&name, &peer) || !address_towards(&peer, &ours))
        Py_RETURN_NONE;
    return PyUnicode_FromString(pj_sockaddr_print(&ours, found, sizeof found, 0));
}

PyMethodDef address_methods[] = {
    {"address_set", py_address_set, METH_VARARGS, "address_set(bound, public address, local networks): as texts."},
    {"address_install", py_address_install, METH_NOARGS, "Write addresses into the messages that we send."},
    {"address_remove", py_address_remove, METH_NOARGS, "Do not any more."},
    {"address_accounts", py_address_accounts, METH_VARARGS, "address_accounts(IPv4's, IPv6's): -1 for none."},
    {"address_towards", py_address_towards, METH_O, "address_towards(address) -> ours, or None without a route."},
    {NULL, NULL, 0, NULL},
};
