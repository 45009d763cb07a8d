// Checks flags, and reads them on the host.
#include "extensions/flow/flag.h"

#include <fmt/format.h>

#include "base/error.h"

namespace cgtree {

void expect_flag(std::string_view what, const Tensor& flag, StreamRef stream, bool may_be_bool) {
  const bool is_of_type = flag.defined() && (flag.dtype() == DType::kInt32 ||
                                             (may_be_bool && flag.dtype() == DType::kBool));
  if (is_of_type && flag.elements() == 1 && flag.device() == stream.device()) return;
  throw InvalidArgument(fmt::format("{} is {}, and must be one element of {} on {}", what,
                                    describe(flag), may_be_bool ? "int32 or bool" : "int32",
                                    to_string(stream.device())));
}

FlagInMemory flag_of(const Tensor& flag) {
  return {flag.data(), flag.dtype() == DType::kBool ? 1u : 0u};
}

std::int32_t read_flag(const Tensor& flag, StreamRef stream) {
  std::int32_t value = 0;
  flag.copy_to_host(&value, flag.bytes(), stream);
  return value;
}

}  // namespace cgtree
