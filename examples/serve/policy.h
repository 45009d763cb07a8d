// Policy: what is done about batch sizes and prompt lengths, and how many recordings may be kept.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cgtree/options.h"
#include "examples/serve/step_sizes.h"

namespace cgtree::serve {

enum class Policy {
  kExact,      // recordings of their own for each size; the one used longest ago goes
  kBuckets,    // powers of two
  kSuggested,  // buckets chosen for the sizes of the trace
};

std::string_view name(Policy policy);

// How the calls' KV cache is declared; they write into it.
enum class CacheUse {
  kStatic,
  kCopied,  // copied in before the work and back behind it
};

// The largest sizes that there can be.
struct SizeLimits {
  std::int64_t batch = 1;
  std::int64_t length = 1;
};

// The options of the two compiled functions under a policy.
class SizePlan {
 public:
  // `budget`: recordings that each function keeps at most; 0: no limit. kSuggested looks at
  // `sizes`.
  SizePlan(Policy policy, std::int64_t budget, SizeLimits limits, const StepSizes& sizes);

  // `enabled`: false runs everything eagerly, with true sizes.
  CompileOptions decode(CacheUse use, bool enabled) const;
  CompileOptions prefill(CacheUse use, bool enabled) const;

  // Rows that a call is padded to.
  std::int64_t decode_rows(std::int64_t batch) const;
  // Tokens, of all prompts together.
  std::int64_t prefill_rows(std::int64_t batch, std::int64_t length) const;

 private:
  using Sizes = std::vector<std::int64_t>;  // buckets, ascending; none: exact

  void suggest(const StepSizes& sizes);
  void suggest_prefill(const StepSizes& sizes);
  AxisOptions axis(const char* name, const Sizes& sizes) const;
  void limit(CompileOptions& options) const;
  static std::int64_t padded(const Sizes& sizes, std::int64_t size);

  std::int64_t budget_;
  SizeLimits limits_;
  Sizes decode_batch_;
  Sizes prefill_batch_;
  Sizes prefill_length_;
};

}  // namespace cgtree::serve
