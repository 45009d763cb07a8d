// Watch: makes events of a Ledger out of CUPTI's callbacks.
//
// The runtime calls the driver, and the driver's functions have callbacks then, too: the driver's
// are enough. Sources: CUPTI 13.0, "Callback API"; parcagpu, which drops callbacks of the driver
// with the correlation id of a call of the runtime around them.
#pragma once

#include <cuda.h>
#include <cupti_callbacks.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "check/finding.h"
#include "check/ledger.h"
#include "check/report.h"
#include "check/stacks.h"

namespace cgtree::graph_check {

// Functions that have callbacks together, each as long as it must: those of a call take CUPTI about
// a microsecond.
enum class Calls : std::uint8_t {
  kGraphs,    // always
  kMemory,    // from the first capture or instantiation on
  kLaunches,  // while the ledger wants them
  kWork,      // while a capture is open
};

// Questions to CUDA inside of callbacks. They are allowed at the end of a call.
struct Questions {
  // Called once, before the first capture or instantiation.
  std::function<void()> prepare;
  // Returns why a graph cannot be read, or "".
  std::function<std::string(GraphHandle graph, GraphContents* contents)> read;
  std::function<bool(CUstream stream)> is_capturing;
  // Returns the allocation of an address; one of 0 bytes if the driver knows none.
  std::function<BlockRange(std::uintptr_t address)> allocation_of;
  // Has callbacks of these functions made, or not.
  std::function<void(Calls calls, bool is_wanted)> watch;
};

// Returns all questions but watch (driver_questions.cc).
Questions driver_questions();

// Returns the time by the clock that allocators use.
Time now() noexcept;
// Returns functions of the driver, by their numbers for CUPTI.
std::vector<CUpti_CallbackId> driver_calls(Calls calls);

struct Call;

// Thread safety: every function may be called from any thread.
class Watch {
 public:
  // `tell` is called for each new finding, with the lock.
  Watch(Questions questions, std::function<void(const Finding&, const Stacks&)> tell)
      : questions_(std::move(questions)), tell_(std::move(tell)) {}

  // The callback. Calls of CUDA that it makes have none themselves. Never throws.
  void on_call(CUpti_CallbackId id, const CUpti_CallbackData& data) noexcept;
  // From now on callbacks do nothing.
  void stop() noexcept { is_stopped_ = true; }
  // The next two are as those of Ledger.
  void expect_blocks();
  void add_blocks(std::string_view source, std::span<const BlockEvent> events,
                  std::span<const BlockRange> kept);
  Report report(Process process);

 private:
  using Data = CUpti_CallbackData;

  void on_driver_call(CUpti_CallbackId id, const Data& data);
  void on_allocation(const Call& call, const Data& data);
  void on_change(const Call& call, const Data& data);
  void on_work(const Call& call, const Data& data);
  void freed(const Data& data, std::uintptr_t address);
  void refused(const Data& data, StreamKey stream);
  bool is_captured(std::uintptr_t stream, bool is_per_thread);
  void begin_capture(const Data& data, StreamKey stream);
  void end_capture(const Data& data, StreamKey stream, std::size_t graph);
  void instantiated(const Data& data, std::size_t exec, std::size_t graph, std::uint64_t flags);
  void updated(const Data& data, std::uintptr_t exec, std::uintptr_t graph);
  void launched(const Data& data, std::uintptr_t exec);
  GraphContents read(std::uintptr_t graph);
  void prepare();
  void follow();
  void ask(GraphContents& contents);
  void tell_new();

  Questions questions_;
  std::function<void(const Finding&, const Stacks&)> tell_;
  std::atomic<bool> is_stopped_{false};
  std::atomic<std::size_t> open_captures_{0};
  std::once_flag prepared_;
  std::atomic<bool> wants_launches_{false};
  std::mutex calls_mutex_;  // of questions_.watch; never taken with mutex_
  std::atomic<bool> is_work_watched_{false};
  std::atomic<bool> are_launches_watched_{false};

  std::mutex mutex_;  // of all below
  Ledger ledger_;
  Stacks stacks_;
  const TakeStack take_ = [this] { return stacks_.take(); };
  std::size_t told_ = 0;  // findings
  std::vector<std::string> unseen_;
  std::map<std::string_view, std::uint64_t> calls_;
};

}  // namespace cgtree::graph_check
