// NodeRebinding: patches the nodes of a graph that use inputs where they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cgtree/record/attachment.h"
#include "interop/device/code.h"
#include "interop/device/graph.h"
#include "interop/device/node_contents.h"

namespace cgtree {

// A NodeRebinding is a list of nodes, each with the words in it that are addresses. Only nodes of
// which a word has changed are patched.
class NodeRebinding final : public Attachment {
 public:
  // A word is the address of one input, plus a distance.
  struct Word {
    std::uint32_t offset;  // in the bytes of the patch
    std::uint32_t input;   // by position in bind()'s list
    std::uint64_t distance;
  };

  // Requires: the graph that exec is made from has the words of the patch.
  void add(NodePatch patch, std::vector<Word> words);

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

}  // namespace cgtree
