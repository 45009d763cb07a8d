// Forwards all functions except the faulty ones.
#include "tests/support/mutant_device.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "interop/device/device_api.h"
#include "tests/support/forwarding_device.h"

namespace cgtree::testing {
namespace {

// Faults that only change the error number.
struct CodeFault {
  const char* name;
  const char* function;  // null: every function
  Code from;
  Code to;
};

constexpr CodeFault kCodeFaults[] = {
    {"InvalidCaptureTakesWork", nullptr, Code::kStreamCaptureInvalidated, Code::kSuccess},
    {"MergeIsIsolation", "wait_event", Code::kStreamCaptureMerge, Code::kStreamCaptureIsolation},
    {"UnmatchedIsIllegalState", "end_capture", Code::kStreamCaptureUnmatched, Code::kIllegalState},
    {"UnjoinedIsInvalidated", "end_capture", Code::kStreamCaptureUnjoined,
     Code::kStreamCaptureInvalidated},
    {"WrongThreadIsIllegalState", "end_capture", Code::kStreamCaptureWrongThread,
     Code::kIllegalState},
    {"ImplicitIsUnsupported", nullptr, Code::kStreamCaptureImplicit,
     Code::kStreamCaptureUnsupported},
    {"CapturedEventIsNotReady", "query_event", Code::kCapturedEvent, Code::kNotReady},
    {"EventOfAnEndedCaptureIsComplete", "query_event", Code::kInvalidValue, Code::kSuccess},
    {"FreesWhatItDidNotAllocate", "free_data_space", Code::kInvalidValue, Code::kSuccess},
    {"HostFunctionsMayCallTheDevice", nullptr, Code::kNotPermitted, Code::kSuccess},
    {"OutOfMemoryIsInvalidValue", "alloc_data_space", Code::kMemoryAllocation, Code::kInvalidValue},
    {"CopiesToNull", "copy", Code::kInvalidValue, Code::kSuccess},
};

constexpr const char* kOtherFaults[] = {
    "None",
    "WaitsForACapturingStream",
    "CaptureSurvivesAWait",
    "AllocatesDuringACapture",
    "CaptureSurvivesAnAllocation",
    "RelaxedIsGlobal",
    "LegacyWorkIgnoresBlockingCaptures",
    "MemsetRunsDuringCapture",
    "HostFunctionIsNotCaptured",
    "ArgumentsByReference",
    "PageableSourceIsFrozen",
    "CapturedWaitIsDropped",
    "WaitIsDropped",
    "OutsideEventsMayBeWaitedFor",
    "UnjoinedWorkIsAccepted",
    "WrongThreadKeepsTheCapture",
    "InvalidationIsNotSeen",
    "LastErrorIsLost",
    "LastErrorStays",
    "ExecRunsTwiceAtOnce",
    "LaunchesIntoACapture",
    "PatchesEveryExec",
    "PatchIsLost",
    "PatchingLaunches",
    "EdgeIsNotListed",
    "CopyIsCalledMemset",
    "ZeroBytesAreRefused",
    "IdsAreNotUnique",
    "SynchronizeDoesNotWait",
};

// Kernel arguments that are read from the caller's memory.
struct ByReference {
  HostBody body;
  std::array<const void*, kMaxKernelArguments> arguments;
};

void run_by_reference(const LaunchDims& dims, const void* const* arguments) {
  const auto& kernel = **static_cast<ByReference* const*>(arguments[0]);
  kernel.body(dims, kernel.arguments.data());
}

struct State final : CallHook {
  explicit State(std::string_view fault) : name(fault) {}

  bool is(std::string_view fault) const { return fault == name; }

  Code around(const DeviceCall& call, Forward forward) override {
    const Code code = forward();
    for (const CodeFault& fault : kCodeFaults) {
      const bool is_named =
          fault.function == nullptr || std::string_view(fault.function) == call.function;
      if (is(fault.name) && is_named && code == fault.from) return fault.to;
    }
    return code;
  }

  const std::string name;
  std::mutex mutex;
  std::map<StreamHandle, std::thread::id> captures;  // open ones, by origin
  std::set<EventHandle> captured;                    // recorded in a capture
  std::map<GraphHandle, std::vector<ExecHandle>> execs;
  std::map<ExecHandle, ExecHandle> twins;
  std::map<ExecHandle, StreamHandle> launched;
  std::list<std::vector<std::byte>> frozen;
  std::list<ByReference> by_reference;
};

bool captures(GraphAPI& graphs, StreamHandle stream) {
  if (stream == StreamHandle::kLegacy || stream == StreamHandle::kNull) return false;
  CaptureInfo info;
  return ok(graphs.capture_info(stream, &info)) && info.status == CaptureStatus::kActive;
}

class MutantGraphs final : public ForwardingGraphs {
 public:
  MutantGraphs(DeviceAPI& device, State& state) : ForwardingGraphs(device, state), s_(state) {}

