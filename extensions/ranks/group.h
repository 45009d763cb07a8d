// Groups of threads.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "cgtree/values/group.h"

namespace cgtree {

// The time that a rank waits for the others. It includes a warm-up that compiles kernels.
inline constexpr std::chrono::milliseconds kGroupTimeLimit(60'000);

// Returns the ends of a group of threads, one for each rank. Destroying one leaves the group: the
// others get GroupError when they next need it.
std::vector<std::unique_ptr<Group>> make_thread_groups(
    int size, std::chrono::milliseconds time_limit = kGroupTimeLimit);

}  // namespace cgtree
