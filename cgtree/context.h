// Context: one lane of calls on one device: one tree of recordings, one pool, one stream.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "cgtree/eager_scope.h"
#include "cgtree/options.h"
#include "cgtree/stats.h"
#include "interop/device/device.h"
#include "interop/device/stream.h"

namespace cgtree {

class TreeManager;

// Any number of contexts run side by side; each is used by one thread at a time, and a second
// caller gets ConcurrentUse. Tensors made by a context may outlive it and may die on any thread.
class Context {
 public:
  // Throws InvalidArgument if the device does not exist or the stream is another device's.
  explicit Context(Device device, ContextOptions options = {});
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;

  Device device() const noexcept;
  // Calls launch their work here; step functions launch on current_stream(), which is another while
  // recording. Work of your own that reads outputs or writes inputs belongs on
  // this stream too, or must be ordered with it.
  StreamRef stream() const noexcept;

  // Begins the next generation: outputs of earlier calls may be overwritten from now on, and
  // touching a handle that still holds one throws StaleTensor.
  void mark_step();

  // Runs `body` between calls: what it launches on current_stream() is in order with them, what it
  // allocates with empty() comes from the context's memory. Returns what it returns. Outputs of
  // calls that it writes into are read by the next ones. Inside a step function it keeps the
  // function from being graphed. Throws what `body` throws, ConcurrentUse.
  template <typename Body>
  decltype(auto) eager(Body&& body) {
    const EagerScope scope(*manager_);
    return std::forward<Body>(body)();
  }

  // Waits until all work launched by calls is done.
  void synchronize() const { stream().synchronize(); }

  ContextStats stats() const;
  // The tree as JSON: nodes, recordings, inputs with their treatment, pools.
  std::string snapshot_json() const;

  // Writes the graph of the recording that snapshot_json() and the events call node `node` to a
  // file for Graphviz. Throws InvalidArgument where there is none, DeviceError where it cannot be
  // written.
  void write_dot(std::uint32_t node, const std::string& path) const;

  // For compile(), whose functions keep the tree alive.
  std::shared_ptr<TreeManager> share_manager() const noexcept { return manager_; }

 private:
  std::shared_ptr<TreeManager> manager_;
};

}  // namespace cgtree
