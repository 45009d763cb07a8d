// Simulates an order of recordings, and searches for the best.
#include "allocator/pool/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "allocator/pool/plan_simulation.h"
#include "base/error.h"

namespace cgtree {
namespace {

using Order = std::vector<std::size_t>;

std::vector<CheckedTrace> check(std::span<const AllocationTrace> traces) {
  std::vector<CheckedTrace> checked;
  checked.reserve(traces.size());
  for (const AllocationTrace& trace : traces)
    checked.push_back(check_trace(trace));
  return checked;
}

void check_order(std::span<const std::size_t> order, std::size_t traces) {
  std::vector<bool> seen(traces);
  for (const std::size_t index : order) {
    if (index >= traces) {
      throw InvalidArgument(fmt::format("the order names trace {}; there are {}", index, traces));
    }
    if (seen[index]) throw InvalidArgument(fmt::format("the order names trace {} twice", index));
    seen[index] = true;
  }
}

PlanPeak peak_of(const std::vector<CheckedTrace>& traces, std::span<const std::size_t> order,
                 const PlanOptions& options) {
  PlanSimulation simulation(options);
  for (const std::size_t index : order)
    simulation.record(traces[index]);
  return simulation.peak();
}

Order by_size(const std::vector<CheckedTrace>& traces, bool largest_first) {
  Order order(traces.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const std::size_t left = traces[a].peak_live, right = traces[b].peak_live;
    return largest_first ? left > right : left < right;
  });
  return order;
}

OrderPlan best_by_size(const std::vector<CheckedTrace>& traces, const PlanOptions& options) {
  OrderPlan largest{by_size(traces, true), {}, PlanMethod::kLargestFirst};
  OrderPlan smallest{by_size(traces, false), {}, PlanMethod::kSmallestFirst};
  largest.peak = peak_of(traces, largest.order, options);
  smallest.peak = peak_of(traces, smallest.order, options);
  return smallest.peak.reserved < largest.peak.reserved ? smallest : largest;
}

// Tries every order, but for those whose beginning reserves what the best so far does in all: more
// recordings never need less.
class Search {
 public:
  Search(const std::vector<CheckedTrace>& traces, const PlanOptions& options)
      : traces_(traces), options_(options), best_(best_by_size(traces, options)) {
    for (const CheckedTrace& trace : traces) {
      outputs_ += trace.output_bytes;
      scratch_ = std::max(scratch_, trace.peak_scratch);
    }
  }

  OrderPlan run() {
    extend();
    best_.method = PlanMethod::kExhaustive;
    return std::move(best_);
  }

 private:
  // What every order reserves at least: in the end all outputs are live, and a fast pool still has
  // what its largest recording needed; another may have given that back.
  std::size_t least() const {
    const bool sums =
        options_.outputs == OutputPlacement::kApart && options_.growth == Growth::kFast;
    return sums ? outputs_ + scratch_ : std::max(outputs_, scratch_);
  }

  void extend() {
    if (begun_.size() == traces_.size()) {
      best_.order = begun_;
      best_.peak = peak_of(traces_, begun_, options_);
      return;
    }
    for (std::size_t next = 0; next < traces_.size() && best_.peak.reserved > least(); ++next) {
      if (std::find(begun_.begin(), begun_.end(), next) != begun_.end()) continue;
      begun_.push_back(next);
      if (peak_of(traces_, begun_, options_).reserved < best_.peak.reserved) extend();
      begun_.pop_back();
    }
  }

  const std::vector<CheckedTrace>& traces_;
  const PlanOptions& options_;
  OrderPlan best_;
  Order begun_;
  std::size_t outputs_ = 0;  // bytes
  std::size_t scratch_ = 0;  // bytes, the most of any recording
};

}  // namespace

PlanPeak simulate(std::span<const AllocationTrace> traces, std::span<const std::size_t> order,
                  const PlanOptions& options) {
  check_order(order, traces.size());
  return peak_of(check(traces), order, options);
}

OrderPlan best_order(std::span<const AllocationTrace> traces, const PlanOptions& options) {
  const std::vector<CheckedTrace> checked = check(traces);
  if (checked.size() > kLargestExhaustivePlan) return best_by_size(checked, options);
  return Search(checked, options).run();
}

}  // namespace cgtree
