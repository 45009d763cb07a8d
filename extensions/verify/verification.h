// Verification: replays that were compared with an eager run of the same call, the compared
// tensors, and the reasons why others were left out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cgtree/context.h"
#include "cgtree/values/stats.h"

namespace cgtree {

// Returns "eager_breaks", ...: the name in counters and JSON. It ends with a 0.
std::string_view name(UnverifiedReason reason) noexcept;
// Returns the meaning of the reason and the remedy, as one sentence.
std::string_view explain(UnverifiedReason reason) noexcept;

// The verified replays of one function.
struct FunctionVerification {
  std::string function;
  std::size_t first = 0;       // the larger of its verify_first and VerifyOptions::first
  std::uint64_t verified = 0;  // replays
  std::uint64_t differed = 0;  // of them
  std::array<std::uint64_t, kUnverifiedReasonCount> unverified = {};  // replays, by reason
  // Present recordings: those with a verified replay, those whose turn was left out each time, and
  // those whose turn has not come.
  std::size_t verified_recordings = 0;
  std::size_t unverified_recordings = 0;
  std::size_t waiting_recordings = 0;
  std::vector<VerifiedTensor> tensors;
};

// The verified replays so far of the present functions of a context.
struct Verification {
  std::size_t every = 0;  // VerifyOptions::every, or CGTREE_VERIFY
  // Functions of which a replay was, or will be, verified: all, if `every` is not 0.
  std::vector<FunctionVerification> functions;
};

// Returns the replays of a context that were verified so far. Any thread, at any time.
Verification verification_of(const Context& context);

// Returns a paragraph for each function: counts, reasons, and the largest difference of each
// tensor.
std::string to_string(const Verification& verification);

}  // namespace cgtree
