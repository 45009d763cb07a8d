// Threads, and what connects them.
#include "examples/serve/ranks.h"

#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "interop/collectives/nccl_collectives.h"

namespace cgtree::serve {
namespace {

std::vector<RankEnds> connect(std::span<const Device> devices) {
  std::vector<RankEnds> ends(devices.size());
  if (devices.size() == 1) return ends;
  const int count = static_cast<int>(devices.size());
  auto collectives = devices[0].type == DeviceType::kHost ? make_host_collectives(devices)
                                                          : make_nccl_collectives(devices);
  auto groups = make_thread_groups(count);
  for (std::size_t i = 0; i < ends.size(); ++i)
    ends[i] = {std::move(collectives[i]), std::move(groups[i])};
  return ends;
}

}  // namespace

std::vector<Device> devices_from(Device first, std::int64_t count) {
  std::vector<Device> devices;
  for (std::int64_t i = 0; i < count; ++i) {
    devices.push_back({first.type, first.id + static_cast<std::int32_t>(i)});
    static_cast<void>(device_api(devices.back()));
  }
  return devices;
}

void for_each_rank(std::span<const Device> devices,
                   const std::function<void(std::int64_t, const RankEnds&)>& body) {
  std::vector<RankEnds> ends = connect(devices);
  std::vector<std::shared_ptr<Collectives>> all;
  for (const RankEnds& end : ends)
    all.push_back(end.collectives);
  std::mutex mutex;
  std::exception_ptr first;
  const auto run = [&](std::size_t rank) {
    RankEnds own = std::exchange(ends[rank], {});
    try {
      check(device_api(devices[rank]).set_device(devices[rank].id), "choose the device");
      body(static_cast<std::int64_t>(rank), own);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
      for (const auto& collectives : all) {
        if (collectives) collectives->abort();
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t rank = 1; rank < devices.size(); ++rank)
    threads.emplace_back(run, rank);
  run(0);
  for (std::thread& thread : threads)
    thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace cgtree::serve
