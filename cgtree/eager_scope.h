// EagerScope: work between calls that no graph includes, in order with them.
#pragma once

#include <memory>

namespace cgtree {

class TreeManager;

// While it lives, the calling thread is as inside a step function that runs eagerly:
// current_stream() is the context's, empty() takes memory that calls treat like any eager tensor's,
// and compiled functions that are called run eagerly. What Context::eager() opens.
class EagerScope {
 public:
  // Throws ConcurrentUse; and CaptureError inside a step function that is being recorded, which
  // thereby runs eagerly from then on: what is between its calls cannot be part of its graph.
  explicit EagerScope(TreeManager& manager);
  ~EagerScope();
  EagerScope(const EagerScope&) = delete;
  EagerScope& operator=(const EagerScope&) = delete;

 private:
  struct Open;
  std::unique_ptr<Open> open_;  // null inside a step function, which has all this already
};

}  // namespace cgtree
