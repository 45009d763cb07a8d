// Key: values besides its tensors that a call depends on, such as a draft length or the active
// adapters.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <type_traits>

namespace cgtree {

// A Key is a list of named integers of 64 bits, signed or unsigned, and short strings. Calls whose
// keys differ never share a recording. It is stored as text, batch=8 adapter="en", in at most
// kMaxText bytes: making a key allocates nothing, and equal keys are equal bytes. The order of the
// parts matters.
//
//   decode.keyed({{"draft", 2}, {"adapter", "en"}})(tokens, kv_cache);   // a call with a key
//   cgtree::current_key().number("draft")                                // 2, in the step function
class Key {
 public:
  // In bytes. A key stores its text in place, and a call hashes and compares all of it.
  static constexpr std::size_t kMaxText = 126;

  // A Part is a name with a value, an integer or a string. It borrows both texts. The constructor
  // of Key checks them.
  class Part {
   public:
    // Takes any integer of at most 64 bits, which keeps its value whatever its sign.
    template <std::integral Integer>
    Part(std::string_view name, Integer value) noexcept
        : name_(name),
          number_(static_cast<std::int64_t>(value)),
          is_large_(std::is_unsigned_v<Integer> && number_ < 0) {
      static_assert(sizeof(Integer) <= sizeof(number_), "integers of a key have 64 bits");
    }
    Part(std::string_view name, std::string_view value) noexcept
        : name_(name), text_(value), is_text_(true) {}
    Part(std::string_view name, const char* value) noexcept : Part(name, std::string_view(value)) {}

    // As given; valid as long as the caller's text.
    std::string_view name() const noexcept { return name_; }
    // Returns whether the value is a string: `1` and `"1"` are different values.
    bool is_text() const noexcept { return is_text_; }
    // Requires: is_text().
    std::string_view text() const noexcept { return text_; }
    // Requires: !is_text(). An unsigned number above INT64_MAX wraps.
    std::int64_t number() const noexcept { return number_; }
    // Returns whether number() has wrapped.
    bool is_large() const noexcept { return is_large_; }

   private:
    std::string_view name_;
    std::string_view text_;
    std::int64_t number_ = 0;
    bool is_large_ = false;
    bool is_text_ = false;
  };

  Key() = default;
  // Throws InvalidArgument for a name that is empty, occurs twice, or has other characters than
  // letters, digits and '_'; for a value with '"' or a control character; and if the text would be
  // longer than kMaxText.
  explicit Key(std::span<const Part> parts);
  Key(std::initializer_list<Part> parts) : Key(std::span(parts.begin(), parts.size())) {}

  // Returns the key with this text. Requires: the text is text() of a key.
  static Key of_text(std::string_view text) noexcept;

  // Returns the key with this text, in which replace(part) replaces each part. Requires: the text
  // is text() of a key; replace() keeps names. Throws InvalidArgument if the new text is longer
  // than kMaxText.
  template <typename Replace>
  static Key replaced(std::string_view text, Replace&& replace);

  // All parts, as in batch=8 adapter="en". Valid while the key lives.
  std::string_view text() const noexcept { return {text_.data(), size_}; }
  // Returns whether there are no parts.
  bool empty() const noexcept { return size_ == 0; }

  // Returns whether there is a part of this name, of either type.
  bool has(std::string_view name) const noexcept;
  // The next two return the value of a part; a string is valid while the key lives. An unsigned
  // number above INT64_MAX wraps: cast it back. They throw InvalidArgument if there is no part of
  // that name, or if its value is of the other type.
  std::int64_t number(std::string_view name) const;
  std::string_view string(std::string_view name) const;

  friend bool operator==(const Key& a, const Key& b) noexcept { return a.text() == b.text(); }

 private:
  void append(const Part& part);
  void append(std::string_view text);
  Part part(std::string_view name) const;

  std::array<char, kMaxText> text_;  // the first size_ of them
  std::uint8_t size_ = 0;
};

// Takes the first part off the text of a key. The part borrows the text. Requires: not empty.
Key::Part take_part(std::string_view& text) noexcept;

template <typename Replace>
Key Key::replaced(std::string_view text, Replace&& replace) {
  Key key;
  while (!text.empty())
    key.append(replace(take_part(text)));
  return key;
}

// Returns the key of the call that the calling thread is in, with values as the work sees them; an
// empty key if the call has none. Requires: the thread is inside a step function, or between
// begin() and end() of Steps. Throws InvalidArgument if it is outside.
Key current_key();

}  // namespace cgtree
