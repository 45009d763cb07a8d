// Where two modes disagree about a token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cgtree::serve {

using TokenLists = std::vector<std::vector<std::int32_t>>;  // by request

struct Difference {
  std::size_t request = 0;
  std::size_t index = 0;              // of the token among the request's generated ones
  std::optional<std::int32_t> eager;  // none: the list ends before it
  std::optional<std::int32_t> cgtree;
};

// The first request and token at which the lists differ.
std::optional<Difference> find_difference(const TokenLists& eager, const TokenLists& cgtree);

std::string to_string(const Difference& difference);

}  // namespace cgtree::serve
