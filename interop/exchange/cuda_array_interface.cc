// Prints values, reads the fields of an interface one by one, and checks the array as a whole.
#include "interop/exchange/cuda_array_interface.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace cgtree {
namespace {

constexpr std::size_t kMaxText = 60;   // characters
constexpr std::size_t kMaxItems = 10;  // of a list
constexpr int kMaxDepth = 4;           // of lists in lists

std::string text_of(const InterfaceValue& value, int depth);

struct Printer {
  int depth;

  std::string operator()(InterfaceValue::None) const { return "None"; }
  std::string operator()(bool value) const { return value ? "True" : "False"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(std::uint64_t value) const { return std::to_string(value); }
  std::string operator()(const std::string& value) const {
    const bool is_cut = value.size() > kMaxText;
    return fmt::format("'{}{}'", value.substr(0, kMaxText), is_cut ? "..." : "");
  }
  std::string operator()(const InterfaceValue::Other& value) const {
    return value.text.substr(0, kMaxText);
  }
  std::string operator()(const InterfaceList& list) const {
    if (depth == kMaxDepth) return "(...)";
    std::string text = "(";
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (i > 0) text += ", ";
      if (i == kMaxItems) return text + fmt::format("... {} in all)", list.size());
      text += text_of(list[i], depth + 1);
    }
    return text + (list.size() == 1 ? ",)" : ")");
  }
};

std::string text_of(const InterfaceValue& value, int depth) {
  return std::visit(Printer{depth}, value.value);
}

}  // namespace

std::string to_string(const InterfaceValue& value) {
  return text_of(value, 0);
}

namespace {

[[noreturn]] void refuse(std::string_view what) {
  throw BoundaryError(BoundaryFault::kWrongValue, what);
}

InterfaceValue list_of(const std::vector<std::int64_t>& numbers) {
  InterfaceList list;
  for (const std::int64_t number : numbers)
    list.push_back({number});
  return {std::move(list)};
}

InterfaceValue number_of(std::uint64_t number) {
  if (number > static_cast<std::uint64_t>(INT64_MAX)) return {number};
  return {static_cast<std::int64_t>(number)};
}

[[noreturn]] void refuse_shape(const std::vector<std::int64_t>& shape, std::int64_t least) {
  const std::string text = fmt::format("'shape' is ({})", fmt::join(shape, ", "));
  if (least < 0) refuse(fmt::format("{}: {} is negative", text, least));
  refuse(fmt::format("{}: more than {} elements", text, INT64_MAX));
}

// Throws if an int64 cannot count the elements.
std::int64_t checked_elements(const std::vector<std::int64_t>& shape) {
  std::int64_t least = 1;
  std::int64_t elements = 1;
  bool overflows = false;
  for (const std::int64_t dim : shape) {
    least = std::min(least, dim);
    overflows = __builtin_mul_overflow(elements, dim, &elements) || overflows;
  }
  if (least == 0) return 0;
  if (least < 0 || overflows) refuse_shape(shape, least);
  return elements;
}

// Throws unless the first and the last byte of every element have an address.
void check_reach(const CudaArrayInterface& array, std::int64_t elements) {
  using Wide = __int128;
  const Wide bytes = element_bytes(array.type).value_or(1);
  Wide low = 0;
  Wide high = bytes * elements;
  if (array.strides) {
    high = bytes;
    for (std::size_t axis = 0; axis < array.shape.size(); ++axis) {
      const Wide reach = static_cast<Wide>(array.shape[axis] - 1) * (*array.strides)[axis];
      (reach < 0 ? low : high) += reach;
    }
  }
  const Wide data = array.data;
  if (data + low < 0 || data + high > static_cast<Wide>(UINTPTR_MAX)) {
    refuse(fmt::format("{} would reach beyond the addresses there are", describe(array)));
  }
}

}  // namespace

void check_interface(const CudaArrayInterface& array) {
  if (array.version < 0) {
    refuse(fmt::format("'version' is {}: expected 0 to 3, or later", array.version));
  }
  const std::int64_t elements = checked_elements(array.shape);
  if (array.strides && array.strides->size() != array.shape.size()) {
    refuse(fmt::format("'strides' is ({}), {} numbers, but 'shape' is ({}), {} dimensions",
                       fmt::join(*array.strides, ", "), array.strides->size(),
                       fmt::join(array.shape, ", "), array.shape.size()));
  }
  if (array.stream == 0) {
    refuse(
        "'stream' is 0, which could mean no stream or either default stream: expected None, 1 "
        "(legacy), 2 (per thread) or a cudaStream_t");
  }
  if (elements == 0) return;
  if (array.data == 0) {
    refuse(fmt::format("'data' is null, but 'shape' is ({}), {} elements",
                       fmt::join(array.shape, ", "), elements));
  }
  check_reach(array, elements);
}

std::int64_t elements_of(const CudaArrayInterface& array) {
  return checked_elements(array.shape);
}

InterfaceEntries to_entries(const CudaArrayInterface& array) {
  InterfaceEntries entries;
  entries.shape = list_of(array.shape);
  entries.typestr = InterfaceValue{to_string(array.type)};
  entries.data =
      InterfaceValue{InterfaceList{number_of(array.data), InterfaceValue{array.read_only}}};
  entries.version = InterfaceValue{array.version};
  entries.strides = array.strides ? list_of(*array.strides) : InterfaceValue{};
  entries.descr = array.descr;
  if (array.version >= 3 || array.stream) {
    entries.stream = array.stream ? number_of(*array.stream) : InterfaceValue{};
  }
  return entries;
}

std::string describe(const CudaArrayInterface& array) {
  std::string text = fmt::format("{} ({})", to_string(array.type), fmt::join(array.shape, ", "));
  if (array.strides) text += fmt::format(" strides ({}) bytes", fmt::join(*array.strides, ", "));
  return text + fmt::format(" at {:#x}", array.data);
}

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

// Throws unless the value is an integer that is not negative.
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

// A field of a record is: its name, or its title and name; its type, or its own fields; its shape.
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
