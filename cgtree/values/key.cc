// Writes the parts of a key as text, and reads them.
#include "cgtree/values/key.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <system_error>

#include "base/error.h"
#include "base/format.h"

namespace cgtree {
namespace {

bool is_of_a_name(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

void check_name(std::string_view name) {
  if (!name.empty() && std::ranges::all_of(name, is_of_a_name)) return;
  throw InvalidArgument(str_format(
      "\"{}\" cannot name a part of a key: use letters, digits and '_', and at least one", name));
}

void check_value(std::string_view name, std::string_view value) {
  const auto is_odd = [](unsigned char c) { return c == '"' || c < ' '; };
  if (std::ranges::none_of(value, is_odd)) return;
  throw InvalidArgument(
      str_format("the value of '{}' in a key holds '\"' or a control character", name));
}

}  // namespace

Key::Key(std::span<const Part> parts) {
  for (auto part = parts.begin(); part != parts.end(); ++part) {
    check_name(part->name());
    const auto is_same = [&](const Part& other) { return other.name() == part->name(); };
    if (std::any_of(parts.begin(), part, is_same)) {
      throw InvalidArgument(str_format("a key has '{}' twice", part->name()));
    }
    if (part->is_text()) check_value(part->name(), part->text());
    append(*part);
  }
}

void Key::append(const Part& part) {
  if (size_ > 0) append(" ");
  append(part.name());
  append("=");
  if (part.is_text()) {
    append("\"");
    append(part.text());
    return append("\"");
  }
  std::array<char, 20> digits;
  const auto number = static_cast<std::uint64_t>(part.number());
  const auto end = part.is_large() ? std::to_chars(digits.begin(), digits.end(), number).ptr
                                   : std::to_chars(digits.begin(), digits.end(), part.number()).ptr;
  append(std::string_view(digits.data(), static_cast<std::size_t>(end - digits.data())));
}

Key Key::of_text(std::string_view text) noexcept {
  Key key;
  text.copy(key.text_.data(), text.size());  // an empty one may have no data
  key.size_ = static_cast<std::uint8_t>(text.size());
  return key;
}

Key::Part take_part(std::string_view& text) noexcept {
  const std::size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const bool is_text = text[equals + 1] == '"';
  const std::size_t begin = equals + 1 + (is_text ? 1 : 0);
  const std::size_t end = std::min(text.find(is_text ? '"' : ' ', begin), text.size());
  const std::string_view value = text.substr(begin, end - begin);
  text.remove_prefix(std::min(end + (is_text ? 2 : 1), text.size()));
  if (is_text) return {name, value};
  std::int64_t number = 0;
  const auto read = std::from_chars(value.data(), value.data() + value.size(), number);
  if (read.ec == std::errc()) return {name, number};
  std::uint64_t large = 0;
  std::from_chars(value.data(), value.data() + value.size(), large);
  return {name, large};
}

bool Key::has(std::string_view name) const noexcept {
  for (std::string_view rest = text(); !rest.empty();) {
    if (take_part(rest).name() == name) return true;
  }
  return false;
}

Key::Part Key::part(std::string_view name) const {
  for (std::string_view rest = text(); !rest.empty();) {
    const Part part = take_part(rest);
    if (part.name() == name) return part;
  }
  throw InvalidArgument(str_format("no '{}' in the key [{}]", name, text()));
}

std::int64_t Key::number(std::string_view name) const {
  const Part found = part(name);
  if (!found.is_text()) return found.number();
  throw InvalidArgument(
      str_format("'{}' in the key [{}] is a string, and no number: ask string()", name, text()));
}

std::string_view Key::string(std::string_view name) const {
  const Part found = part(name);
  if (found.is_text()) return found.text();
  throw InvalidArgument(
      str_format("'{}' in the key [{}] is a number, and no string: ask number()", name, text()));
}

void Key::append(std::string_view text) {
  if (text.size() > kMaxText - size_) {
    throw InvalidArgument(str_format(
        "a key is longer than {} bytes as text; it begins with {}{}: use shorter names, or a "
        "number in place of a string",
        kMaxText, this->text(), text));
  }
  std::memcpy(text_.data() + size_, text.data(), text.size());
  size_ = static_cast<std::uint8_t>(size_ + text.size());
}

}  // namespace cgtree
