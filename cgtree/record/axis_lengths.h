// AxisLengths: answers axis_length() while a step function runs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cgtree/axes/axis_plan.h"
#include "cgtree/record/gather_node.h"
#include "cgtree/memory/context_memory.h"

namespace cgtree {

// While it lives, the thread is inside a step function with these axes. Scopes nest.
class AxisLengths {
 public:
  // `plan` may be null: then there are no axes. `records`: values are not set now but by the root
  // node.
  AxisLengths(const AxisPlan* plan, ContextMemory& memory, bool records) noexcept;
  ~AxisLengths();
  AxisLengths(const AxisLengths&) = delete;
  AxisLengths& operator=(const AxisLengths&) = delete;

  // Of this thread; null outside of step functions.
  static AxisLengths* current() noexcept;

  Tensor length(std::string_view axis);
  // Throws InvalidArgument if an output is one of them.
  void check_not_returned(const std::string& function, std::span<const Tensor> outputs) const;
  // What the root node is to write, and the memory that it writes to.
  std::vector<GatherNode::Value> values() const;
  std::vector<StorageRef> take();

 private:
  const AxisPlan* const plan_;
  ContextMemory& memory_;
  const bool records_;
  AxisLengths* const previous_;
  std::vector<std::optional<Tensor>> lengths_;  // by axis
};

}  // namespace cgtree
