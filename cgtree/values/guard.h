// Guard: a decision of the host that a capture freezes, with the function that is asked again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace cgtree {

// A Guard is a function that the work of a step has asked, and its answer: see extensions/guards.
struct Guard {
  using Answer = std::array<std::uint64_t, 2>;  // an integer, or bytes; the rest is 0

  Answer ask() const { return call(function.get()); }  // now

  std::string name;
  std::shared_ptr<void> function;  // a recording has it end outside of the context
  Answer (*call)(void* function) = nullptr;
  Answer answer = {};
  std::size_t bytes = 0;  // of the function: those with the same code and bytes ask the same
};

// In the order in which the work has asked them: whether one is asked may depend on those before.
using Guards = std::vector<Guard>;

// Returns whether all answer as they have, or throws.
inline bool hold(const Guards& guards) {
  for (const Guard& guard : guards)
    if (guard.ask() != guard.answer) return false;
  return true;
}

}  // namespace cgtree