  Code record_event(EventHandle event, StreamHandle stream) override {
    const std::lock_guard lock(s_.mutex);
    s_.captured.erase(event);
    if (captures(target(), stream)) s_.captured.insert(event);
    return ForwardingGraphs::record_event(event, stream);
  }
  Code wait_event(StreamHandle stream, EventHandle event) override {
    const bool in_capture = captures(target(), stream);
    if (s_.is("CapturedWaitIsDropped") && in_capture) return Code::kSuccess;
    if (s_.is("WaitIsDropped") && !in_capture && !s_.captured.contains(event)) {
      return Code::kSuccess;
    }
    if (s_.is("OutsideEventsMayBeWaitedFor") && in_capture && !s_.captured.contains(event)) {
      return Code::kSuccess;
    }
    return ForwardingGraphs::wait_event(stream, event);
  }
  Code launch_kernel(StreamHandle stream, const KernelFunction& kernel, const LaunchDims& dims,
                     KernelArguments arguments) override {
    if (s_.is("LegacyWorkIgnoresBlockingCaptures") && stream == StreamHandle::kLegacy) {
      stream = StreamHandle::kPerThread;
    }
    if (!s_.is("ArgumentsByReference") || !captures(target(), stream)) {
      return ForwardingGraphs::launch_kernel(stream, kernel, dims, arguments);
    }
    ByReference& copy = s_.by_reference.emplace_back(ByReference{kernel.host, {}});
    for (std::size_t i = 0; i < arguments.size(); ++i)
      copy.arguments[i] = arguments[i].data;
    const ByReference* const address = &copy;
    const KernelArgument argument{&address, sizeof(address)};
    return ForwardingGraphs::launch_kernel(stream, {kernel.name, run_by_reference, nullptr}, dims,
                                           {&argument, 1});
  }
  Code memset(StreamHandle stream, void* destination, std::uint8_t value,
              std::size_t bytes) override {
    if (s_.is("ZeroBytesAreRefused") && bytes == 0) return Code::kInvalidValue;
    if (s_.is("MemsetRunsDuringCapture") && captures(target(), stream)) {
      stream = StreamHandle::kPerThread;
    }
    return ForwardingGraphs::memset(stream, destination, value, bytes);
  }
  Code launch_host_function(StreamHandle stream, void (*function)(void*), void* data) override {
    if (s_.is("HostFunctionIsNotCaptured") && captures(target(), stream)) return Code::kSuccess;
    return ForwardingGraphs::launch_host_function(stream, function, data);
  }
  Code begin_capture(StreamHandle stream, CaptureMode mode) override {
    const Code code = ForwardingGraphs::begin_capture(stream, mode);
    const std::lock_guard lock(s_.mutex);
    if (ok(code)) s_.captures[stream] = std::this_thread::get_id();
    return code;
  }
  Code end_capture(StreamHandle stream, GraphHandle* graph) override {
    {
      const std::lock_guard lock(s_.mutex);
      const auto found = s_.captures.find(stream);
      const bool is_elsewhere =
          found != s_.captures.end() && found->second != std::this_thread::get_id();
      if (s_.is("WrongThreadKeepsTheCapture") && is_elsewhere) {
        return Code::kStreamCaptureWrongThread;
      }
      s_.captures.erase(stream);
    }
    const Code code = ForwardingGraphs::end_capture(stream, graph);
    if (s_.is("UnjoinedWorkIsAccepted") && code == Code::kStreamCaptureUnjoined) {
      const Code begun = target().begin_capture(stream, CaptureMode::kRelaxed);
      return ok(begun) ? target().end_capture(stream, graph) : begun;
    }
    return code;
  }
  Code capture_info(StreamHandle stream, CaptureInfo* info) override {
    const Code code = ForwardingGraphs::capture_info(stream, info);
    if (s_.is("InvalidationIsNotSeen") && info->status == CaptureStatus::kInvalidated) {
      info->status = CaptureStatus::kActive;
    }
    if (s_.is("IdsAreNotUnique") && info->id != 0) info->id = 1;
    return code;
  }
  Code exchange_capture_mode(CaptureMode* mode) override {
    if (s_.is("RelaxedIsGlobal") && *mode == CaptureMode::kRelaxed) *mode = CaptureMode::kGlobal;
    return ForwardingGraphs::exchange_capture_mode(mode);
  }
  Code node_type(NodeHandle node, NodeType* type) override {
    const Code code = ForwardingGraphs::node_type(node, type);
    if (s_.is("CopyIsCalledMemset") && *type == NodeType::kMemcpy) *type = NodeType::kMemset;
    return code;
  }
  Code instantiate(GraphHandle graph, ExecHandle* exec) override {
    const Code code = ForwardingGraphs::instantiate(graph, exec);
    if (!ok(code)) return code;
    const std::lock_guard lock(s_.mutex);
    s_.execs[graph].push_back(*exec);
    ExecHandle twin = ExecHandle::kNull;
    if (s_.is("ExecRunsTwiceAtOnce") && ok(target().instantiate(graph, &twin))) {
      s_.twins[*exec] = twin;
    }
    return code;
  }
  Code launch(ExecHandle exec, StreamHandle stream) override {
    if (s_.is("LaunchesIntoACapture") && captures(target(), stream)) {
      stream = StreamHandle::kPerThread;
    }
    const std::lock_guard lock(s_.mutex);
    const auto [first, is_first] = s_.launched.try_emplace(exec, stream);
    if (s_.is("ExecRunsTwiceAtOnce") && first->second != stream) exec = s_.twins[exec];
    return ForwardingGraphs::launch(exec, stream);
  }
  Code set_kernel_node(ExecHandle exec, NodeHandle node, const KernelFunction& kernel,
                       const LaunchDims& dims, KernelArguments arguments) override {
    if (s_.is("PatchIsLost")) return Code::kSuccess;
    for (const auto& [graph, execs] : s_.execs) {
      const bool is_its = std::find(execs.begin(), execs.end(), exec) != execs.end();
      if (!s_.is("PatchesEveryExec") || !is_its) continue;
      for (const ExecHandle other : execs)
        static_cast<void>(target().set_kernel_node(other, node, kernel, dims, arguments));
    }
    const Code code = ForwardingGraphs::set_kernel_node(exec, node, kernel, dims, arguments);
    if (s_.is("PatchingLaunches") && s_.launched.contains(exec)) {
      return target().launch(exec, s_.launched[exec]);
    }
    return code;
  }
  Code graph_edges(GraphHandle graph, std::vector<GraphEdge>* edges) override {
    const Code code = ForwardingGraphs::graph_edges(graph, edges);
    if (s_.is("EdgeIsNotListed") && !edges->empty()) edges->pop_back();
    return code;
  }

