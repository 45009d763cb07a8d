// AxisRule: what one dynamic axis does with a size: pure, but for what it has learned.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cgtree/axes.h"
#include "cgtree/skip_reason.h"

namespace cgtree {

struct AxisChoice {
  enum class Kind {
    kSize,        // the step function is to see `seen`
    kNextLarger,  // the next larger size that is recorded, if there is one
    kSkip,        // for `reason`
    kThrow,       // for `reason`: the caller must be told
  };

  Kind kind = Kind::kSize;
  std::int64_t seen = 0;
  SkipReason reason = SkipReason::kDisabled;
};

class AxisRule {
 public:
  // Requires options that layout_of() has checked.
  explicit AxisRule(AxisOptions options);

  const AxisOptions& options() const noexcept { return options_; }
  const std::string& name() const noexcept { return options_.name; }
  // Whether the step function may see another size than was given.
  bool pads() const noexcept;

  AxisChoice choose(std::int64_t given) const noexcept;
  // What keeps a size from being graphed, with both sides; "" where nothing does.
  std::string why_not(std::int64_t given) const;

  // A call had this size. Takes no memory.
  void note(std::int64_t given) noexcept;
  // The size was warmed up. The size that must go for it, if one must. Takes no memory.
  std::optional<std::int64_t> admit(std::int64_t given) noexcept;

 private:
  struct Known {
    std::int64_t size;
    std::uint64_t last_used;
  };

  bool is_capped() const noexcept { return options_.max_sizes != SIZE_MAX; }
  const Known* find(std::int64_t size) const noexcept;

  AxisOptions options_;
  std::vector<Known> known_;  // of an axis with a cap: sizes warmed up, at most max_sizes
  std::uint64_t uses_ = 0;
  std::optional<std::int64_t> first_;  // kSkip: the size of the first call
  bool has_varied_ = false;            // kSkip
};

}  // namespace cgtree
