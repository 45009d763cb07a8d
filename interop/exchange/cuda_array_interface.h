// CudaArrayInterface: how libraries on CUDA describe an array to each other. InterfaceEntries is
// the description as it was written, and CudaArrayInterface is the checked value.
//
// Source: CUDA Array Interface, version 3. It says where an array is, its layout, and on which
// stream work on it may be pending. It keeps nothing alive.
//
// Example: the dict
//   {"shape": (2, 3), "typestr": "<f4", "data": (0x7f0000000000, False), "version": 3, "stream": 1}
// becomes InterfaceEntries whose `shape` is a list of two int64. parse_cuda_array_interface() makes
// a value of it: shape {2, 3}, no strides (row-major), data 0x7f0000000000, stream 1, the legacy
// stream.
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

// An InterfaceValue is a value as a producer wrote it, unchecked. Python's dicts and JSON both map
// to it, so that one parser has all the rules.
struct InterfaceValue {
  struct None {
    bool operator==(const None&) const = default;
  };
  // A value that the protocol does not use: a float, an object, an integer of more than 64 bits.
  struct Other {
    std::string text;  // its description for messages

    bool operator==(const Other&) const = default;
  };

  // An integer is a uint64 only where an int64 cannot hold it. Tuples and lists are lists.
  std::variant<None, bool, std::int64_t, std::uint64_t, std::string, InterfaceList, Other> value;

  bool is_none() const noexcept { return std::holds_alternative<None>(value); }
  bool operator==(const InterfaceValue&) const = default;
};

// Returns the value as Python would write it, for messages. Long lists and strings are shortened.
std::string to_string(const InterfaceValue& value);

// The entries of the protocol. Other keys are ignored.
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
  std::uintptr_t data = 0;  // address of the first element; 0 if there are no elements
  bool read_only = false;
  std::optional<std::uintptr_t> stream;  // 1 legacy, 2 per thread, else a cudaStream_t; never 0
  std::optional<InterfaceValue> descr;   // unchanged

  bool operator==(const CudaArrayInterface&) const = default;
};

// Throws BoundaryError that names the field, its value and the expected value. It is thrown for
// fields that are missing, of the wrong type, forbidden (stream 0, null data, swapped bytes) or
// contradictory (strides of another rank), for arrays beyond the address space, and for masks. The
// data of an array without elements becomes 0. Strides may be negative, 0, and no multiple of the
// element.
CudaArrayInterface parse_cuda_array_interface(const InterfaceEntries& entries);

// Checks a value that was not made by the parser; its type string is not checked. Throws
// BoundaryError.
void check_interface(const CudaArrayInterface& array);

// Returns entries that parse_cuda_array_interface() reads as the same value. There is no 'mask';
// 'strides' and 'stream' are None if the value has none; below version 3 there is no 'stream'.
InterfaceEntries to_entries(const CudaArrayInterface& array);

// Requires a value that was checked.
std::int64_t elements_of(const CudaArrayInterface& array);

// Returns "<f4 (2, 3) at 0x7f0000000000" and the like.
std::string describe(const CudaArrayInterface& array);

}  // namespace cgtree
