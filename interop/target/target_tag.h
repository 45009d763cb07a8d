// Tags: names for targets, such as "nvidia/h100".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cgtree {

// The JSON behind a tag; empty if there is none of this name. Lives as long as the process.
std::string_view find_target_tag(std::string_view name) noexcept;

// The names, ours first.
std::vector<std::string> list_target_tags();

// Throws InvalidArgument for a name that is taken, is a kind's, or is none (a tag has a '/'), when
// `json` is no target, and when there are 64 tags of users' already. Any thread.
void register_target_tag(std::string_view name, std::string_view json);

}  // namespace cgtree
