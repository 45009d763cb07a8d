// Reads and writes type strings.
#include "interop/exchange/type_string.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <iterator>

#include "base/error.h"
#include "base/format.h"

namespace cgtree {
namespace {

static_assert(std::endian::native == std::endian::little, "type strings are written with '<'");

constexpr char kOpaque = 'V';

struct TypeRow {
  DType dtype;
  std::string_view text;

  constexpr char kind() const noexcept { return text[1]; }
};

constexpr TypeRow kTypes[] = {
    {DType::kBool, "|b1"},       {DType::kInt8, "|i1"},           {DType::kInt16, "<i2"},
    {DType::kInt32, "<i4"},      {DType::kInt64, "<i8"},          {DType::kUInt8, "|u1"},
    {DType::kUInt16, "<u2"},     {DType::kUInt32, "<u4"},         {DType::kUInt64, "<u8"},
    {DType::kFloat16, "<f2"},    {DType::kBFloat16, "<V2"},       {DType::kFloat32, "<f4"},
    {DType::kFloat64, "<f8"},    {DType::kFloat8E4M3FN, "|V1"},   {DType::kFloat8E4M3FNUZ, "|V1"},
    {DType::kFloat8E5M2, "|V1"}, {DType::kFloat8E5M2FNUZ, "|V1"}, {DType::kFloat8E8M0FNU, "|V1"},
    {DType::kComplex64, "<c8"},  {DType::kComplex128, "<c16"},
};
static_assert(std::size(kTypes) == kDTypeCount);

[[noreturn]] void refuse(BoundaryFault fault, std::string_view text, std::string_view why) {
  throw BoundaryError(fault, str_format("'typestr' is '{}': {}", text.substr(0, 40), why));
}

bool is_among(char letter, std::string_view letters) noexcept {
  return letters.find(letter) != std::string_view::npos;
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

// Returns whether text after the size is a unit of time, such as "[ns]".
bool is_unit(char kind, std::string_view text) {
  return is_among(kind, "mM") && text.size() > 2 && text.size() < 16 && text.front() == '[' &&
         text.back() == ']';
}

// `count`: bits for kind 't', characters for 'U', else bytes.
std::int64_t whole_bytes(char kind, std::int64_t count) {
  if (kind == 't') return count % 8 == 0 ? count / 8 : 0;
  return kind == 'U' ? 4 * count : count;
}

std::optional<DType> find_dtype(char kind, std::int64_t bytes) {
  if (kind == kOpaque) return std::nullopt;
  const auto* const row =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeRow& known) {
        return known.kind() == kind && static_cast<std::int64_t>(size_of(known.dtype)) == bytes;
      });
  return row == std::end(kTypes) ? std::nullopt : std::optional(row->dtype);
}

}  // namespace

TypeString parse_type_string(std::string_view text) {
  constexpr std::string_view kForm =
      "expected a byte order ('<', '|', '='), a letter of \"tbiufcmMSUV\" and a size, as in '<f4'";
  const auto wrong = BoundaryFault::kWrongValue;
  if (text.size() < 3 || !is_among(text[0], "<>|=")) refuse(wrong, text, kForm);
  const char kind = text[1];
  if (kind == 'O') {
    refuse(BoundaryFault::kNotSupported, text, "references to Python objects mean nothing here");
  }
  if (!is_among(kind, "tbiufcmMSUV")) refuse(wrong, text, kForm);
  std::int64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + 2, end, count);
  if (error != std::errc() || text[2] == '-') refuse(wrong, text, kForm);
  if (rest != end && !is_unit(kind, {rest, end})) refuse(wrong, text, kForm);
  if (count == 0) refuse(wrong, text, "its elements would have no bytes");
  if (count > INT32_MAX) refuse(wrong, text, "its elements would have more than 2 GiB");
  if (!is_size_of(kind, count)) {
    refuse(wrong, text, str_format("there is no type '{}' of {} bytes", kind, count));
  }
  const bool has_order = kind == 'U' || (count > 1 && !is_among(kind, "tSV"));
  if (text[0] == '>' && has_order) {
    refuse(BoundaryFault::kNotSupported, text,
           "its bytes are in the other order than this machine's: convert it to '<' first");
  }
  const std::int64_t bytes = whole_bytes(kind, count);
  return {std::string(text), find_dtype(kind, bytes), bytes};
}

TypeString type_string_of(DType dtype) {
  const TypeRow& row = kTypes[static_cast<int>(dtype)];
  const auto bytes = static_cast<std::int64_t>(size_of(dtype));
  return {std::string(row.text), row.kind() == kOpaque ? std::nullopt : std::optional(dtype),
          bytes};
}

}  // namespace cgtree
