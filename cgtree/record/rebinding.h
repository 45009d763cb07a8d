// Rebinding: tells the nodes of an executable graph where the inputs are that they use in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "interop/device/graph.h"
#include "interop/device/node_contents.h"

namespace cgtree {

// A RebindChoice says what became of an input, or buffer, that may be rebound.
struct RebindChoice {
  std::uint32_t input = 0;
  bool is_rebound = false;
  std::size_t nodes = 0;  // that have its address; 0 if that is not proved
  std::string why;
};

// A Rebinding is a list of nodes, each with the words in it that are addresses. Only nodes of which
// a word has changed are patched.
class Rebinding {
 public:
  // A word is the address of one input, plus a distance.
  struct Word {
    std::uint32_t offset;  // in the bytes of the patch
    std::uint32_t input;   // by position in bind()'s list
    std::uint64_t distance;
  };

  // Requires: the graph that exec is made from has the words of the patch.
  void add(NodePatch patch, std::vector<Word> words);

  // If a node cannot be patched, it and those behind it are left to the next call.
  Code bind(const GraphExec& exec, std::span<const std::uint64_t> addresses);

  std::size_t nodes() const noexcept { return nodes_.size(); }

 private:
  struct Node {
    NodePatch patch;
    std::vector<Word> words;
    bool must_set = false;  // the executable graph may have other words than the patch
  };

  std::vector<Node> nodes_;
};

}  // namespace cgtree
