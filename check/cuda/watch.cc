// Translates callbacks into events, by a table of the functions and their parameters.
#include "check/cuda/watch.h"

#include <cupti.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/format.h"
#include "extensions/audit/program_image.h"
#include "interop/device/code.h"

namespace cgtree::graph_check {

// The effect of a call, with its parameters in parentheses.
enum class Does : std::uint8_t {
  kAllocate,               // (address, written by the call; bytes)
  kAllocateInOrder,        // (address; bytes; stream)
  kMap,                    // (address; bytes)
  kFree,                   // (address)
  kFreeInOrder,            // (address; stream)
  kUnmap,                  // (address; bytes)
  kBeginCapture,           // (stream)
  kEndCapture,             // (stream; graph, written by the call)
  kInstantiate,            // (executable, written by the call; graph)
  kInstantiateWithFlags,   // (the same; flags)
  kInstantiateWithParams,  // (the same; parameters with flags)
  kUpdate,                 // (executable; graph)
  kLaunch,                 // (executable)
  kDestroyExec,            // (executable)
  kDestroyGraph,           // (graph)
  kPatch,                  // (executable; node)
  kWork,                   // (stream), if any
  kWorkOfConfig,           // (a configuration with the stream)
  kOrder,                  // (stream): events, which are no work
};

struct Call {
  Does does = Does::kWork;
  bool is_per_thread = false;  // its default stream is that of the thread
  std::size_t first = kNone;   // the next three: where parameters are
  std::size_t second = kNone;
  std::size_t third = kNone;

