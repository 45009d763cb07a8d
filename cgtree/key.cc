// Writes the parts of a key as text.
#include "cgtree/key.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/error.h"

namespace cgtree {
namespace {

bool is_of_a_name(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

void check_name(std::string_view name) {
  if (!name.empty() && std::ranges::all_of(name, is_of_a_name)) return;
  throw InvalidArgument(fmt::format(
      "\"{}\" cannot name a part of a key: use letters, digits and '_', and at least one", name));
}

void check_value(std::string_view name, std::string_view value) {
  const auto is_odd = [](unsigned char c) { return c == '"' || c < ' '; };
  if (std::ranges::none_of(value, is_odd)) return;
  throw InvalidArgument(
      fmt::format("the value of '{}' in a key holds '\"' or a control character", name));
}

}  // namespace

Key::Key(std::span<const Part> parts) {
  for (auto part = parts.begin(); part != parts.end(); ++part) {
    check_name(part->name_);
    const auto is_same = [&](const Part& other) { return other.name_ == part->name_; };
    if (std::any_of(parts.begin(), part, is_same)) {
      throw InvalidArgument(fmt::format("a key has '{}' twice", part->name_));
    }
    if (size_ > 0) append(" ");
    append(part->name_);
    append("=");
    if (part->is_text_) {
      check_value(part->name_, part->text_);
      append("\"");
      append(part->text_);
      append("\"");
      continue;
    }
    std::array<char, 20> digits;
    const auto end = std::to_chars(digits.begin(), digits.end(), part->number_).ptr;
    append({digits.data(), static_cast<std::size_t>(end - digits.data())});
  }
}

void Key::append(std::string_view text) {
  if (text.size() > kMaxText - size_) {
    throw InvalidArgument(fmt::format(
        "a key is longer than {} bytes as text; it begins with {}{}: use shorter names, or a "
        "number in place of a string",
        kMaxText, this->text(), text));
  }
  std::memcpy(text_.data() + size_, text.data(), text.size());
  size_ = static_cast<std::uint8_t>(size_ + text.size());
}

}  // namespace cgtree
