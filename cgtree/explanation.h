// Explanation: what a call would do, and why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cgtree/mismatch.h"
#include "cgtree/skip_reason.h"

namespace cgtree {

// A dynamic axis of a call.
struct AxisInUse {
  std::string name;
  std::int64_t given = 0;
  std::int64_t seen = 0;  // what the step function sees where the call is graphed; 0: it is not

  friend bool operator==(const AxisInUse&, const AxisInUse&) = default;
};

struct Explanation {
  enum class Outcome { kReplay, kRecord, kWarmUp, kRunEagerly, kThrow };

  Outcome outcome = Outcome::kReplay;
  std::uint32_t node = 0;                 // kReplay: which
  std::optional<SkipReason> skip_reason;  // kRunEagerly, kThrow
  Cause cause;  // not of kReplay and kWarmUp: what keeps the nearest recording from being replayed
  std::vector<AxisInUse> axes;     // of a function with dynamic axes
  std::string why_not;             // what keeps their sizes from being graphed; "" if nothing does
  std::vector<std::string> notes;  // what would make such calls cheaper
};

// "replay", "record", "warm_up", "run_eagerly", "throw".
std::string_view name(Explanation::Outcome outcome) noexcept;

// One line per fact.
std::string to_string(const Explanation& explanation);

}  // namespace cgtree
