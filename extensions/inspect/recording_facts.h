// RecordingFacts: the nodes of a recording, with their scopes and the memory to which they point.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cgtree/record/call.h"
#include "cgtree/record/recording.h"
#include "extensions/audit/audit.h"
#include "extensions/inspect/inspect.h"
#include "interop/device/device_api.h"
#include "interop/device/node_contents.h"

namespace cgtree {

// Thread safety: used by the thread that is inside the context.
class RecordingFacts {
 public:
  // All are borrowed. Addresses that each replay patches are those of the call. Asks the device
  // about foreign memory now, because the device may fail later. Throws DeviceError.
  RecordingFacts(const Recording& recording, const Call& call, DeviceAPI& api);

  const std::vector<NodeContents>& nodes() const noexcept { return nodes_; }
  // Returns the numbers of the nodes, each after its dependencies.
  std::vector<std::size_t> order() const;
  // Returns the reason why the nodes cannot be run one by one, or "".
  std::string why_not() const;
  // Returns true if the node brings inputs to the recording, or takes outputs from it.
  bool is_own(std::size_t i) const;
  // Returns the address that the audit found at `place`, as MemoryUse::offset, or null.
  const MemoryUse* use(std::size_t i, std::size_t place) const;
  // Returns true if a new capture with the same inputs may have another address at `place`.
  bool may_move(std::size_t i, std::size_t place) const;
  // Returns the edges by the numbers of nodes.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> numbered_edges() const;
  // Returns a description of a node.
  InspectedNode describe(std::size_t i) const;
  // Returns the nodes that point to foreign memory, only with those words.
  std::vector<InspectedNode> suspects() const;

 private:
  std::vector<InspectedWord> words(std::size_t i) const;
  InspectedWord word(std::size_t i, std::uint32_t parameter, std::size_t offset, std::size_t place,
                     std::uint64_t value) const;
  std::string text_of(const UsedMemory& memory, std::uintptr_t address) const;
  std::map<NodeHandle, std::uint32_t> numbers() const;
  void patch(const GatherNode& tail);

  const Recording& recording_;
  const Call& call_;
  const Audit& audit_;
  std::vector<NodeContents> nodes_;
  std::vector<GraphEdge> edges_;
  std::vector<std::uint32_t> audited_;  // by node: MemoryUse::node
  std::vector<std::size_t> scoped_;     // by node: its index in NodeScopes::nodes
  std::vector<bool> gone_;              // by MemoryUse::memory
  // The inputs whose addresses are patched, by node and place.
  std::map<std::pair<std::size_t, std::size_t>, std::uint32_t> rebound_;
};

}  // namespace cgtree
