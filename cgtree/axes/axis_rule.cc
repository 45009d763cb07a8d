// Applies the policy of an axis to a size, and tracks the sizes that max_sizes limits.
#include "cgtree/axes/axis_rule.h"

#include <fmt/format.h>

#include <algorithm>

namespace cgtree {
namespace {

using Kind = AxisChoice::Kind;

AxisChoice pad_to(std::int64_t size) {
  return {Kind::kSize, size};
}

AxisChoice skip(SkipReason reason) {
  return {Kind::kSkip, 0, reason};
}

}  // namespace

AxisRule::AxisRule(AxisOptions options) : options_(std::move(options)) {
  if (is_capped()) known_.reserve(options_.max_sizes);
}

bool AxisRule::pads() const noexcept {
  return options_.policy == AxisPolicy::kBuckets ||
         (options_.policy == AxisPolicy::kExact && is_capped() &&
          options_.at_max_sizes == AtMaxSizes::kNextLarger);
}

const AxisRule::Known* AxisRule::find(std::int64_t size) const noexcept {
  const auto found = std::find_if(known_.begin(), known_.end(),
                                  [&](const Known& known) { return known.size == size; });
  return found == known_.end() ? nullptr : &*found;
}

AxisChoice AxisRule::choose(std::int64_t actual) const noexcept {
  const std::vector<std::int64_t>& sizes = options_.sizes;
  const auto next = std::lower_bound(sizes.begin(), sizes.end(), actual);
  switch (options_.policy) {
    case AxisPolicy::kBuckets:
      if (next != sizes.end()) return pad_to(*next);
      return {options_.above_largest == AboveLargest::kThrow ? Kind::kThrow : Kind::kSkip, 0,
              SkipReason::kAboveLargestBucket};
    case AxisPolicy::kAllowList:
      if (next != sizes.end() && *next == actual) return pad_to(actual);
      return skip(SkipReason::kSizeNotListed);
    case AxisPolicy::kSkip:
      if (has_varied_ || (first_ && *first_ != actual)) return skip(SkipReason::kDynamicAxis);
      return pad_to(actual);
    case AxisPolicy::kExact:
      break;
  }
  if (known_.size() < options_.max_sizes || find(actual) != nullptr ||
      options_.at_max_sizes == AtMaxSizes::kEvict) {
    return pad_to(actual);
  }
  if (options_.at_max_sizes == AtMaxSizes::kNextLarger) {
    return {Kind::kNextLarger, actual, SkipReason::kSizeLimit};
  }
  return skip(SkipReason::kSizeLimit);
}

std::string AxisRule::why_not(std::int64_t actual) const {
  const AxisChoice choice = choose(actual);
  if (choice.kind == Kind::kSize) return {};
  const std::string is = fmt::format("axis '{}' is {}", name(), actual);
  switch (choice.reason) {
    case SkipReason::kAboveLargestBucket:
      return fmt::format("{}, the largest of its {} buckets is {}", is, options_.sizes.size(),
                         options_.sizes.back());
    case SkipReason::kSizeNotListed:
      return fmt::format("{}, which is none of the {} sizes of its list", is,
                         options_.sizes.size());
    case SkipReason::kDynamicAxis:
      return fmt::format("{}, the first call's was {}", is, first_.value_or(actual));
    default:
      return fmt::format("{}, and {} other sizes are recorded, as many as max_sizes", is,
                         known_.size());
  }
}

void AxisRule::note(std::int64_t actual) noexcept {
  if (options_.policy == AxisPolicy::kSkip) {
    has_varied_ = has_varied_ || (first_ && *first_ != actual);
    if (!first_) first_ = actual;
    return;
  }
  if (known_.empty()) return;
  if (auto* known = const_cast<Known*>(find(actual))) known->last_used = ++uses_;
}

std::optional<std::int64_t> AxisRule::admit(std::int64_t padded) noexcept {
  if (options_.policy != AxisPolicy::kExact || !is_capped() || find(padded) != nullptr) return {};
  if (known_.size() < options_.max_sizes) {
    known_.push_back({padded, ++uses_});
    return {};
  }
  const auto oldest =
      std::min_element(known_.begin(), known_.end(),
                       [](const Known& a, const Known& b) { return a.last_used < b.last_used; });
  const std::int64_t dropped = oldest->size;
  *oldest = {padded, ++uses_};
  return dropped;
}

}  // namespace cgtree
