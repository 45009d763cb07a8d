// NCCL's functions, loaded at run time, so that neither building nor running the rest needs NCCL.
#pragma once

#include <cstddef>
#include <string>

#include "extensions/ranks/symbol.h"

namespace cgtree::nccl {

// Source: nccl.h of NCCL 2.28.3, 2.29.2 and 2.32.3, which agree on these declarations.
struct Communicator;
using Comm = Communicator*;
enum class Result : int { kSuccess = 0, kRemoteError = 6, kInProgress = 7 };
using DataType = int;  // ncclDataType_t
using RedOp = int;     // ncclRedOp_t
struct UniqueId {
  char internal[128];
};
using Stream = void*;  // cudaStream_t

inline constexpr int kUndefined = -2147483647 - 1;  // NCCL_CONFIG_UNDEF_INT
inline constexpr int kGraphUsageSince = 22902;      // the version that has graphUsageMode

// ncclConfig_t as of 2.29.2. The struct only grows: an older library ignores fields beyond its own,
// a newer library takes missing fields as undefined.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 0;  // the library's version
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  int traffic_class = kUndefined;
  const char* comm_name = nullptr;
  int collnet_enable = kUndefined;
  int cta_policy = kUndefined;
  int shrink_share = kUndefined;
  int nvls_ctas = kUndefined;
  int channels_per_net_peer = kUndefined;
  int nvlink_centric_sched = kUndefined;
  int graph_usage_mode = kUndefined;  // 0: no graphs, 1: graphs without mixing, 2: with mixing
  int num_rma_ctx = kUndefined;
};
static_assert(sizeof(Config) == 88);

// The constructor throws InvalidArgument if the library does not exist or is too old.
struct Library {
  explicit Library(const std::string& path);
  Symbol find(const char* name) const;

  void* const file;
  int version = 0;  // 22803 is 2.28.3

  Result (*const get_version)(int* version) = find("ncclGetVersion");
  Result (*const get_unique_id)(UniqueId* id) = find("ncclGetUniqueId");
  Result (*const comm_init_rank_config)(Comm* comm, int size, UniqueId id, int rank,
                                        Config* config) = find("ncclCommInitRankConfig");
  Result (*const comm_destroy)(Comm comm) = find("ncclCommDestroy");
  Result (*const comm_abort)(Comm comm) = find("ncclCommAbort");
  Result (*const comm_get_async_error)(Comm comm, Result* error) = find("ncclCommGetAsyncError");
  const char* (*const get_error_string)(Result result) = find("ncclGetErrorString");
  const char* (*const get_last_error)(Comm comm) = find("ncclGetLastError");
  Result (*const all_reduce)(const void* in, void* out, std::size_t count, DataType type, RedOp op,
                             Comm comm, Stream stream) = find("ncclAllReduce");
  Result (*const all_gather)(const void* in, void* out, std::size_t count, DataType type, Comm comm,
                             Stream stream) = find("ncclAllGather");
  Result (*const broadcast)(const void* in, void* out, std::size_t count, DataType type, int root,
                            Comm comm, Stream stream) = find("ncclBroadcast");
  Result (*const send)(const void* in, std::size_t count, DataType type, int peer, Comm comm,
                       Stream stream) = find("ncclSend");
  Result (*const recv)(void* out, std::size_t count, DataType type, int peer, Comm comm,
                       Stream stream) = find("ncclRecv");
  Result (*const group_start)() = find("ncclGroupStart");
  Result (*const group_end)() = find("ncclGroupEnd");
};

// Returns the library that the first call named; it stays loaded. An empty path is libnccl.so.2,
// where the loader finds it. Throws InvalidArgument if it does not exist, or if it is older than
// 2.14. Thread safety: any thread.
const Library& library(const std::string& path);

}  // namespace cgtree::nccl
