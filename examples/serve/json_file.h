// Writes a result file whole or not at all.
#pragma once

#include <filesystem>
#include <string_view>

namespace cgtree::serve {

// Throws InvalidArgument that says why `path` could not be written; leaves nothing behind.
void expect_writable(const std::filesystem::path& path);

// Writes a temporary file beside `path` and renames it. Throws InvalidArgument; `path` is then as
// it was.
void write_whole(const std::filesystem::path& path, std::string_view text);

}  // namespace cgtree::serve
