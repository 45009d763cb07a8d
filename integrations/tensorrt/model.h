// A network that a server computes in many shapes, as far as a worker knows it.
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
// TensorRT. What it knows of a shape lies in memory of its own, which work on the device reads. So
// a graph of its work is right only while it keeps the shape in which the graph was captured.
class Execution {
 public:
  virtual ~Execution() = default;
  // Enqueues the network on `stream`. The first call with another shape than the last one may also
  // enqueue work, or wait for the device, that later ones do not. Returns false if not all work was
  // enqueued.
  virtual bool enqueue(Shape shape, cgtree::StreamRef stream) = 0;
};

// Thread safety: any thread.
class Model {
 public:
  virtual ~Model() = default;
  virtual int classes() const = 0;
  virtual Shape largest() const = 0;
  virtual std::size_t scratch_bytes() const = 0;
  // The kernels that a shape is computed with are those of its profile.
  virtual int profile_of(Shape shape) const = 0;
  // Requires: the buffers live as long as the result, and all its work is enqueued on `stream`.
  virtual std::unique_ptr<Execution> make_execution(int profile, const Buffers& buffers,
                                                    cgtree::StreamRef stream) = 0;
  // Returns the device memory that the model and its executions have now, beside the buffers, such
  // as weights: bytes by address.
  virtual std::map<const void*, std::size_t> memory() const = 0;
};

}  // namespace cgtree_tensorrt
