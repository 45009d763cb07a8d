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

// An NcclId names a communicator that is being made: one rank makes it, and gives it to the others.
struct NcclId {
  std::array<char, 128> bytes = {};

  friend bool operator==(const NcclId&, const NcclId&) = default;
};

// The options of communicators over NCCL.
struct NcclOptions {
  // Of synchronize(). To make a communicator takes as long as the last rank needs to come.
  std::chrono::milliseconds time_limit = kCollectivesTimeLimit;
  // Whether NCCL is to order eager uses and graphs that are launched beside each other, with nodes
  // of its own in each graph. A Communicator has one order, so that they would only cost time
  // (docs/multi_gpu.md). Before 2.29.2 NCCL has this for the process: then
  // NCCL_GRAPH_MIXING_SUPPORT=0 is set in the environment, unless it is set already, and the
  // communicator that is made first decides.
  bool graph_mixing = false;
  std::string library = {};  // the file of NCCL; empty: libnccl.so.2. The first one named is used
};

// Throws InvalidArgument if NCCL cannot be loaded, DeviceError.
NcclId make_nccl_id(const NcclOptions& options = {});
// Returns the same id on all ranks of the group, made by rank 0. Throws GroupError, and what
// make_nccl_id() throws.
NcclId share_nccl_id(Group& group, const NcclOptions& options = {});

// Returns this rank's end of the communicator `id`. Returns when all ranks have called it, each
// with a GPU of its own.
//
// The communicator is a blocking one: an operation is enqueued when a function returns. Its
// destructor waits until all graphs that use it have ended.
//
// Throws InvalidArgument if NCCL cannot be loaded, for a rank that is not in [0, size), and for a
// device that is no GPU or does not exist; DeviceError with NCCL's text.
std::unique_ptr<Collectives> make_nccl_collectives(const NcclId& id, int rank, int size,
                                                   Device device, const NcclOptions& options = {});
// Returns all ends of a communicator of this process: rank i works on devices[i]. Each rank needs a
// thread of its own. Throws InvalidArgument for a device that is named twice; as above.
std::vector<std::unique_ptr<Collectives>> make_nccl_collectives(std::span<const Device> devices,
                                                                const NcclOptions& options = {});

}  // namespace cgtree
