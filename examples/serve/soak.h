// Soak: serves random parts of a trace for a long time, eagerly and through cgtree side by side,
// and watches tokens and memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cgtree/stats.h"
#include "examples/serve/model.h"
#include "examples/serve/options.h"
#include "examples/serve/step_sizes.h"
#include "examples/serve/trace.h"

namespace cgtree::serve {

// Bytes, when everything had warmed up and the most that was seen after that.
struct Watched {
  std::size_t settled = 0;
  std::size_t most = 0;

  void see(std::size_t bytes, bool is_settled);
  // By more than a tenth and `slack`.
  bool has_grown(std::size_t slack) const { return most > settled + settled / 10 + slack; }
};

// One context with small budgets.
struct SoakedLane {
  Policy policy = Policy::kExact;
  std::int64_t budget = 0;
  bool copies_cache = false;  // the KV cache is a mutated input that is copied in and back
  ContextStats stats;
  Watched pool;
};

struct SoakReport {
  double seconds = 0;
  std::int64_t rounds = 0;
  std::int64_t steps = 0;
  std::int64_t tokens = 0;
  std::vector<SoakedLane> lanes;
  Watched resident;                    // memory of the process
  std::optional<std::string> failure;  // what went wrong, and where
};

// Contexts that soak() has at once.
std::int64_t count_lanes(const Options& options);

// Each round serves a random part of `requests`, at a random load, in the next lane and eagerly;
// all tokens are compared. A lane for each policy, or for the one of the options. Ends at the first
// difference. Memory may not grow after the first minute, or the first third of a shorter time.
// `sizes` are what kSuggested looks at. Throws what cgtree throws.
SoakReport soak(const Model& model, std::span<const Request> requests, const Options& options,
                const StepSizes& sizes);

std::string to_table(const SoakReport& report);
nlohmann::ordered_json to_json(const SoakReport& report);

}  // namespace cgtree::serve
