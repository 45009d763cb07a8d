// for_each_word(): the words of a kernel's parameters that may be addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "interop/device/node_contents.h"

namespace cgtree {

// User space has no addresses above, and none in its first pages.
inline constexpr std::uintptr_t kLowestAddress = 0x10000;
inline constexpr std::uintptr_t kEndOfAddresses = std::uintptr_t{1} << 48;

// Calls use(parameter, offset, address) for each word at a multiple of eight bytes whose value may
// be a pointer's. `offset` counts from the first byte of all parameters.
template <typename Use>
void for_each_word(const NodeContents& kernel, const Use& use) {
  constexpr std::size_t kWord = sizeof(std::uintptr_t);
  for (std::uint32_t i = 0; i < kernel.parameters().size(); ++i) {
    const auto [begin, bytes] = kernel.parameters()[i];
    for (std::size_t at = (begin + kWord - 1) / kWord * kWord; at + kWord <= begin + bytes;
         at += kWord) {
      std::uintptr_t address = 0;
      std::memcpy(&address, kernel.bytes.data() + at, kWord);
      if (address >= kLowestAddress && address < kEndOfAddresses)
        use(i, static_cast<std::uint32_t>(at), address);
    }
  }
}

}  // namespace cgtree
