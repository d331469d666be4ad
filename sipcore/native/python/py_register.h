/* The part of sipcore._native that sends REGISTER. */
#ifndef TRUNKLINE_PYTHON_PY_REGISTER_H
#define TRUNKLINE_PYTHON_PY_REGISTER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyMethodDef register_methods[];

#endif
