// Applies the policy of an axis to a size, and tracks the sizes that max_sizes limits.
#include "cgtree/axes/axis_rule.h"
#include "base/format.h"

#include <algorithm>
#include <bit>

namespace cgtree {
namespace {

AxisChoice pad_to(std::int64_t size) {
  return {AxisChoice::Kind::kSize, size};
}

AxisChoice skip(SkipReason reason) {
  return {AxisChoice::Kind::kSkip, 0, reason};
}

}  // namespace

AxisRule::AxisRule(AxisOptions options, bool is_of_key)
    : options_(std::move(options)), is_of_key_(is_of_key) {
  const bool is_multiples = options_.policy == AxisPolicy::kMultiples;
  constexpr std::size_t kMost = INT64_MAX;
  options_.largest = std::min(options_.largest, is_multiples ? kMost - kMost % options_.multiple_of
                                                             : std::bit_floor(kMost));
  if (is_capped()) known_.reserve(options_.max_sizes);
}

std::string AxisRule::text() const {
  return is_of_key_ ? str_format("'{}' of the key", name()) : str_format("axis '{}'", name());
}

const AxisRule::Known* AxisRule::find(std::int64_t size) const noexcept {
  const auto found = std::find_if(known_.begin(), known_.end(),
                                  [&](const Known& known) { return known.size == size; });
  return found == known_.end() ? nullptr : &*found;
}

// Returns the smallest size to pad to, or nothing above the largest. Requires: actual >= 0, and a
// policy that pads.
std::optional<std::int64_t> AxisRule::round_up(std::int64_t actual) const noexcept {
  if (options_.policy == AxisPolicy::kBuckets || is_learned()) {
    const auto next = std::lower_bound(options_.sizes.begin(), options_.sizes.end(), actual);
    return next == options_.sizes.end() ? std::nullopt : std::optional(*next);
  }
  const bool is_multiples = options_.policy == AxisPolicy::kMultiples;
  const std::uint64_t largest = options_.largest;
  const auto size = static_cast<std::uint64_t>(actual);
  if (size > largest) return std::nullopt;
  const std::uint64_t multiple = options_.multiple_of;
  const std::uint64_t up =
      is_multiples ? (size + multiple - 1) / multiple * multiple : std::bit_ceil(size);
  return up > largest ? std::nullopt : std::optional(static_cast<std::int64_t>(up));
}

std::int64_t AxisRule::rounded(std::int64_t actual) const noexcept {
  if (options_.policy < AxisPolicy::kBuckets || is_learned()) return actual;
  return round_up(actual).value_or(actual);
}

AxisChoice AxisRule::choose(std::int64_t actual) const noexcept {
  const Sizes& sizes = options_.sizes;
  const auto next = std::lower_bound(sizes.begin(), sizes.end(), actual);
  switch (options_.policy) {
    case AxisPolicy::kBuckets:
    case AxisPolicy::kMultiples:
    case AxisPolicy::kPowersOfTwo:
      if (const auto up = round_up(actual)) return pad_to(*up);
      return {options_.above_largest == AboveLargest::kThrow ? AxisChoice::Kind::kThrow
                                                             : AxisChoice::Kind::kSkip,
              0, SkipReason::kAboveLargestBucket};
    case AxisPolicy::kLearned:
      if (const auto up = round_up(actual)) return pad_to(*up);
      return skip(SkipReason::kNotRecorded);
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
    return {AxisChoice::Kind::kNextLarger, actual, SkipReason::kSizeLimit};
  }
  return skip(SkipReason::kSizeLimit);
}

std::string AxisRule::why_not(std::int64_t actual) const {
  const AxisChoice choice = choose(actual);
  if (choice.kind == AxisChoice::Kind::kSize) return {};
  const std::string is = str_format("{} is {}", text(), actual);
  switch (choice.reason) {
    case SkipReason::kAboveLargestBucket:
      if (options_.policy != AxisPolicy::kBuckets) {
        return str_format("{}, the largest to pad to is {}", is, options_.largest);
      }
      return str_format("{}, the largest of its {} buckets is {}", is, options_.sizes.size(),
                        options_.sizes.back());
    case SkipReason::kSizeNotListed:
      return str_format("{}, which is none of the {} sizes of its list", is, options_.sizes.size());
    case SkipReason::kDynamicAxis:
      return str_format("{}, the first call's was {}", is, first_.value_or(actual));
    default:
      return str_format("{}, and {} other sizes are recorded, as many as max_sizes", is,
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
