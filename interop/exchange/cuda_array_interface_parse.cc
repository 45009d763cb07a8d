// Reads the fields of a CUDA Array Interface one by one.
#include <fmt/format.h>

#include "interop/exchange/boundary_error.h"
#include "interop/exchange/cuda_array_interface.h"

namespace cgtree {
namespace {

[[noreturn]] void wrong_type(std::string_view field, const InterfaceValue& value,
                             std::string_view expected) {
  throw BoundaryError(BoundaryFault::kWrongType,
                      fmt::format("'{}' is {}: expected {}", field, to_string(value), expected));
}

const InterfaceValue& required(const std::optional<InterfaceValue>& value, std::string_view field,
                               std::string_view expected) {
  if (!value) {
    throw BoundaryError(BoundaryFault::kMissing,
                        fmt::format("'{}' is missing: expected {}", field, expected));
  }
  return *value;
}

bool is_given(const std::optional<InterfaceValue>& value) {
  return value && !value->is_none();
}

std::int64_t to_integer(const InterfaceValue& value, std::string_view field,
                        const InterfaceValue& whole, std::string_view expected) {
  if (const auto* number = std::get_if<std::int64_t>(&value.value)) return *number;
  wrong_type(field, whole, expected);
}

std::vector<std::int64_t> to_integers(const InterfaceValue& value, std::string_view field,
                                      std::string_view expected) {
  const auto* const list = std::get_if<InterfaceList>(&value.value);
  if (list == nullptr) wrong_type(field, value, expected);
  std::vector<std::int64_t> numbers;
  numbers.reserve(list->size());
  for (const InterfaceValue& item : *list)
    numbers.push_back(to_integer(item, field, value, expected));
  return numbers;
}

// An integer that is not negative.
std::uintptr_t to_address(const InterfaceValue& value, std::string_view field,
                          const InterfaceValue& whole, std::string_view expected) {
  if (const auto* large = std::get_if<std::uint64_t>(&value.value)) return *large;
  const std::int64_t number = to_integer(value, field, whole, expected);
  if (number < 0) {
    throw BoundaryError(BoundaryFault::kWrongValue,
                        fmt::format("'{}' is {}: {} is negative; expected {}", field,
                                    to_string(whole), number, expected));
  }
  return static_cast<std::uintptr_t>(number);
}

void read_data(const InterfaceValue& value, CudaArrayInterface& array) {
  constexpr std::string_view kExpected = "a pair of an address and whether it is read-only";
  const auto* const pair = std::get_if<InterfaceList>(&value.value);
  if (pair == nullptr || pair->size() != 2) wrong_type("data", value, kExpected);
  array.data = to_address((*pair)[0], "data", value, kExpected);
  const auto* const read_only = std::get_if<bool>(&(*pair)[1].value);
  if (read_only == nullptr) wrong_type("data", value, kExpected);
  array.read_only = *read_only;
}

// A field of a record: its name, or its title and name; its type, or its own fields; its shape.
bool is_record_field(const InterfaceValue& value) {
  const auto* const field = std::get_if<InterfaceList>(&value.value);
  if (field == nullptr || field->size() < 2 || field->size() > 3) return false;
  const auto is_text_or_list = [](const InterfaceValue& item) {
    return std::holds_alternative<std::string>(item.value) ||
           std::holds_alternative<InterfaceList>(item.value);
  };
  return is_text_or_list((*field)[0]) && is_text_or_list((*field)[1]);
}

void check_descr(const InterfaceValue& value) {
  constexpr std::string_view kExpected =
      "a list of fields, each (name, type) or (name, type, shape)";
  const auto* const list = std::get_if<InterfaceList>(&value.value);
  if (list == nullptr) wrong_type("descr", value, kExpected);
  for (const InterfaceValue& field : *list) {
    if (!is_record_field(field)) wrong_type("descr", value, kExpected);
  }
}

void refuse_mask(const InterfaceValue& mask) {
  throw BoundaryError(
      BoundaryFault::kNotSupported,
      fmt::format("'mask' is {}: masked arrays are not supported; expected None", to_string(mask)));
}

}  // namespace

CudaArrayInterface parse_cuda_array_interface(const InterfaceEntries& entries) {
  CudaArrayInterface array;
  constexpr std::string_view kVersion = "an integer, 0 to 3 or later";
  const InterfaceValue& version = required(entries.version, "version", kVersion);
  array.version = to_integer(version, "version", version, kVersion);
  constexpr std::string_view kShape = "a tuple of integers, one per dimension";
  array.shape = to_integers(required(entries.shape, "shape", kShape), "shape", kShape);
  constexpr std::string_view kType = "a string, as '<f4'";
  const InterfaceValue& type = required(entries.typestr, "typestr", kType);
  const auto* const text = std::get_if<std::string>(&type.value);
  if (text == nullptr) wrong_type("typestr", type, kType);
  array.type = parse_type_string(*text);
  read_data(required(entries.data, "data", "a pair of an address and whether it is read-only"),
            array);
  if (is_given(entries.strides)) {
    array.strides = to_integers(*entries.strides, "strides",
                                "None, or a tuple of integers, bytes per dimension");
  }
  if (is_given(entries.stream)) {
    array.stream = to_address(*entries.stream, "stream", *entries.stream,
                              "None, 1, 2 or a cudaStream_t as an integer");
  }
  if (is_given(entries.descr)) {
    check_descr(*entries.descr);
    array.descr = entries.descr;
  }
  if (is_given(entries.mask)) refuse_mask(*entries.mask);
  check_interface(array);
  if (elements_of(array) == 0) array.data = 0;
  return array;
}

}  // namespace cgtree
