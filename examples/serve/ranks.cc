// Threads, and the connections between ranks.
#include "examples/serve/ranks.h"

#include <exception>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "extensions/ranks/mpi_group.h"
#include "extensions/ranks/nccl_collectives.h"
#include "interop/device/device_api.h"

namespace cgtree::serve {

std::vector<Rank> make_thread_ranks(Device first, std::int64_t count) {
  std::vector<Rank> ranks;
  std::vector<Device> devices;
  for (std::int64_t i = 0; i < count; ++i) {
    devices.push_back({first.type, first.id + static_cast<std::int32_t>(i)});
    static_cast<void>(device_api(devices.back()));
    ranks.push_back({.shard = {i, count}, .device = devices.back()});
  }
  if (count == 1) return ranks;
  auto collectives = first.type == DeviceType::kHost ? make_host_collectives(devices)
                                                     : make_nccl_collectives(devices);
  auto groups = make_thread_groups(static_cast<int>(count));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ranks[i].collectives = std::move(collectives[i]);
    ranks[i].group = std::move(groups[i]);
  }
  return ranks;
}

Rank make_mpi_rank(DeviceType type) {
  const std::shared_ptr<Group> group = make_mpi_group();
  const int rank = group->rank(), size = group->size();
  Rank own{.shard = {rank, size}, .device = {type, 0}, .group = group};
  if (size == 1) return own;
  if (type == DeviceType::kHost) {
    throw InvalidArgument(
        "the host device has no collectives between processes: " + std::to_string(size) +
        " of them need --device=cuda, or use one with --ranks=N");
  }
  std::int32_t gpus = 1;
  while (device_api(own.device).has_device(gpus))
    ++gpus;
  own.device.id = rank % gpus;
  own.collectives = make_nccl_collectives(share_nccl_id(*group), rank, size, own.device);
  return own;
}

void for_each_rank(std::span<Rank> ranks, const std::function<void(const Rank&)>& body) {
  std::mutex mutex;
  std::exception_ptr first;
  const auto run = [&](Rank& rank) {
    try {
      check(device_api(rank.device).set_device(rank.device.id), "choose the device");
      body(rank);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
      rank.group.reset();
      for (const Rank& each : ranks) {
        if (each.collectives) each.collectives->abort();
      }
    }
  };
  std::vector<std::thread> threads;
  for (Rank& rank : ranks.subspan(1))
    threads.emplace_back(run, std::ref(rank));
  run(ranks.front());
  for (std::thread& thread : threads)
    thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace cgtree::serve
