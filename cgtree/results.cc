// Refuses calls whose number of tensors is wrong.
#include "cgtree/results.h"

#include <fmt/format.h>

#include "base/error.h"

namespace cgtree {

void check_input_count(std::size_t given, std::size_t expected) {
  if (given == expected) return;
  throw InvalidArgument(
      fmt::format("{} inputs given, the step function takes {}", given, expected));
}

void refuse_output_count(std::size_t given, std::size_t expected) {
  throw InvalidArgument(
      fmt::format("the step function returned {} outputs, {} are expected", given, expected));
}

}  // namespace cgtree
