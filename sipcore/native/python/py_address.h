/* The part of sipcore._native that says which address of ours a peer is told. */
#ifndef TRUNKLINE_PYTHON_PY_ADDRESS_H
#define TRUNKLINE_PYTHON_PY_ADDRESS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyMethodDef address_methods[];

#endif
