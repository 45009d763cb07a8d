// StepFrame: the step function that the calling thread is inside of, and what it can ask for there.
#pragma once

#include <type_traits>
#include <utility>

namespace cgtree {

class AxisLengths;
class BreakHandler;
class Key;
class StepScope;

struct StepFrame {
  StepScope* step = nullptr;       // the innermost; null outside of step functions
  AxisLengths* lengths = nullptr;  // null: axis_length() is refused
  const Key* key = nullptr;        // null: current_key() is refused
  BreakHandler* breaks = nullptr;  // null: eager_break() is refused
};

namespace detail {

extern constinit thread_local StepFrame t_step_frame;

}  // namespace detail

// Returns the frame of the calling thread. Each call reads it, so that it is read in place.
inline const StepFrame& step_frame() noexcept {
  return detail::t_step_frame;
}

// A FrameScope sets one member of its thread's frame until it ends. Scopes of a member nest.
template <auto kMember>
class FrameScope {
 public:
  using Value = std::remove_reference_t<decltype(std::declval<StepFrame&>().*kMember)>;

  explicit FrameScope(Value value) noexcept
      : previous_(std::exchange(detail::t_step_frame.*kMember, value)) {}
  ~FrameScope() { detail::t_step_frame.*kMember = previous_; }
  FrameScope(const FrameScope&) = delete;
  FrameScope& operator=(const FrameScope&) = delete;

 private:
  const Value previous_;
};

using LengthsScope = FrameScope<&StepFrame::lengths>;
using KeyScope = FrameScope<&StepFrame::key>;
using BreakScope = FrameScope<&StepFrame::breaks>;

}  // namespace cgtree
