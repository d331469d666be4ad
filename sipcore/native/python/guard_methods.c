/* Functions of sipcore._native: the source guard and the host table, for `sipcore.security.source_guard` and
 * `sipcore.resolver.host_table`. */
#define _GNU_SOURCE
#include "python/methods.h"

#include "guard/guard.h"
#include "guard/invite_rate_limit.h"
#include "net/drop_counters.h"
#include "net/host_table.h"
#include "net/ip_literal.h"
#include "net/source_acl.h"
#include "tls/tls_listener.h"

#include <stdlib.h>
#include <string.h>

/* ---- the guard ---- */

static PyObject *py_guard_install(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    if (guard_install() != 0 || host_table_install() != 0)
        return PyErr_Format(PyExc_RuntimeError, "the SIP source guard did not install");
    Py_RETURN_NONE;
}

static PyObject *py_guard_remove(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    Py_BEGIN_ALLOW_THREADS
    guard_remove();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* The strings stay owned by the sequence. NULL with an exception set when an item is no text. */
static const char **texts_of(PyObject *sequence, int *count)
{
    Py_ssize_t length = PyTuple_GET_SIZE(sequence);
    const char **texts = PyMem_Calloc((size_t)length + 1, sizeof *texts);
    for (Py_ssize_t i = 0; texts && i < length; i++)
        if (!(texts[i] = PyUnicode_AsUTF8(PyTuple_GET_ITEM(sequence, i)))) {
            PyMem_Free(texts);
            return NULL;
        }
    *count = (int)length;
    return texts;
}

static PyObject *py_guard_sources(PyObject *self, PyObject *args)
{
    PyObject *known, *probes;
    int known_count = 0, probe_count = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &known, &PyTuple_Type, &probes))
        return NULL;
    const char **k = texts_of(known, &known_count);
    const char **p = k ? texts_of(probes, &probe_count) : NULL;
    if (k && p) {
        source_acl_set(k, known_count, p, probe_count);
        tls_listener_allow(k, known_count, p, probe_count);
    }
    PyMem_Free(k);
    PyMem_Free(p);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *py_guard_policy(PyObject *self, PyObject *args)
{
    int refuse, accepting, retry_after_s;
    (void)self;
    if (!PyArg_ParseTuple(args, "ppi", &refuse, &accepting, &retry_after_s))
        return NULL;
    guard_set_policy(refuse, accepting, retry_after_s);
    tls_listener_allow_all(refuse); /* a source that is to get 403 must be able to send a request */
    Py_RETURN_NONE;
}

/* Hosts' and headers' names come from the network. */
static PyObject *text_of(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *row_of(const drop_event_t *event)
{
    return Py_BuildValue("(ssKNy#)", drop_kind_name(event->kind), event->source, event->count,
                         text_of(event->header), event->sample,
                         (Py_ssize_t)event->size);
}

static PyObject *py_drop_events(PyObject *self, PyObject *unused)
{
    static drop_event_t events[DROP_MAX_EVENTS];
    uint64_t more = 0;
    (void)self, (void)unused;
    int count = drop_take_events(events, &more);
    PyObject *list = PyList_New(count);
    for (int i = 0; list && i < count; i++)
        PyList_SET_ITEM(list, i, row_of(&events[i]));
    return list ? Py_BuildValue("(NK)", list, more) : NULL;
}

static PyObject *py_drop_totals(PyObject *self, PyObject *unused)
{
    uint64_t totals[DROP_KINDS];
    (void)self, (void)unused;
    drop_totals(totals);
    PyObject *counts = PyDict_New();
    for (int i = 0; counts && i < DROP_KINDS; i++) {
        PyObject *count = PyLong_FromUnsignedLongLong(totals[i]);
        if (!count || PyDict_SetItemString(counts, drop_kind_name((enum drop_kind)i), count) != 0)
            Py_CLEAR(counts);
        Py_XDECREF(count);
    }
    return counts;
}

static PyObject *py_guard_message_timeout(PyObject *self, PyObject *argument)
{
    long milliseconds = PyLong_AsLong(argument);
    (void)self;
    if (milliseconds == -1 && PyErr_Occurred())
        return NULL;
    guard_set_message_timeout((int)milliseconds);
    Py_RETURN_NONE;
}

static PyObject *py_invite_rate_limit_set(PyObject *self, PyObject *argument)
{
    unsigned long per_second = PyLong_AsUnsignedLong(argument);
    (void)self;
    if (PyErr_Occurred())
        return NULL;
    invite_rate_limit_set((unsigned)per_second);
    Py_RETURN_NONE;
}

static PyObject *py_invite_rate_limit_take(PyObject *self, PyObject *args)
{
    const char *text;
    long long now_ms;
    pj_sockaddr address;
    ip_key_t key;
    (void)self;
    if (!PyArg_ParseTuple(args, "sL", &text, &now_ms))
        return NULL;
    pj_str_t host = pj_str((char *)text);
    if (!ip_literal_parse(&host, &address) || !ip_key_of(&address, &key))
        return PyErr_Format(PyExc_ValueError, "%s is no IP address", text);
    return PyBool_FromLong(invite_rate_limit_take(&key, now_ms));
}

/* ---- names ---- */

/* One of `host_table_set`: (host, port, transport, ((address, port, transport), ...)). */
static bool read_entry(PyObject *item, host_table_entry_t *entry)
{
    const char *host, *transport;
    unsigned short port;
    PyObject *targets;
    if (!PyArg_ParseTuple(item, "sHsO!", &host, &port, &transport, &PyTuple_Type, &targets))
        return false;
    if (strlen(host) < sizeof entry->host)
        strcpy(entry->host, host);
    entry->port = port;
    entry->transport = host_table_transport(transport);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(targets) && i < PJSIP_MAX_RESOLVED_ADDRESSES; i++) {
        const char *address;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(targets, i), "sHs", &address, &port, &transport))
            return false;
        if (host_table_add_target(entry, address, port, host_table_transport(transport)) != 0) {
            PyErr_Format(PyExc_ValueError, "%s is no IP address", address);
            return false;
        }
    }
    if (*entry->host && entry->count && entry->transport != PJSIP_TRANSPORT_UNSPECIFIED)
        return true;
    PyErr_Format(PyExc_ValueError, "no entry for the table of names: %s", host);
    return false;
}

