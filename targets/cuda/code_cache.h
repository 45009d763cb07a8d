// CodeCache: a folder of compiled code. The key is everything that decides the result.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "targets/cuda/nvrtc.h"

namespace cgtree::cuda {

// Errors are not reported: an entry that cannot be read, or is damaged, is not found, and one that
// cannot be written is not kept. Thread safety: any number of threads and processes; files appear
// complete.
class CodeCache {
 public:
  explicit CodeCache(std::string folder) : folder_(std::move(folder)) {}

  std::optional<CompiledCode> find(const std::vector<std::string>& key) const;
  void put(const std::vector<std::string>& key, const CompiledCode& code) const;

 private:
  std::string path_of(const std::string& packed_key) const;

  std::string folder_;
};

// Returns $CGTREE_CACHE_DIR if it is set, which may be empty for no cache; else cgtree/ in
// $XDG_CACHE_HOME or ~/.cache; else an empty string.
std::string default_cache_folder();

}  // namespace cgtree::cuda
