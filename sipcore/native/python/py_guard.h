/* The guard's and the names' functions for Python, a part of sipcore._native. */
#ifndef TRUNKLINE_PYTHON_PY_GUARD_H
#define TRUNKLINE_PYTHON_PY_GUARD_H

#include <Python.h>

extern PyMethodDef guard_methods[];

#endif