  Code peek_last_error() noexcept override {
    return s_.is("LastErrorIsLost") ? Code::kSuccess : target().peek_last_error();
  }
  Code take_last_error() noexcept override {
    if (s_.is("LastErrorStays")) return target().peek_last_error();
    const Code code = target().take_last_error();
    return s_.is("LastErrorIsLost") ? Code::kSuccess : code;
  }

 private:
  State& s_;
};

class Mutant final : public ForwardingDevice {
 public:
  Mutant(DeviceAPI& device, std::unique_ptr<State> state)
      : ForwardingDevice(device, *state, std::make_unique<MutantGraphs>(device, *state)),
        state_(std::move(state)) {}

  Code alloc_data_space(int id, std::size_t bytes, void** data) override {
    const bool survives = s().is("CaptureSurvivesAnAllocation");
    if (!survives && !s().is("AllocatesDuringACapture")) {
      return ForwardingDevice::alloc_data_space(id, bytes, data);
    }
    CaptureMode mode = CaptureMode::kRelaxed;
    static_cast<void>(target().graphs()->exchange_capture_mode(&mode));
    Code code = ForwardingDevice::alloc_data_space(id, bytes, data);
    static_cast<void>(target().graphs()->exchange_capture_mode(&mode));
    const std::lock_guard lock(s().mutex);
    if (!survives || s().captures.empty() || !ok(code)) return code;
    static_cast<void>(target().free_data_space(id, *data));
    return Code::kStreamCaptureUnsupported;
  }
  Code copy(StreamHandle stream, void* destination, const void* source,
            std::size_t bytes) override {
    if (s().is("ZeroBytesAreRefused") && bytes == 0) return Code::kInvalidValue;
    if (s().is("PageableSourceIsFrozen") && captures(*target().graphs(), stream)) {
      const auto* const from = static_cast<const std::byte*>(source);
      source = s().frozen.emplace_back(from, from + bytes).data();
    }
    return ForwardingDevice::copy(stream, destination, source, bytes);
  }
  Code synchronize_stream(StreamHandle stream) override {
    if (s().is("SynchronizeDoesNotWait")) return Code::kSuccess;
    const bool in_capture = captures(*target().graphs(), stream);
    if (s().is("WaitsForACapturingStream") && in_capture) return Code::kSuccess;
    if (s().is("CaptureSurvivesAWait") && in_capture) return Code::kStreamCaptureUnsupported;
    return ForwardingDevice::synchronize_stream(stream);
  }

 private:
  State& s() const { return *state_; }

  std::unique_ptr<State> state_;
};

}  // namespace

std::vector<std::string> mutants() {
  std::vector<std::string> names;
  for (const CodeFault& fault : kCodeFaults)
    names.emplace_back(fault.name);
  names.insert(names.end(), std::begin(kOtherFaults), std::end(kOtherFaults));
  return names;
}

std::unique_ptr<DeviceAPI> make_mutant(std::string_view name, DeviceAPI& target) {
  return std::make_unique<Mutant>(target, std::make_unique<State>(name));
}

}  // namespace cgtree::testing
