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
#include "interop/device/code.h"

namespace cgtree::graph_check {

// The effect of a call, with its parameters in parentheses.
enum class Does : std::uint8_t {
  kAllocate,         // (address, written by the call; bytes)
  kAllocateRows,     // (address, written by the call; rows; bytes of a row, written by the call)
  kAllocateInOrder,  // (address; bytes; stream)
  kRegister,         // (address; bytes)
  kMap,              // (address; bytes)
  kImport,           // (address, written by the call)
  kFree,             // (address)
  kFreeInOrder,      // (address; stream)
  kUnmap,            // (address; bytes)
  kBeginCapture,     // (stream)
  kEndCapture,       // (stream; graph, written by the call)
  kInstantiate,      // (executable, written by the call; graph)
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

using Calls = std::unordered_map<CUpti_CallbackId, Call>;

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
Calls make_calls() {
  return {
      TWO(MemAlloc_v2, kAllocate, dptr, bytesize)
      THREE(MemAllocPitch_v2, kAllocateRows, dptr, Height, pPitch)
      TWO(MemAllocManaged, kAllocate, dptr, bytesize)
      TWO(MemHostAlloc, kAllocate, pp, bytesize)
      {ID(MemHostAlloc_v2),
       {Does::kAllocate, false, AT(MemHostAlloc, pp), AT(MemHostAlloc, bytesize)}},
      TWO(MemAllocHost_v2, kAllocate, pp, bytesize)
      TWO(MemHostRegister_v2, kRegister, p, bytesize)
      THREE_PTSZ(MemAllocAsync, kAllocateInOrder, dptr, bytesize, hStream)
      THREE_PTSZ(MemAllocFromPoolAsync, kAllocateInOrder, dptr, bytesize, hStream)
      TWO(MemMap, kMap, ptr, size)
      ONE(IpcOpenMemHandle_v2, kImport, pdptr)
      ONE(MemPoolImportPointer, kImport, ptr_out)
      ONE(ExternalMemoryGetMappedBuffer, kImport, devPtr)
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

const Calls& calls() {
  static const Calls made = make_calls();
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

// Source: cudaError_t, 900 to 908.
bool is_refused_for_capture(const CUpti_CallbackData& data) noexcept {
  return is_exit(data) && result_of(data) >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
         result_of(data) <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
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
thread_local std::uint32_t refused_in_driver = 0;  // the last call, by its correlation

}  // namespace

Time now() noexcept {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::vector<CUpti_CallbackId> driver_calls(bool are_work) {
  std::vector<CUpti_CallbackId> found;
  for (const auto& [id, call] : calls())
    if ((call.does >= Does::kWork) == are_work) found.push_back(id);
  return found;
}

std::vector<CUpti_CallbackId> runtime_work_calls() {
  return {CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyBatchAsync_v12080,
          CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyBatchAsync_ptsz_v12080,
          CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy3DBatchAsync_v12080,
          CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy3DBatchAsync_ptsz_v12080,
          CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyBatchAsync_v13000,
          CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyBatchAsync_ptsz_v13000,
          CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy3DBatchAsync_v13000,
          CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy3DBatchAsync_ptsz_v13000};
}

void Watch::on_call(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) noexcept {
  if (is_inside || is_stopped_.load(std::memory_order_relaxed)) return;
  is_inside = true;
  try {
    if (domain == CUPTI_CB_DOMAIN_RUNTIME_API) {
      on_runtime_call(*static_cast<const Data*>(data));
    } else {
      on_driver_call(id, *static_cast<const Data*>(data));
    }
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
    case Does::kAllocateRows:
    case Does::kAllocateInOrder:
    case Does::kRegister:
    case Does::kMap:
    case Does::kImport:
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

// An allocation counts when its call has returned.
void Watch::on_allocation(const Call& call, const Data& data) {
  if (is_refused_for_capture(data)) return refused(data, {});
  if (!has_succeeded(data)) return;
  const bool is_written = call.does != Does::kRegister && call.does != Does::kMap;
  const std::uintptr_t address = is_written ? written(data, call.first) : word(data, call.first);
  std::size_t bytes = call.second != Call::kNone ? word(data, call.second) : 0;
  if (call.does == Does::kAllocateRows) bytes *= written(data, call.third);
  if (call.does == Does::kImport) bytes = questions_.bytes_of(address);
  // While the stream captures, the memory is that of a node.
  if (call.does == Does::kAllocateInOrder &&
      is_captured(word(data, call.third), call.is_per_thread)) {
    return;
  }
  const std::lock_guard lock(mutex_);
  ++calls_[data.functionName];
  ledger_.allocate(address, bytes, data.functionName, call.does == Does::kMap, take_);
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
  refused_in_driver = data.correlationId;
  ledger_.refuse(stream, this_thread(), text_of(data), take_);
}

// Calls that the runtime refuses without asking the driver.
void Watch::on_runtime_call(const Data& data) {
  if (!is_exit(data) || open_captures_ == 0 || has_succeeded(data)) return;
  if (refused_in_driver != data.correlationId) refused(data, {});
}

bool Watch::is_captured(std::uintptr_t stream, bool is_per_thread) {
  return open_captures_ > 0 &&
         questions_.is_capturing(reinterpret_cast<CUstream>(key_of(stream, is_per_thread).stream));
}

void Watch::begin_capture(const Data& data, StreamKey stream) {
  if (!is_exit(data)) return std::call_once(prepared_, questions_.prepare);
  if (!has_succeeded(data)) return;
  {
    const std::lock_guard lock(mutex_);
    ++calls_[data.functionName];
    ledger_.begin_capture(stream, this_thread(), stacks_.take());
    open_captures_ = ledger_.open_captures();
  }
  follow_captures();
}

// On a wrong thread the capture goes on.
void Watch::end_capture(const Data& data, StreamKey stream, std::size_t graph) {
  if (!is_exit(data) || result_of(data) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD) return;
  {
    const std::lock_guard lock(mutex_);
    ledger_.end_capture(stream, has_succeeded(data) ? static_cast<GraphHandle>(written(data, graph))
                                                    : GraphHandle::kNull);
    open_captures_ = ledger_.open_captures();
  }
  follow_captures();
}

// The last of several threads leaves it as the number of captures says.
void Watch::follow_captures() {
  const std::lock_guard lock(work_mutex_);
  const bool is_wanted = open_captures_ > 0;
  if (is_wanted != is_work_watched_) questions_.watch_work(is_wanted);
  is_work_watched_ = is_wanted;
}

// The lock is not held while CUDA is asked.
GraphContents Watch::read(std::uintptr_t graph) {
  GraphContents contents;
  const std::string why = questions_.read(static_cast<GraphHandle>(graph), &contents);
  if (!why.empty()) {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(unseen_, why) == unseen_.end()) unseen_.push_back(why);
  }
  for (const NodeContents& node : contents.nodes)
    for (const NodeMemory& memory : node.memory)
      if (node.type == NodeType::kMemcpy && questions_.is_pageable(memory.address))
        contents.pageable.insert(memory.address);
  return contents;
}

void Watch::instantiated(const Data& data, std::size_t exec, std::size_t graph,
                         std::uint64_t flags) {
  if (!is_exit(data)) return std::call_once(prepared_, questions_.prepare);
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

void Watch::launched(const Data& data, std::uintptr_t exec) {
  if (!is_exit(data)) return;
  const std::lock_guard lock(mutex_);
  if (has_succeeded(data)) {
    ledger_.launch(static_cast<ExecHandle>(exec), now());
  } else {
    ledger_.refuse_launch(static_cast<ExecHandle>(exec), text_of(data), take_);
  }
  tell_new();
}

void Watch::tell_new() {
  const auto& findings = ledger_.findings();
  for (; told_ < findings.size(); ++told_)
    tell_(findings[told_], stacks_);
}

void Watch::add_blocks(std::string_view source, std::span<const BlockEvent> events,
                       std::span<const BlockRange> kept) {
  const std::lock_guard lock(mutex_);
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
