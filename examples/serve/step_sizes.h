// StepSizes: the sizes that the steps of a trace have, found by running the schedule without a
// model.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "examples/serve/scheduler.h"

namespace cgtree::serve {

struct StepSizes {
  std::int64_t steps = 0;
  // How many decode steps had so many rows.
  std::map<std::int64_t, std::uint64_t> decodes;
  // How many prefills had {prompts, tokens of the longest}.
  std::map<std::pair<std::int64_t, std::int64_t>, std::uint64_t> prefills;
};

// Tokens of the longest prompt; 0 if there is none.
std::int64_t longest(std::span<const Prompt> prompts);

StepSizes count_sizes(std::span<const Request> requests, const SchedulerOptions& options);

}  // namespace cgtree::serve
