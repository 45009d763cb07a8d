// Writes the opcodes of a pickle.
//
// Source: Python's Lib/pickletools.py. No value is shared, so there is no memo.
#include "caching/reports/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace cgtree {
namespace {

using Json = nlohmann::ordered_json;

class Pickler {
 public:
  explicit Pickler(std::span<const std::string_view> tuples) : tuples_(tuples) {}

  std::string write(const Json& value) {
    out_ = "\x80\x02";  // PROTO 2
    put(value);
    out_ += '.';  // STOP
    return std::move(out_);
  }

 private:
  void put(const Json& value) {
    if (value.is_object()) {
      put_dict(value);
    } else if (value.is_array()) {
      put_list(value);
    } else if (value.is_string()) {
      put_text(value.get_ref<const std::string&>());
    } else if (value.is_number_integer()) {
      put_number(value);
    } else if (value.is_boolean()) {
      out_ += value.get<bool>() ? '\x88' : '\x89';  // NEWTRUE, NEWFALSE
    } else if (value.is_null()) {
      out_ += 'N';  // NONE
    } else {
      throw InvalidArgument(fmt::format("a value of type {} has no pickle", value.type_name()));
    }
  }

  void put_dict(const Json& dict) {
    out_ += '}';  // EMPTY_DICT
    if (dict.empty()) return;
    out_ += '(';  // MARK
    for (const auto& [key, value] : dict.items()) {
      put_text(key);
      const bool is_tuple = std::find(tuples_.begin(), tuples_.end(), key) != tuples_.end();
      if (is_tuple && value.is_array()) {
        put_tuple(value);
      } else {
        put(value);
      }
    }
    out_ += 'u';  // SETITEMS
  }

  void put_list(const Json& list) {
    out_ += ']';  // EMPTY_LIST
    if (list.empty()) return;
    out_ += '(';
    for (const Json& value : list)
      put(value);
    out_ += 'e';  // APPENDS
  }

  void put_tuple(const Json& tuple) {
    constexpr char kTuples[] = {')', '\x85', '\x86', '\x87'};  // EMPTY_TUPLE, TUPLE1, 2, 3
    if (tuple.size() >= std::size(kTuples)) {
      throw InvalidArgument(fmt::format("a tuple of {}; at most 3 are written", tuple.size()));
    }
    for (const Json& value : tuple)
      put(value);
    out_ += kTuples[tuple.size()];
  }

  void put_text(const std::string& text) {
    if (text.size() > UINT32_MAX) {
      throw InvalidArgument(fmt::format("text of {} bytes; less than 4 GiB fit", text.size()));
    }
    out_ += 'X';  // BINUNICODE
    put_bytes(text.size(), 4);
    out_ += text;
  }

  void put_number(const Json& value) {
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) {
      out_ += "\x8a\x09";  // LONG1, of nine bytes for the sign's sake
      put_bytes(value.get<std::uint64_t>(), 8);
      out_ += '\0';
      return;
    }
    const auto number = value.get<std::int64_t>();
    if (number >= 0 && number <= UINT8_MAX) {
      out_ += 'K';  // BININT1
      put_bytes(static_cast<std::uint64_t>(number), 1);
    } else if (number >= INT32_MIN && number <= INT32_MAX) {
      out_ += 'J';  // BININT
      put_bytes(static_cast<std::uint64_t>(number), 4);
    } else {
      out_ += "\x8a\x08";
      put_bytes(static_cast<std::uint64_t>(number), 8);
    }
  }

  // The low `count` bytes, the lowest first.
  void put_bytes(std::uint64_t number, int count) {
    for (int i = 0; i < count; ++i)
      out_ += static_cast<char>(number >> (8 * i));
  }

  const std::span<const std::string_view> tuples_;
  std::string out_;
};

}  // namespace

std::string to_pickle(const Json& value, std::span<const std::string_view> tuples) {
  return Pickler(tuples).write(value);
}

}  // namespace cgtree
