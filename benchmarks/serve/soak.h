// A soak serves random parts of a trace for a long time, eagerly and through cgtree side by side,
// and watches tokens and memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/serve/options.h"
#include "benchmarks/serve/policy.h"
#include "benchmarks/serve/trace.h"
#include "cgtree/values/stats.h"
#include "examples/serve/model.h"

namespace cgtree::serve {

// A Watched is a number of bytes: its value when everything had warmed up, and the most since.
struct Watched {
  std::size_t settled = 0;
  std::size_t most = 0;

  void see(std::size_t bytes, bool is_settled);
  // Returns whether it has grown by more than a tenth and `slack`.
  bool has_grown(std::size_t slack) const { return most > settled + settled / 10 + slack; }
};

// The results of one context, which has a small budget.
struct SoakedContext {
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
  std::vector<SoakedContext> contexts;
  Watched resident;                    // memory of the process
  std::optional<std::string> failure;  // null: nothing failed
};

// Returns the number of contexts that soak() has at once.
std::int64_t count_contexts(const Options& options);

// Each round serves a random part of `requests`, at a random load, in the next context and eagerly,
// with equal padding, and compares all tokens; the first difference ends the soak. There are
// contexts for each policy, or for the policy of the options. Memory must not grow after the first
// minute, or after the first third of a shorter time. kSuggested chooses buckets for `sizes`.
// Throws as cgtree.
SoakReport soak(const Model& model, std::span<const Request> requests, const Options& options,
                const StepSizes& sizes);

std::string to_table(const SoakReport& report);
nlohmann::ordered_json to_json(const SoakReport& report);

}  // namespace cgtree::serve
