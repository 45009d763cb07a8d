// Reads the graph of a recording, and finds the memory to which each word points.
#include "extensions/inspect/recording_facts.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "base/format.h"
#include "cgtree/axes/axis_layout.h"
#include "extensions/rebind/node_rebinding.h"
#include "extensions/rebind/read_graph.h"
#include "interop/device/code.h"

namespace cgtree {
namespace {

constexpr std::size_t kInspectedBytes = sizeof(std::uint64_t);

// Returns the type of a node that cannot be run alone, or "".
std::string_view not_alone(NodeType type) {
  switch (type) {
    case NodeType::kChildGraph:
      return "a child graph";
    case NodeType::kAllocation:
      return "an allocation of stream-ordered memory";
    case NodeType::kFree:
      return "a release of stream-ordered memory";
    case NodeType::kOther:
      return "a conditional node, or one of another type that the device does not leave out";
    default:
      return "";
  }
}

std::string name_of(const NodeContents& node) {
  if (node.type == NodeType::kKernel && !node.name().empty())
    return "kernel " + demangled(node.name());
  const std::string_view alone = not_alone(node.type);
  return std::string(alone.empty() ? text_of(node.type) : alone);
}

// Returns whether the device no longer has the allocation. Memory of a pool that grows keeps its
// beginning.
bool is_gone(const UsedMemory& memory, std::uintptr_t address, DeviceMemoryCache& devices) {
  if (memory.owner != MemoryOwner::kForeign || memory.range.bytes == 0) return false;
  const DeviceAllocation* const now = devices.find(address);
  if (!devices.can_tell()) return false;
  return now == nullptr || now->address != memory.range.address;
}

// Returns how many nodes the bodies of a node have, including nested bodies.
std::uint32_t nodes_in_bodies(const Recording& recording, NodeHandle node, GraphAPI& graphs) {
  std::uint32_t count = 0;
  for (const GraphHandle body : recording.bodies_of(node)) {
    std::vector<NodeHandle> nodes;
    check(graphs.graph_nodes(body, &nodes), "list the nodes of a body");
    for (const NodeHandle inner : nodes)
      count += 1 + nodes_in_bodies(recording, inner, graphs);
  }
  return count;
}

}  // namespace

RecordingFacts::RecordingFacts(const Recording& recording, const Call& call, DeviceAPI& api)
    : recording_(recording), call_(call), audit_(audit_of(recording)) {
  GraphAPI& graphs = *api.graphs();
  check(graphs.read_nodes(recording.graph.handle(), &nodes_), "read the nodes of a recording");
  check(graphs.graph_edges(recording.graph.handle(), &edges_), "list the edges of a recording");
  // In the audit and the scopes, bodies follow their node; the audit has no root and tail nodes.
  std::uint32_t next = 0;
  std::size_t place = 0;
  for (const NodeContents& node : nodes_) {
    audited_.push_back(is_root_or_tail(recording, node.node) ? UINT32_MAX : next++);
    scoped_.push_back(place++);
    const std::uint32_t in_bodies = nodes_in_bodies(recording, node.node, graphs);
    next += in_bodies;
    place += in_bodies;
  }
  for (const GatherNode& tail : recording.tails)
    patch(tail);
  DeviceMemoryCache devices(api);
  gone_.resize(audit_.memory.size(), false);
  for (const MemoryUse& use : audit_.uses)
    if (is_gone(audit_.memory[use.memory], use.range.address, devices)) gone_[use.memory] = true;
}

bool RecordingFacts::is_own(std::size_t i) const {
  return audited_[i] == UINT32_MAX;
}

std::map<NodeHandle, std::uint32_t> RecordingFacts::numbers() const {
  std::map<NodeHandle, std::uint32_t> numbers;
  for (std::uint32_t i = 0; i < nodes_.size(); ++i)
    numbers[nodes_[i].node] = i;
  return numbers;
}

void RecordingFacts::patch(const GatherNode& tail) {
  const auto* const rebinding = dynamic_cast<const NodeRebinding*>(tail.rebinding());
  if (rebinding == nullptr) return;
  const auto numbers = this->numbers();
  rebinding->for_each_word([&](NodeHandle patched, const NodeRebinding::Word& word) {
    const std::size_t i = numbers.at(patched);
    NodeContents& node = nodes_[i];
    const std::uint32_t input = tail.inputs()[word.input];
    const std::uint64_t address = call_.inputs()[input].address() + word.distance;
    if (node.type == NodeType::kKernel) {
      std::memcpy(node.bytes.data() + word.offset, &address, sizeof(address));
      rebound_[{i, word.offset}] = input;
    } else {
      node.memory[word.offset / sizeof(address)].address = address;
      rebound_[{i, word.offset / sizeof(address)}] = input;
    }
  });
}

std::vector<std::pair<std::uint32_t, std::uint32_t>> RecordingFacts::numbered_edges() const {
  const auto numbers = this->numbers();
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
  for (const GraphEdge& edge : edges_)
    edges.emplace_back(numbers.at(edge.from), numbers.at(edge.to));
  return edges;
}

std::vector<std::size_t> RecordingFacts::order() const {
  std::vector<std::vector<std::size_t>> dependents(nodes_.size());
  std::vector<std::size_t> waits_for(nodes_.size(), 0);
  for (const auto& [from, to] : numbered_edges()) {
    dependents[from].push_back(to);
    ++waits_for[to];
  }
  std::set<std::size_t> ready;
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (waits_for[i] == 0) ready.insert(i);
  std::vector<std::size_t> order;
  while (!ready.empty()) {
    const std::size_t i = *ready.begin();
    ready.erase(ready.begin());
    order.push_back(i);
    for (const std::size_t next : dependents[i])
      if (--waits_for[next] == 0) ready.insert(next);
  }
  return order;
}

std::string RecordingFacts::why_not() const {
  if (!recording_.further.empty()) return "it has eager breaks, whose functions act on the world";
  if (recording_.share != nullptr)
    return "recordings share its executable graph (max_switch_nodes)";
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const std::string_view type = not_alone(nodes_[i].type);
    if (!type.empty()) return str_format("node {} is {}, and cannot be run alone", i, type);
  }
  return "";
}

