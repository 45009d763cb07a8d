// Ranks: a model that is divided between devices, with a thread for each of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "interop/collectives/collectives.h"
#include "interop/collectives/group.h"
#include "interop/device/device.h"

namespace cgtree::serve {

// Returns `count` devices of one kind, from `first` on. Throws InvalidArgument if one does not
// exist.
std::vector<Device> devices_from(Device first, std::int64_t count);

// What connects a rank with the others; both are null for one rank.
struct RankEnds {
  std::shared_ptr<Collectives> collectives;
  std::shared_ptr<Group> group;
};

// Runs body(rank, ends) for each rank, on a thread of its own with its device current. If one
// throws, the others are released from waiting for it, and its exception is thrown here.
void for_each_rank(std::span<const Device> devices,
                   const std::function<void(std::int64_t rank, const RankEnds& ends)>& body);

}  // namespace cgtree::serve
