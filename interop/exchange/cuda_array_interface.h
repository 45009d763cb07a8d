// CudaArrayInterface: how libraries on CUDA tell one another of an array; a value, checked.
//
// Source: CUDA Array Interface, version 3. It tells where an array is, what it looks like, and on
// which stream work on it may be pending; it keeps nothing alive.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "interop/exchange/cuda_array_interface_type.h"
#include "interop/exchange/cuda_array_interface_value.h"

namespace cgtree {

struct CudaArrayInterface {
  std::int64_t version = 3;
  std::vector<std::int64_t> shape;                   // empty: one element
  std::optional<std::vector<std::int64_t>> strides;  // bytes; none: row-major
  TypeString type;
  std::uintptr_t data = 0;  // of the first element; 0 where there are no elements
  bool read_only = false;
  std::optional<std::uintptr_t> stream;  // 1 legacy, 2 per thread, else a cudaStream_t; never 0
  std::optional<InterfaceValue> descr;   // as it was given

  bool operator==(const CudaArrayInterface&) const = default;
};

// Throws BoundaryError that names the field, with what it is and what it must be: fields that are
// missing, of the wrong type, forbidden (stream 0, null data, swapped bytes), in contradiction
// (strides of another rank), beyond the address space; masks. The data of an array without elements
// becomes 0. Strides may be negative, 0, and no multiple of the element.
CudaArrayInterface parse_cuda_array_interface(const InterfaceEntries& entries);

// The rules for one that was made by hand, except those about its type string.
void check_interface(const CudaArrayInterface& array);

// What parse_cuda_array_interface() reads back as the same. 'mask' is not there, 'strides' and
// 'stream' are None where there are none; below version 3, 'stream' is not there either.
InterfaceEntries to_entries(const CudaArrayInterface& array);

// Of one that was checked.
std::int64_t elements_of(const CudaArrayInterface& array);

// "<f4 (2, 3) at 0x7f0000000000".
std::string describe(const CudaArrayInterface& array);

}  // namespace cgtree
