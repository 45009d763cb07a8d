// AxisRule: the policy of one dynamic axis, and the sizes that it has learned.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cgtree/axes.h"
#include "cgtree/explanation.h"

namespace cgtree {

// An AxisChoice is what an axis decides about one size.
struct AxisChoice {
  enum class Kind {
    kSize,        // the step function is to see `padded`
    kNextLarger,  // it is to see the next larger size that is recorded, if there is one
    kSkip,        // the call runs eagerly, for `reason`
    kThrow,       // the call throws InvalidArgument, for `reason`
  };

  Kind kind = Kind::kSize;
  std::int64_t padded = 0;
  SkipReason reason = SkipReason::kDisabled;
};

// An AxisRule decides as a pure function of the size and of what note() and admit() have told it.
class AxisRule {
 public:
  // Requires: layout_of() has checked the options.
  explicit AxisRule(AxisOptions options);

  const AxisOptions& options() const noexcept { return options_; }
  const std::string& name() const noexcept { return options_.name; }
  // Whether the step function may see a larger size than the actual one.
  bool pads() const noexcept;

  AxisChoice choose(std::int64_t actual) const noexcept;
  // Returns what keeps a size from being graphed, with both sides, or "".
  std::string why_not(std::int64_t actual) const;

  // Notes that a call had this size. Does not allocate.
  void note(std::int64_t actual) noexcept;
  // Notes that this size was warmed up, and returns the size that must be dropped for it, if any.
  // Does not allocate.
  std::optional<std::int64_t> admit(std::int64_t padded) noexcept;

 private:
  struct Known {
    std::int64_t size;
    std::uint64_t last_used;
  };

  bool is_capped() const noexcept { return options_.max_sizes != SIZE_MAX; }
  const Known* find(std::int64_t size) const noexcept;

  AxisOptions options_;
  std::vector<Known> known_;  // the sizes warmed up, if max_sizes limits them
  std::uint64_t uses_ = 0;
  std::optional<std::int64_t> first_;  // kSkip: the size of the first call
  bool has_varied_ = false;            // kSkip
};

}  // namespace cgtree
