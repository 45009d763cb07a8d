// Words of two captures that are found to hold an input's address, and the conditions that prevent
// it.
#include "extensions/rebind/address_words.h"
#include "interop/device/graph_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace cgtree {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

void set_kernel(NodeContents& node, const char* name, std::vector<KernelParameter> parameters) {
  node.kernel = std::make_shared<KernelLayout>(KernelLayout{name, std::move(parameters)});
}

void set_word(NodeContents& node, std::size_t offset, std::uint64_t word) {
  if (node.type == NodeType::kKernel) {
    std::memcpy(node.bytes.data() + offset, &word, sizeof(word));
  } else {
    node.memory[offset / sizeof(word)].address = word;
  }
}

// Two captures of a random step: kernels, copies and memsets, with the addresses of inputs planted
// among words that do not change.
class AddressWordsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::size_t count = 1 + random_() % 4;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t bytes = 8 * (1 + random_() % 64);
      // Neighbours without a gap in the first capture, as in an arena; at other distances in the
      // second.
      const std::uintptr_t first =
          i == 0 ? 0x7000'0000 : inputs_.back().first + inputs_.back().bytes;
      inputs_.push_back({first, 0x9000'0000 + 0x1000 * i, bytes});
      planted_.emplace_back();
    }
    const std::size_t nodes = 1 + random_() % 8;
    for (std::size_t i = 0; i < nodes; ++i) {
      NodeContents node = random_node();
      first_.nodes.push_back(node);
      second_.nodes.push_back(std::move(node));
      if (i > 0) first_.edges.push_back({static_cast<std::uint32_t>(i) - 1, i});
    }
    second_.edges = first_.edges;
    for (std::uint32_t i = 0; i < inputs_.size(); ++i)
      for (int uses = 0; uses < 3 || planted_[i].empty(); ++uses)
        plant(i);
    for (std::vector<AddressWord>& words : planted_) {
      std::ranges::sort(words, {},
                        [](const AddressWord& word) { return std::pair(word.node, word.offset); });
    }
  }

  NodeContents random_node() {
    NodeContents node;
    node.is_decoded = true;
    switch (random_() % 3) {
      case 0:
        node.type = NodeType::kMemcpy;
        node.memory = {{0x100, 64, false}, {0x200, 64, true}};
        break;
      case 1:
        node.type = NodeType::kMemset;
        node.memory = {{0x300, 64, true}};
        break;
      default:
        node.type = NodeType::kKernel;
        // The last parameter may be shorter than a word.
        node.bytes.resize(8 * (4 + random_() % 16) + 4 * (random_() % 2));
        set_kernel(node, "k", {{0, node.bytes.size()}});
        for (std::byte& byte : node.bytes)
          byte = static_cast<std::byte>(random_() % 64);
    }
    return node;
  }

  // Puts the address of a byte of the input, or of its end, into a word that is not used yet.
  void plant(std::uint32_t input) {
    const auto node = static_cast<std::uint32_t>(random_() % first_.nodes.size());
    const std::size_t words = address_bytes(first_.nodes[node]).size() / 8;
    const AddressWord word{node, static_cast<std::uint32_t>(8 * (random_() % words))};
    for (const std::vector<AddressWord>& others : planted_) {
      if (std::ranges::find(others, word) != others.end()) {
        extend(first_.nodes[node]);
        extend(second_.nodes[node]);
        return;
      }
    }
    const std::uint64_t inside = random_() % (inputs_[input].bytes + 1);
    set_word(first_.nodes[node], word.offset, inputs_[input].first + inside);
    set_word(second_.nodes[node], word.offset, inputs_[input].second + inside);
    planted_[input].push_back(word);
  }
  static void extend(NodeContents& node) {
    if (node.type == NodeType::kKernel) {
      node.bytes.resize((node.bytes.size() + 15) / 8 * 8);
    } else {
      node.memory.push_back({0x400, 8, false});
    }
  }

  std::vector<FoundAddress> find() { return find_addresses(first_, second_, inputs_); }
  std::size_t any_input() { return random_() % inputs_.size(); }
  // Appends a node to both captures that refers to no input.
  void append(const NodeContents& first, const NodeContents& second) {
    first_.nodes.push_back(first);
    second_.nodes.push_back(second);
  }
  static NodeContents kernel(std::uint64_t word) {
    NodeContents node;
    node.is_decoded = true;
    node.type = NodeType::kKernel;
    set_kernel(node, "last", {{0, 8}});
    node.bytes.resize(8);
    set_word(node, 0, word);
    return node;
  }
  void expect_none_proved(const std::string& why) {
    for (const FoundAddress& address : find())
      EXPECT_THAT(address.why_not, HasSubstr(why));
  }
  // Expects a proof for all words except `unproved`.
  void expect_unproved(std::size_t unproved, const std::string& why) {
    const std::vector<FoundAddress> found = find();
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_THAT(found[i].why_not, i == unproved ? HasSubstr(why) : HasSubstr("")) << i;
      EXPECT_EQ(found[i].is_proved(), i != unproved) << i;
    }
  }

  const unsigned seed_ = std::random_device()();
  const ::testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
  std::mt19937 random_{seed_};
  std::vector<MovedInput> inputs_;
  std::vector<std::vector<AddressWord>> planted_;
  GraphContents first_;
  GraphContents second_;
};

