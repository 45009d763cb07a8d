// Composes text from patterns.
#include "base/format.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>

namespace cgtree {

// A FormatField is the text of one argument.
class FormatField {
 public:
  // `spec`: of the field, without its colon.
  FormatField(const FormatArgument& argument, std::string_view spec) noexcept {
    using Kind = FormatArgument::Kind;
    switch (argument.kind_) {
      case Kind::kText:
        text_ = argument.text_;
        break;
      case Kind::kChar:
        buffer_[0] = static_cast<char>(argument.integer_);
        set(1);
        break;
      case Kind::kAddress:
        print("#", "llx", argument.integer_);
        break;
      case Kind::kSigned:
        print(spec, "lld", argument.integer_);
        break;
      case Kind::kUnsigned:
        print(spec, "llu", argument.integer_);
        break;
      case Kind::kFloat:
        print_real(spec, static_cast<float>(argument.real_));
        break;
      case Kind::kDouble:
        print_real(spec, argument.real_);
        break;
    }
  }
  FormatField(const FormatField&) = delete;
  FormatField& operator=(const FormatField&) = delete;

  std::string_view text() const noexcept { return text_; }

 private:
  static bool is_type(char c) noexcept { return c >= 'a' && c <= 'z'; }

  void set(std::ptrdiff_t size) noexcept { text_ = {buffer_, static_cast<std::size_t>(size)}; }

  // Prints with "%", the spec and a conversion, for which the spec may contain the type.
  template <typename Number>
  void print(std::string_view spec, const char* conversion, Number number) noexcept {
    const bool has_prefix = spec.starts_with('#');  // printf() omits it before a zero
    if (has_prefix) spec.remove_prefix(1);
    char format[16] = "%";
    const std::size_t size = std::min<std::size_t>(spec.size(), 8);
    std::copy_n(spec.data(), size, format + 1);
    std::strcpy(format + 1 + size, conversion);
    if (size > 0 && is_type(spec[size - 1])) {  // "%xllu" is "%llx"
      char* const end = format + std::strlen(format);
      end[-1] = spec[size - 1];
      std::copy(format + 1 + size, end + 1, format + size);
    }
    char* const digits = has_prefix ? std::copy_n("0x", 2, buffer_) : buffer_;
    const int room = static_cast<int>(buffer_ + sizeof buffer_ - digits);
    set(digits - buffer_ + std::clamp(std::snprintf(digits, room, format, number), 0, room - 1));
  }

  // Without a type, prints the shortest text that reads back as the same number.
  template <typename Real>
  void print_real(std::string_view spec, Real number) noexcept {
    if (!spec.empty() && is_type(spec.back())) return print(spec, "g", static_cast<double>(number));
    char* begin = buffer_;
    if (spec == "+" && !(number < 0)) *begin++ = '+';
    set(std::to_chars(begin, buffer_ + sizeof buffer_, number).ptr - buffer_);
  }

  std::string_view text_;
  char buffer_[64];
};

namespace {

// Calls append(text) for each piece of the text. Requires: a field for each argument.
template <typename Append>
void compose(std::string_view pattern, std::initializer_list<FormatArgument> arguments,
             const Append& append) {
  const FormatArgument* next = arguments.begin();
  while (!pattern.empty()) {
    const std::size_t brace = std::min(pattern.find_first_of("{}"), pattern.size());
    append(pattern.substr(0, brace));
    pattern.remove_prefix(brace);
    if (pattern.empty()) return;
    if (pattern[0] == '}' || pattern[1] == '{') {  // a doubled brace
      append(pattern.substr(0, 1));
      pattern.remove_prefix(2);
      continue;
    }
    const std::size_t end = pattern.find('}');
    const FormatField field(*next++,
                            pattern.substr(std::min<std::size_t>(2, end), end < 2 ? 0 : end - 2));
    append(field.text());
    pattern.remove_prefix(end + 1);
  }
}

}  // namespace

std::string format_list(std::string_view pattern, std::initializer_list<FormatArgument> arguments) {
  std::string text;
  compose(pattern, arguments, [&](std::string_view piece) { text += piece; });
  return text;
}

void format_list_into(char* text, std::size_t bytes, std::string_view pattern,
                      std::initializer_list<FormatArgument> arguments) noexcept {
  char* const end = text + bytes - 1;
  compose(pattern, arguments, [&](std::string_view piece) {
    text = std::copy_n(piece.data(), std::min<std::size_t>(piece.size(), end - text), text);
  });
  *text = '\0';
}

}  // namespace cgtree
