#ifndef TRUNKLINE_PYTHON_TLS_H
#define TRUNKLINE_PYTHON_TLS_H

#include <Python.h>

extern PyMethodDef tls_methods[];

#endif
