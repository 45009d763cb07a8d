// Context: calls on one device that share a tree of recordings, pools of memory and a stream.
// EagerScope: work between calls of a context that is in no graph.
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

// While an EagerScope lives, the calling thread is as if inside a step function that runs eagerly:
// current_stream() is the context's, empty() allocates memory that calls treat like any eager
// tensor's, and compiled functions that are called run eagerly. Context::eager() opens one.
class EagerScope {
 public:
  // Throws ConcurrentUse, InvalidArgument inside a step function of another context, and
  // CaptureError inside one that is being recorded: work between its calls cannot be part of its
  // graph, so it runs eagerly from then on.
  explicit EagerScope(Engine& engine);
  ~EagerScope();
  EagerScope(const EagerScope&) = delete;
  EagerScope& operator=(const EagerScope&) = delete;

 private:
  struct Open;
  std::unique_ptr<Open> open_;  // null inside a step function, which has all this already
};

// A Context runs compiled functions on one device. Any number of contexts may run side by side.
//
// Thread safety: one thread at a time; a second caller gets ConcurrentUse. Monitors may read on any
// thread at any time: stats() here and of compiled functions, and histogram(), neither wait for a
// call nor disturb one; write_dot() and explain() wait for the call in progress. Tensors that a
// context makes may outlive it and may be released on any thread.
class Context {
 public:
  // Throws InvalidArgument if the device does not exist or the stream is another device's.
  explicit Context(Device device, ContextOptions options = {});
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;

  // The device of all calls, given to the constructor.
  Device device() const noexcept;
  // Returns the stream on which the latest call has launched its work: the caller's, or the
  // context's own. Step functions launch on current_stream(), which is another stream while they
  // are recorded. Other work that reads outputs or writes inputs must run on this stream or be
  // ordered with it (docs/streams.md).
  StreamRef stream() const noexcept;

  // Begins the next generation: outputs of earlier calls may be overwritten from now on, and to use
  // a handle that still holds one throws StaleTensor. Throws ConcurrentUse.
  void mark_step();

  // mark_step() does not end this output, whatever view of it is given: it is held until its last
  // handle is released, and a call that would overwrite it is replayed or recorded elsewhere, or
  // runs eagerly. Does nothing for a tensor that no mark_step() of this context ends. Throws
  // StaleTensor, InvalidArgument for a null tensor or another context's, and ConcurrentUse.
  void keep(const Tensor& output);

  // A call made while the caller's stream is capturing joins the caller's graph, which uses the
  // same memory at each launch. The context keeps that memory until this function tells it that the
  // graph is gone: the graph of a capture (see capture_of()), by default of all of them. Returns
  // the number of tensors that were kept. Requires: launches of the graph have ended, or are
  // ordered before stream(). Throws ConcurrentUse.
  std::size_t release_captured(std::optional<std::uint64_t> capture = std::nullopt);

  // Runs `body` between calls and returns its result. Work that `body` launches on current_stream()
  // is in order with calls, and empty() allocates from the context's pool. Later calls see what it
  // writes into outputs of earlier calls. Inside a step function, it prevents the function from
  // being graphed. Throws what `body` throws, and ConcurrentUse.
  template <typename Body>
  decltype(auto) eager(Body&& body) {
    const EagerScope scope(*engine_);
    return std::forward<Body>(body)();
  }

  // Gives memory that neither a recording nor an output uses back to the device's cache, from which
  // other contexts take it; returns the bytes. `to_device`: and what the cache holds to the device,
  // for what allocates there without cgtree. Throws ConcurrentUse.
  std::size_t trim(bool to_device = false);

  // Gives back all memory that the context can make again, for a server that sleeps: drops all
  // recordings, also those of pinned and of frozen functions, and returns all memory that no output
  // uses to the device. Outputs that are held stay valid. Warm-ups are not forgotten: the next
  // call with a size or key that had a recording records at once. Waits until all work is done.
  // Returns the bytes of the pools that were given back; the driver frees graphs besides. Throws
  // ConcurrentUse, also inside a step; CaptureError while the stream is captured; DeviceError.
  std::size_t release_memory();

  // Declares that memory which recordings refer to, and which is no tensor, lives until
  // undeclare(): a workspace or table of a library. A name stands for one range: declared again
  // with another one, it has moved, and the recordings that refer to its former range are dropped.
  // Any thread, at any time. Throws InvalidArgument for a range that is empty or overlaps with
  // another one.
  void declare(std::string name, const void* address, std::size_t bytes);
  // The memory is about to go, or has gone: the recordings that refer to it are dropped, before
  // this returns, or before the next call if one is in progress. Any thread, at any time. Throws
  // InvalidArgument if nothing of that name is declared.
  void undeclare(const std::string& name);
  // Drops the recordings of all functions that refer to memory in the range, as far as their graphs
  // tell (docs/audit.md). Returns how many. Throws ConcurrentUse, and InvalidArgument for a range
  // that ends behind the last address.
  std::size_t invalidate(const void* address, std::size_t bytes);

  // Waits until all work that calls have launched is done.
  void synchronize() const;

  // Sums over all functions of the context, those that have been destroyed included. Any thread.
  ContextStats stats() const;

  // Writes the graph of a recording to a file for Graphviz; `node` is its number in snapshot_json()
  // and in events. Throws InvalidArgument if there is no such node, and DeviceError if the file
  // cannot be written.
  void write_dot(std::uint32_t node, const std::string& path) const;

  // Used by compile(): compiled functions share ownership of the tree.
  std::shared_ptr<Engine> share_engine() const noexcept { return engine_; }

 private:
  std::shared_ptr<Engine> engine_;
};

}  // namespace cgtree
