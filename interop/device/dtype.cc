// Names of the element types.
#include "interop/device/dtype.h"

#include <iterator>

namespace cgtree {
namespace {

// In the order of DType.
constexpr std::string_view kNames[] = {"bool",     "int8",    "int16",  "int32",  "int64",
                                       "uint8",    "uint16",  "uint32", "uint64", "float16",
                                       "bfloat16", "float32", "float64"};
static_assert(std::size(kNames) == kDTypeCount);

}  // namespace

std::string_view name(DType dtype) noexcept {
  CGTREE_CHECK(static_cast<int>(dtype) < kDTypeCount);
  return kNames[static_cast<int>(dtype)];
}

}  // namespace cgtree
