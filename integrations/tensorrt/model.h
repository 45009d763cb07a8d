// A network that a server computes in many shapes: the interface for a worker.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "interop/device/stream.h"

namespace cgtree_tensorrt {

// The size of a request: sequences, and tokens of each.
struct Shape {
  int batch = 0;
  int length = 0;
  auto operator<=>(const Shape&) const = default;
};

// The memory of a worker on the device, which all its executions use in turn.
struct Buffers {
  std::int32_t* tokens = nullptr;  // batch x length
  float* scores = nullptr;         // batch x Model::classes()
  void* scratch = nullptr;         // Model::scratch_bytes()
};

// An Execution computes the network for one caller, in one shape at a time: an execution context of
// TensorRT. Its data about a shape lies in its own device memory, which the work reads. So a graph
// of its work is right only while it keeps the shape of the graph's capture.
class Execution {
 public:
  virtual ~Execution() = default;
  // Enqueues the network on `stream`. The first call with a new shape may also enqueue work, or
  // wait for the device; later calls do not. Returns false if not all work was enqueued.
  virtual bool enqueue(Shape shape, cgtree::StreamRef stream) = 0;
};

// Thread safety: any thread.
class Model {
 public:
  virtual ~Model() = default;
  virtual int classes() const = 0;
  virtual Shape largest() const = 0;
  virtual std::size_t scratch_bytes() const = 0;
  // Returns the profile whose kernels compute a shape.
  virtual int profile_of(Shape shape) const = 0;
  // Requires: the buffers outlive the result, and all its work is enqueued on `stream`.
  virtual std::unique_ptr<Execution> make_execution(int profile, const Buffers& buffers,
                                                    cgtree::StreamRef stream) = 0;
  // Returns the present device memory of the model and its executions, without the buffers, such as
  // weights: bytes by address.
  virtual std::map<const void*, std::size_t> memory() const = 0;
};

}  // namespace cgtree_tensorrt
