// The door to Python's C API: the limited API of 3.11, so that one file serves 3.11 and later.
#pragma once

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
