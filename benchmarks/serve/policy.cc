// Counts sizes, chooses buckets, and makes the options of each axis.
#include "benchmarks/serve/policy.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "extensions/sizes/suggest_buckets.h"

namespace cgtree::serve {
StepSizes count_sizes(std::span<const Request> requests, const SchedulerOptions& options) {
  Scheduler scheduler(requests, options);
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(options.max_batch));
  StepSizes sizes;
  while (scheduler.begin_step()) {
    const std::span<const Prompt> prompts = scheduler.prompts();
    if (!prompts.empty()) ++sizes.prefills[{std::ssize(prompts), longest(prompts)}];
    if (!scheduler.rows().empty()) ++sizes.decodes[std::ssize(scheduler.rows())];
    ++sizes.steps;
    scheduler.end_step(tokens, tokens);
  }
  return sizes;
}

std::string_view name(Policy policy) {
  switch (policy) {
    case Policy::kExact:
      return "exact";
    case Policy::kBuckets:
      return "buckets";
    case Policy::kSuggested:
      return "suggested";
    case Policy::kListed:
      return "listed";
    case Policy::kLearned:
      return "learned";
  }
  return "";
}

SizePlan::SizePlan(Policy policy, std::int64_t budget, SizeLimits limits, const StepSizes& sizes,
                   std::span<const std::int64_t> batches)
    : policy_(policy), budget_(budget), limits_(limits) {
  if (policy == Policy::kBuckets) decode_batch_ = powers_of_two(limits.batch);
  if (policy == Policy::kListed) {
    std::ranges::copy_if(batches, std::back_inserter(decode_batch_),
                         [&](std::int64_t size) { return size < limits.batch; });
    decode_batch_.push_back(limits.batch);
  }
  if (policy == Policy::kBuckets || policy == Policy::kLearned || policy == Policy::kListed) {
    prefill_batch_ = powers_of_two(limits.batch);
    prefill_length_ = powers_of_two(limits.length);
  }
  if (policy == Policy::kSuggested) suggest(sizes);
}

void SizePlan::suggest(const StepSizes& sizes) {
  const std::int64_t most = budget_ == 0 ? limits_.batch : budget_;
  decode_batch_ = suggest_buckets(sizes.decodes, static_cast<std::size_t>(most));
  if (decode_batch_.empty()) decode_batch_ = {limits_.batch};
  suggest_prefill(sizes);
}

// Each combination of a batch and a length needs a recording. Among the ways to share the budget
// between the two axes, this takes the one that pads least.
void SizePlan::suggest_prefill(const StepSizes& sizes) {
  std::map<std::int64_t, std::uint64_t> batches, lengths;
  for (const auto& [size, count] : sizes.prefills) {
    batches[size.first] += count;
    lengths[size.second] += count;
  }
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  const std::int64_t budget = budget_ == 0 ? limits_.batch * limits_.length : budget_;
  for (std::int64_t count = 1; count <= std::min(budget, limits_.batch); ++count) {
    const Sizes batch = suggest_buckets(batches, static_cast<std::size_t>(count));
    const Sizes length = suggest_buckets(lengths, static_cast<std::size_t>(budget / count));
    std::int64_t rows = 0;
    for (const auto& [size, calls] : sizes.prefills)
      rows += static_cast<std::int64_t>(calls) * StepBuckets::pad(batch, size.first) *
              StepBuckets::pad(length, size.second);
    if (rows >= least) continue;
    least = rows;
    prefill_batch_ = batch;
    prefill_length_ = length;
  }
}

CompileOptions SizePlan::decode(CacheUse use, bool enabled) const {
  const AxisOptions batch = policy_ == Policy::kLearned
                                ? AxisOptions{.policy = AxisPolicy::kLearned}
                                : axis(decode_batch_);
  return limited(decode_options(batch), use, enabled);
}

// The outputs of a step are released before the next one begins, so a size needs one recording.
std::optional<LearnOptions> SizePlan::learns() const {
  if (policy_ != Policy::kLearned) return std::nullopt;
  LearnOptions options{.held_outputs = 0};
  if (budget_ != 0) options.max_sizes = static_cast<std::size_t>(budget_);
  return options;
}

CompileOptions SizePlan::prefill(CacheUse use, bool enabled) const {
  return limited(prefill_options(axis(prefill_batch_), axis(prefill_length_)), use, enabled);
}

std::int64_t SizePlan::decode_rows(std::int64_t batch) const {
  return StepBuckets::pad(decode_batch_, batch);
}

std::int64_t SizePlan::prefill_rows(std::int64_t batch, std::int64_t length) const {
  return StepBuckets::pad(prefill_batch_, batch) * StepBuckets::pad(prefill_length_, length);
}

AxisOptions SizePlan::axis(const Sizes& sizes) const {
  AxisOptions options;
  if (!sizes.empty()) {
    options.policy = AxisPolicy::kBuckets;
    options.sizes = sizes;
  } else if (budget_ != 0) {
    options.max_sizes = static_cast<std::size_t>(budget_);
    options.at_max_sizes = AtMaxSizes::kEvict;
  }
  return options;
}

CompileOptions SizePlan::limited(CompileOptions options, CacheUse use, bool enabled) const {
  options.inputs.back().is_static = use == CacheUse::kStatic;
  options.enabled = enabled;
  options.max_recordings = budget_ == 0 ? SIZE_MAX : static_cast<std::size_t>(budget_);
  options.at_limit = AtLimit::kEvict;
  options.max_switch_nodes = static_cast<std::size_t>(max_switch_nodes_);
  return options;
}

}  // namespace cgtree::serve
