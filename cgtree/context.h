// Context: calls on one device that share a tree of recordings, pools of memory and a stream.
// EagerScope: work between the calls of a context, which is part of no graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cgtree/values/options.h"
#include "cgtree/values/stats.h"
#include "interop/device/device.h"
#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

class Engine;

// While an EagerScope lives, its thread is treated as inside a step function that runs eagerly:
// current_stream() is the context's, empty() allocates tensors that calls treat as eager tensors,
// and compiled functions run eagerly. Context::eager() opens one.
class EagerScope {
 public:
  // Throws ConcurrentUse; InvalidArgument inside a step function of another context; and
  // CaptureError inside a step that is being recorded. The graph cannot hold work between calls, so
  // that step runs eagerly from then on.
  explicit EagerScope(Engine& engine);
  ~EagerScope();
  EagerScope(const EagerScope&) = delete;
  EagerScope& operator=(const EagerScope&) = delete;

 private:
  struct Open;
  std::unique_ptr<Open> open_;  // null inside a step function, which has set all of this already
};

// A Context runs compiled functions on one device. Any number of contexts may run side by side.
//
// Thread safety: one thread at a time; a second caller gets ConcurrentUse. Monitors may read on any
// thread at any time: stats() here and of compiled functions, and histogram(), never wait for a
// call; write_dot() and explain() wait for the call in progress. Tensors that a context makes may
// outlive it and may be released on any thread.
class Context {
 public:
  // Throws InvalidArgument if the device does not exist or the stream is another device's.
  explicit Context(Device device, ContextOptions options = {});
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;

  // The device of all calls, given to the constructor.
  Device device() const noexcept;
  // Returns the stream of the latest call: the caller's, or the context's own. Step functions
  // launch on current_stream(), which is another stream while they are recorded. Other work that
  // reads outputs or writes inputs must run on this stream or be ordered with it (docs/streams.md).
  StreamRef stream() const noexcept;

  // Begins the next generation: outputs of earlier calls may be overwritten from now on, and a use
  // of a handle to one throws StaleTensor. Throws ConcurrentUse.
  void mark_step();

  // Exempts this output from mark_step(), whichever view of it is given: it stays valid until its
  // last handle is released. A call that would overwrite it is replayed or recorded elsewhere, or
  // runs eagerly. Does nothing for a tensor that no mark_step() of this context ends. Throws
  // StaleTensor, InvalidArgument for a null tensor or another context's, and ConcurrentUse.
  void keep(const Tensor& output);

  // Releases the memory of calls that joined a graph of the caller's: a call made while the
  // caller's stream is capturing becomes part of that graph, which uses the same memory at each
  // launch. The context keeps this memory until the caller says here that the graph is destroyed:
  // the graph of one capture (see capture_of()), or by default of all. Returns the number of
  // tensors that were released. Requires: launches of the graph have ended, or are ordered before
  // stream(). Throws ConcurrentUse.
  std::size_t release_captured(std::optional<std::uint64_t> capture = std::nullopt);

  // Runs `body` between calls and returns its result. Work that `body` launches on current_stream()
  // is ordered with the calls, and empty() allocates from the context's pool. Later calls see the
  // values that it writes into outputs of earlier calls. Inside a step function, it prevents the
  // function from being graphed. Throws what `body` throws, and ConcurrentUse.
  template <typename Body>
  decltype(auto) eager(Body&& body) {
    const EagerScope scope(*engine_);
    return std::forward<Body>(body)();
  }

  // Releases, to the device's cache, pool memory that neither a recording nor an output uses; other
  // contexts take memory from there. Returns the bytes. `to_device`: also releases the memory in
  // the cache to the device, for programs that allocate there without cgtree. Throws ConcurrentUse.
  std::size_t trim(bool to_device = false);

  // Releases all memory that the context can make again, for a server that sleeps: drops all
  // recordings, pinned and frozen functions included, and releases to the device all memory that no
  // output uses. Outputs that are held stay valid. Warm-ups are not forgotten: the next call with a
  // size or key that had a recording records at once. Waits until all work is done. Returns the
  // bytes of pool memory that were released; the driver frees graphs besides. Throws ConcurrentUse,
  // also inside a step; CaptureError while the stream is captured; DeviceError.
  std::size_t release_memory();

  // Declares memory that is not a tensor but that recordings refer to, such as a workspace or table
  // of a library: it lives until undeclare(). A name stands for one range. Declared again with
  // another range, it has moved, and recordings that refer to the former range are dropped. Any
  // thread, at any time. Throws InvalidArgument for a range that is empty or overlaps another.
  void declare(std::string name, const void* address, std::size_t bytes);
  // Drops the recordings that refer to the memory, before this returns or, during a call, before
  // the next. Replays in flight still use the memory. Any thread, at any time. Throws
  // InvalidArgument if nothing of that name is declared.
  void undeclare(const std::string& name);
  // Drops the recordings of all functions that refer to memory in the range, as far as their graphs
  // show (docs/audit.md). Returns how many. Replays in flight still use the memory. Throws
  // ConcurrentUse, and InvalidArgument for a range that ends behind the last address.
  std::size_t invalidate(const void* address, std::size_t bytes);

  // Waits until all work that calls have launched is done.
  void synchronize() const;

  // Returns sums over all functions of the context, destroyed functions included. Any thread.
  ContextStats stats() const;

  // Writes the graph of a recording to a file for Graphviz; `node` is its number in snapshot_json()
  // and in events. Throws InvalidArgument for an unknown node, and DeviceError if the file cannot
  // be written.
  void write_dot(std::uint32_t node, const std::string& path) const;

  // Used by compile(), so that compiled functions share ownership of the tree.
  std::shared_ptr<Engine> share_engine() const noexcept { return engine_; }

 private:
  std::shared_ptr<Engine> engine_;
};

}  // namespace cgtree
