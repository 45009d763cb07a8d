// BodyRun: the work, the allocations and the results of one run of the code of a body.
//
// While a step is recorded, the code of a body runs twice (conditional.h), and the graph keeps the
// work of the second run. An eager call runs it once. Code that changes state of the host, for
// example a counter, enqueues other work each time: no recording is right, and difference() finds
// it.
//
// Both runs ask for the same memory in the same order, but need not get the same addresses. An
// example, of a body that makes two tensors and launches k(x, scratch) and k(scratch, y):
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
  // A tensor that the body has returned.
  struct Result {
    std::uintptr_t address;
    std::string text;  // its type and shape
  };

  std::string name;                 // of the body
  std::size_t at = 0;               // the nodes of the run around it that come before the body
  std::vector<NodeContents> nodes;  // of its graph, without those that the library has added
  std::vector<Range> made;          // the memory that it has asked for
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
  // Borrows the run. `stream`: where the body is captured.
  RunLog(BodyRun& run, StreamRef stream);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // Returns the innermost log of the calling thread, or null.
  static RunLog* current() noexcept;
  // Returns how many nodes the body has enqueued.
  std::size_t nodes() const;
  // The library has added this node to the graph of the body.
  void leave_out(NodeHandle node) { left_out_.push_back(node); }
  // The body has a branch or loop behind its first `at` nodes, whose bodies have run so.
  void add(std::size_t at, std::vector<BodyRun> runs);
  // The code of the body has returned.
  void end(std::span<const Tensor> results);
  // Gives the run the contents of its nodes. `graph`: of the body, whose capture has ended.
  void read(GraphHandle graph);

 private:
  // How much the step has made.
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
  Made noted_ = made();  // earlier allocations are noted, or are of a body in this one
  std::vector<NodeHandle> left_out_;
  std::vector<NodeHandle> own_;  // sorted
};

}  // namespace cgtree
