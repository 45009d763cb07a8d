// Structs of the C ABI with their size in a field, so that they may grow: both sides read and write
// only the fields that both know.
//
// Example: version 2 adds a field to a struct of 16 bytes, which then has 24. A program of version
// 1 passes 16: the library reads the new field as 0, and writes only the first 16 bytes. A program
// of version 2 passes 24 to a library of version 1, which refuses the struct if the new field is
// set, and writes 0 into it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/format.h"

namespace cgtree::capi {

// The most bytes that a later version may add. A wrong size must not make us read beyond it.
inline constexpr std::size_t kMostUnknown = 4096;

// The size of the struct in the first version of the header, if later ones have more fields.
template <typename T>
inline constexpr std::size_t kFirstSize = sizeof(T);

// Throws InvalidArgument if no version of the struct has this size. Each size is a multiple of the
// alignment, so none ends in the middle of a pointer.
template <typename T>
void expect_size(std::size_t size, std::string_view what) {
  static_assert(kFirstSize<T> % alignof(T) == 0);
  if (size >= kFirstSize<T> && size <= sizeof(T) + kMostUnknown && size % alignof(T) == 0) return;
  throw InvalidArgument(
      str_format("{}: struct_size is {}: expected {}, its sizeof", what, size, sizeof(T)));
}

// Requires: `given` has `size` bytes. Throws InvalidArgument unless this version knows all nonzero
// fields of the struct.
template <typename T>
void check_size(const void* given, std::size_t size, std::string_view what) {
  expect_size<T>(size, what);
  const auto* const bytes = static_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] == 0) continue;
    throw InvalidArgument(
        str_format("{}: struct_size is {}, and byte {} is set, but this library "
                   "knows {} bytes of it: use a library as new as the header",
                   what, size, i, sizeof(T)));
  }
}

// Returns a copy in which fields that the caller's version does not have are 0. NULL gives only
// zeros. Throws InvalidArgument.
template <typename T>
T read_struct(const T* given, std::string_view what) {
  T read = {};
  if (given == nullptr) return read;
  const std::size_t size = given->struct_size;
  check_size<T>(given, size, what);
  std::memcpy(&read, given, std::min(size, sizeof(T)));
  return read;
}

// Calls read(element) for each element of an array. The first element states the size of all.
// Throws InvalidArgument.
template <typename T, typename Read>
void for_each_struct(const T* array, std::size_t count, std::string_view what, const Read& read) {
  if (count == 0) return;
  if (array == nullptr) throw InvalidArgument(str_format("the array of {} is NULL", what));
  const std::size_t size = array->struct_size;
  const auto* at = reinterpret_cast<const char*>(array);
  for (std::size_t i = 0; i < count; ++i, at += size) {
    check_size<T>(at, size, what);
    T element = {};
    std::memcpy(&element, at, std::min(size, sizeof(T)));
    read(element);
  }
}

// Throws InvalidArgument where write_struct() would.
template <typename T>
void expect_room(const T* to, std::string_view what) {
  if (to == nullptr) throw InvalidArgument(str_format("{} is NULL", what));
  expect_size<T>(to->struct_size, what);
}

// Writes the fields that the caller's version has, but not the struct_size; fields that only a
// later version has become 0. Throws InvalidArgument if the caller's struct is shorter than the
// first one.
template <typename T>
void write_struct(T value, T* to, std::string_view what) {
  expect_room(to, what);
  const std::size_t size = to->struct_size;
  value.struct_size = to->struct_size;
  std::memcpy(to, &value, std::min(size, sizeof(T)));
  if (size > sizeof(T)) std::memset(to + 1, 0, size - sizeof(T));
}

}  // namespace cgtree::capi
