// to_pickle(): JSON values as Python's pickle, protocol 2.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace cgtree {

// Writes a tree of dict, list, str, int, bool and None; lists under one of the keys `tuples` become
// tuples. Throws InvalidArgument for other values (fractions, bytes), tuples of more than three
// elements and text of 4 GiB.
std::string to_pickle(const nlohmann::ordered_json& value,
                      std::span<const std::string_view> tuples = {});

}  // namespace cgtree