  static constexpr std::size_t kNone = SIZE_MAX;
};

namespace {

using CallTable = std::unordered_map<CUpti_CallbackId, Call>;

// Functions of the driver by their names in cupti_driver_cbid.h, with their parameters by the names
// in generated_cuda_meta.h, without "cu": cuda.h has macros of some names. Those with "_ptsz" or
// "_ptds" have the parameters of those without.
#define ID(call) CUPTI_DRIVER_TRACE_CBID_cu##call
#define AT(call, parameter) offsetof(cu##call##_params, parameter)
#define ONE(call, does, a) {ID(call), {Does::does, false, AT(call, a)}},
#define TWO(call, does, a, b) {ID(call), {Does::does, false, AT(call, a), AT(call, b)}},
#define THREE(call, does, a, b, c) \
  {ID(call), {Does::does, false, AT(call, a), AT(call, b), AT(call, c)}},
#define ONE_PTSZ(call, does, a) \
  ONE(call, does, a){ID(call##_ptsz), {Does::does, true, AT(call, a)}},
#define TWO_PTSZ(call, does, a, b) \
  TWO(call, does, a, b){ID(call##_ptsz), {Does::does, true, AT(call, a), AT(call, b)}},
#define THREE_PTSZ(call, does, a, b, c)       \
  THREE(call, does, a, b, c){ID(call##_ptsz), \
                             {Does::does, true, AT(call, a), AT(call, b), AT(call, c)}},
#define WORK(call) ONE_PTSZ(call, kWork, hStream)
#define AT_ONCE(call) {ID(call), {Does::kWork, false}}, {ID(call##_ptds), {Does::kWork, true}},

// clang-format off
CallTable make_calls() {
  return {
      TWO(MemAlloc_v2, kAllocate, dptr, bytesize)
      THREE_PTSZ(MemAllocAsync, kAllocateInOrder, dptr, bytesize, hStream)
      THREE_PTSZ(MemAllocFromPoolAsync, kAllocateInOrder, dptr, bytesize, hStream)
      TWO(MemMap, kMap, ptr, size)
      ONE(MemFree_v2, kFree, dptr)
      ONE(MemFreeHost, kFree, p)
      ONE(MemHostUnregister, kFree, p)
      ONE(IpcCloseMemHandle, kFree, dptr)
      TWO_PTSZ(MemFreeAsync, kFreeInOrder, dptr, hStream)
      TWO(MemUnmap, kUnmap, ptr, size)
      ONE_PTSZ(StreamBeginCapture, kBeginCapture, hStream)
      ONE_PTSZ(StreamBeginCapture_v2, kBeginCapture, hStream)
      ONE_PTSZ(StreamBeginCaptureToGraph, kBeginCapture, hStream)
      TWO_PTSZ(StreamEndCapture, kEndCapture, hStream, phGraph)
      TWO(GraphInstantiate, kInstantiate, phGraphExec, hGraph)
      TWO(GraphInstantiate_v2, kInstantiate, phGraphExec, hGraph)
      THREE(GraphInstantiateWithFlags, kInstantiateWithFlags, phGraphExec, hGraph, flags)
      THREE_PTSZ(GraphInstantiateWithParams, kInstantiateWithParams, phGraphExec, hGraph,
                 instantiateParams)
      TWO(GraphExecUpdate, kUpdate, hGraphExec, hGraph)
      TWO(GraphExecUpdate_v2, kUpdate, hGraphExec, hGraph)
      ONE_PTSZ(GraphLaunch, kLaunch, hGraph)
      ONE(GraphExecDestroy, kDestroyExec, hGraphExec)
      ONE(GraphDestroy, kDestroyGraph, hGraph)
      TWO(GraphExecKernelNodeSetParams, kPatch, hGraphExec, hNode)
      TWO(GraphExecKernelNodeSetParams_v2, kPatch, hGraphExec, hNode)
      TWO(GraphExecMemcpyNodeSetParams, kPatch, hGraphExec, hNode)
      TWO(GraphExecMemsetNodeSetParams, kPatch, hGraphExec, hNode)
      TWO(GraphExecChildGraphNodeSetParams, kPatch, hGraphExec, hNode)
      TWO(GraphExecNodeSetParams, kPatch, hGraphExec, hNode)
      TWO(GraphNodeSetEnabled, kPatch, hGraphExec, hNode)
      WORK(LaunchKernel) WORK(LaunchCooperativeKernel) WORK(LaunchHostFunc)
      ONE_PTSZ(LaunchKernelEx, kWorkOfConfig, config)
      WORK(MemcpyAsync) WORK(MemcpyPeerAsync) WORK(MemcpyHtoDAsync_v2)
      WORK(MemcpyDtoHAsync_v2) WORK(MemcpyDtoDAsync_v2) WORK(Memcpy2DAsync_v2)
      WORK(Memcpy3DAsync_v2) WORK(Memcpy3DPeerAsync) WORK(MemcpyBatchAsync)
      WORK(MemcpyBatchAsync_v2) WORK(Memcpy3DBatchAsync) WORK(Memcpy3DBatchAsync_v2)
      WORK(MemsetD8Async) WORK(MemsetD16Async) WORK(MemsetD32Async)
      WORK(MemsetD2D8Async) WORK(MemsetD2D16Async) WORK(MemsetD2D32Async)
      WORK(MemPrefetchAsync_v2)
      ONE_PTSZ(EventRecord, kOrder, hStream) ONE_PTSZ(EventRecordWithFlags, kOrder, hStream)
      ONE_PTSZ(StreamWaitEvent, kOrder, hStream)
      AT_ONCE(Memcpy) AT_ONCE(MemcpyPeer) AT_ONCE(MemcpyHtoD_v2) AT_ONCE(MemcpyDtoH_v2)
      AT_ONCE(MemcpyDtoD_v2) AT_ONCE(Memcpy2D_v2) AT_ONCE(Memcpy3D_v2)
      AT_ONCE(MemsetD8_v2) AT_ONCE(MemsetD16_v2) AT_ONCE(MemsetD32_v2)
  };
}
// clang-format on

const CallTable& calls() {
  static const CallTable made = make_calls();
  return made;
}

template <typename Value>
Value at(const CUpti_CallbackData& data, std::size_t offset) noexcept {
  Value value;
  std::memcpy(&value, static_cast<const char*>(data.functionParams) + offset, sizeof value);
  return value;
}

// Handles and addresses are words.
std::uintptr_t word(const CUpti_CallbackData& data, std::size_t offset) noexcept {
  return at<std::uintptr_t>(data, offset);
}

// A word that the call has written.
std::uintptr_t written(const CUpti_CallbackData& data, std::size_t offset) noexcept {
  return *at<const std::uintptr_t*>(data, offset);
}

bool is_exit(const CUpti_CallbackData& data) noexcept {
  return data.callbackSite == CUPTI_API_EXIT;
}

int result_of(const CUpti_CallbackData& data) noexcept {
  return *static_cast<const int*>(data.functionReturnValue);
}

bool has_succeeded(const CUpti_CallbackData& data) noexcept {
  return is_exit(data) && result_of(data) == CUDA_SUCCESS;
}

std::uint64_t this_thread() noexcept {
  return std::hash<std::thread::id>()(std::this_thread::get_id());
}

StreamKey key_of(std::uintptr_t stream, bool is_per_thread) noexcept {
  const auto of_thread = reinterpret_cast<std::uintptr_t>(CU_STREAM_PER_THREAD);
  const auto legacy = reinterpret_cast<std::uintptr_t>(CU_STREAM_LEGACY);
  if (stream == 0) stream = is_per_thread ? of_thread : legacy;
  return {stream, stream == of_thread ? this_thread() : 0};
}

std::string text_of(const CUpti_CallbackData& data) {
  return str_format("{} returned {} ({})", data.functionName, result_of(data),
                    cgtree::name(static_cast<Code>(result_of(data))));
}

// Calls of CUDA that callbacks make have none themselves.
thread_local bool is_inside = false;

}  // namespace

Time now() noexcept {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::vector<CUpti_CallbackId> driver_calls(Calls wanted) {
  const auto group_of = [](Does does) {
    if (does == Does::kLaunch) return Calls::kLaunches;
    if (does >= Does::kWork) return Calls::kWork;
    return does <= Does::kUnmap ? Calls::kMemory : Calls::kGraphs;
  };
  std::vector<CUpti_CallbackId> found;
  for (const auto& [id, call] : calls())
    if (group_of(call.does) == wanted) found.push_back(id);
  return found;
}

void Watch::on_call(CUpti_CallbackId id, const CUpti_CallbackData& data) noexcept {
  if (is_inside || is_stopped_.load(std::memory_order_relaxed)) return;
  is_inside = true;
  try {
    on_driver_call(id, data);
    follow();
  } catch (...) {  // no memory: the event is lost
  }
  is_inside = false;
}

void Watch::on_driver_call(CUpti_CallbackId id, const Data& data) {
  const auto found = calls().find(id);
  if (found == calls().end()) return;
  const Call& call = found->second;
  const auto& [does, is_per_thread, first, second, third] = call;
  switch (does) {
    case Does::kLaunch:
      return launched(data, word(data, first));
    case Does::kAllocate:
    case Does::kAllocateInOrder:
    case Does::kMap:
      return on_allocation(call, data);
    case Does::kFreeInOrder:
      if (is_captured(word(data, second), is_per_thread)) return;
      [[fallthrough]];
    case Does::kFree:
      return freed(data, word(data, first));
    case Does::kBeginCapture:
      return begin_capture(data, key_of(word(data, first), is_per_thread));
    case Does::kEndCapture:
      return end_capture(data, key_of(word(data, first), is_per_thread), second);
    case Does::kInstantiate:
      return instantiated(data, first, second, 0);
    case Does::kInstantiateWithFlags:
      return instantiated(data, first, second, word(data, third));
    case Does::kInstantiateWithParams:
      return instantiated(data, first, second,
                          at<const CUDA_GRAPH_INSTANTIATE_PARAMS*>(data, third)->flags);
    case Does::kUpdate:
      return updated(data, word(data, first), word(data, second));
    case Does::kUnmap:
    case Does::kDestroyExec:
    case Does::kDestroyGraph:
    case Does::kPatch:
      return on_change(call, data);
    case Does::kWork:
    case Does::kWorkOfConfig:
    case Does::kOrder:
      return on_work(call, data);
  }
}

// An allocation counts when its call has returned. The driver is asked for those of other functions
// when a graph refers to them.
void Watch::on_allocation(const Call& call, const Data& data) {
  if (!has_succeeded(data)) return;
  const bool is_mapping = call.does == Does::kMap;
  const std::uintptr_t address = is_mapping ? word(data, call.first) : written(data, call.first);
  // While the stream captures, the memory is that of a node.
  if (call.does == Does::kAllocateInOrder &&
      is_captured(word(data, call.third), call.is_per_thread)) {
    return;
  }
  const std::lock_guard lock(mutex_);
  ++calls_[data.functionName];
  ledger_.allocate(address, word(data, call.second), data.functionName, is_mapping, take_);
}

// Another thread may get the address before this call has returned: the number tells which
// allocation was there when it began.
void Watch::freed(const Data& data, std::uintptr_t address) {
  const std::lock_guard lock(mutex_);
  if (!is_exit(data)) {
    *data.correlationData = ledger_.number_at(address);
  } else if (has_succeeded(data)) {
    ++calls_[data.functionName];
    ledger_.free(address, *data.correlationData, data.functionName, take_);
    tell_new();
  }
}

// An object is destroyed when the call begins: another thread may get the handle before it
// returns.
void Watch::on_change(const Call& call, const Data& data) {
  const bool is_destruction = call.does == Does::kDestroyExec || call.does == Does::kDestroyGraph;
  if (is_destruction == is_exit(data) || (is_exit(data) && !has_succeeded(data))) return;
  const std::uintptr_t object = word(data, call.first);
  const std::lock_guard lock(mutex_);
  if (call.does == Does::kDestroyExec) {
    ledger_.destroy_exec(static_cast<ExecHandle>(object));
  } else if (call.does == Does::kDestroyGraph) {
    ledger_.destroy_graph(static_cast<GraphHandle>(object));
  } else if (call.does == Does::kPatch) {
    ledger_.forget_node(static_cast<ExecHandle>(object),
                        static_cast<NodeHandle>(word(data, call.second)));
  } else {
    ledger_.unmap(object, word(data, call.second), data.functionName, take_);
    tell_new();
  }
}

void Watch::on_work(const Call& call, const Data& data) {
  if (!is_exit(data) || open_captures_ == 0) return;
  std::uintptr_t stream = 0;
  if (call.does == Does::kWorkOfConfig) {
    const auto* const config = at<const CUlaunchConfig*>(data, call.first);
    stream = reinterpret_cast<std::uintptr_t>(config->hStream);
  } else if (call.first != Call::kNone) {
    stream = word(data, call.first);
  }
  const StreamKey key = key_of(stream, call.is_per_thread);
  if (!has_succeeded(data)) return refused(data, key);
  if (call.does == Does::kOrder || key != key_of(0, /*is_per_thread=*/false)) return;
  const std::lock_guard lock(mutex_);
  ledger_.use_legacy_stream(this_thread(), data.functionName, take_);
}

void Watch::refused(const Data& data, StreamKey stream) {
  const std::lock_guard lock(mutex_);
  ledger_.refuse(stream, this_thread(), text_of(data), take_);
}

bool Watch::is_captured(std::uintptr_t stream, bool is_per_thread) {
  return open_captures_ > 0 &&
         questions_.is_capturing(reinterpret_cast<CUstream>(key_of(stream, is_per_thread).stream));
}

void Watch::begin_capture(const Data& data, StreamKey stream) {
  if (!is_exit(data)) return prepare();
  if (!has_succeeded(data)) return;
  const std::lock_guard lock(mutex_);
  ++calls_[data.functionName];
  ledger_.begin_capture(stream, this_thread(), stacks_.take());
  open_captures_ = ledger_.open_captures();
}

// On a wrong thread the capture goes on.
void Watch::end_capture(const Data& data, StreamKey stream, std::size_t graph) {
  if (!is_exit(data) || result_of(data) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD) return;
  const std::lock_guard lock(mutex_);
  ledger_.end_capture(stream, has_succeeded(data) ? static_cast<GraphHandle>(written(data, graph))
                                                  : GraphHandle::kNull);
  open_captures_ = ledger_.open_captures();
}

void Watch::prepare() {
  std::call_once(prepared_, [this] {
    questions_.prepare();
    const std::lock_guard lock(calls_mutex_);
    questions_.watch(Calls::kMemory, true);
  });
}

// Has callbacks made as captures and the ledger want them. No thread waits for another, which is
// inside of CUPTI: the one that changes them looks again.
void Watch::follow() {
  while (is_work_watched_ != (open_captures_ > 0) || are_launches_watched_ != wants_launches_) {
    const std::unique_lock lock(calls_mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    if (const bool is_open = open_captures_ > 0; is_open != is_work_watched_) {
      questions_.watch(Calls::kWork, is_open);
      is_work_watched_ = is_open;
    }
    if (const bool is_wanted = wants_launches_; is_wanted != are_launches_watched_) {
      questions_.watch(Calls::kLaunches, is_wanted);
      are_launches_watched_ = is_wanted;
    }
  }
}

// Asks the driver for the memory that no call has told.
void Watch::ask(GraphContents& contents) {
  std::set<std::uintptr_t> words;
  {
    const std::lock_guard lock(mutex_);
    words = ledger_.unknown_words(contents.nodes);
  }
  BlockRange last;
  for (const std::uintptr_t word : words) {
    if (word - last.address < last.bytes) continue;
    last = questions_.allocation_of(word);
    if (last.bytes > 0) contents.older.push_back(last);
  }
  for (const NodeContents& node : contents.nodes)
    for (const NodeMemory& memory : node.memory)
      if (node.type == NodeType::kMemcpy && !is_in_program_image(memory.address))
        contents.pageable.insert(memory.address);
}

// The lock is not held while CUDA is asked.
GraphContents Watch::read(std::uintptr_t graph) {
  GraphContents contents;
  const std::string why = questions_.read(static_cast<GraphHandle>(graph), &contents);
  if (!why.empty()) {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(unseen_, why) == unseen_.end()) unseen_.push_back(why);
  }
  ask(contents);
  return contents;
}

void Watch::instantiated(const Data& data, std::size_t exec, std::size_t graph,
                         std::uint64_t flags) {
  if (!is_exit(data)) return prepare();
  if (!has_succeeded(data)) return;
  GraphContents contents = read(word(data, graph));
  contents.flags = flags;
  const std::lock_guard lock(mutex_);
  ++calls_[data.functionName];
  ledger_.instantiate(static_cast<GraphHandle>(word(data, graph)),
                      static_cast<ExecHandle>(written(data, exec)), std::move(contents),
                      stacks_.take(), now());
  tell_new();
}

void Watch::updated(const Data& data, std::uintptr_t exec, std::uintptr_t graph) {
  if (!has_succeeded(data)) return;
  GraphContents contents = read(graph);
  const std::lock_guard lock(mutex_);
  ++calls_[data.functionName];
  ledger_.update(static_cast<ExecHandle>(exec), static_cast<GraphHandle>(graph),
                 std::move(contents), stacks_.take(), now());
  tell_new();
}

// A launch of stale memory may be the end of the program: it counts when the call begins.
void Watch::launched(const Data& data, std::uintptr_t exec) {
  if (has_succeeded(data)) return;
  const std::lock_guard lock(mutex_);
  if (!is_exit(data)) {
    ledger_.launch(static_cast<ExecHandle>(exec), now());
  } else {
    ledger_.refuse_launch(static_cast<ExecHandle>(exec), text_of(data), take_);
  }
  tell_new();
}

// Called at the end of each event that may change findings or wishes.
void Watch::tell_new() {
  wants_launches_ = ledger_.wants_launches();
  const auto& findings = ledger_.findings();
  for (; told_ < findings.size(); ++told_)
    tell_(findings[told_], stacks_);
}

void Watch::expect_blocks() {
  const std::lock_guard lock(mutex_);
  ledger_.expect_blocks();
  wants_launches_ = true;
}

void Watch::add_blocks(std::string_view source, std::span<const BlockEvent> events,
                       std::span<const BlockRange> kept) {
  const std::lock_guard lock(mutex_);
  calls_[source] += events.size();
  ledger_.add_blocks(source, events, kept);
  tell_new();
}

Report Watch::report(Process process) {
  const std::lock_guard lock(mutex_);
  process.unseen.insert(process.unseen.end(), unseen_.begin(), unseen_.end());
  for (const auto& [call, count] : calls_)
    process.calls.push_back(str_format("{} {}", call, count));
  return make_report(process, ledger_, stacks_);
}

}  // namespace cgtree::graph_check
