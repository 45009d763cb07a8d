// Reads nodes and edges, and the tables in host memory that a graph copies.
#include "extensions/rebind/read_graph.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_set>

#include "base/format.h"

namespace cgtree {
namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);
// Addresses of user space on every 64-bit system; smaller numbers are counts.
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

// Source: CUDA reads the host's side of a captured copy at each launch, so that memory is readable.
void read_copied(DeviceAPI& api, const NodeContents& node, GraphContents& contents) {
  if (node.type != NodeType::kMemcpy) return;
  // If either side is not aligned, a kernel may find an address at any byte.
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

// A kernel that gets host memory may find any address there.
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

}  // namespace

bool is_root_or_tail(const Recording& recording, NodeHandle node) {
  const auto is_it = [&](const GatherNode& own) { return own.node() == node; };
  return node != NodeHandle::kNull && (std::ranges::any_of(recording.roots, is_it) ||
                                       std::ranges::any_of(recording.tails, is_it));
}

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
  read_host_memory(api, contents);
  return contents;
}

void read_host_memory(DeviceAPI& api, GraphContents& contents) {
  std::unordered_set<std::uint64_t> known;
  for (const NodeContents& node : contents.nodes) {
    read_copied(api, node, contents);
    look_for_host_memory(api, node, known, contents);
  }
}

}  // namespace cgtree
