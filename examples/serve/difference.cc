// Compares token by token.
#include "examples/serve/difference.h"

#include <fmt/format.h>

#include <algorithm>

namespace cgtree::serve {
namespace {

using Tokens = TokenLists::value_type;

std::optional<std::int32_t> at(const Tokens& tokens, std::size_t index) {
  return index < tokens.size() ? std::optional(tokens[index]) : std::nullopt;
}

}  // namespace

std::optional<Difference> find_difference(const TokenLists& eager, const TokenLists& cgtree) {
  static const Tokens kNone;
  for (std::size_t i = 0; i < std::max(eager.size(), cgtree.size()); ++i) {
    const Tokens& a = i < eager.size() ? eager[i] : kNone;
    const Tokens& b = i < cgtree.size() ? cgtree[i] : kNone;
    if (a == b) continue;
    const auto place = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
    const auto index = static_cast<std::size_t>(place);
    return Difference{i, index, at(a, index), at(b, index)};
  }
  return std::nullopt;
}

std::string to_string(const Difference& difference) {
  const auto say = [](std::optional<std::int32_t> token) {
    return token ? fmt::format("{}", *token) : std::string("none");
  };
  return fmt::format("request {}, token {}: {} eagerly, {} through cgtree", difference.request,
                     difference.index, say(difference.eager), say(difference.cgtree));
}

}  // namespace cgtree::serve
