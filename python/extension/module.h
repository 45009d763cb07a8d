// The functions and types of the extension module, and what their tables have in common.
#pragma once

#include "python/extension/errors.h"

namespace cgtree::python {

// Add the types to the module. Throw PythonError.
void add_tensor_type(PyObject* module);
void add_stream_type(PyObject* module);
void add_context_type(PyObject* module);
void add_compiled_type(PyObject* module);
void add_generator_type(PyObject* module);
void add_flat_call_type(PyObject* module);
void add_recent_calls_type(PyObject* module);
void add_settings_type(PyObject* module);
void add_steps_type(PyObject* module);
void add_group_type(PyObject* module);
void add_progress_watch_type(PyObject* module);
void add_loop_stream_type(PyObject* module);

// thread_groups(size, time_limit=60): the groups of ranks that are threads
Reference thread_groups(PyObject* module, PyObject* arguments, PyObject* keywords);
// eager_break(function), step_block(data)
void break_eagerly(PyObject* module, PyObject* function);
Reference step_block_of(PyObject* module, PyObject* data);

// branch(predicate, then, otherwise=None, *, generators=()),
// choose(index, bodies, *, generators=()), choose_results(index, bodies, *, generators=()),
// loop(max_rounds, body, *, rows=None, generators=()): see extensions/flow/control_flow.h
Reference branch_of(PyObject* module, PyObject* arguments, PyObject* keywords);
void choose_of(PyObject* module, PyObject* arguments, PyObject* keywords);
Reference choose_results_of(PyObject* module, PyObject* arguments, PyObject* keywords);
Reference loop_of(PyObject* module, PyObject* arguments, PyObject* keywords);

// compile(context or None, name, function, options) -> CompiledFunction
Reference compile_function(PyObject* module, PyObject* arguments);

// ---- The allocator that PyTorch calls (torch_allocator.cc) ----

// torch_options(*, use_steps=None, device=None): sets whether step functions of this thread
// allocate from the pool (default: yes), and the kind of device (default: "cuda").
void torch_options(PyObject* module, PyObject* arguments, PyObject* keywords);
// torch_statistics() -> dict of the blocks and bytes in use and the calls so far.
Reference torch_statistics(PyObject* module);
// torch_ran_out() -> str or None: why the last allocation of this thread failed, once.
Reference torch_ran_out(PyObject* module);

// ---- Steps on the host device (host_launch.cc) ----

// launch(function, *tensors): enqueues function(*tensors) on the current stream of the host device,
// so that step functions can be tried without a GPU. It is recorded as a graph node and called at
// each replay. The function gets tensors of its own, of the same memory.
void launch(PyObject* module, PyObject* arguments);
// Throws what such a function has raised on this thread since the last call, if anything.
void throw_raised_in_launch();

}  // namespace cgtree::python
