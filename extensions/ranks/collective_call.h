// CollectiveCall: one operation of a rank, as a value that kernels and queues can copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "extensions/ranks/collectives.h"
#include "interop/tensor/dtype.h"

namespace cgtree {

enum class CollectiveKind : std::int32_t { kAllReduce, kAllGather, kBroadcast, kSend, kReceive };

struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  DType dtype = DType::kFloat32;
  Reduction reduction = Reduction::kSum;  // of kAllReduce
  std::int32_t peer = 0;                  // kBroadcast: the root; kSend, kReceive: the other rank
  std::int64_t elements = 0;              // of each rank's own part
  const void* in = nullptr;               // null for kReceive
  void* out = nullptr;                    // null for kSend

  std::size_t bytes() const noexcept { return static_cast<std::size_t>(elements) * size_of(dtype); }
  bool is_between_two() const noexcept {
    return kind == CollectiveKind::kSend || kind == CollectiveKind::kReceive;
  }
};

// Returns whether the calls of two ranks belong to one operation. Requires: neither is between two
// ranks.
bool match(const CollectiveCall& a, const CollectiveCall& b) noexcept;

// Returns "all_reduce(sum) of 8 float32", "broadcast from rank 1 of 3 int64" and so on.
std::string describe(const CollectiveCall& call);

std::string_view name(CollectiveKind kind) noexcept;

}  // namespace cgtree
