/* Functions of sipcore._native: the copies of SIP messages for `sipcore.trace.sip_log`. */
#ifndef TRUNKLINE_PYTHON_PY_TRACE_H
#define TRUNKLINE_PYTHON_PY_TRACE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyMethodDef tap_methods[];

#endif
