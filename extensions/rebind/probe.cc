// Captures a step with its inputs where the caller has them, and reads captured graphs, with the
// tables in host memory that they copy.
#include "extensions/rebind/probe.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_set>

#include "base/check.h"
#include "base/format.h"
#include "cgtree/record/outputs.h"
#include "interop/device/device_api.h"

namespace cgtree {
namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);
// Addresses of user space, on every 64-bit system there is; smaller numbers are counts.
constexpr std::uint64_t kLeastAddress = std::uint64_t{1} << 24;
constexpr std::uint64_t kAddressEnd = std::uint64_t{1} << 48;

PointerKind kind_of(DeviceAPI& api, std::uint64_t address, GraphContents& contents) {
  PointerAttributes attributes;
  const Code code = api.pointer_attributes(reinterpret_cast<const void*>(address), &attributes);
  if (!ok(code)) {
    contents.opaque = str_format("where {:#x} lies cannot be told: {}", address, name(code));
  }
  return attributes.kind;
}

// Source: CUDA reads the host's side of a captured copy at each launch, so it is there.
void read_host_memory(DeviceAPI& api, const NodeContents& node, GraphContents& contents) {
  if (node.type != NodeType::kMemcpy) return;
  // Where either side is not aligned, a kernel may find an address at any byte.
  const bool is_aligned = std::ranges::all_of(
      node.memory, [](const NodeMemory& memory) { return memory.address % kWordBytes == 0; });
  for (const NodeMemory& memory : node.memory) {
    if (memory.is_written || kind_of(api, memory.address, contents) == PointerKind::kDevice) {
      continue;
    }
    const auto* const data = reinterpret_cast<const std::byte*>(memory.address);
    for (std::size_t i = 0; i + kWordBytes <= memory.bytes; i += is_aligned ? kWordBytes : 1) {
      std::uint64_t word = 0;
      std::memcpy(&word, data + i, kWordBytes);
      if (word >= kLeastAddress && word < kAddressEnd) contents.host_words.push_back(word);
    }
  }
}

// A kernel that is given host memory may find any address there.
void look_for_host_memory(DeviceAPI& api, const NodeContents& node,
                          std::unordered_set<std::uint64_t>& known, GraphContents& contents) {
  for (std::size_t i = 0; i + kWordBytes <= node.bytes.size(); i += kWordBytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, node.bytes.data() + i, kWordBytes);
    if (word < kLeastAddress || word >= kAddressEnd || !known.insert(word).second) continue;
    const PointerKind kind = kind_of(api, word, contents);
    if (kind != PointerKind::kPinned && kind != PointerKind::kManaged) continue;
    contents.opaque = str_format("'{}' reads memory of the host at {:#x}, where addresses may be",
                                 demangled(node.name()), word);
  }
}

// A StandIn owns its storage, and ends with its last reference.
class StandIn final : public StorageOwner {
 public:
  StandIn(const Tensor& tensor, ContextMemory& memory)
      : stream_(memory.stream()),
        storage_(*this, memory.device(), StreamRef(), reinterpret_cast<void*>(tensor.address()),
                 extent_bytes(tensor), &memory) {}

  StorageRef ref() { return StorageRef(storage_); }

  // StorageOwner.
  void release(Storage&) noexcept override { delete this; }
  void used(Storage&, StreamRef) override {}
  StreamRef stream(const Storage&) const noexcept override { return stream_; }

 private:
  const StreamRef stream_;
  Storage storage_;
};

// Returns a tensor at the address of `tensor`, with a storage of its own: what a step does with it
// leaves no trace in the storage of the caller. Borrows the memory.
Tensor stand_in(const Tensor& tensor, ContextMemory& memory) {
  return Tensor((new StandIn(tensor, memory))->ref(), 0, tensor.shape(), tensor.dtype());
}

StandIns stand_ins_of(const Call& call, ContextMemory& memory, const Probe& probe) {
  const InputList& inputs = call.inputs();
  StandIns made;
  for (std::size_t i = 0; i < inputs.step_size(); ++i) {
    made.inputs.push_back(call.rebind(i) == Rebind::kNever ? Tensor()
                                                           : stand_in(inputs[i], memory));
  }
  for (const auto& [number, i] : probe.buffers)
    made.allocations.emplace_back(number, stand_in(inputs[i], memory).storage());
  return made;
}

void find_buffers(const Call& call, const ContextMemory& memory, std::span<const Tensor> outputs,
                  Probe& probe) {
  const InputList& inputs = call.inputs();
  for (std::size_t i = 0; i < std::min(inputs.buffers(), outputs.size()); ++i) {
    const auto input = static_cast<std::uint32_t>(inputs.step_size() + i);
    if (call.rebind(input) == Rebind::kNever || !outputs[i].defined()) continue;
    const auto number = memory.number_in_step(*outputs[i].storage());
    if (number && is_replaceable(outputs, i, inputs.buffer(i))) {
      probe.buffers.emplace_back(*number, input);
    }
  }
}

}  // namespace

GraphContents read_graph(DeviceAPI& api, const Graph& graph) {
  GraphAPI& graphs = *api.graphs();
  GraphContents contents;
  std::vector<NodeHandle> nodes;
  std::vector<GraphEdge> edges;
  Code code = graphs.graph_nodes(graph.handle(), &nodes);
  if (ok(code)) code = graphs.graph_edges(graph.handle(), &edges);
  if (ok(code)) code = graphs.read_nodes(graph.handle(), &contents.nodes);
  if (!ok(code)) {
    contents.opaque = str_format("its graph cannot be read: {}", name(code));
    return contents;
  }
  std::map<NodeHandle, std::uint32_t> numbers;
  for (std::uint32_t i = 0; i < nodes.size(); ++i)
    numbers[nodes[i]] = i;
  for (const GraphEdge& edge : edges)
    contents.edges.emplace_back(numbers[edge.from], numbers[edge.to]);
  std::ranges::sort(contents.edges);
  std::unordered_set<std::uint64_t> known;
  for (const NodeContents& node : contents.nodes) {
    read_host_memory(api, node, contents);
    look_for_host_memory(api, node, known, contents);
  }
  return contents;
}

// A probe that could not be made costs no more than the copies that it was to save.
Probe make_probe(const Call& call, ContextMemory& memory, Recorder& recorder,
                 const std::vector<std::uint32_t>& output_allocations) {
  Probe probe;
  // Once more if the pools have grown meanwhile, after which allocations are placed elsewhere, and
  // when it is known which allocations the buffers are to replace.
  constexpr int kMostRuns = 3;
  for (int run = 0; run < kMostRuns; ++run) {
    const std::size_t reserved = memory.reserved_bytes();
    const auto look = [&](const Recording& recording, std::span<const Tensor> outputs) {
      if (!recording.further.empty()) {
        probe.failure = kBreakIsOpaque;
        return;
      }
      probe.contents = read_graph(memory.stream().api(), recording.graph);
      if (probe.buffers.empty()) find_buffers(call, memory, outputs, probe);
    };
    const std::string failure =
        recorder.try_capture(call, output_allocations, stand_ins_of(call, memory, probe), look);
    if (!failure.empty()) probe.failure = failure;
    const bool has_new_buffers = run == 0 && !probe.buffers.empty();
    if (!probe.failure.empty() || (memory.reserved_bytes() == reserved && !has_new_buffers)) break;
  }
  return probe;
}

}  // namespace cgtree
