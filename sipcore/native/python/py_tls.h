#ifndef TRUNKLINE_PYTHON_PY_TLS_H
#define TRUNKLINE_PYTHON_PY_TLS_H

#include <Python.h>

extern PyMethodDef tls_methods[];

#endif
