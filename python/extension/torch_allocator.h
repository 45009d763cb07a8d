// The allocator that PyTorch calls: inside a step function it allocates from the pool of the
// context, and elsewhere from a caching allocator over the segments that all contexts of the device
// share.
//
// Source of the two signatures: torch.cuda.memory.CUDAPluggableAllocator.
#pragma once

#include <sys/types.h>

#include "python/extension/python.h"

extern "C" {
// Throws cgtree::OutOfMemory, which PyTorch reports as a RuntimeError. Thread safety: any thread.
__attribute__((visibility("default"))) void* cgtree_torch_alloc(ssize_t bytes, int device,
                                                                void* stream);
__attribute__((visibility("default"))) void cgtree_torch_free(void* data, ssize_t bytes, int device,
                                                              void* stream);
}

namespace cgtree::python {

// torch_block(address) -> the block of a context's pool that holds the address, as a tensor of
// uint8, or None.
PyObject* torch_block(PyObject* module, PyObject* address);
// torch_options(*, use_steps=None, device=None): sets whether step functions allocate from the pool
// (default: yes), and the kind of device (default: "cuda").
PyObject* torch_options(PyObject* module, PyObject* arguments, PyObject* keywords);
// torch_statistics() -> dict of the blocks and bytes in use and the calls so far.
PyObject* torch_statistics(PyObject* module, PyObject*);

}  // namespace cgtree::python
