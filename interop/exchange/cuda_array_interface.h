// CudaArrayInterface: the way in which libraries on CUDA describe an array to each other, and
// tensors from and to it; no data is copied.
//
// Source: CUDA Array Interface, version 3. It gives the address and the layout of an array, and the
// stream on which work on it may be pending. It keeps nothing alive.
//
// Example: the dict
//   {"shape": (2, 3), "typestr": "<f4", "data": (0x7f0000000000, False), "version": 3, "stream": 1}
// is a value with the shape {2, 3}, no strides (row-major), data 0x7f0000000000 and stream 1, the
// legacy stream.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "interop/exchange/foreign_array.h"
#include "interop/exchange/type_string.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// A CudaArrayInterface has the fields of the protocol, unchecked.
struct CudaArrayInterface {
  std::int64_t version = 3;
  std::vector<std::int64_t> shape;                   // empty: one element
  std::optional<std::vector<std::int64_t>> strides;  // bytes; none: row-major
  TypeString type;
  std::uintptr_t data = 0;  // address of the first element; 0 if there are no elements
  bool read_only = false;
  std::optional<std::uintptr_t> stream;  // 1 legacy, 2 per thread, else a cudaStream_t; never 0
};

// Reads the fields. Throws BoundaryError that names the field, its value and the expected value,
// for fields that are forbidden (stream 0) or contradictory (strides of another rank), and for an
// element type, strides or a number of dimensions that tensors do not support. `dtype`: see
// ImportOptions.
ForeignArray read_array(const CudaArrayInterface& array, std::optional<DType> dtype);

// Makes a tensor of the array, as import_array(). The tensor keeps `owner`. Without an owner, the
// caller must keep the memory as long as the tensor, and any work that uses it. Throws as
// read_array() and import_array().
Tensor from_cuda_array_interface(const CudaArrayInterface& array,
                                 std::shared_ptr<void> owner = nullptr, ImportOptions options = {});

// The options of an export.
struct ExportOptions {
  // Streams on which work on the tensor may be pending, besides the stream that orders its contents
  // (Storage::stream()) and the thread's current one.
  std::span<const StreamRef> pending = {};
  // The caller knows that nothing is pending on any stream: 'stream' becomes None.
  bool is_idle = false;
  // The default is 3, or CGTREE_CUDA_ARRAY_INTERFACE_EXPORT_VERSION of the environment. Below 3
  // there is no 'stream', and the importer must know by other means that the work has ended.
  std::optional<int> version = {};
};

// Describes a tensor for other libraries. The exported stream is the one that orders the tensor's
// contents; it is made to wait for the other streams on which work is pending. The host does not
// wait. If any of these streams captures, 'stream' is None and nothing is enqueued: the work is
// then recorded, not pending.
//
// The interface keeps neither the memory nor the stream alive. A stream of the caller lives as long
// as the tensor if the tensor comes from on_stream().
//
// Throws StaleTensor; InvalidArgument for an undefined tensor, a pending stream of another device,
// a version outside of 0 to 3; DeviceError.
CudaArrayInterface to_cuda_array_interface(const Tensor& tensor, const ExportOptions& options = {});

}  // namespace cgtree