static PyObject *py_host_table_set(PyObject *self, PyObject *table)
{
    (void)self;
    if (!PyTuple_Check(table) || PyTuple_GET_SIZE(table) > HOST_TABLE_MAX)
        return PyErr_Format(PyExc_ValueError, "the table of names takes a tuple of at most %d entries", HOST_TABLE_MAX);
    int count = (int)PyTuple_GET_SIZE(table);
    host_table_entry_t *entries = calloc((size_t)count + 1, sizeof *entries);
    if (!entries)
        return PyErr_NoMemory();
    for (int i = 0; i < count; i++)
        if (!read_entry(PyTuple_GET_ITEM(table, i), &entries[i])) {
            free(entries);
            return NULL;
        }
    host_table_set(entries, count);
    Py_RETURN_NONE;
}

static PyObject *py_host_table_unknown(PyObject *self, PyObject *unused)
{
    static host_table_unknown_t unknown[HOST_TABLE_MAX_UNKNOWN];
    uint64_t more = 0;
    (void)self, (void)unused;
    int count = host_table_take_unknown(unknown, &more);
    PyObject *list = PyList_New(count);
    for (int i = 0; list && i < count; i++)
        PyList_SET_ITEM(list, i, Py_BuildValue("(NK)", text_of(unknown[i].host), unknown[i].count));
    return list ? Py_BuildValue("(NK)", list, more) : NULL;
}

PyMethodDef guard_methods[] = {
    METHOD(guard_install, METH_NOARGS, "Put the source guard in front of the SIP stack."),
    METHOD(guard_remove, METH_NOARGS, "Remove the source guard."),
    METHOD(guard_sources, METH_VARARGS, "guard_sources(trunks, probes): tuples of addresses and networks."),
    METHOD(guard_policy, METH_VARARGS, "guard_policy(refuse_unknown, accepting, retry_after_s)."),
    METHOD(drop_events, METH_NOARGS,
           "drop_events() -> ([(kind, source, count, header, message)], packets of further sources)."),
    METHOD(drop_totals, METH_NOARGS, "drop_totals() -> counts by kind since the process began."),
    METHOD(guard_message_timeout, METH_O, "guard_message_timeout(ms): time for a whole message on a connection."),
    METHOD(invite_rate_limit_set, METH_O, "invite_rate_limit_set(new INVITEs per second and source; 0: no limit)."),
    METHOD(invite_rate_limit_take, METH_VARARGS,
           "invite_rate_limit_take(address, now_ms) -> False if the source has reached its limit."),
    METHOD(host_table_set, METH_O, "host_table_set(((host, port, transport, ((address, port, transport), ...)), ...))."),
    METHOD(host_table_unknown, METH_NOARGS, "host_table_unknown() -> ([(host, count)], look-ups of further names)."),
    {NULL, NULL, 0, NULL},
};
