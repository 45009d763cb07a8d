// inspect(): runs the nodes of a recording one by one, and names the first that fails.
// compare_captures(): names the first node that differs in a new capture.
//
//   const cgtree::InspectionReport report = cgtree::inspect(decode, tokens, cache);
//   std::puts(to_string(report).c_str());
//
//   recording 3 of 'decode': node 173 of 300 has failed, 172 have run: cudaErrorIllegalAddress ...
//     node 173, kernel rope in 'layer 17/attention'
//       parameter 0  0x7f1c00001000  output 0
//       parameter 1  0x7f1c00200000  foreign, byte 0 of 4096 bytes of device memory: freed since
//       parameter 2  0x40
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "cgtree/compile.h"
#include "cgtree/function_handle.h"
#include "cgtree/steps.h"
#include "cgtree/values/input_list.h"
#include "interop/device/graph_api.h"

namespace cgtree {

// Up to eight bytes of a kernel's parameter, or the address of a copy or memset.
struct InspectedWord {
  std::uint32_t parameter = 0;  // of a kernel; otherwise the number among the ranges of the node
  std::size_t offset = 0;       // in bytes, into the parameter
  std::uint64_t value = 0;
  std::string memory;       // the memory to which it points, as the audit names it; "" for a number
  bool is_foreign = false;  // the memory is not known to live as long as the recording
  bool is_gone = false;     // the device no longer has the allocation of the time of the capture
};

// A node of a recording.
struct InspectedNode {
  std::uint32_t number = 0;  // from 0, in the order of GraphAPI::graph_nodes()
  NodeType type = NodeType::kOther;
  std::string name;                  // "kernel axpy", "a copy", "the copies of inputs"
  std::string scope;                 // the path of the scopes; "" outside of all
  std::vector<InspectedWord> words;  // empty for copies of inputs and outputs
};

// The result of an inspection.
struct InspectionReport {
  std::string function;
  std::uint32_t recording = 0;  // number in snapshots and events; 0: no recording fits
  std::string why_not;          // why no node was run, or ""
  std::size_t nodes = 0;        // of the graph
  std::size_t runs = 0;         // nodes that ran without an error
  std::optional<InspectedNode> failed;
  std::string error;                    // of `failed`
  std::vector<InspectedNode> suspects;  // only with the words that point to foreign memory
  std::chrono::microseconds time{0};    // of the runs

  // Returns whether a node failed.
  bool has_failed() const noexcept { return failed.has_value(); }
};

// The first node of a recording that differs in a new capture, or that leaves different memory.
struct CaptureComparison {
  std::string function;
  std::uint32_t recording = 0;
  std::string why_not;    // why nothing was compared, or ""
  std::size_t nodes = 0;  // compared nodes
  // Those of them for which the device has only the position: host functions, child graphs.
  std::size_t unread = 0;
  std::optional<InspectedNode> recorded;
  std::string difference;  // one sentence; "" if there is none
};

// Finds the recording that a call with these inputs would replay, and runs its nodes in the order
// of its edges, each alone, on the stream of the context; waits after each. It does the work of a
// replay, including writes, but hands out no outputs. Generators do not advance. Before the runs,
// it checks the memory that the nodes point to.
//
// Without a recording that fits, and for a recording that cannot be run in this way, `why_not` has
// the reason, and nothing is run. Throws as a call for inputs that it would refuse; InvalidArgument
// inside a step and in a group; ConcurrentUse; CaptureError while the stream is captured;
// OutOfMemory; DeviceError for an error before the first node. After a sticky error the device does
// no more work for the process.
InspectionReport inspect(const FunctionHandle& function, const InputList& inputs);

// Captures the step function once more with these inputs, and compares the recording that the call
// would replay with the capture: kernels, sizes, edges, and words that are not addresses. It
// launches nothing; the host code of the step function runs. Throws as inspect().
CaptureComparison compare_captures(const FunctionHandle& function, const InputList& inputs);

// Enqueues the work of a step on current_stream(). `addresses`: Step::address() of each binding.
using StepWork = std::function<void(std::span<void* const> addresses)>;

// The next two are the same for a call of Steps on `stream`, with the default of begin(). The
// inspection of a recording that serves all sessions uses the memory of the bindings. The
// comparison captures `work`, which replaces the loop's body.
InspectionReport inspect(Steps& steps, const Key& key, std::span<const Binding> bindings,
                         StreamRef stream = {});
CaptureComparison compare_captures(Steps& steps, const Key& key, std::span<const Binding> bindings,
                                   const StepWork& work, StreamRef stream = {});

// Runs the nodes of the recording twice as inspect() does, then those of a new capture as in
// compare_captures(), all from equal memory, and compares the memory that the nodes point to after
// each: outputs, mutated inputs, and other memory of the step. Mutated inputs keep their contents.
// Not for random numbers, dynamic axes, Steps, and recordings whose two runs differ. Throws as
// inspect().
CaptureComparison compare_runs(const FunctionHandle& function, const InputList& inputs);

// Returns "parameter 1, byte 8" or "source": the place of a word in its node.
std::string place_of(const InspectedNode& node, const InspectedWord& word);
// The next three return lines of text for a reader.
std::string to_string(const InspectedNode& node);
std::string to_string(const InspectionReport& report);
std::string to_string(const CaptureComparison& comparison);

// The next three are the same with the inputs of a call.
template <typename R, typename... Inputs>
InspectionReport inspect(const CompiledFunction<R(Inputs...)>& function,
                         const std::type_identity_t<Inputs>&... inputs) {
  const Tensor* const list[sizeof...(Inputs) + 1] = {&inputs..., nullptr};
  return inspect(function, InputList(std::span<const Tensor* const>(list, sizeof...(Inputs))));
}
template <typename R, typename... Inputs>
CaptureComparison compare_captures(const CompiledFunction<R(Inputs...)>& function,
                                   const std::type_identity_t<Inputs>&... inputs) {
  const Tensor* const list[sizeof...(Inputs) + 1] = {&inputs..., nullptr};
  return compare_captures(function,
                          InputList(std::span<const Tensor* const>(list, sizeof...(Inputs))));
}
template <typename R, typename... Inputs>
CaptureComparison compare_runs(const CompiledFunction<R(Inputs...)>& function,
                               const std::type_identity_t<Inputs>&... inputs) {
  const Tensor* const list[sizeof...(Inputs) + 1] = {&inputs..., nullptr};
  return compare_runs(function, InputList(std::span<const Tensor* const>(list, sizeof...(Inputs))));
}

}  // namespace cgtree
