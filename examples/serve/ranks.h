// Ranks: a model divided between devices, by threads of one process or by processes of MPI.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "examples/serve/weights.h"
#include "extensions/ranks/collectives.h"
#include "extensions/ranks/group.h"
#include "interop/device/device.h"

namespace cgtree::serve {

struct Rank {
  Shard shard;
  Device device;
  std::shared_ptr<Collectives> collectives;  // null for one rank
  std::shared_ptr<Group> group;              // null for one rank of one process
};

// Returns ranks for threads of this process, on devices of one kind from `first` on. Throws
// InvalidArgument if one does not exist, and as make_nccl_collectives().
std::vector<Rank> make_thread_ranks(Device first, std::int64_t count);
// Returns this process's rank among those that mpirun started, with a GPU for each. Throws
// InvalidArgument for several on the host device; as make_mpi_group() and make_nccl_collectives().
Rank make_mpi_rank(DeviceType type);

// Runs body(rank) for each rank, on a thread per rank with its device current. If one throws, the
// others are released from waiting for it, and its exception is thrown here; the ranks cannot be
// used any more.
void for_each_rank(std::span<Rank> ranks, const std::function<void(const Rank& rank)>& body);

}  // namespace cgtree::serve
