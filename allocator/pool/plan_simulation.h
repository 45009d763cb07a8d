// The pools that a plan is tried on. For plan.cc.
#pragma once

#include <cstddef>
#include <vector>

#include "allocator/segments/made_up_segment_source.h"
#include "allocator/pool/plan.h"
#include "allocator/pool/pool.h"

namespace cgtree {

// A trace whose steps follow from one another, its allocations numbered from 0. Sizes of blocks.
struct CheckedTrace {
  struct Step {
    std::size_t slot;
    std::size_t bytes;  // asked for; 0: frees
  };
  std::vector<Step> steps;
  std::vector<bool> is_output;   // by slot
  std::size_t peak_live = 0;     // outputs too
  std::size_t peak_scratch = 0;  // without the outputs
  std::size_t output_bytes = 0;
};

// Throws InvalidArgument, naming trace and step.
CheckedTrace check_trace(const AllocationTrace& trace);

// Invariant: between recordings exactly the outputs of those so far are live.
class PlanSimulation {
 public:
  explicit PlanSimulation(const PlanOptions& options);
  ~PlanSimulation();
  PlanSimulation(const PlanSimulation&) = delete;
  PlanSimulation& operator=(const PlanSimulation&) = delete;

  void record(const CheckedTrace& trace);

  const PlanPeak& peak() const { return peak_; }

 private:
  void note_peak();

  MadeUpSegmentSource source_;
  Pool scratch_;
  Pool apart_;     // unused where outputs lie together with the rest
  Pool& outputs_;  // one of the two
  std::vector<void*> live_outputs_;
  PlanPeak peak_;
};

}  // namespace cgtree
