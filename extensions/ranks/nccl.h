// NCCL's functions, loaded at run time, so that neither building nor running the rest needs NCCL.
#pragma once

#include <cstddef>
#include <string>

namespace cgtree::nccl {

// Source: nccl.h of NCCL 2.28.3, 2.29.2 and 2.32.3, which agree on what is here.
struct Communicator;
using Comm = Communicator*;
enum class Result : int { kSuccess = 0, kRemoteError = 6, kInProgress = 7 };
enum class DataType : int {
  kInt8 = 0,
  kUInt8 = 1,
  kInt32 = 2,
  kUInt32 = 3,
  kInt64 = 4,
  kUInt64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBFloat16 = 9,
};
enum class RedOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3 };
struct UniqueId {
  char internal[128];
};
using Stream = void*;  // cudaStream_t

inline constexpr int kUndefined = -2147483647 - 1;  // NCCL_CONFIG_UNDEF_INT
inline constexpr int kGraphUsageSince = 22902;      // the version that has graphUsageMode

// ncclConfig_t as of 2.29.2. The struct only grows: an older library ignores what is beyond its
// own, a newer one takes what is missing as undefined.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 0;  // that of the library
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

struct Library {
  int version = 0;  // 22803 is 2.28.3

  Result (*get_version)(int* version);
  Result (*get_unique_id)(UniqueId* id);
  Result (*comm_init_rank_config)(Comm* comm, int size, UniqueId id, int rank, Config* config);
  Result (*comm_destroy)(Comm comm);
  Result (*comm_abort)(Comm comm);
  Result (*comm_get_async_error)(Comm comm, Result* error);
  const char* (*get_error_string)(Result result);
  const char* (*get_last_error)(Comm comm);
  Result (*all_reduce)(const void* in, void* out, std::size_t count, DataType type, RedOp op,
                       Comm comm, Stream stream);
  Result (*all_gather)(const void* in, void* out, std::size_t count, DataType type, Comm comm,
                       Stream stream);
  Result (*broadcast)(const void* in, void* out, std::size_t count, DataType type, int root,
                      Comm comm, Stream stream);
  Result (*send)(const void* in, std::size_t count, DataType type, int peer, Comm comm,
                 Stream stream);
  Result (*recv)(void* out, std::size_t count, DataType type, int peer, Comm comm, Stream stream);
  Result (*group_start)();
  Result (*group_end)();
};

// Returns the library that the first call has named; it stays loaded. An empty path is
// libnccl.so.2, where the loader finds it. Throws InvalidArgument if there is none, or if it is
// older than 2.14. Thread safety: any thread.
const Library& library(const std::string& path);

}  // namespace cgtree::nccl
