// Finds NCCL's functions.
#include "extensions/ranks/nccl.h"

#include <dlfcn.h>

#include "base/error.h"
#include "base/format.h"

namespace cgtree::nccl {
namespace {

constexpr int kOldest = 21400;  // the first with ncclCommInitRankConfig

const char* file_of(const std::string& path) noexcept {
  return path.empty() ? "libnccl.so.2" : path.c_str();
}

void* load(const std::string& path) {
  void* const file = dlopen(file_of(path), RTLD_NOW | RTLD_LOCAL);
  if (file != nullptr) return file;
  throw InvalidArgument(
      str_format("cannot load NCCL ({}): install libnccl2, or name the file in "
                 "NcclOptions::library",
                 dlerror()));
}

}  // namespace

Library::Library(const std::string& path) : file(load(path)) {
  if (get_version(&version) == Result::kSuccess && version >= kOldest) return;
  throw InvalidArgument(
      str_format("NCCL {} in {}: at least {} is needed", version, file_of(path), kOldest));
}

Symbol Library::find(const char* name) const {
  if (void* const address = dlsym(file, name)) return {address};
  throw InvalidArgument(str_format("the NCCL library has no function {}", name));
}

const Library& library(const std::string& path) {
  static const Library loaded(path);  // retried at the next call if it throws
  return loaded;
}

}  // namespace cgtree::nccl
