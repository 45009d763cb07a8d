// Checks traces, and allocates what they say from pools without memory.
#include "allocator/pool/plan_simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "allocator/pool/sizes.h"
#include "base/error.h"

namespace cgtree {
namespace {

[[noreturn]] void refuse(const AllocationTrace& trace, std::size_t step, const std::string& why) {
  throw InvalidArgument(fmt::format("trace '{}', step {}: allocation {} {}", trace.name, step,
                                    trace.steps[step].allocation, why));
}

class Checker {
 public:
  explicit Checker(const AllocationTrace& trace) : trace_(trace) {
    for (const std::size_t output : trace.outputs)
      outputs_.emplace(output, false);
  }

  CheckedTrace run() {
    for (std::size_t i = 0; i < trace_.steps.size(); ++i)
      trace_.steps[i].bytes > 0 ? allocate(i) : free(i);
    for (const auto& [output, is_allocated] : outputs_) {
      if (is_allocated) continue;
      throw InvalidArgument(
          fmt::format("trace '{}': output {} is never allocated; its steps are "
                      "{}",
                      trace_.name, output, trace_.steps.size()));
    }
    return std::move(checked_);
  }

 private:
  struct Allocation {
    std::size_t slot;
    std::size_t bytes;  // of the block; 0: freed
  };

  void allocate(std::size_t i) {
    const AllocationTrace::Step& step = trace_.steps[i];
    if (step.bytes > kLargestRequest) refuse(trace_, i, "is too large to round");
    const std::size_t bytes = block_bytes(step.bytes);
    const auto [known, is_new] = known_.emplace(step.allocation, Allocation{known_.size(), bytes});
    if (!is_new) refuse(trace_, i, "is allocated a second time; give each a number of its own");
    const auto output = outputs_.find(step.allocation);
    const bool is_output = output != outputs_.end();
    if (is_output) {
      output->second = true;
      checked_.output_bytes += bytes;
    } else {
      scratch_ += bytes;
    }
    checked_.is_output.push_back(is_output);
    checked_.steps.push_back({known->second.slot, step.bytes});
    checked_.peak_scratch = std::max(checked_.peak_scratch, scratch_);
    checked_.peak_live = std::max(checked_.peak_live, scratch_ + checked_.output_bytes);
  }

  void free(std::size_t i) {
    const std::size_t allocation = trace_.steps[i].allocation;
    if (outputs_.count(allocation) > 0) refuse(trace_, i, "is freed, but is an output");
    const auto known = known_.find(allocation);
    if (known == known_.end()) refuse(trace_, i, "is freed, but never allocated");
    if (known->second.bytes == 0) refuse(trace_, i, "is freed a second time");
    scratch_ -= known->second.bytes;
    known->second.bytes = 0;
    checked_.steps.push_back({known->second.slot, 0});
  }

  const AllocationTrace& trace_;
  CheckedTrace checked_;
  std::unordered_map<std::size_t, Allocation> known_;
  std::unordered_map<std::size_t, bool> outputs_;  // whether it was allocated
  std::size_t scratch_ = 0;
};

}  // namespace

CheckedTrace check_trace(const AllocationTrace& trace) {
  return Checker(trace).run();
}

PlanSimulation::PlanSimulation(const PlanOptions& options)
    : scratch_(source_, {.name = "plan", .growth = options.growth}),
      apart_(source_, {.name = "plan of outputs", .growth = options.growth}),
      outputs_(options.outputs == OutputPlacement::kApart ? apart_ : scratch_) {
}

PlanSimulation::~PlanSimulation() {
  for (void* const output : live_outputs_)
    outputs_.free(output);
}

void PlanSimulation::record(const CheckedTrace& trace) {
  std::vector<void*> blocks(trace.is_output.size());
  for (const CheckedTrace::Step& step : trace.steps) {
    void*& block = blocks[step.slot];
    if (step.bytes > 0) {
      block = (trace.is_output[step.slot] ? outputs_ : scratch_).allocate(step.bytes);
      note_peak();
    } else {
      scratch_.free(block);
      block = nullptr;
    }
  }
  for (std::size_t slot = 0; slot < blocks.size(); ++slot) {
    if (trace.is_output[slot]) {
      live_outputs_.push_back(blocks[slot]);
    } else if (blocks[slot] != nullptr) {
      scratch_.free(blocks[slot]);
    }
  }
}

void PlanSimulation::note_peak() {
  const PoolStatistics scratch = scratch_.statistics();
  const PoolStatistics apart = apart_.statistics();
  peak_.reserved =
      std::max(peak_.reserved, scratch.reserved_bytes.current + apart.reserved_bytes.current);
  peak_.live =
      std::max(peak_.live, scratch.allocated_bytes.current + apart.allocated_bytes.current);
}

}  // namespace cgtree
