// PyTorch's hook for allocators: memory of the step function's pool inside of one, else of a
// caching allocator over the segments that all contexts of the device share.
//
// Source of the two signatures: torch.cuda.memory.CUDAPluggableAllocator.
#pragma once

#include <sys/types.h>

#include "python/extension/python.h"

extern "C" {
// Throws cgtree::OutOfMemory, which PyTorch hands on as a RuntimeError. Any thread.
__attribute__((visibility("default"))) void* cgtree_torch_alloc(ssize_t bytes, int device,
                                                                void* stream);
__attribute__((visibility("default"))) void cgtree_torch_free(void* data, ssize_t bytes, int device,
                                                              void* stream);
}

namespace cgtree::python {

// torch_block(address) -> the block that holds the address as a tensor of uint8, or None: of step
// functions' pools only.
PyObject* torch_block(PyObject* module, PyObject* address);
// torch_options(*, use_steps=None, device=None): whether step functions' pools are used (yes), and
// of which kind of device the memory is ("cuda").
PyObject* torch_options(PyObject* module, PyObject* arguments, PyObject* keywords);
// torch_statistics() -> dict: blocks and bytes that are taken now, calls so far.
PyObject* torch_statistics(PyObject* module, PyObject*);

}  // namespace cgtree::python
