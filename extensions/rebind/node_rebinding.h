// NodeRebinding: patches the nodes of a graph that use inputs at the caller's addresses.
// NodePatches: makes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cgtree/record/attachment.h"
#include "extensions/rebind/address_words.h"
#include "interop/device/code.h"
#include "interop/device/graph.h"
#include "interop/device/graph_api.h"
#include "interop/device/node_contents.h"

namespace cgtree {

// A NodeRebinding is a list of nodes, each with its words that are addresses. Only nodes with a
// changed word are patched.
class NodeRebinding final : public Attachment {
 public:
  // A word is the address of one input, plus a distance.
  struct Word {
    std::uint32_t offset;  // in the bytes of the patch
    std::uint32_t input;   // by position in bind()'s list
    std::uint64_t distance;
  };

  // Requires: the graph from which exec is made has the words of the patch.
  void add(NodePatch patch, std::vector<Word> words);
  // Must be called before a bind() of an executable graph that may have any words.
  void forget_patches() noexcept;
  // Calls visit(node, word) for each word.
  template <typename Visit>
  void for_each_word(Visit&& visit) const {
    for (const Node& node : nodes_)
      for (const Word& word : node.words)
        visit(node.patch.node, word);
  }

  // Attachment.
  Code bind(const GraphExec& exec, std::span<const std::uint64_t> addresses) override;

 private:
  struct Node {
    NodePatch patch;
    std::vector<Word> words;
    bool must_set = false;  // the executable graph may have other words than the patch
  };

  std::vector<Node> nodes_;
};

// A NodePatches prepares the patches of nodes, which may prove impossible, and collects the inputs
// whose addresses are patched.
class NodePatches {
 public:
  // `nodes`: the nodes of the graph by the numbers of AddressWord; empty if it cannot be read.
  NodePatches(GraphAPI& api, std::vector<NodeHandle> nodes) : api_(api), nodes_(std::move(nodes)) {}

  // Returns the reason why the words cannot be patched, or "".
  std::string prepare(std::span<const AddressWord> words);
  // Adds the next input of Attachment::bind()'s list, which lies at `address` in the graph.
  // Requires: its words are prepared.
  void add_input(std::span<const AddressWord> words, std::uint64_t address);
  std::unique_ptr<NodeRebinding> take();

 private:
  GraphAPI& api_;
  std::vector<NodeHandle> nodes_;
  std::map<std::uint32_t, NodePatch> patches_;
  std::map<std::uint32_t, std::vector<NodeRebinding::Word>> words_;
  std::uint32_t inputs_ = 0;
};

}  // namespace cgtree
