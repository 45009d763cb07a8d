// The rules about an array as a whole, and its text.
#include "interop/exchange/cuda_array_interface.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "interop/exchange/boundary_error.h"

namespace cgtree {
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

// Throws where no int64 counts them.
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

// The first and the last byte of any element must have an address.
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

}  // namespace cgtree
