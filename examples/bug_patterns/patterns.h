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
  // What the engine does between two steps, after which a replay goes wrong. Requires that the
  // device has done all work.
  virtual void go_on() = 0;
  // Returns y, as the engine means it now.
  virtual std::vector<float> expected(std::span<const float> x) const = 0;
  // Returns whether what the engine keeps beside the step is as the engine has left it.
  virtual bool is_intact() { return true; }
  // Returns the step as it should be written, compiled. It may be called as long as this lives.
  virtual std::function<Tensor(const Tensor& x)> repaired(Context& context) = 0;
};

struct PatternInfo {
  std::string_view name;
  std::string_view repair;  // what repaired() does differently
  // Reports of the bug in public trackers, as owner/repository#number.
  std::array<std::string_view, 4> reports;
  // Where the recording has the address that tells of it: part of the kernel's name, or "a copy",
  // and the audit's word for the place. Empty where it has none, because a value tells nothing.
  std::string_view kernel;
  std::string_view place;
  // Whether an eager run computes something else than a replay that has gone wrong. It does not
  // where a replay harms other memory, and where eager steps go wrong as well.
  bool differs_from_eager;
  std::unique_ptr<Pattern> (*make)(Device device);
};

std::span<const PatternInfo> patterns();

}  // namespace cgtree::bug_patterns
