/* Python's functions about RTP, for the module's list. */
#ifndef TRUNKLINE_PYTHON_PY_RTP_H
#define TRUNKLINE_PYTHON_PY_RTP_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyMethodDef rtp_methods[];

#endif
