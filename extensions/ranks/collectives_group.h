// A Group over collectives of devices.
#pragma once

#include <memory>

#include "extensions/ranks/collectives.h"
#include "extensions/ranks/group.h"

namespace cgtree {

// Returns a group of the ranks of `collectives`: a vote is an all-reduce of a few words on a stream
// of its own, and its time limit is that of synchronize().
//
// The collectives must be the group's own: what a model enqueues on its own would have no order
// with the votes. Throws InvalidArgument for null, OutOfMemory.
std::unique_ptr<Group> make_collectives_group(std::shared_ptr<Collectives> collectives);

}  // namespace cgtree
