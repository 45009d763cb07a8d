// Watch: makes events of a Ledger out of calls of the driver, which the runtime calls, too.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "check/cuda/calls.h"
#include "check/finding.h"
#include "check/ledger.h"
#include "check/report.h"
#include "check/stacks.h"

namespace cgtree::graph_check {

// Questions to CUDA. They are asked when a call has returned.
struct Questions {
  // Called once, before the first capture or instantiation.
  std::function<void()> prepare;
  // Returns why a graph cannot be read, or "".
  std::function<std::string(GraphHandle graph, GraphContents* contents)> read;
  std::function<bool(CUstream stream)> is_capturing;
  // Returns the allocation of an address; one of 0 bytes if the driver knows none.
  std::function<BlockRange(std::uintptr_t address)> allocation_of;
};

Questions driver_questions();

// Returns the time by the clock that allocators use.
Time now() noexcept;

// Thread safety: every function may be called from any thread.
class Watch {
 public:
  // `tell` is called for each new finding, perhaps on several threads at once.
  Watch(Questions questions, std::function<void(const Finding&, const Stacks&)> tell)
      : questions_(std::move(questions)), tell_(std::move(tell)) {}

  // Returns whether calls of this kind matter now: those of memory from the first graph on, work
  // while a capture is open.
  bool wants(Does does) const noexcept {
    if (is_stopped_.load(std::memory_order_relaxed)) return false;
    if (does >= Does::kWork) return open_captures_.load(std::memory_order_relaxed) > 0;
    return does > Does::kUnmap || has_graphs_.load(std::memory_order_relaxed);
  }
  // Called when a call begins, and when it has returned. Never throws.
  void on_call(const CallData& data) noexcept;
  // From now on no call matters.
  void stop() noexcept { is_stopped_ = true; }
  // The next two are as those of Ledger.
  void expect_blocks();
  void add_blocks(std::string_view source, std::span<const BlockEvent> events,
                  std::span<const BlockRange> kept);
  Report report(Process process);

 private:
  void dispatch(const CallData& data);
  void on_allocation(const CallData& data);
  void on_change(const CallData& data);
  void on_work(const CallData& data);
  void freed(const CallData& data, std::uintptr_t address);
  bool is_captured(std::uintptr_t stream, bool is_per_thread);
  void begin_capture(const CallData& data, StreamKey stream, std::uintptr_t into);
  void end_capture(StreamKey stream, GraphHandle graph);
  void instantiated(const CallData& data);
  void launched(const CallData& data, std::uintptr_t exec);
  GraphContents read(GraphHandle graph);
  void prepare();
  void ask(GraphContents& contents);
  void note_new() noexcept { has_new_ = told_ < std::ssize(ledger_.findings()); }
  void tell_new();

  Questions questions_;
  std::function<void(const Finding&, const Stacks&)> tell_;
  std::atomic<bool> is_stopped_{false};
  std::atomic<std::size_t> open_captures_{0};
  std::once_flag prepared_;
  std::atomic<bool> has_graphs_{false};
  std::atomic<bool> has_new_{false};  // findings that are not told
  Stacks stacks_;

  std::mutex mutex_;  // of all below
  Ledger ledger_;
  const TakeStack take_ = [this] { return stacks_.take(); };
  std::ptrdiff_t told_ = 0;  // findings
  std::vector<std::string> unseen_;
  std::map<std::string_view, std::uint64_t> calls_;
};

// Returns the watch of this process, null if there is none. Called by cuInit(), on any thread.
Watch* watch_of_process() noexcept;

}  // namespace cgtree::graph_check
