// Steps: a graph around code that is not one function of tensors, such as an engine's own forward.
//
//   cgtree::Steps decode(context, "decode", {.bindings = {{.name = "tokens", .is_copied = true},
//                                                         {.name = "kv", .is_mutated = true}}});
//   const cgtree::Binding bindings[] = {{tokens, token_bytes}, {kv, kv_bytes}, {weights, ...}};
//   for (cgtree::Step step = decode.begin({{"batch", n}}, bindings, stream); step.must_run();
//        step.end()) {
//     engine.forward(step.address(0), stream);
//   }
//
// The engine owns its memory and enqueues its work itself. The first call with a key and sizes runs
// without capture (warm-up), the second is captured, and later calls replay the recording and do
// not run the loop's body at all.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cgtree/compile.h"
#include "cgtree/context.h"
#include "cgtree/function_handle.h"
#include "cgtree/values/explanation.h"
#include "cgtree/values/key.h"
#include "cgtree/values/options.h"
#include "cgtree/values/stats.h"
#include "interop/device/handles.h"
#include "interop/device/stream.h"

namespace cgtree {

// A Binding is a range of memory that the work of a step uses in this call: device memory, or a
// struct in host memory where BindingOptions::host_bytes says so.
struct Binding {
  const void* address = nullptr;
  std::size_t bytes = 0;
};

// The options of one binding.
struct BindingOptions {
  std::string name = "";  // in messages
  // The work uses Step::address(), so each call may pass another address: the graph copies the
  // bytes first. Otherwise the address is checked, and another address gets another recording.
  bool is_copied = false;
  // The work writes to it. If the binding is copied, the graph copies the written bytes back.
  bool is_mutated = false;
  // If not 0, the binding is a step block: a small struct of this size in host memory whose values
  // change at each step, such as lengths, block tables and sampling parameters. begin() reads it,
  // and the work finds the values of the present call at Step::address() on the device.
  std::size_t host_bytes = 0;
  // True to have verification compare this binding, byte by byte, after a replay and an eager run.
  // False for memory that differs from run to run, such as sums in no fixed order.
  bool is_compared = true;
  // The memory belongs to a session, such as its KV cache; other sessions have it at other
  // addresses. The calls of the first two sessions are captured and compared: if they prove where
  // the graph holds the address, one recording serves all sessions, and begin() patches it
  // (docs/rebinding.md).
  bool is_per_session = false;
};

// The options of Steps. Options that CompileOptions also has mean the same.
struct StepsOptions {
  // By position; further bindings are neither copied nor mutated.
  std::vector<BindingOptions> bindings = {};
  // The policies of integers of the key; see CompileOptions. The value may be rounded up, so the
  // work asks current_key() for it.
  std::vector<AxisOptions> keys = {};
  double max_waste = std::numeric_limits<double>::infinity();
  // The mode of captures, which are on the caller's stream. kRelaxed lets every thread, this one
  // too, make calls that a capture usually forbids.
  CaptureMode capture_mode = CaptureMode::kThreadLocal;
  bool enabled = true;         // if false, all work runs without a graph
  bool require_graph = false;  // a call that cannot be graphed throws
  OnStaticChange on_static_change = OnStaticChange::kRecord;
  std::size_t max_switch_nodes = 0;  // see CompileOptions
  // The work may leave stream-ordered memory allocated: see CompileOptions. The engine frees the
  // memory of a run that was not captured, and of the last run if Step::outcome() is kRunEagerly.
  bool keeps_allocations = false;
  std::size_t max_recordings = 128;
  AtLimit at_limit = AtLimit::kRunEagerly;
};

namespace detail {

// Copies the options that the functions of compile() and Steps share.
template <typename From, typename To>
void copy_shared_options(const From& from, To& to) {
  to.keys = from.keys;
  to.max_waste = from.max_waste;
  to.enabled = from.enabled;
  to.require_graph = from.require_graph;
  to.on_static_change = from.on_static_change;
  to.max_switch_nodes = from.max_switch_nodes;
  to.keeps_allocations = from.keeps_allocations;
  to.max_recordings = from.max_recordings;
  to.at_limit = from.at_limit;
}

}  // namespace detail

// A Step is one call. Destroyed while must_run(), because the caller's code threw or returned, it
// leaves no trace: enqueued work has either run, or was captured and never runs. (If that work
// broke the capture, calls with this key run without a graph from then on.) Destroyed inside a
// function that the step calls, such as the function of an eager_break(), it is left when that
// function returns. A step that has ended is no longer a call in progress, however long it is kept.
// Thread safety: used by the thread that called begin(), until the call ends.
class Step {
 public:
  ~Step();
  Step(Step&&) noexcept;
  Step& operator=(Step&&) noexcept;

