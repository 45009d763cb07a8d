// Compares two captures of a step, word by word.
#include "extensions/rebind/address_words.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/format.h"
#include "interop/device/graph_api.h"

namespace cgtree {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);

std::uint64_t word_at(const std::vector<std::byte>& bytes, std::size_t offset) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data() + offset, std::min(kWord, bytes.size() - offset));
  return word;
}

bool contains(std::uintptr_t begin, std::size_t bytes, std::uint64_t word) {
  return word - begin < bytes;
}

std::string describe(std::size_t number, const NodeContents& node) {
  return node.name().empty() ? str_format("node {}", number)
                             : str_format("node {} '{}'", number, demangled(node.name()));
}

// Returns the reason why nothing can be proved about any input, or "".
std::string find_obstacle(const GraphContents& first, const GraphContents& second) {
  if (!second.opaque.empty()) return second.opaque;
  if (!first.opaque.empty()) return first.opaque;
  if (first.nodes.size() != second.nodes.size()) {
    return str_format("two captures gave {} and {} nodes", first.nodes.size(), second.nodes.size());
  }
  for (std::size_t i = 0; i < second.nodes.size(); ++i) {
    const NodeContents& node = second.nodes[i];
    if (!node.is_decoded || !first.nodes[i].is_decoded) {
      return str_format("{}: {}", describe(i, node),
                        node.is_decoded ? first.nodes[i].why : node.why);
    }
    if (!are_of_one_form(first.nodes[i], node)) {
      return str_format("{} differs between two captures", describe(i, node));
    }
  }
  return first.edges == second.edges ? "" : "edges differ between two captures";
}

// Compares one pair of nodes; returns the reason why nothing can be proved about any input, or "".
std::string compare(std::uint32_t number, const NodeContents& first, const NodeContents& second,
                    std::span<const MovedInput> inputs, std::vector<FoundAddress>& found) {
  const std::vector<std::byte> before = address_bytes(first);
  const std::vector<std::byte> after = address_bytes(second);
  for (std::uint32_t offset = 0; offset < after.size(); offset += kWord) {
    const std::uint64_t old_word = word_at(before, offset);
    const std::uint64_t new_word = word_at(after, offset);
    std::vector<std::size_t> explains;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const MovedInput& input = inputs[i];
      if (old_word != new_word) {
        // The address after the last element is used by iterators, too.
        if (new_word - old_word == input.distance() && offset + kWord <= after.size() &&
            contains(input.first, input.bytes + 1, old_word)) {
          explains.push_back(i);
        }
      } else if (contains(input.first, input.bytes, old_word) ||
                 contains(input.second, input.bytes, old_word)) {
        found[i].why_not = str_format("{} has an address in it that does not move with it",
                                      describe(number, second));
      }
    }
    if (old_word == new_word) continue;
    if (explains.empty()) {
      return str_format("{} has other parameters in two captures, at byte {}: {:#x} and {:#x}",
                        describe(number, second), offset, old_word, new_word);
    }
    for (const std::size_t i : explains) {
      if (explains.size() > 1) {
        found[i].why_not =
            str_format("{} has an address that may be another's", describe(number, second));
      }
      found[i].words.push_back({number, offset});
    }
  }
  return "";
}

}  // namespace

std::size_t MovedInput::alignment() const noexcept {
  constexpr std::size_t kMost = 256;
  return std::size_t{1} << std::countr_zero(first | second | kMost);
}

std::vector<std::uint32_t> FoundAddress::nodes() const {
  std::vector<std::uint32_t> numbers;
  for (const AddressWord& word : words)
    if (numbers.empty() || numbers.back() != word.node) numbers.push_back(word.node);
  return numbers;
}

std::vector<std::byte> address_bytes(const NodeContents& node) {
  if (node.type == NodeType::kKernel) return node.bytes;
  std::vector<std::byte> bytes(kWord * node.memory.size());
  for (std::size_t i = 0; i < node.memory.size(); ++i)
    std::memcpy(bytes.data() + kWord * i, &node.memory[i].address, kWord);
  return bytes;
}

std::vector<FoundAddress> find_addresses(const GraphContents& first, const GraphContents& second,
                                         std::span<const MovedInput> inputs) {
  std::vector<FoundAddress> found(inputs.size());
  std::string obstacle = find_obstacle(first, second);
  for (std::uint32_t i = 0; obstacle.empty() && i < second.nodes.size(); ++i)
    obstacle = compare(i, first.nodes[i], second.nodes[i], inputs, found);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto is_inside = [&](std::uint64_t word) {
      return contains(inputs[i].first, inputs[i].bytes, word) ||
             contains(inputs[i].second, inputs[i].bytes, word);
    };
    if (!obstacle.empty()) {
      found[i].why_not = obstacle;
    } else if (std::ranges::any_of(first.host_words, is_inside) ||
               std::ranges::any_of(second.host_words, is_inside)) {
      found[i].why_not = "a table in host memory has its address";
    } else if (found[i].is_proved() && found[i].words.empty() && inputs[i].bytes > 0) {
      found[i].why_not = "no node has its address: it is unused, or behind a table";
    }
  }
  return found;
}

}  // namespace cgtree
