// AxisLengths: serves axis_length() while a step function runs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cgtree/memory/context_memory.h"
#include "cgtree/record/call.h"
#include "cgtree/record/gather_node.h"

namespace cgtree {

// While an AxisLengths lives, its thread is inside a step function, and axis_length() returns the
// sizes of this call. Scopes nest.
class AxisLengths {
 public:
  // `records`: the root node will write the values; else they are written when they are asked for.
  AxisLengths(const Call& call, ContextMemory& memory, bool records) noexcept;
  ~AxisLengths();
  AxisLengths(const AxisLengths&) = delete;
  AxisLengths& operator=(const AxisLengths&) = delete;

  // Returns the innermost scope of the calling thread, or null.
  static AxisLengths* current() noexcept;

  Tensor length(std::string_view axis);
  // Throws InvalidArgument if an output is one of the tensors that length() has returned.
  void check_not_returned(std::span<const Tensor> outputs) const;
  // Returns what the root node is to write.
  std::vector<GatherNode::Value> values() const;
  // Returns the memory that the root node writes, and forgets it.
  std::vector<StorageRef> take();

 private:
  const Call& call_;
  ContextMemory& memory_;
  const bool records_;
  AxisLengths* const previous_;
  std::vector<std::optional<Tensor>> lengths_;  // by axis
};

}  // namespace cgtree
