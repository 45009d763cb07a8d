// A worker: one thread of a server, which computes requests one after the other in one of three
// modes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "integrations/tensorrt/model.h"
#include "interop/device/stream.h"

namespace cgtree_tensorrt {

enum class Mode {
  kBare,    // all work is enqueued for each request
  kGraphs,  // a graph for each shape, captured when the shape is first seen, and kept
  kCgtree,  // enqueued between begin() and end()
};
std::string_view to_string(Mode mode) noexcept;

struct Request {
  Shape shape;
  std::vector<std::int32_t> tokens;  // batch x length
};

// The counts of a worker so far.
struct Counts {
  std::uint64_t recordings = 0;  // graphs that were captured and instantiated
  std::uint64_t replays = 0;     // launches of a graph
  std::uint64_t evictions = 0;   // graphs that were dropped at the limit
  std::uint64_t kept = 0;        // present graphs
  std::uint64_t executions = 0;  // present execution contexts
};

struct WorkerOptions {
  std::size_t max_recordings = 128;  // kCgtree
  std::uint64_t verify_every = 0;    // kCgtree: see VerifyOptions::every
};

// Thread safety: one thread at a time.
class Worker {
 public:
  // Throws InvalidArgument if the device has no graphs; OutOfMemory; DeviceError.
  Worker(Model& model, cgtree::Device device, Mode mode, const WorkerOptions& options = {});
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Computes the scores of the request, batch x classes, and waits for them. Returns the host's
  // microseconds from the shape to the enqueued work, without copies and waits. With `is_poisoned`
  // the device memory for scores is overwritten before. Throws Error if the model does not enqueue
  // its work; CaptureError; DeviceError; OutOfMemory; InvalidArgument for a shape larger than the
  // model's.
  double serve(const Request& request, std::span<float> scores, bool is_poisoned = false);

  Counts counts() const;

 private:
  class Launcher;
  class Bare;
  class Graphs;
  class Cgtree;

  Model& model_;
  cgtree::Stream stream_;
  struct Memory;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Launcher> launcher_;
};

}  // namespace cgtree_tensorrt
