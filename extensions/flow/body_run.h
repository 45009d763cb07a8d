// BodyRun: the work, the allocations and the results of one run of the code of a body.
//
// While a step is recorded, the code of a body runs twice (conditional.h), and the graph keeps the
// work of the second run. An eager call runs it once. Code that changes state of the host, for
// example a counter, enqueues different work each time: no recording is right, and difference()
// finds it.
//
// Both runs ask for the same memory in the same order, but need not get the same addresses. An
// example of a body that makes two tensors and launches k(x, scratch) and k(scratch, y):
//
//              first run                 second run
//   memory     [0x100, 32) [0x120, 32)   [0x180, 32) [0x1a0, 32)
//   node 0     k(0x900, 0x100)           k(0x900, 0x180)   byte 0 of the first allocation in both
//   node 1     k(0x100, 0x120)           k(0x180, 0x1a0)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "allocator/pool/block.h"
#include "interop/device/node_contents.h"
#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

struct BodyRun {
  // A tensor that the body returned.
  struct Result {
    std::uintptr_t address;
    std::string text;  // its type and shape
  };

  std::string name;                 // of the body
  std::size_t at = 0;               // the number of nodes before the body in the enclosing run
  std::vector<NodeContents> nodes;  // of its graph, without nodes that the library added
  std::vector<Range> made;          // the memory that it allocated
  std::vector<Result> results;
  std::vector<BodyRun> bodies;  // of branches and loops in it
};

// Returns how the second run differs from the first, or "".
std::string difference(const BodyRun& first, const BodyRun& second);
// The same for the results alone.
std::string difference_of_results(const BodyRun& first, const BodyRun& second);

// A RunLog fills a BodyRun while the code of a body runs. Logs nest, as bodies do.
//
// Thread safety: used by the thread that captures.
class RunLog {
 public:
  // Borrows the run. `stream`: the stream on which the body is captured.
  RunLog(BodyRun& run, StreamRef stream);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // Returns the innermost log of the calling thread, or null.
  static RunLog* current() noexcept;
  // Returns how many nodes the body enqueued.
  std::size_t nodes() const;
  // Leaves out a node that the library added to the graph of the body.
  void leave_out(NodeHandle node) { left_out_.push_back(node); }
  // Adds the runs of the bodies of a branch or loop that follows the body's first `at` nodes.
  void add(std::size_t at, std::vector<BodyRun> runs);
  // Must be called when the code of the body has returned.
  void end(std::span<const Tensor> results);
  // Reads the contents of the run's nodes. `graph`: of the body, whose capture has ended.
  void read(GraphHandle graph);

 private:
  // How much memory the step made.
  struct Made {
    std::size_t in_pools = 0;
    std::size_t elsewhere = 0;
  };
  static Made made() noexcept;
  std::vector<NodeHandle> list() const;
  void note_made();

  BodyRun& run_;
  const StreamRef stream_;
  RunLog* const outer_;
  Made noted_ = made();  // earlier allocations are noted, or belong to a nested body
  std::vector<NodeHandle> left_out_;
  std::vector<NodeHandle> own_;  // sorted
};

}  // namespace cgtree
