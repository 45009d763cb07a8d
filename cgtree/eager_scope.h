// EagerScope: work between calls that no graph includes, in order with them.
#pragma once

#include <memory>

namespace cgtree {

class TreeManager;

// While an EagerScope lives, the calling thread is as if inside a step function that runs eagerly:
// current_stream() is the context's, empty() allocates memory that calls treat like any eager
// tensor's, and compiled functions that are called run eagerly. Context::eager() opens one.
class EagerScope {
 public:
  // Throws ConcurrentUse, and CaptureError inside a step function that is being recorded: what is
  // between its calls cannot be part of its graph, so that it runs eagerly from then on.
  explicit EagerScope(TreeManager& manager);
  ~EagerScope();
  EagerScope(const EagerScope&) = delete;
  EagerScope& operator=(const EagerScope&) = delete;

 private:
  struct Open;
  std::unique_ptr<Open> open_;  // null inside a step function, which has all this already
};

}  // namespace cgtree
