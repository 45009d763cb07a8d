// str_format() composes text from a pattern with {} for each argument; GCC 12 lacks std::format().
//
//   str_format("{} of {{{}}} at {:#x}", 3, joined(dims, ", "), address)   "3 of {2, 4} at 0x7f00"
//
// A field is {}, or {:SPEC}, where SPEC has, in this order, '+', a width to fill with zeros, a
// precision, and one of x, f, g; or is "#x". A program whose numbers of fields and arguments differ
// does not compile.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace cgtree {

// A FormatArgument is a number or a text, which it borrows.
class FormatArgument {
 public:
  FormatArgument(bool value) noexcept : FormatArgument(value ? "true" : "false") {}
  FormatArgument(char value) noexcept : kind_(Kind::kChar) { integer_ = value; }
  template <std::integral Integer>
  FormatArgument(Integer value) noexcept
      : kind_(std::is_signed_v<Integer> ? Kind::kSigned : Kind::kUnsigned) {
    integer_ = static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
    if constexpr (!std::is_signed_v<Integer>) integer_ = value;
  }
  FormatArgument(float value) noexcept : kind_(Kind::kFloat) { real_ = value; }
  FormatArgument(double value) noexcept : kind_(Kind::kDouble) { real_ = value; }
  FormatArgument(const char* text) noexcept : FormatArgument(std::string_view(text)) {}
  FormatArgument(std::string_view text) noexcept : kind_(Kind::kText), text_(text) {}
  FormatArgument(const std::string& text) noexcept : FormatArgument(std::string_view(text)) {}
  // Shown as a hexadecimal number.
  FormatArgument(const void* address) noexcept : kind_(Kind::kAddress) {
    integer_ = reinterpret_cast<std::uintptr_t>(address);
  }

 private:
  friend class FormatField;
  enum class Kind : std::uint8_t { kSigned, kUnsigned, kChar, kFloat, kDouble, kText, kAddress };

  Kind kind_;
  union {
    std::uint64_t integer_;
    double real_;
    std::string_view text_;
  };
};

namespace detail {

// Returns the number of fields of a pattern, or -1 if a brace has no partner.
constexpr std::ptrdiff_t count_fields(std::string_view pattern) noexcept {
  std::ptrdiff_t count = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '{' && pattern[i] != '}') continue;
    if (i + 1 < pattern.size() && pattern[i + 1] == pattern[i]) {
      ++i;
      continue;
    }
    const std::size_t end = pattern.find('}', i);
    if (pattern[i] == '}' || end == pattern.npos) return -1;
    if (end > i + 1 && pattern[i + 1] != ':') return -1;
    ++count;
    i = end;
  }
  return count;
}

inline void a_pattern_needs_a_field_for_each_argument() {
}

}  // namespace detail

// A FormatPattern is a literal with a field for each of the arguments.
template <typename... Arguments>
class FormatPattern {
 public:
  consteval FormatPattern(const char* text) : text_(text) {
    if (detail::count_fields(text_) != sizeof...(Arguments))
      detail::a_pattern_needs_a_field_for_each_argument();  // not constant: does not compile
  }
  std::string_view text() const noexcept { return text_; }

 private:
  std::string_view text_;
};
template <typename... Arguments>
using PatternFor = FormatPattern<std::type_identity_t<Arguments>...>;

// Requires: a field for each argument. Throws std::bad_alloc.
std::string format_list(std::string_view pattern, std::initializer_list<FormatArgument> arguments);
// Writes as much of the text as fits, with a null at its end. Requires: bytes > 0.
void format_list_into(char* text, std::size_t bytes, std::string_view pattern,
                      std::initializer_list<FormatArgument> arguments) noexcept;

// Returns the pattern with its fields replaced by the arguments. Throws std::bad_alloc.
template <typename... Arguments>
std::string str_format(PatternFor<Arguments...> pattern, const Arguments&... arguments) {
  return format_list(pattern.text(), std::initializer_list<FormatArgument>{arguments...});
}

// Returns the elements of a range of numbers or texts, with `between` between them.
template <typename Range>
std::string joined(const Range& range, std::string_view between) {
  std::string text;
  bool is_first = true;
  for (const auto& element : range) {
    if (!is_first) text += between;
    is_first = false;
    text += format_list("{}", {element});
  }
  return text;
}

}  // namespace cgtree
