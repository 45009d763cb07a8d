// Exec: what instantiating a graph makes.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "interop/device/code.h"
#include "interop/device/host/graph.h"
#include "interop/device/host/work_queue.h"

namespace cgtree::host {

// What a launch does: node i of the source is steps[i].
struct Program {
  explicit Program(const Graph& graph);

  struct Step {
    Work work;
    std::vector<std::size_t> after;        // the steps that it depends on
    bool is_enabled = true;
  };
  GraphHandle source;
  std::vector<Step> steps;
  std::vector<std::size_t> order;  // topological

  // Takes no memory. Stops at the first failure and answers it.
  Code run() const;
};

// A copy of a graph's work, ready to run; independent of the graph.
//
// Threads: any; runs and changes are serialised, as CUDA runs one launch of an exec at a time.
class Exec {
 public:
  explicit Exec(const Graph& graph);

  GraphHandle source() const noexcept { return source_; }
  // Null for a node that is not the source's, or was not there when this was made.
  const Work* find(NodeHandle node) const noexcept;

  // Takes no memory.
  Code run();
  // What a launch that runs later holds: it keeps its arguments whatever is changed meanwhile.
  std::shared_ptr<const Program> share();

  // Requires find(node), of a kernel.
  void set_kernel(NodeHandle node, const KernelFunction& kernel, const LaunchDims& dims,
                  KernelArguments arguments);
  void set_enabled(NodeHandle node, bool is_enabled);
  bool is_enabled(NodeHandle node);

  // The launch queued last; belongs to the runtime's mutex.
  OperationPtr last;

 private:
  // The program, alone: a copy if a launch still holds it.
  Program& own();

  const GraphHandle source_;
  std::mutex running_;
  std::shared_ptr<Program> program_;
  bool is_shared_ = false;
};

}  // namespace cgtree::host
