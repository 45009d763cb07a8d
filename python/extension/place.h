// Where a tensor of PyTorch's lies, read from PyTorch's own words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "python/extension/python.h"

namespace cgtree::python {

// A Place says where a static tensor lies: the memory of its storage, and how many elements after
// the beginning of that it begins. Null: it is not known.
struct Place {
  PyObject* object = nullptr;  // compared, never used
  const void* data = nullptr;
  std::int64_t offset = 0;

  bool operator==(const Place&) const noexcept = default;
};

// A PlaceReader reads the Place of a tensor from PyTorch's own words, which takes a tenth of the
// time of the exchange API. Each is so many bytes after the beginning of what the one before it
// points to; the library has found them out, or else `implementation` is negative.
struct PlaceReader {
  std::ptrdiff_t implementation = -1;  // of the Python object: the address of the tensor
  std::ptrdiff_t offset = 0;           // of the tensor: the first element
  std::ptrdiff_t storage = 0;          // of the tensor: the address of its storage
  std::ptrdiff_t data = 0;             // of the storage: the address of its memory

  bool is_usable() const noexcept { return implementation >= 0; }
  // Requires: it is usable, and the object is a tensor of PyTorch's.
  Place read(PyObject* object) const noexcept {
    const void* const tensor = at<const void*>(object, implementation);
    const void* const memory = at<const void*>(tensor, storage);
    if (memory == nullptr) return {};
    return {object, at<const void*>(memory, data), at<std::int64_t>(tensor, offset)};
  }

 private:
  template <typename Word>
  static Word at(const void* base, std::ptrdiff_t bytes) noexcept {
    Word word;
    std::memcpy(&word, static_cast<const std::byte*>(base) + bytes, sizeof word);
    return word;
  }
};

}  // namespace cgtree::python
