// The types and functions that each file adds to the extension module. All throw PythonError.
#pragma once

#include "python/extension/python.h"

namespace cgtree::python {

void add_arrays(PyObject* module);               // arrays.cc
void add_tensor_type(PyObject* module);          // tensor.cc
void add_stream_type(PyObject* module);          // stream.cc
void add_context_type(PyObject* module);         // context.cc
void add_compiled_type(PyObject* module);        // compiled.cc
void add_sizes(PyObject* module);                // sizes.cc
void add_steps(PyObject* module);                // steps.cc
void add_generator_type(PyObject* module);       // generator.cc
void add_group_type(PyObject* module);           // group.cc
void add_progress_watch_type(PyObject* module);  // progress.cc
void add_control_flow(PyObject* module);         // control_flow.cc
void add_host_launch(PyObject* module);          // host_launch.cc
void add_settings_type(PyObject* module);        // settings.cc
void add_flat_call_type(PyObject* module);       // flat_call.cc
void add_recent_calls_type(PyObject* module);    // recent_calls.cc
void add_torch_allocator(PyObject* module);      // torch_allocator.cc

}  // namespace cgtree::python
