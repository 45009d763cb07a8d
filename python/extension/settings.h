// The settings of a library that its kernels depend on, read without Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "python/extension/python.h"

namespace cgtree::python {

// A Getter is a function of the library that takes one of the library's objects and two numbers,
// which it may ignore, and returns `bytes` bytes. Above 16 bytes it writes them to its first
// argument's address, as C++ functions return large objects.
struct Getter {
  std::uintptr_t function = 0;
  std::uintptr_t object = 0;
  int first = 0;
  int second = 0;
  std::size_t bytes = 1;
};

// Thread safety: any thread.
class Settings {
 public:
  // Throws InvalidArgument for results of other sizes than 1, 4, 8, or more than 16 up to 64 bytes.
  explicit Settings(std::vector<Getter> getters);
  Settings() = default;

  // Returns the values of all settings, and how the thread's floating point treats denormals.
  std::vector<std::uint64_t> read() const;
  // Returns whether the settings have these values. Requires: the values come from read() of this
  // object.
  bool are(std::span<const std::uint64_t> values) const noexcept;

 private:
  // Calls visit(word) for each word of the values until that returns false.
  template <typename Visit>
  bool visit(const Visit& visit) const;

  std::vector<Getter> getters_;
};

}  // namespace cgtree::python
