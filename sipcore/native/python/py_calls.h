/* The part of sipcore._native that ends calls and says why they ended. */
#ifndef TRUNKLINE_PYTHON_PY_CALLS_H
#define TRUNKLINE_PYTHON_PY_CALLS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyMethodDef hangup_methods[];

#endif
