// read_struct(): a struct of the caller's, of this version, an earlier or a later one.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace cgtree::capi {

// Requires that `given` has `size` bytes. `known` is what this version's struct has, `least` what
// the first version's had. Throws InvalidArgument.
inline void check_size(const void* given, std::size_t size, std::size_t least, std::size_t known,
                       std::string_view what) {
  if (size < least) {
    throw InvalidArgument(
        fmt::format("{}: struct_size is {}: expected {}, its sizeof", what, size, known));
  }
  const auto* const bytes = static_cast<const unsigned char*>(given);
  // A size that is nonsense must not make us read what is not there.
  constexpr std::size_t kMostUnknown = 4096;
  if (size > known + kMostUnknown) {
    throw InvalidArgument(
        fmt::format("{}: struct_size is {}: expected {}, its sizeof", what, size, known));
  }
  for (std::size_t i = known; i < size; ++i) {
    if (bytes[i] == 0) continue;
    throw InvalidArgument(
        fmt::format("{}: struct_size is {}, and byte {} is set, but this library "
                    "knows {} bytes of it: use a library as new as the header",
                    what, size, i, known));
  }
}

// The bytes of the struct's first version, where later ones have more.
template <typename T>
inline constexpr std::size_t kFirstSize = sizeof(T);

// A copy; what the caller's version did not have is 0. NULL: all 0.
template <typename T>
T read_struct(const T* given, std::string_view what) {
  T read = {};
  if (given == nullptr) return read;
  const std::size_t size = given->struct_size;
  check_size(given, size, kFirstSize<T>, sizeof(T), what);
  std::memcpy(&read, given, std::min(size, sizeof(T)));
  return read;
}

// Calls read(element) for the elements of an array, whose first says the size of all.
template <typename T, typename Read>
void for_each_struct(const T* array, std::size_t count, std::string_view what, const Read& read) {
  if (count == 0) return;
  if (array == nullptr) throw InvalidArgument(fmt::format("the array of {} is NULL", what));
  const std::size_t size = array->struct_size;
  const auto* at = reinterpret_cast<const char*>(array);
  for (std::size_t i = 0; i < count; ++i, at += size) {
    check_size(at, size, kFirstSize<T>, sizeof(T), what);
    T element = {};
    std::memcpy(&element, at, std::min(size, sizeof(T)));
    read(element);
  }
}

// Throws InvalidArgument where write_struct() would.
template <typename T>
void expect_room(const T* to, std::string_view what) {
  if (to == nullptr) throw InvalidArgument(fmt::format("{} is NULL", what));
  if (to->struct_size >= sizeof(T)) return;
  throw InvalidArgument(fmt::format("{}: struct_size is {}: expected {}, its sizeof", what,
                                    to->struct_size, sizeof(T)));
}

// Writes what the caller has room for; the struct_size stays. Throws InvalidArgument.
template <typename T>
void write_struct(T value, T* to, std::string_view what) {
  expect_room(to, what);
  value.struct_size = to->struct_size;
  std::memcpy(to, &value, sizeof(T));
}

// Throws InvalidArgument for a bit that is none of `known`.
inline void check_flags(std::uint32_t flags, std::uint32_t known, std::string_view what) {
  if ((flags & ~known) == 0) return;
  throw InvalidArgument(
      fmt::format("{}: flags are {:#x}, of which this library knows {:#x}", what, flags, known));
}

}  // namespace cgtree::capi
