/* The functions of sipcore._native, one list for each part. */
#ifndef TRUNKLINE_PYTHON_METHODS_H
#define TRUNKLINE_PYTHON_METHODS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* An entry of a list: the C function has Python's name, after py_. */
#define METHOD(name, flags, doc) {#name, py_##name, flags, doc}

extern PyMethodDef address_methods[], call_methods[], dialog_methods[], guard_methods[], pcm_methods[], pump_methods[], refer_methods[], register_methods[],
    rtp_methods[], tap_methods[], tls_methods[];

#endif
