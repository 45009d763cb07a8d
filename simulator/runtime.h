// Runtime: the whole state of a host device, and the two functions through which every call goes:
// call() for errors, submit() for work.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "interop/device/code.h"
#include "interop/device/graph_api.h"
#include "simulator/capture.h"
#include "simulator/graph.h"
#include "simulator/host_device.h"
#include "simulator/memory.h"
#include "simulator/work_queue.h"

namespace cgtree::host {

// The handles of destroyed objects. The latest is reused first, as in CUDA, so that a program which
// mistakes a handle for its former object is found out.
template <typename Handle>
class HandlePool {
 public:
  template <typename Make>
  Handle take(Make make) {
    if (free_.empty()) {
      free_.reserve(++given_);  // so that give_back() does not allocate
      return static_cast<Handle>(make());
    }
    const Handle handle = free_.back();
    free_.pop_back();
    return handle;
  }
  void give_back(Handle handle) { free_.push_back(handle); }

 private:
  std::vector<Handle> free_;
  std::size_t given_ = 0;
};

// Invariant: no kernel body and no host function runs while `mutex` is held. Locks are taken in
// these orders: the legacy stream's order, legacy_gate_, a stream's order, an exec; and `mutex`, an
// exec, the queue's.
class Runtime {
 public:
  // `number`: 0 for the device of the process. Other numbers are never reused; such a device may be
  // destroyed before the process ends, and owns the states of threads.
  Runtime(const HostDeviceOptions& options, std::uint64_t number);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  struct Queued {
    OperationPtr operation;
    bool is_synchronous = false;  // the call returns when it has ended
  };

  // Runs a function of the device. Returns 800 inside a kernel or a host function; does not throw;
  // an error becomes the thread's last error (600 is not an error).
  template <typename Function>
  Code call(Function function) {
    ThreadState& thread = this_thread();
    const Code code = thread.is_running_work ? Code::kNotPermitted : attempt(function, thread);
    if (!ok(code) && code != Code::kNotReady) thread.last_error = code;
    return code;
  }

  // The same for a function that only returns `code`.
  Code refuse(Code code) {
    return call([code](const ThreadState&) { return code; });
  }

  // As call(), for a function that blocks on a GPU while a stream is full or work is pending.
  template <typename Function>
  Code call_that_may_block(const char* name, Function function) {
    lock_order::expect_may_block(name);
    return call(function);
  }

  // As call(), for a function of a stream, which runs with the mutex held. Returns
  // kInvalidResourceHandle for an unknown stream.
  template <typename Function>
  Code call_on(StreamHandle handle, Function function) {
    return call([&](const ThreadState& thread) {
      const std::lock_guard lock(mutex);
      const std::shared_ptr<HostStream> stream = find_stream(handle);
      return stream == nullptr ? Code::kInvalidResourceHandle : function(stream, thread);
    });
  }

  // Adds make_work() to the graph if the stream captures. Otherwise queues it or, without a queue,
  // runs `body`, which does the same work, in the order of the stream.
  template <typename Body, typename MakeWork>
  Code submit(StreamHandle handle, Body body, MakeWork make_work) {
    std::shared_ptr<HostStream> stream;
    Queued queued;
    {
      const std::lock_guard lock(mutex);
      stream = find_stream(handle);
      if (stream == nullptr) return Code::kInvalidResourceHandle;
      if (const Code code = captures.admit_work(*stream); !ok(code)) return code;
      if (stream->capture != nullptr) {
        captures.append(*stream, make_work());
        return Code::kSuccess;
      }
      if (queue != nullptr) queued = enqueue_work(*stream, make_work());
    }
    return queue != nullptr ? submitted(queued) : run_in_order(*stream, body);
  }

  // The same for work whose arguments need no copies.
  Code submit(StreamHandle stream, const Work& work) {
    return submit(
        stream, [&] { return run(work); }, [&] { return work; });
  }

  // Runs `body` in the order of the stream. A legacy stream also waits for the blocking streams,
  // and they wait for it.
  template <typename Body>
  Code run_in_order(HostStream& stream, Body body) {
    const Turn turn(*this, stream);
    ThreadState& thread = this_thread();
    thread.is_running_work = true;
    const Code code = body();
    thread.is_running_work = false;
    return code;
  }

