// A folder of compiled code, by keys of all data that determine the result.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "targets/cuda/nvrtc.h"

namespace cgtree::cuda {

// Errors are not reported: an unreadable or damaged entry is not found, and an entry that cannot be
// written is not kept. Thread safety: any number of threads and processes; files appear complete.
std::optional<CompiledCode> find_code(const std::string& folder,
                                      const std::vector<std::string>& key);
void keep_code(const std::string& folder, const std::vector<std::string>& key,
               const CompiledCode& code);

// Returns $CGTREE_CACHE_DIR if it is set, which may be empty for no cache; else cgtree/ in
// $XDG_CACHE_HOME or ~/.cache; else an empty string.
std::string default_cache_folder();

}  // namespace cgtree::cuda