  // Returns whether the caller must enqueue the work, on the stream of the call, and then call
  // end(). False from the start if a recording was replayed, unless that replay is verified
  // (docs/verify.md): then the work runs once more, and end() compares.
  bool must_run() const noexcept;
  // Returns the address of binding `i` for the work: the caller's, or that of a copy on the device.
  // It may differ in the next run. Throws InvalidArgument unless must_run() and binding `i` exists.
  void* address(std::size_t i) const;
  // Returns whether the work is being captured, so that it must not synchronise.
  bool is_captured() const noexcept;
  // Returns why no recording was replayed. Throws InvalidArgument unless must_run().
  Explanation why() const;
  // Says that the work is enqueued. If the work was captured, the graph is launched now. If the
  // capture failed, must_run() stays true, and the work has to be enqueued once more. Throws
  // InvalidArgument on another thread, without an open step, and inside a function that the step
  // calls (of an eager_break(), or compiled): all is then as before. Throws OutOfMemory,
  // CaptureError and DeviceError: the call has then ended.
  void end();
  // Says that this work cannot be captured. Calls of its key and sizes run without a graph from now
  // on; an open capture is discarded (refuse_capture()). `why` is for messages. Outside of a
  // capture it does nothing in a group: all ranks decide alike. Throws InvalidArgument unless
  // must_run().
  void refuse(std::string_view why);

  // Returns the outcome of the call so far: kReplay, kWarmUp, kRecord or kRunEagerly.
  Outcome outcome() const noexcept;
  // Returns whether a recording was replayed. The work may still have to run, to verify it.
  bool replayed() const noexcept { return outcome() == Outcome::kReplay; }

 private:
  friend class Steps;
  struct Open;
  explicit Step(std::shared_ptr<Open> open) noexcept;

  std::shared_ptr<Open> open_;  // null: the call was replayed
};

// Thread safety: used by one thread at a time, except for the functions of FunctionHandle.
class Steps : public FunctionHandle {
 public:
  // Throws InvalidArgument for an empty name, or options that contradict each other.
  Steps(Context& context, std::string name, StepsOptions options = {});
  // Replays, on `stream` (by default current_stream(), or the context's own), a recording of this
  // key whose bindings had the same sizes, and the same addresses except where bindings are copied
  // or proved to be per session. Without such a recording, the returned step must_run(). Addresses
  // are of the context's device; the driver is asked about them only if nothing is replayed.
  //
  // Throws InvalidArgument for null addresses; memory of another device; overlapping bindings of
  // which one is copied and one is mutated; a step block with another size than
  // BindingOptions::host_bytes; and inside any step. Throws ConcurrentUse, OutOfMemory,
  // CaptureError and DeviceError. No step is open after a throw.
  Step begin(const Key& key, std::span<const Binding> bindings, StreamRef stream = {});
  // Returns the outcome that begin() would have now, and why, without beginning. Throws
  // InvalidArgument where begin() does.
  Explanation explain(const Key& key, std::span<const Binding> bindings);

  // Drops the recordings that check an address of the range, or whose graphs contain one
  // (docs/audit.md). Returns how many. Replays in flight still use the memory. Throws ConcurrentUse
  // while a step is open, and InvalidArgument for a range that ends behind the last address.
  std::size_t invalidate(const void* address, std::size_t bytes);

  // For clients of the core: the inputs of a call. They borrow the key until the next call.
  InputList checked_inputs(const Key& key, std::span<const Binding> bindings);
  CaptureMode capture_mode() const noexcept { return capture_mode_; }  // of the options

 private:
  friend struct Step::Open;

  InputList inputs(std::span<const Binding> bindings);
  bool is_host(std::size_t i) const noexcept;
  void check_block(std::size_t i, const Binding& binding) const;
  void check_outside(std::string_view what) const;
  void check_place(std::size_t i, const Binding& binding) const;
  void check(std::span<const Binding> bindings) const;
  std::string describe(std::size_t i) const;

  StorageRef device_memory_;  // all addresses of the device
  StorageRef host_memory_;
  std::vector<std::size_t> host_bytes_;   // by binding; bindings beyond the end are the device's
  std::vector<std::size_t> of_sessions_;  // the bindings that are per session
  CaptureMode capture_mode_ = CaptureMode::kThreadLocal;
  // The bindings for which `tensors_` were made; empty if those must be made again.
  std::vector<Binding> last_;
  std::vector<Tensor> tensors_;
};

}  // namespace cgtree
