// The tree of a snapshot as a few lines of text.
#pragma once

#include <string>

namespace cgtree::branching {

// One line per recording, indented below the one it followed when it was made. Where a path goes on
// with one that was recorded elsewhere, that one stands behind an arrow.
std::string tree_text(const std::string& snapshot_json);

}  // namespace cgtree::branching