TEST_F(AddressWordsTest, ExactlyTheWordsThatMovedWithAnInputAreItsAddress) {
  for (int round = 0; round < 200; ++round) {
    const std::vector<FoundAddress> found = find();
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      EXPECT_THAT(found[i].why_not, IsEmpty());
      EXPECT_EQ(found[i].words, planted_[i]);
    }
    inputs_.clear(), planted_.clear(), first_ = {}, second_ = {};
    SetUp();
  }
}

TEST_F(AddressWordsTest, AnAddressThatDoesNotMoveLeavesItsInputUnproved) {
  const std::size_t input = any_input();
  for (const std::uintptr_t begin : {inputs_[input].first, inputs_[input].second}) {
    const std::uint64_t inside = begin + random_() % inputs_[input].bytes;
    append(kernel(inside), kernel(inside));
    expect_unproved(input, "'last' has an address in it that does not move");
    first_.nodes.pop_back();
    second_.nodes.pop_back();
  }
}

TEST_F(AddressWordsTest, AWordThatMovesForNoInputLeavesAllUnproved) {
  const MovedInput& input = inputs_[any_input()];
  const std::uint64_t wrongs[][2] = {
      {0x55, 0x56},                                      // not addresses
      {input.first, input.second + 8},                   // differs by another distance
      {inputs_.back().first + inputs_.back().bytes + 1,  // moved alike, but outside
       inputs_.back().second + inputs_.back().bytes + 1},
      {input.first << 8, input.second << 8},  // computed from an address
  };
  for (const auto& [before, after] : wrongs) {
    append(kernel(before), kernel(after));
    expect_none_proved("has other parameters in two captures");
    first_.nodes.pop_back();
    second_.nodes.pop_back();
  }
}

TEST_F(AddressWordsTest, ADifferenceInTheBytesBehindTheLastWordLeavesAllUnproved) {
  NodeContents node = kernel(0);
  node.bytes.resize(12);
  NodeContents other = node;
  other.bytes.back() = std::byte{1};
  append(node, other);
  expect_none_proved("has other parameters");
}

TEST_F(AddressWordsTest, NodesThatAreNotAlikeLeaveAllUnproved) {
  const auto expect_obstacle = [&](auto change, const char* why) {
    NodeContents node = kernel(1);
    node.memory = {{0, 8, false}};
    NodeContents other = node;
    change(other);
    append(node, other);
    expect_none_proved(why);
    std::swap(first_, second_);
    expect_none_proved(why);
    std::swap(first_, second_);
    first_.nodes.pop_back();
    second_.nodes.pop_back();
  };
  const char* const differs = "differs between two captures";
  expect_obstacle([](NodeContents& node) { set_kernel(node, "other", {{0, 8}}); }, differs);
  expect_obstacle([](NodeContents& node) { set_kernel(node, "last", {{0, 4}}); }, differs);
  expect_obstacle([](NodeContents& node) { node.type = NodeType::kEmpty; }, differs);
  expect_obstacle([](NodeContents& node) { node.dims.grid.x = 2; }, differs);
  expect_obstacle([](NodeContents& node) { node.bytes.resize(16); }, differs);
  expect_obstacle([](NodeContents& node) { node.memory[0].bytes = 9; }, differs);
  expect_obstacle([](NodeContents& node) { node.memory[0].is_written = true; }, differs);
  expect_obstacle(
      [](NodeContents& node) {
        node.is_decoded = false;
        node.why = "cannot be seen";
      },
      "cannot be seen");
}

TEST_F(AddressWordsTest, GraphsThatAreNotAlikeLeaveAllUnproved) {
  const GraphContents second = second_;
  second_.nodes.push_back(kernel(0));
  expect_none_proved("nodes");
  second_ = second;
  second_.edges.push_back({0, 0});
  expect_none_proved("edges differ");
  second_ = second;
  second_.opaque = "cannot be read";
  expect_none_proved("cannot be read");
}

TEST_F(AddressWordsTest, ATableInHostMemoryLeavesItsInputUnproved) {
  const std::size_t input = any_input();
  const bool in_first = random_() % 2 == 0;
  (in_first ? first_ : second_).host_words = {
      1, (in_first ? inputs_[input].first : inputs_[input].second) + 1};
  expect_unproved(input, "table");
}

TEST_F(AddressWordsTest, AnInputThatNoNodeHasIsUnproved) {
  inputs_.push_back({0x1'0000, 0x2'0000, 64});
  expect_unproved(inputs_.size() - 1, "no node has its address");
}

TEST_F(AddressWordsTest, TwoInputsThatMovedAlikeAreNotTakenForOneAnother) {
  first_ = {}, second_ = {};
  inputs_ = {{0x1000, 0x5000, 64}, {0x1040, 0x5040, 64}};
  append(kernel(0x1040), kernel(0x5040));  // the end of the first input, or the begin of the second
  expect_none_proved("may be another's");
  inputs_[1].second = 0x6000;  // only the first input moves by this distance
  EXPECT_TRUE(find()[0].is_proved());
  EXPECT_FALSE(find()[1].is_proved());
}

}  // namespace
}  // namespace cgtree
