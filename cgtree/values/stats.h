// Stats: counters of the outcomes of calls, and of the reasons why calls did not replay.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>

#include "cgtree/values/explanation.h"

namespace cgtree {

// An UnverifiedReason says why a replay was not verified although it should be.
enum class UnverifiedReason {
  kEagerBreaks,    // functions of eager_break() have effects outside of the step, and must not run
                   // twice
  kForeignMemory,  // work of Steps uses unknown memory, and might change it twice
  kSharedMemory,   // tensors that the function writes share memory
  kNoMemory,       // not enough for an eager run, or to save the memory that it writes
  kLoopStream,     // a loop hands out rows, which an eager run would hand out again
};

// The number of reasons, for arrays that have an element for each.
inline constexpr int kUnverifiedReasonCount = 5;

// An output, or an input that the function writes, that was compared.
struct VerifiedTensor {
  std::string what;      // "output 0 'logits'"
  double tolerance = 0;  // 0: bit for bit; infinity: it is not compared
  double largest = 0;    // difference between two elements, within the tolerance or beyond
};

// The counters of one compiled function.
struct FunctionStats {
  // Calls that have ended: warm_ups + recordings + replays + sum of skips + failures.
  std::uint64_t calls = 0;
  std::uint64_t warm_ups = 0;
  std::uint64_t recordings = 0;       // calls that recorded
  std::uint64_t replays = 0;          // calls that launched an earlier recording
  std::uint64_t failures = 0;         // calls that threw
  std::uint64_t evictions = 0;        // recordings that were dropped at a limit
  std::uint64_t kept_recordings = 0;  // recordings that are kept now
  std::uint64_t frozen = 0;           // 1 if the function is frozen now; of a context: how many are
  std::uint64_t verified = 0;         // replays that were compared with an eager run
  std::uint64_t differed = 0;         // verified replays that differed; the call threw VerifyError
  // Replays that were due for verification but not verified, by UnverifiedReason.
  std::array<std::uint64_t, kUnverifiedReasonCount> unverified = {};
  std::array<std::uint64_t, kSkipReasonCount> skips = {};  // by SkipReason
  std::string last_failure;  // the error of the last call that threw, or ""; of one function

  // Returns the number of calls that were skipped, for any reason or for one.
  std::uint64_t skipped() const noexcept {
    return std::accumulate(skips.begin(), skips.end(), std::uint64_t{0});
  }
  std::uint64_t skipped(SkipReason reason) const noexcept {
    return skips[static_cast<std::size_t>(reason)];
  }
};

// The bounds of the histogram of recording times, in microseconds, ascending.
inline constexpr std::array<std::int64_t, 11> kRecordTimeBounds = {
    1'000, 2'500, 5'000, 10'000, 25'000, 50'000, 100'000, 250'000, 500'000, 1'000'000, 2'500'000};

// The sum over a context's functions, and its memory.
struct ContextStats : FunctionStats {
  std::uint64_t generations = 0;   // calls of mark_step()
  std::uint64_t restores = 0;      // times the pool was given an earlier layout
  std::uint64_t root_patches = 0;  // replays whose inputs had moved, or that drew random numbers
  // Device memory of the graphs, the variants that leave marks included
  // (extensions/watch/monitor.h).
  std::uint64_t graph_bytes = 0;
  std::chrono::microseconds recording_time{0};  // spent on warming up and recording
  std::uint64_t live_outputs = 0;               // outputs that are held now
  std::uint64_t pool_reserved_bytes = 0;        // device memory the pools hold
  std::uint64_t pool_live_bytes = 0;            // the part that live outputs hold
};

// Returns a table with a line for each counter that is not 0, and the shares of calls in percent.
std::string to_string(const FunctionStats& stats);
std::string to_string(const ContextStats& stats);

}  // namespace cgtree
