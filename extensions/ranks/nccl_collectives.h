// Collectives of GPUs over NCCL.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "extensions/ranks/collectives.h"
#include "extensions/ranks/group.h"
#include "interop/device/device.h"

namespace cgtree {

// An NcclId names a communicator that is being made: one rank makes the id, and gives it to the
// others.
struct NcclId {
  std::array<char, 128> bytes = {};

  friend bool operator==(const NcclId&, const NcclId&) = default;
};

// The options of communicators over NCCL.
struct NcclOptions {
  // For synchronize(). Making a communicator takes until the last rank comes.
  std::chrono::milliseconds time_limit = kCollectivesTimeLimit;
  // True to let NCCL order eager uses and graphs that are launched beside each other, with extra
  // nodes in each graph. A Communicator has one order, so that these nodes would only cost time
  // (docs/multi_gpu.md). Before 2.29.2 this is a setting of the process: then
  // NCCL_GRAPH_MIXING_SUPPORT=0 is set in the environment, unless it is set already, and the first
  // communicator decides.
  bool graph_mixing = false;
  std::string library = {};  // the file of NCCL; empty: libnccl.so.2. The first named file is used
};

// Throws InvalidArgument if NCCL cannot be loaded, DeviceError.
NcclId make_nccl_id(const NcclOptions& options = {});
// Returns the same id on all ranks of the group, made by rank 0. Throws GroupError, and as
// make_nccl_id().
NcclId share_nccl_id(Group& group, const NcclOptions& options = {});

// Returns this rank's end of the communicator `id`. Returns when all ranks have called it, each
// with a different GPU.
//
// The communicator is blocking: an operation is enqueued when a function returns. Its destructor
// waits until all graphs that use it have ended.
//
// Throws InvalidArgument if NCCL cannot be loaded, for a rank outside [0, size), and for a device
// that does not exist or is not a GPU; DeviceError with NCCL's text.
std::unique_ptr<Collectives> make_nccl_collectives(const NcclId& id, int rank, int size,
                                                   Device device, const NcclOptions& options = {});
// Returns all ends of a communicator of this process: rank i works on devices[i]. Each rank needs
// its own thread. Throws InvalidArgument for a device that is named twice; as above.
std::vector<std::unique_ptr<Collectives>> make_nccl_collectives(std::span<const Device> devices,
                                                                const NcclOptions& options = {});

}  // namespace cgtree
