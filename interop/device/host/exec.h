// Exec: an executable graph of the host device.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "interop/device/code.h"
#include "interop/device/host/graph.h"
#include "interop/device/host/work_queue.h"

namespace cgtree::host {

// A Program is the work of a launch: steps[i] is node i of the source.
struct Program {
  explicit Program(const Graph& graph);

  struct Step {
    Work work;
    std::vector<std::size_t> after;  // numbers of the steps that it depends on
    bool is_enabled = true;
  };
  GraphHandle source;
  std::vector<Step> steps;
  std::vector<std::size_t> order;  // topological

  // Does not allocate. Stops at the first failure and returns it.
  Code run() const;
};

// An Exec is a copy of a graph's work, ready to run and independent of the graph.
//
// Thread safety: any thread; runs and changes are serialised, as CUDA runs one launch of an exec at
// a time.
class Exec {
 public:
  explicit Exec(const Graph& graph);

  GraphHandle source() const noexcept { return source_; }
  // Returns null for a node of another graph, or one that was added after this was made.
  const Work* find(NodeHandle node) const noexcept;

  // Does not allocate.
  Code run();
  // Returns the program for a launch that runs later. It keeps its arguments when nodes are
  // changed.
  std::shared_ptr<const Program> share();

  // Requires: find(node) is a kernel.
  void set_kernel(NodeHandle node, const KernelFunction& kernel, const LaunchDims& dims,
                  KernelArguments arguments);
  void set_enabled(NodeHandle node, bool is_enabled);
  bool is_enabled(NodeHandle node);

  // The launch queued last; the runtime's mutex guards it.
  OperationPtr last;

 private:
  // Returns the program for changes; copies it first if a launch still holds it.
  Program& own();

  const GraphHandle source_;
  std::mutex running_;
  std::shared_ptr<Program> program_;
  bool is_shared_ = false;
};

}  // namespace cgtree::host
