// Guard: a decision of the host that a capture freezes, with the function that is asked again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cgtree {

// A Guard is a function that the work of a step has asked, and its answer: see extensions/guards.
struct Guard {
  using Answer = std::array<std::uint64_t, 2>;  // an integer, or bytes; the rest is 0

  Answer ask() const { return call(function.get()); }  // now
  // As ask(), or nothing where it throws.
  std::optional<Answer> try_ask() const noexcept try { return ask(); } catch (...) {
    return std::nullopt;
  }

  std::string name;
  std::shared_ptr<void> function;  // a recording has it end outside of the context
  Answer (*call)(void* function) = nullptr;
  Answer answer = {};
  std::size_t bytes = 0;  // of the function: those with the same code and bytes ask the same
};

// In the order in which the work has asked them: whether one is asked may depend on those before.
using Guards = std::vector<Guard>;

// Returns whether all answer as they have. `throws`: or throws, as a call does for a recording that
// fits it. Of others a guard that throws does not hold.
inline bool hold(const Guards& guards, bool throws = true) {
  for (const Guard& guard : guards)
    if (throws ? guard.ask() != guard.answer : guard.try_ask() != guard.answer) return false;
  return true;
}

}  // namespace cgtree
