// Finds NCCL's functions.
#include "extensions/ranks/nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/error.h"

namespace cgtree::nccl {
namespace {

constexpr int kOldest = 21400;  // the first with ncclCommInitRankConfig

template <typename Function>
void find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) {
    throw InvalidArgument(fmt::format("the NCCL library has no function {}", name));
  }
}

Library load(const std::string& path) {
  const char* const name = path.empty() ? "libnccl.so.2" : path.c_str();
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw InvalidArgument(
        fmt::format("cannot load NCCL ({}): install libnccl2, or name the file in "
                    "NcclOptions::library",
                    dlerror()));
  }
  Library found{};
  find_function(library, "ncclGetVersion", found.get_version);
  find_function(library, "ncclGetUniqueId", found.get_unique_id);
  find_function(library, "ncclCommInitRankConfig", found.comm_init_rank_config);
  find_function(library, "ncclCommDestroy", found.comm_destroy);
  find_function(library, "ncclCommAbort", found.comm_abort);
  find_function(library, "ncclCommGetAsyncError", found.comm_get_async_error);
  find_function(library, "ncclGetErrorString", found.get_error_string);
  find_function(library, "ncclGetLastError", found.get_last_error);
  find_function(library, "ncclAllReduce", found.all_reduce);
  find_function(library, "ncclAllGather", found.all_gather);
  find_function(library, "ncclBroadcast", found.broadcast);
  find_function(library, "ncclSend", found.send);
  find_function(library, "ncclRecv", found.recv);
  find_function(library, "ncclGroupStart", found.group_start);
  find_function(library, "ncclGroupEnd", found.group_end);
  if (found.get_version(&found.version) != Result::kSuccess || found.version < kOldest) {
    throw InvalidArgument(
        fmt::format("NCCL {} in {}: at least {} is needed", found.version, name, kOldest));
  }
  return found;
}

}  // namespace

const Library& library(const std::string& path) {
  static const Library loaded = load(path);  // retried at the next call if it throws
  return loaded;
}

}  // namespace cgtree::nccl
