// The position of a PyTorch tensor in memory, read from PyTorch's own words.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "python/extension/python.h"

namespace cgtree::python {

// A Place identifies a static tensor: the memory of its storage, and the words of the tensor from
// its sizes to its dispatch keys. These words include rank, sizes, strides, the first element, the
// element type, the device, and the conjugate and negative bits.
struct Place {
  static constexpr std::size_t kWords = 16;

  // These are compared before they are used: their loads need not wait for one another.
  PyObject* object = nullptr;  // null: the place is not known
  const std::byte* tensor = nullptr;
  const void* storage = nullptr;
  const void* data = nullptr;
  std::array<std::uint64_t, kWords> words{};
};

// A PlaceReader reads the Place of a tensor from PyTorch's own words, in a tenth of the time of the
// exchange API. Offsets are in bytes from the beginning of the object with the word; the library
// probes for them, and leaves `implementation` negative if they are not as expected.
struct PlaceReader {
  static constexpr std::int64_t kInlineRank = 5;  // more axes lie outside of the tensor

  std::ptrdiff_t implementation = -1;  // of the Python object: the address of the tensor
  std::ptrdiff_t storage = 0;          // of the tensor: the address of its storage
  std::ptrdiff_t data = 0;             // of the storage: the address of its memory
  std::ptrdiff_t rank = 0;             // of the tensor: the number of axes
  std::ptrdiff_t keys = 0;             // of the tensor: the last of the words
  std::uint64_t unresolved = 0;        // the conjugate and the negative bit among the keys

  bool is_usable() const noexcept { return implementation >= 0; }

  // The next three require: the reader is usable, and the object is a tensor of PyTorch's.

  // Returns an unknown place for a tensor whose words do not describe it fully.
  Place read(PyObject* object) const noexcept {
    const auto* const tensor = at<const std::byte*>(object, implementation);
    const void* const memory = at<const void*>(tensor, storage);
    if (memory == nullptr || at<std::int64_t>(tensor, rank) > kInlineRank) return {};
    Place place{object, tensor, memory, at<const void*>(memory, data)};
    std::memcpy(place.words.data(), words_of(tensor), sizeof place.words);
    return place;
  }

  // Returns whether the tensor is at the place, and unchanged since. Requires: the place is known.
  bool is_at(PyObject* object, const Place& place) const noexcept {
    if (at<const std::byte*>(object, implementation) != place.tensor) return false;
    if (at<const void*>(place.tensor, storage) != place.storage) return false;
    if (at<const void*>(place.storage, data) != place.data) return false;
    const std::byte* const words = words_of(place.tensor);
    std::uint64_t differences = 0;
    for (std::size_t i = 0; i < Place::kWords; ++i)
      differences |= place.words[i] ^ at<std::uint64_t>(words, i * sizeof(std::uint64_t));
    return differences == 0;
  }

  // Prefetches the words that is_at() reads of an unmoved tensor.
  void prefetch(const Place& place) const noexcept {
    if (place.object == nullptr) return;
    const std::byte* const words = words_of(place.tensor);
    for (const void* const line :
         {static_cast<const void*>(place.object), static_cast<const void*>(place.tensor + storage),
          static_cast<const void*>(words), static_cast<const void*>(words + sizeof place.words / 2),
          static_cast<const void*>(place.tensor + keys),
          static_cast<const void*>(static_cast<const std::byte*>(place.storage) + data)})
      __builtin_prefetch(line);
  }

  // Returns whether the memory of the tensor holds its values, and not their conjugates or
  // negatives.
  bool is_resolved(PyObject* object) const noexcept {
    const auto* const tensor = at<const std::byte*>(object, implementation);
    return (at<std::uint64_t>(tensor, keys) & unresolved) == 0;
  }

 private:
  const std::byte* words_of(const std::byte* tensor) const noexcept {
    return tensor + keys - (Place::kWords - 1) * sizeof(std::uint64_t);
  }

  template <typename Word>
  static Word at(const void* base, std::ptrdiff_t bytes) noexcept {
    Word word;
    std::memcpy(&word, static_cast<const std::byte*>(base) + bytes, sizeof word);
    return word;
  }
};

}  // namespace cgtree::python
