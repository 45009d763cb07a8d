// CudaArrayInterface: how libraries on CUDA tell one another of an array; a value, checked.
//
// Source: CUDA Array Interface, version 3. It tells where an array is, what it looks like, and on
// which stream work on it may be pending; it keeps nothing alive.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "interop/exchange/type_string.h"

namespace cgtree {

struct InterfaceValue;
using InterfaceList = std::vector<InterfaceValue>;

struct InterfaceValue {
  struct None {
    bool operator==(const None&) const = default;
  };
  // What the protocol has no use for: a float, an object, an integer of more than 64 bits.
  struct Other {
    std::string text;  // how to name it in a message

    bool operator==(const Other&) const = default;
  };

  // An integer is a uint64 only where an int64 cannot hold it. Tuples and lists are lists.
  std::variant<None, bool, std::int64_t, std::uint64_t, std::string, InterfaceList, Other> value;

  bool is_none() const noexcept { return std::holds_alternative<None>(value); }
  bool operator==(const InterfaceValue&) const = default;
};

// As Python would write it; long lists and strings are cut short. For messages.
std::string to_string(const InterfaceValue& value);

// Source: CUDA Array Interface, version 3. Other keys have no place here: they are ignored.
struct InterfaceEntries {
  std::optional<InterfaceValue> shape;
  std::optional<InterfaceValue> typestr;
  std::optional<InterfaceValue> data;
  std::optional<InterfaceValue> version;
  std::optional<InterfaceValue> strides;
  std::optional<InterfaceValue> descr;
  std::optional<InterfaceValue> mask;
  std::optional<InterfaceValue> stream;

  bool operator==(const InterfaceEntries&) const = default;
};

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
