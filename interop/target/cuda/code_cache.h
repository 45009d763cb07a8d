// CodeCache: a folder of compiled code, by all that decided it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "interop/target/cuda/nvrtc.h"

namespace cgtree::cuda {

// Never in the way: what cannot be read, or was damaged, is not there, and what cannot be written
// is not kept. Threads and processes: any number; files appear whole.
class CodeCache {
 public:
  explicit CodeCache(std::string folder) : folder_(std::move(folder)) {}

  std::optional<CompiledCode> find(const std::vector<std::string>& key) const;
  void put(const std::vector<std::string>& key, const CompiledCode& code) const;

 private:
  std::string path_of(const std::string& packed_key) const;

  std::string folder_;
};

// $CGTREE_CACHE_DIR, which may be empty: no cache; else cgtree/ in $XDG_CACHE_HOME or ~/.cache;
// else empty.
std::string default_cache_folder();

}  // namespace cgtree::cuda
