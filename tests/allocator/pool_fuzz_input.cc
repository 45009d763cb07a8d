// Decodes bytes, and executes their steps.
#include "tests/allocator/pool_fuzz_input.h"

#include <algorithm>

namespace cgtree {
namespace {

constexpr std::size_t kBytesOfStep = 4;
constexpr std::size_t kMostSteps = 256;
constexpr int kActions = static_cast<int>(Action::kReopen) + 1;
constexpr int kGrowths = static_cast<int>(Growth::kInPlace) + 1;

}  // namespace

std::vector<Step> steps_of(std::span<const std::uint8_t> bytes) {
  std::vector<Step> steps;
  bytes = bytes.first(std::min(bytes.size(), kMostSteps * kBytesOfStep));
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), kBytesOfStep))) {
    Step step{static_cast<Action>(bytes[0] % kActions), 0};
    for (std::size_t i = 1; i < std::min(bytes.size(), kBytesOfStep); ++i)
      step.value |= std::uint32_t{bytes[i]} << (8 * (i - 1));
    steps.push_back(step);
  }
  return steps;
}

void take_steps_of(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return;
  ModelledPool pool(static_cast<Growth>(bytes[0] % kGrowths));
  bytes = bytes.subspan(1);
  for (const Step& step : steps_of(bytes))
    pool.take(step);
}

}  // namespace cgtree
