// CallCauses: why the calls of each function did not replay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "cgtree/tree/tree.h"
#include "extensions/watch/metrics.h"

namespace cgtree {

// Returns the first difference between the inputs of two calls, or kNone. The function's options
// name the input.
Mismatch change_between(const Signature& before, const Signature& now, const Function& function);
// Returns "input 0 'x' was float32 {2}, then float32 {3}". Requires: there is a change.
std::string sides_of_change(const Mismatch& changed);

// A CallCauses counts the causes of each function. Beyond kMostFunctions the oldest is dropped, and
// stays in the sums by name.
//
// Thread safety: used by the thread that is inside the context; any thread may call the last three
// functions.
class CallCauses {
 public:
  struct WarmUp {
    std::uint64_t count = 0;  // of warm-ups since the last recording or replay, this included
    Mismatch changed;         // difference from the warm-up before, or kNone
  };

  WarmUp note_warm_up(const FunctionState& function, const Signature& inputs) noexcept;
  // The next two return how many calls had the same cause: recordings, and failures with the same
  // text, numbers apart.
  std::uint64_t note_recording(const Node& node) noexcept;
  std::uint64_t note_failure(const FunctionState& function, std::string_view what) noexcept;

  // Returns the difference between these inputs and those of the last warm-up, or kNone.
  Mismatch change(const FunctionState& function, InputList inputs) const;
  // By the number of the function.
  std::map<std::uint32_t, FunctionCauses> all() const;
  // The sums over all functions of a name, including destroyed ones.
  std::map<std::string, FunctionCauses, std::less<>> by_name() const;

 private:
  struct Entry {
    std::string function;
    FunctionCauses causes;
    std::optional<Signature> inputs;                // of its last warm-up
    std::uint64_t warm_ups = 0;                     // since its last recording or replay
    std::uint64_t replays_and_recordings = 0;       // at its last warm-up
    std::map<std::string, std::uint64_t> failures;  // by text, without numbers
  };
  using Sums = std::map<std::string, FunctionCauses, std::less<>>;

  static constexpr std::size_t kMostFunctions = 1024;
  static constexpr std::size_t kMostTexts = 8;

  static void add(Sums& sums, const Entry& entry);
  // Requires: mutex_ is held.
  Entry& entry_of(const FunctionState& function);

  mutable Mutex<LockRank::kWatch> mutex_;
  std::map<std::uint32_t, Entry> entries_;  // by the number of the function
  Sums forgotten_;
};

}  // namespace cgtree
