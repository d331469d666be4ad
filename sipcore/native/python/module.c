/* sipcore._native: its functions, of which each *_methods.c has a list, and its constants. */
#include "python/methods.h"

#include <pjsua-lib/pjsua.h>

/* PJLIB logs on stdout from its first call, before it can be configured. */
static PyObject *py_silence_log(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    pj_log_set_level(0);
    Py_RETURN_NONE;
}

static PyMethodDef own_methods[] = {
    METHOD(silence_log, METH_NOARGS, "Silence PJLIB's own log."),
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "sipcore._native", "The native audio pump and SIP guard.", -1,
                                        own_methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void)
{
    PyMethodDef *const lists[] = {pump_methods, call_methods,    refer_methods, guard_methods, register_methods,
                                  tls_methods,  address_methods, rtp_methods,   tap_methods,   dialog_methods,
                                  pcm_methods};
    PyObject *module = PyModule_Create(&definition);
    if (module && (PyModule_AddIntConstant(module, "MAX_CALLS", PJSUA_MAX_CALLS) != 0 ||
                   PyModule_AddIntConstant(module, "MAX_ACCOUNTS", PJSUA_MAX_ACC) != 0))
        Py_CLEAR(module);
    for (size_t i = 0; module && i < sizeof lists / sizeof *lists; i++)
        if (PyModule_AddFunctions(module, lists[i]) != 0)
            Py_CLEAR(module);
    return module;
}