const MemoryUse* RecordingFacts::use(std::size_t i, std::size_t place) const {
  const std::pair wanted(audited_[i], place);
  const auto place_of = [](const MemoryUse& use) {
    return std::pair<std::uint32_t, std::size_t>(use.node, use.offset);
  };
  const auto found = std::ranges::lower_bound(audit_.uses, wanted, {}, place_of);
  return found != audit_.uses.end() && place_of(*found) == wanted ? &*found : nullptr;
}

// An input with a checked address has not moved.
bool RecordingFacts::may_move(std::size_t i, std::size_t place) const {
  if (const auto found = rebound_.find({i, place}); found != rebound_.end())
    return cgtree::may_move(call_.treatment(found->second));
  const MemoryUse* const found = use(i, place);
  if (found == nullptr) return false;
  const UsedMemory& memory = audit_.memory[found->memory];
  switch (memory.owner) {
    case MemoryOwner::kInput:
      return recording_.inputs[memory.number].address_mask != ~std::uintptr_t{0};
    case MemoryOwner::kOutput:
    case MemoryOwner::kWorkspace:
    case MemoryOwner::kScratch:
      return true;
    default:
      return false;
  }
}

std::string RecordingFacts::text_of(const UsedMemory& memory, std::uintptr_t address) const {
  switch (memory.owner) {
    case MemoryOwner::kInput:
      return call_.describe(memory.number);
    case MemoryOwner::kOutput:
      return text_of_output(memory.number, {});
    case MemoryOwner::kDeclared:
      return str_format("declared, '{}'", memory.text);
    case MemoryOwner::kForeign:
      if (memory.range.bytes == 0) return "foreign, " + memory.text;
      return str_format("foreign, byte {} of {} bytes of {}", address - memory.range.address,
                        memory.range.bytes, memory.text);
    default:
      return memory.text.empty() ? std::string(name(memory.owner))
                                 : str_format("{}, {}", name(memory.owner), memory.text);
  }
}

InspectedWord RecordingFacts::word(std::size_t i, std::uint32_t parameter, std::size_t offset,
                                   std::size_t place, std::uint64_t value) const {
  InspectedWord word{.parameter = parameter, .offset = offset, .value = value, .memory = {}};
  if (const auto patched = rebound_.find({i, place}); patched != rebound_.end()) {
    word.memory = call_.describe(patched->second);
    return word;
  }
  const MemoryUse* const found = use(i, place);
  if (found == nullptr) return word;
  const UsedMemory& memory = audit_.memory[found->memory];
  word.memory = text_of(memory, value);
  word.is_foreign = memory.owner == MemoryOwner::kForeign;
  word.is_gone = gone_[found->memory];
  if (word.is_gone) word.memory += ": freed since the capture";
  return word;
}

std::vector<InspectedWord> RecordingFacts::words(std::size_t i) const {
  const NodeContents& node = nodes_[i];
  std::vector<InspectedWord> words;
  for (std::uint32_t k = 0; k < node.parameters().size(); ++k) {
    const auto [begin, bytes] = node.parameters()[k];
    for (std::size_t at = 0; at < bytes; at += kInspectedBytes) {
      std::uint64_t value = 0;
      std::memcpy(&value, node.bytes.data() + begin + at, std::min(kInspectedBytes, bytes - at));
      words.push_back(word(i, k, at, begin + at, value));
    }
  }
  for (std::uint32_t k = 0; k < node.memory.size(); ++k)
    words.push_back(word(i, k, 0, k, node.memory[k].address));
  return words;
}

InspectedNode RecordingFacts::describe(std::size_t i) const {
  InspectedNode node{.number = static_cast<std::uint32_t>(i),
                     .type = nodes_[i].type,
                     .name = name_of(nodes_[i]),
                     .scope = {},
                     .words = {}};
  const NodeScopes& scopes = audit_.scopes;
  if (const std::size_t place = scoped_[i]; place < scopes.nodes.size())
    node.scope = scopes.paths[scopes.nodes[place].path];
  if (is_own(i)) {
    node.name = "the copies of inputs and outputs";
  } else {
    node.words = words(i);
  }
  return node;
}

std::vector<InspectedNode> RecordingFacts::suspects() const {
  std::set<std::uint32_t> foreign;
  for (const MemoryUse& use : audit_.uses)
    if (audit_.memory[use.memory].owner == MemoryOwner::kForeign) foreign.insert(use.node);
  std::vector<InspectedNode> suspects;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (is_own(i) || !foreign.contains(audited_[i])) continue;
    suspects.push_back(describe(i));
    std::erase_if(suspects.back().words, [](const auto& word) { return !word.is_foreign; });
  }
  return suspects;
}

}  // namespace cgtree
