// Writes addresses into patches, and patches the nodes that changed.
#include "extensions/rebind/node_rebinding.h"

#include <cstring>
#include <utility>

#include "interop/device/device_api.h"

namespace cgtree {

void NodeRebinding::add(NodePatch patch, std::vector<Word> words) {
  nodes_.push_back({std::move(patch), std::move(words)});
}

Code NodeRebinding::bind(const GraphExec& exec, std::span<const std::uint64_t> addresses) {
  for (Node& node : nodes_) {
    for (const Word& word : node.words) {
      const std::uint64_t wanted = addresses[word.input] + word.distance;
      std::byte* const place = node.patch.bytes.data() + word.offset;
      if (std::memcmp(place, &wanted, sizeof(wanted)) == 0) continue;
      std::memcpy(place, &wanted, sizeof(wanted));
      node.must_set = true;
    }
    if (!node.must_set) continue;
    if (const Code code = exec.api().set_node(exec.handle(), node.patch); !ok(code)) return code;
    node.must_set = false;
  }
  return Code::kSuccess;
}

}  // namespace cgtree
