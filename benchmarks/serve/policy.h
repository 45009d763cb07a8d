// Policies: the compilation of sizes that vary from step to step, and the number of kept
// recordings.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "cgtree/values/options.h"
#include "examples/serve/scheduler.h"
#include "examples/serve/server.h"
#include "extensions/sizes/size_learner.h"

namespace cgtree::serve {

// The sizes that the steps of a trace have.
struct StepSizes {
  std::int64_t steps = 0;
  // The number of decode steps by their number of rows.
  std::map<std::int64_t, std::uint64_t> decodes;
  // The number of prefills by {prompts, tokens of the longest}.
  std::map<std::pair<std::int64_t, std::int64_t>, std::uint64_t> prefills;
};

// Runs the schedule without a model: the tokens do not change a schedule.
StepSizes count_sizes(std::span<const Request> requests, const SchedulerOptions& options);

enum class Policy {
  kExact,      // each size has its own recordings; the one used longest ago is evicted
  kBuckets,    // powers of two
  kSuggested,  // buckets chosen for the sizes of the trace, or of its first requests
  kListed,     // batches of decode() are padded to given sizes; prefill(): powers of two
  kLearned,    // batches of decode() are learned; the sizes of prefill() are powers of two
};

std::string_view name(Policy policy);

// The declaration of the KV cache, into which the calls write.
enum class CacheUse {
  kStatic,
  kCopied,  // copied in before the work and back after it
};

// The largest sizes that a step can have.
struct SizeLimits {
  std::int64_t batch = 1;
  std::int64_t length = 1;
};

// A SizePlan makes the options of the two compiled functions under a policy.
class SizePlan {
 public:
  // Each function keeps at most `budget` recordings; 0 means no limit. kSuggested chooses buckets
  // for `sizes`. kListed takes `batches`, ascending, and the largest batch.
  SizePlan(Policy policy, std::int64_t budget, SizeLimits limits, const StepSizes& sizes,
           std::span<const std::int64_t> batches = {});

  // Returns the same, with CompileOptions::max_switch_nodes.
  SizePlan sharing(std::int64_t max_switch_nodes) const {
    SizePlan plan = *this;
    plan.max_switch_nodes_ = max_switch_nodes;
    return plan;
  }
  // With `enabled` false all calls run eagerly, with actual sizes.
  CompileOptions decode(CacheUse use, bool enabled) const;
  CompileOptions prefill(CacheUse use, bool enabled) const;

  // The options for learning the batches of decode(), if they are learned.
  std::optional<LearnOptions> learns() const;
  // Returns the sizes that the axes are padded to.
  StepBuckets buckets() const { return {decode_batch_, prefill_batch_, prefill_length_}; }

  // Returns the rows that a call is padded to.
  std::int64_t decode_rows(std::int64_t batch) const;
  // Returns the tokens of all prompts together that a call is padded to.
  std::int64_t prefill_rows(std::int64_t batch, std::int64_t length) const;

 private:
  void suggest(const StepSizes& sizes);
  void suggest_prefill(const StepSizes& sizes);
  AxisOptions axis(const Sizes& sizes) const;
  CompileOptions limited(CompileOptions options, CacheUse use, bool enabled) const;

  Policy policy_;
  std::int64_t budget_;
  std::int64_t max_switch_nodes_ = 0;
  SizeLimits limits_;
  // Buckets, or none for exact sizes.
  Sizes decode_batch_;
  Sizes prefill_batch_;
  Sizes prefill_length_;
};

}  // namespace cgtree::serve