  // Returns whether all work of the stream has ended.
  bool is_idle(HostStream& stream);
  Code synchronize(HostStream& stream);
  Code synchronize(int device);
  Code synchronize(const OperationPtr& operation);  // null has ended
  // Waits as CUDA does when memory of a device, or pinned memory, is freed.
  void settle(std::optional<int> device);
  ThreadState& this_thread();

  // The functions below require `mutex`. find_ functions return null for an unknown handle.
  std::shared_ptr<HostStream> find_stream(StreamHandle handle);
  std::vector<std::shared_ptr<HostStream>> streams_of(int device) const;
  // Includes graphs that a capture builds, and bodies; excludes lost ones.
  std::shared_ptr<Graph> find_graph(GraphHandle graph) const;
  // Only a graph whose capture has ended; excludes bodies.
  std::shared_ptr<Graph> find_whole_graph(GraphHandle graph) const;
  std::uint64_t next_handle() noexcept { return ++handles_ << 32; }
  std::shared_ptr<HostStream> make_stream(StreamHandle handle, int device, StreamKind kind);
  // Requires a queue. Adds work to the stream, after all of `before`.
  OperationPtr enqueue(HostStream& stream, std::shared_ptr<const Work> work,
                       std::vector<OperationPtr> before = {});
  // Makes the allocations and frees of a launch. Returns 1, and changes nothing, if the previous
  // launch has left an allocation, unless this launch frees it. Source: measured, driver 580.
  Code allocate_for(const Exec& exec);
  // Requires a queue, and that `mutex` is not held.
  Code enqueue_launch(HostStream& stream, Exec& exec);

  const int devices;
  const std::shared_ptr<StrictMemory> checker;  // null: not in strict mode
  HostMemory memory;
  std::unique_ptr<WorkQueue> queue;  // null: kInline
  Mutex<LockRank::kHostRuntime> mutex;
  CaptureTable captures;
  std::unordered_map<StreamHandle, std::shared_ptr<HostStream>> streams;  // not per-thread
  std::unordered_map<EventHandle, HostEvent> events;
  HandlePool<StreamHandle> stream_handles;
  HandlePool<EventHandle> event_handles;
  std::unordered_map<GraphHandle, std::shared_ptr<Graph>> graphs;
  std::unordered_map<GraphHandle, std::weak_ptr<Graph>> bodies;  // of conditional nodes
  std::unordered_map<ExecHandle, std::shared_ptr<Exec>> execs;
  // Allocations that are not freed, in the order of a stream or of launches; by address.
  std::unordered_map<const void*, std::shared_ptr<OrderedMemory>> allocated;

 private:
  // A Turn is the right to run on a stream now. Its locks have no rank: they are the order of the
  // device's work, which takes any locks that it needs.
  class Turn {
   public:
    Turn(Runtime& runtime, HostStream& stream);

   private:
    std::unique_lock<std::mutex> order_;
    std::shared_lock<std::shared_mutex> with_legacy_;
    std::unique_lock<std::shared_mutex> as_legacy_;
  };

  template <typename Function>
  Code attempt(Function& function, ThreadState& thread) {
    try {
      return function(thread);
    } catch (const std::bad_alloc&) {
      return Code::kMemoryAllocation;
    }
  }

  // Returns the operations that the next work on the stream waits for.
  std::vector<OperationPtr> before(const HostStream& stream) const;
  OperationPtr expand(const HostStream& stream, const std::shared_ptr<const Graph>& graph,
                      const std::vector<OperationPtr>& before);
  Queued enqueue_work(HostStream& stream, Work work);
  Code submitted(const Queued& queued);
  Code perform(const Task& task);
  Code perform(const Task& conditional, const std::shared_ptr<const Graph>& body);
  Code check_thoroughly(Code code);

  const bool free_waits_;
  const std::uint64_t number_;
  Mutex<LockRank::kHostThreads> threads_mutex_;
  std::unordered_map<std::uint64_t, std::unique_ptr<ThreadState>> threads_;  // by thread
  std::shared_ptr<HostStream> legacy_;  // device 0's; kNull refers to it, too
  std::shared_mutex legacy_gate_;  // unique while legacy work runs, shared for blocking streams
  std::uint64_t handles_ = 0;      // number of handles so far; a handle's low 32 bits are 0
  mutable std::vector<std::weak_ptr<HostStream>> thread_streams_;
};

}  // namespace cgtree::host
