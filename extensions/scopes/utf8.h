// character_bytes(): checks UTF-8, character by character.
#pragma once

#include <cstddef>
#include <string_view>

namespace cgtree {

// Returns the bytes of the UTF-8 character at the beginning of the text, or 0 if there is no valid
// character. Requires: the text is not empty.
inline std::size_t character_bytes(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool is_overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool is_surrogate = first == 0xed && byte(1) >= 0xa0;
  const bool is_beyond = first == 0xf4 && byte(1) >= 0x90;
  return is_overlong || is_surrogate || is_beyond ? 0 : bytes;
}

}  // namespace cgtree
