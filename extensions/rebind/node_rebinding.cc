// Writes addresses into patches, and patches the nodes that changed.
#include "extensions/rebind/node_rebinding.h"

#include <cstring>
#include <utility>

#include "base/format.h"
#include "interop/device/device_api.h"

namespace cgtree {

void NodeRebinding::add(NodePatch patch, std::vector<Word> words) {
  nodes_.push_back({std::move(patch), std::move(words)});
}

void NodeRebinding::forget_patches() noexcept {
  for (Node& node : nodes_)
    node.must_set = true;
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

std::string NodePatches::prepare(std::span<const AddressWord> words) {
  for (const AddressWord& word : words) {
    if (patches_.contains(word.node)) continue;
    NodePatch patch;
    const Code code =
        word.node < nodes_.size() ? api_.prepare_patch(nodes_[word.node], &patch) : Code::kUnknown;
    if (!ok(code)) return str_format("node {} cannot be patched: {}", word.node, name(code));
    patches_.emplace(word.node, std::move(patch));
  }
  return "";
}

void NodePatches::add_input(std::span<const AddressWord> words, std::uint64_t address) {
  for (const AddressWord& word : words) {
    std::uint64_t now = 0;
    std::memcpy(&now, patches_.at(word.node).bytes.data() + word.offset, sizeof(now));
    words_[word.node].push_back({word.offset, inputs_, now - address});
  }
  ++inputs_;
}

std::unique_ptr<NodeRebinding> NodePatches::take() {
  auto rebinding = std::make_unique<NodeRebinding>();
  for (auto& [node, list] : words_)
    rebinding->add(std::move(patches_.at(node)), std::move(list));
  return rebinding;
}

}  // namespace cgtree
