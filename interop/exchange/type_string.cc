// Reads and writes type strings.
#include "interop/exchange/type_string.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <iterator>

#include "base/error.h"

namespace cgtree {
namespace {

static_assert(std::endian::native == std::endian::little, "type strings are written with '<'");

struct TypeRow {
  DType dtype;
  char kind;
  std::int64_t bytes;
};

constexpr TypeRow kTypes[] = {
    {DType::kBool, 'b', 1},      {DType::kInt8, 'i', 1},        {DType::kInt16, 'i', 2},
    {DType::kInt32, 'i', 4},     {DType::kInt64, 'i', 8},       {DType::kUInt8, 'u', 1},
    {DType::kUInt16, 'u', 2},    {DType::kUInt32, 'u', 4},      {DType::kUInt64, 'u', 8},
    {DType::kFloat16, 'f', 2},   {DType::kFloat32, 'f', 4},     {DType::kFloat64, 'f', 8},
    {DType::kComplex64, 'c', 8}, {DType::kComplex128, 'c', 16},
};

// The types by kind, from 'b' to 'u', and by the logarithm of the bytes.
constexpr auto kByKind = [] {
  std::array<std::array<std::optional<DType>, 5>, 'u' - 'b' + 1> table = {};
  for (const TypeRow& row : kTypes)
    table[row.kind - 'b'][std::countr_zero(static_cast<std::uint64_t>(row.bytes))] = row.dtype;
  return table;
}();

[[noreturn]] void refuse(BoundaryFault fault, std::string_view text, std::string_view why) {
  throw BoundaryError(fault, fmt::format("'typestr' is '{}': {}", text.substr(0, 40), why));
}

bool is_time(char kind) {
  return kind == 'm' || kind == 'M';
}

// Returns whether elements of the kind may have this size.
bool is_size_of(char kind, std::int64_t count) {
  switch (kind) {
    case 'b':
      return count == 1;
    case 'i':
    case 'u':
      return count == 1 || count == 2 || count == 4 || count == 8;
    case 'f':
      return count == 2 || count == 4 || count == 8 || count == 12 || count == 16;
    case 'c':
      return count == 8 || count == 16 || count == 24 || count == 32;
    case 'm':
    case 'M':
      return count == 8;
    default:
      return true;
  }
}

}  // namespace

TypeString parse_type_string(std::string_view text) {
  constexpr std::string_view kForm =
      "expected a byte order ('<', '|', '='), a letter of \"tbiufcmMSUV\" and a size, as in '<f4'";
  const auto wrong = BoundaryFault::kWrongValue;
  if (text.size() < 3) refuse(wrong, text, kForm);
  TypeString type{text[0], text[1], 0, ""};
  if (std::string_view("<>|=").find(type.byte_order) == std::string_view::npos) {
    refuse(wrong, text, kForm);
  }
  if (type.kind == 'O') {
    refuse(BoundaryFault::kNotSupported, text, "references to Python objects mean nothing here");
  }
  if (std::string_view("tbiufcmMSUV").find(type.kind) == std::string_view::npos) {
    refuse(wrong, text, kForm);
  }
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + 2, end, type.count);
  if (error != std::errc() || text[2] == '-') refuse(wrong, text, kForm);
  type.unit.assign(rest, end);
  const bool is_unit = is_time(type.kind) && type.unit.size() > 2 && type.unit.front() == '[' &&
                       type.unit.back() == ']' && type.unit.size() < 16;
  if (!type.unit.empty() && !is_unit) refuse(wrong, text, kForm);
  if (type.count == 0) refuse(wrong, text, "its elements would have no bytes");
  if (type.count > INT32_MAX) refuse(wrong, text, "its elements would have more than 2 GiB");
  if (!is_size_of(type.kind, type.count)) {
    refuse(wrong, text, fmt::format("there is no type '{}' of {} bytes", type.kind, type.count));
  }
  const bool has_order = type.count > 1 && type.kind != 'S' && type.kind != 'V' && type.kind != 't';
  if (type.byte_order == '>') {
    if (has_order || type.kind == 'U') {
      refuse(BoundaryFault::kNotSupported, text,
             "its bytes are in the other order than this machine's: convert it to '<' first");
    }
    type.byte_order = '|';
  }
  return type;
}

std::string to_string(const TypeString& type) {
  return fmt::format("{}{}{}{}", type.byte_order, type.kind, type.count, type.unit);
}

std::optional<std::int64_t> element_bytes(const TypeString& type) {
  if (type.kind == 't') {
    if (type.count % 8 != 0) return std::nullopt;
    return type.count / 8;
  }
  return type.kind == 'U' ? 4 * type.count : type.count;
}

std::optional<DType> to_dtype(const TypeString& type) {
  const auto kind = static_cast<std::size_t>(type.kind - 'b');
  const auto bytes = static_cast<std::uint64_t>(type.count);
  if (kind >= kByKind.size() || bytes == 0 || bytes > 16 || (bytes & (bytes - 1)) != 0)
    return std::nullopt;
  return kByKind[kind][static_cast<std::size_t>(std::countr_zero(bytes))];
}

TypeString to_type_string(DType dtype) {
  const auto* const row = std::find_if(std::begin(kTypes), std::end(kTypes),
                                       [&](const TypeRow& known) { return known.dtype == dtype; });
  const auto bytes = static_cast<std::int64_t>(size_of(dtype));
  const char order = bytes == 1 ? '|' : '<';
  return {order, row == std::end(kTypes) ? 'V' : row->kind, bytes, ""};
}

}  // namespace cgtree
