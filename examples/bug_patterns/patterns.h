// Six ways in which a captured step goes wrong later, each as a small engine that has the bug.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "cgtree/cgtree.h"

namespace cgtree::bug_patterns {

inline constexpr std::int64_t kCount = 64;  // elements of x and y

// A Pattern is an engine and its step, which is right when it is captured, and later goes wrong.
class Pattern {
 public:
  virtual ~Pattern() = default;

  // Enqueues the step on `stream`. x and y have kCount elements.
  virtual void enqueue(StreamRef stream, const float* x, float* y) = 0;
  // Does the engine's work between two steps, after which a replay goes wrong. Requires: the device
  // has done all work.
  virtual void go_on() = 0;
  // Returns y, as the engine expects it now.
  virtual std::vector<float> expected(std::span<const float> x) const = 0;
  // Returns whether the engine's other memory is as the engine left it.
  virtual bool is_intact() { return true; }
  // Returns the step in its right form, compiled. It may be called as long as this lives.
  virtual std::function<Tensor(const Tensor& x)> repaired(Context& context) = 0;
};

struct PatternInfo {
  std::string_view name;
  std::string_view repair;  // the change in repaired()
  // Reports of the bug in public trackers, as owner/repository#number.
  std::array<std::string_view, 4> reports;
  // The place of the address in the recording that shows the bug: part of the kernel's name, or "a
  // copy", and the audit's word for the memory. Empty if the bug is in a value, which the audit
  // cannot see.
  std::string_view kernel;
  std::string_view place;
  // True if an eager run computes another result than a replay that has gone wrong. False if a
  // replay harms other memory, and if eager steps go wrong as well.
  bool differs_from_eager;
  std::unique_ptr<Pattern> (*make)(Device device);
};

std::span<const PatternInfo> patterns();

}  // namespace cgtree::bug_patterns
