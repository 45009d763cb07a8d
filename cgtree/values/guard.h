// Guard: a decision of the host that a capture freezes, with the function that made it, to be asked
// again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cgtree {

// A Guard is a function that the work of a step asked, and its answer: see extensions/guards.
struct Guard {
  using Answer = std::array<std::uint64_t, 2>;  // an integer, or bytes; the rest is 0

  Answer ask() const { return call(function.get()); }  // now
  // As ask(), or nullopt if the function throws.
  std::optional<Answer> try_ask() const noexcept try { return ask(); } catch (...) {
    return std::nullopt;
  }

  std::string name;
  std::shared_ptr<void> function;  // a recording destroys it outside of the context
  Answer (*call)(void* function) = nullptr;
  Answer answer = {};
  std::size_t bytes = 0;  // size of the function: functions with the same code and bytes give the
                          // same answer
};

// In the order in which the work asked them: an earlier answer may decide whether a later guard is
// asked.
using Guards = std::vector<Guard>;

// Returns whether all guards still give their recorded answers. `throws`: passes on an exception of
// a guard, as a call does for a recording that fits otherwise. If false, a guard that throws does
// not hold.
inline bool hold(const Guards& guards, bool throws = true) {
  for (const Guard& guard : guards)
    if (throws ? guard.ask() != guard.answer : guard.try_ask() != guard.answer) return false;
  return true;
}

}  // namespace cgtree
