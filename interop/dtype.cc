// Sizes and names of the element types.
#include "interop/dtype.h"

#include <iterator>

#include "base/check.h"

namespace cgtree {
namespace {

struct Row {
  std::string_view name;
  std::size_t bytes;
};

// In the order of DType.
constexpr Row kRows[] = {
    {"bool", 1},     {"int8", 1},    {"int16", 2},   {"int32", 4},  {"int64", 8},
    {"uint8", 1},    {"uint16", 2},  {"uint32", 4},  {"uint64", 8}, {"float16", 2},
    {"bfloat16", 2}, {"float32", 4}, {"float64", 8},
};
static_assert(std::size(kRows) == kDTypeCount);

const Row& row(DType dtype) noexcept {
  CGTREE_CHECK(static_cast<int>(dtype) < kDTypeCount);
  return kRows[static_cast<int>(dtype)];
}

}  // namespace

std::size_t size_of(DType dtype) noexcept {
  return row(dtype).bytes;
}

std::string_view name(DType dtype) noexcept {
  return row(dtype).name;
}

}  // namespace cgtree
