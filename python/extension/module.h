// The functions and types of the extension module, and what their tables have in common.
#pragma once

#include "python/extension/errors.h"

namespace cgtree::python {

// Returns a function that takes keywords as an entry of a table.
template <typename Function>
PyCFunction as_function(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}
inline constexpr int kKeywords = METH_VARARGS | METH_KEYWORDS;

// Makes a type, which lives as long as the process, and adds it to the module. Throws PythonError.
inline PyTypeObject* add_type(PyObject* module, const char* name, PyType_Spec& spec) {
  Reference type = checked(PyType_FromSpec(&spec));
  check_status(PyModule_AddObjectRef(module, name, type.get()));
  return reinterpret_cast<PyTypeObject*>(type.release());
}

// Add the types to the module. Throw PythonError.
void add_tensor_type(PyObject* module);
void add_stream_type(PyObject* module);
void add_context_type(PyObject* module);
void add_compiled_type(PyObject* module);
void add_generator_type(PyObject* module);
void add_flat_call_type(PyObject* module);
void add_recent_calls_type(PyObject* module);
void add_steps_type(PyObject* module);
void add_group_type(PyObject* module);

// thread_groups(size, time_limit=60): the groups of ranks that are threads
PyObject* thread_groups(PyObject* module, PyObject* arguments, PyObject* keywords);
// eager_break(function), step_block(data)
PyObject* break_eagerly(PyObject* module, PyObject* function);
PyObject* step_block_of(PyObject* module, PyObject* data);

// compile(context or None, name, function, options) -> CompiledFunction
PyObject* compile_function(PyObject* module, PyObject* arguments);

// ---- The allocator that PyTorch calls (torch_allocator.cc) ----

// torch_options(*, use_steps=None, device=None): sets whether step functions of this thread
// allocate from the pool (default: yes), and the kind of device (default: "cuda").
PyObject* torch_options(PyObject* module, PyObject* arguments, PyObject* keywords);
// torch_statistics() -> dict of the blocks and bytes in use and the calls so far.
PyObject* torch_statistics(PyObject* module, PyObject*);
// torch_ran_out() -> str or None: why the last allocation of this thread failed, once.
PyObject* torch_ran_out(PyObject* module, PyObject*);

// ---- Steps on the host device (host_launch.cc) ----

// launch(function, *tensors): enqueues function(*tensors) on the current stream of the host device,
// so that step functions can be tried without a GPU. It is recorded as a graph node and called at
// each replay. The function gets tensors of its own, of the same memory.
PyObject* launch(PyObject* module, PyObject* arguments);
// Throws what such a function has raised on this thread since the last call, if anything.
void throw_raised_in_launch();

}  // namespace cgtree::python
