// Translates calls of the driver into events.
#include "check/cuda/watch.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/format.h"
#include "extensions/audit/program_image.h"
#include "interop/device/code.h"

namespace cgtree::graph_check {
namespace {

// A parameter. Its type has the size of the function's.
template <typename Value>
Value at(const CallData& data, std::size_t position) noexcept {
  Value value;
  std::memcpy(&value, data.params[position], sizeof value);
  return value;
}

// Handles and addresses are words.
std::uintptr_t word(const CallData& data, std::size_t position) noexcept {
  return at<std::uintptr_t>(data, position);
}

// A word that the call has written. A capture into a graph may end with a null pointer.
std::uintptr_t written(const CallData& data, std::size_t position) noexcept {
  const auto* const to = at<const std::uintptr_t*>(data, position);
  return to == nullptr ? static_cast<std::uintptr_t>(kInto) : *to;
}

bool is_exit(const CallData& data) noexcept {
  return data.result != nullptr;
}

int result_of(const CallData& data) noexcept {
  return *data.result;
}

bool has_succeeded(const CallData& data) noexcept {
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

std::string text_of(const CallData& data) {
  return str_format("{} returned {} ({})", data.call.name, result_of(data),
                    cgtree::name(static_cast<Code>(result_of(data))));
}

// Calls of CUDA that the watch makes are none of the program.
thread_local bool is_inside = false;

}  // namespace

Time now() noexcept {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void Watch::on_call(const CallData& data) noexcept {
  if (is_inside) return;
  is_inside = true;
  try {
    dispatch(data);
    tell_new();
  } catch (...) {  // no memory: the event is lost
  }
  is_inside = false;
}

void Watch::dispatch(const CallData& data) {
  const auto& [name, is_per_thread, does, first, second, third] = data.call;
  switch (does) {
    case Does::kGetAddress:
    case Does::kStart:
      return;
    case Does::kLaunch:
      return launched(data, word(data, first));
    case Does::kAllocate:
    case Does::kAllocateInOrder:
    case Does::kMap:
      return on_allocation(data);
    case Does::kFreeInOrder:
      if (is_captured(word(data, second), is_per_thread)) return;
      [[fallthrough]];
    case Does::kFree:
      return freed(data, word(data, first));
    case Does::kBeginCapture:
      return begin_capture(data, key_of(word(data, first), is_per_thread),
                           second == Call::kNone ? 0 : word(data, second));
    case Does::kEndCapture:
      // On a wrong thread the capture goes on.
      if (!is_exit(data) || result_of(data) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD) return;
      return end_capture(key_of(word(data, first), is_per_thread),
                         static_cast<GraphHandle>(has_succeeded(data) ? written(data, second) : 0));
    case Does::kInstantiate:
    case Does::kInstantiateWithFlags:
    case Does::kInstantiateWithParams:
    case Does::kUpdate:
      return instantiated(data);
    case Does::kUnmap:
    case Does::kDestroyExec:
    case Does::kDestroyGraph:
    case Does::kPatch:
      return on_change(data);
    case Does::kWork:
    case Does::kWorkOfConfig:
    case Does::kOrder:
    case Does::kDestroyStream:
      return on_work(data);
  }
}

// An allocation counts when its call has returned. The driver is asked for those of other functions
// when a graph refers to them.
void Watch::on_allocation(const CallData& data) {
  if (!has_succeeded(data)) return;
  const Call& call = data.call;
  const bool is_mapping = call.does == Does::kMap;
  const std::uintptr_t address = is_mapping ? word(data, call.first) : written(data, call.first);
  MemoryKind kind = is_mapping ? MemoryKind::kMapping : MemoryKind::kPlain;
  const bool is_in_order = call.does == Does::kAllocateInOrder;
  if (is_in_order && is_captured(word(data, call.third), call.is_per_thread))
    kind = MemoryKind::kOfNode;
  const std::lock_guard lock(mutex_);
  ++calls_[data.call.name];
  ledger_.allocate(address, word(data, call.second), data.call.name, kind, take_);
}

// Another thread may get the address before this call has returned: the number tells which
// allocation was there when it began.
void Watch::freed(const CallData& data, std::uintptr_t address) {
  const std::lock_guard lock(mutex_);
  if (!is_exit(data)) {
    *data.shared = ledger_.number_at(address);
  } else if (has_succeeded(data)) {
    ++calls_[data.call.name];
    ledger_.free(address, *data.shared, data.call.name, take_);
  }
}

// An object is destroyed when the call begins: another thread may get the handle before it
// returns.
void Watch::on_change(const CallData& data) {
  const Call& call = data.call;
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
    ledger_.unmap(object, word(data, call.second), data.call.name, take_);
  }
}

void Watch::on_work(const CallData& data) {
  if (!is_exit(data)) return;
  const Call& call = data.call;
  std::uintptr_t stream = 0;
  if (call.does == Does::kWorkOfConfig) {
    const auto* const config = at<const CUlaunchConfig*>(data, call.first);
    if (config != nullptr) stream = reinterpret_cast<std::uintptr_t>(config->hStream);
  } else if (call.first != Call::kNone) {
    stream = word(data, call.first);
  }
  const StreamKey key = key_of(stream, call.is_per_thread);
  const bool is_legacy = key == key_of(0, /*is_per_thread=*/false);
  if (!has_succeeded(data)) {
    // A stream that does not capture is of no capture, whatever else its thread does.
    if (!is_legacy && !is_captured(stream, call.is_per_thread)) return;
    const std::lock_guard lock(mutex_);
    ledger_.refuse(is_legacy ? StreamKey() : key, this_thread(), text_of(data), take_);
  } else if (call.does == Does::kDestroyStream) {
    end_capture(key, GraphHandle::kNull);
  } else if (call.does != Does::kOrder && is_legacy) {
    const std::lock_guard lock(mutex_);
    ledger_.use_legacy_stream(this_thread(), data.call.name, take_);
  }
}

bool Watch::is_captured(std::uintptr_t stream, bool is_per_thread) {
  return open_captures_ > 0 &&
         questions_.is_capturing(reinterpret_cast<CUstream>(key_of(stream, is_per_thread).stream));
}

void Watch::begin_capture(const CallData& data, StreamKey stream, std::uintptr_t into) {
  if (!is_exit(data)) return prepare();
  if (!has_succeeded(data)) return;
  const std::lock_guard lock(mutex_);
  ++calls_[data.call.name];
  ledger_.begin_capture(stream, this_thread(), stacks_.take(), static_cast<GraphHandle>(into));
  open_captures_ = ledger_.open_captures();
}

void Watch::end_capture(StreamKey stream, GraphHandle graph) {
  const std::lock_guard lock(mutex_);
  ledger_.end_capture(stream, graph);
  open_captures_ = ledger_.open_captures();
}

void Watch::prepare() {
  std::call_once(prepared_, [this] {
    questions_.prepare();
    static_cast<void>(stacks_.take());  // the first, without the lock
    has_graphs_ = true;
  });
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
GraphContents Watch::read(GraphHandle graph) {
  GraphContents contents;
  const std::string why = questions_.read(graph, &contents);
  if (!why.empty()) {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(unseen_, why) == unseen_.end()) unseen_.push_back(why);
  }
  ask(contents);
  return contents;
}

void Watch::instantiated(const CallData& data) {
  const Call& call = data.call;
  if (!is_exit(data)) return prepare();
  if (!has_succeeded(data)) return;
  const auto graph = static_cast<GraphHandle>(word(data, call.second));
  GraphContents contents = read(graph);
  if (call.does == Does::kInstantiateWithFlags) contents.flags = word(data, call.third);
  if (call.does == Does::kInstantiateWithParams)
    contents.flags = at<const CUDA_GRAPH_INSTANTIATE_PARAMS*>(data, call.third)->flags;
  const std::lock_guard lock(mutex_);
  ++calls_[data.call.name];
  if (call.does == Does::kUpdate) {
    ledger_.update(static_cast<ExecHandle>(word(data, call.first)), graph, std::move(contents),
                   stacks_.take(), now());
  } else {
    ledger_.instantiate(graph, static_cast<ExecHandle>(written(data, call.first)),
                        std::move(contents), stacks_.take(), now());
  }
  note_new();
}

// A launch of stale memory may be the end of the program: it counts when the call begins.
void Watch::launched(const CallData& data, std::uintptr_t exec) {
  if (has_succeeded(data)) return;
  const std::lock_guard lock(mutex_);
  if (!is_exit(data)) {
    ledger_.launch(static_cast<ExecHandle>(exec), now());
  } else if (result_of(data) == CUDA_ERROR_INVALID_VALUE) {
    ledger_.refuse_launch(static_cast<ExecHandle>(exec), text_of(data), take_);
  }
  note_new();
}

// The lock is not held while a finding is told, which waits for the linker: a thread that has the
// linker's lock, by dlopen(), may make a watched call.
void Watch::tell_new() {
  if (!has_new_.load(std::memory_order_relaxed)) return;
  std::unique_lock lock(mutex_);
  const auto& all = ledger_.findings();
  const std::vector<Finding> found(all.begin() + std::exchange(told_, std::ssize(all)), all.end());
  has_new_ = false;
  lock.unlock();
  for (const Finding& finding : found)
    tell_(finding, stacks_);
}

void Watch::expect_blocks() {
  const std::lock_guard lock(mutex_);
  ledger_.expect_blocks();
}

void Watch::add_blocks(std::string_view source, std::span<const BlockEvent> events,
                       std::span<const BlockRange> kept) {
  std::unique_lock lock(mutex_);
  calls_[source] += events.size();
  ledger_.add_blocks(source, events, kept);
  note_new();
  lock.unlock();
  tell_new();
}

Report Watch::report(Process process) {
  // A handler of a signal may call exit() inside of on_call(), which has the lock.
  if (is_inside) throw std::logic_error("no report inside of a watched call");
  std::unique_lock lock(mutex_);
  process.unseen.insert(process.unseen.end(), unseen_.begin(), unseen_.end());
  for (const auto& [call, count] : calls_)
    process.calls.push_back(str_format("{} {}", call, count));
  std::vector<Finding> findings(ledger_.findings().begin(), ledger_.findings().end());
  std::ranges::move(ledger_.remarks(), std::back_inserter(findings));
  const LedgerTotals totals = ledger_.totals();
  lock.unlock();
  return make_report(process, findings, totals, stacks_);
}

}  // namespace cgtree::graph_check
