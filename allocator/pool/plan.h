// How much memory a set of recordings needs in one shared pool, before any of them is made.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "allocator/pool/pool_options.h"

namespace cgtree {

// What one recording allocates, in its order.
struct AllocationTrace {
  struct Step {
    std::size_t allocation;  // numbered by the caller; a number is allocated once
    std::size_t bytes;       // asked for; 0: this step frees it
  };

  std::string name;  // for messages
  std::vector<Step> steps;
  // Allocations that stay live after the recording. All others are dead then, freed or not.
  std::vector<std::size_t> outputs;
};

// Where outputs lie.
enum class OutputPlacement {
  kApart,     // in a pool of their own, as cgtree records (docs/decisions/0003)
  kTogether,  // in the pool of everything else
};

struct PlanOptions {
  OutputPlacement outputs = OutputPlacement::kApart;
  Growth growth = Growth::kFast;
};

// Bytes, at the same moment in all pools of the plan.
struct PlanPeak {
  std::size_t reserved = 0;  // in segments
  std::size_t live = 0;      // in live blocks, rounded

  friend bool operator==(const PlanPeak&, const PlanPeak&) = default;
};

// Exactly what recording `order` (indices of `traces`, each at most once; it may leave some out)
// needs when every output is held: Pool itself does it, over made-up addresses. Throws
// InvalidArgument for an order or a trace that cannot be: the message names trace and step.
PlanPeak simulate(std::span<const AllocationTrace> traces, std::span<const std::size_t> order,
                  const PlanOptions& options = {});

// How an order was found.
enum class PlanMethod {
  kExhaustive,     // no order reserves less
  kLargestFirst,   // by what each recording has live at most; the better of these two
  kSmallestFirst,  //
};

struct OrderPlan {
  std::vector<std::size_t> order;
  PlanPeak peak;
  PlanMethod method = PlanMethod::kExhaustive;
};

// Up to this many recordings, every order is considered.
inline constexpr std::size_t kLargestExhaustivePlan = 8;

// The order of all traces that reserves least; never more than largest first or smallest first.
// Takes up to 8! simulations for 8 traces, mostly far fewer. Throws as simulate() does.
OrderPlan best_order(std::span<const AllocationTrace> traces, const PlanOptions& options = {});

}  // namespace cgtree
