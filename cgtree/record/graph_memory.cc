// Reads the allocations of a graph, and frees them when the recording is destroyed.
#include "cgtree/record/graph_memory.h"

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include "base/log_event.h"
#include "interop/device/device_api.h"
#include "interop/device/node_contents.h"
#include "interop/tensor/stream_synchronization.h"

namespace cgtree {
namespace {

// A LeftMemory owns the storage of one allocation.
class LeftMemory final : public StorageOwner {
 public:
  LeftMemory(const Graph& graph, ContextMemory& memory, std::shared_ptr<const bool> is_freed,
             std::uintptr_t address, std::size_t bytes)
      : graph_(graph),
        memory_(memory),
        is_freed_(std::move(is_freed)),
        storage_(*this, memory.device(), StreamRef(), reinterpret_cast<void*>(address), bytes) {}

  Storage& storage() noexcept { return storage_; }

  // Implements StorageOwner.
  void release(Storage&) noexcept override {
    if (*is_freed_) free();
    delete this;
  }

 private:
  // The device refuses to free memory that the caller has freed.
  void free() noexcept try {
    const StreamRef stream = memory_.stream();
    const DeviceScope current = stream.make_device_current();
    if (capture_of(stream) != 0) {  // the free would become a node of that graph
      log_event(LogLevel::kError, "graph_memory_lost bytes={}", storage_.bytes());
      return;
    }
    const PlainUse use{{storage_.address(), storage_.bytes()}, /*is_written=*/true};
    (void)memory_.plain().begin({&use, 1}, stream);
    GraphAPI& graphs = stream.graphs();
    const RelaxedCapture relaxed(&graphs);
    if (!ok(graphs.free_in_order(stream.handle(), storage_.data()))) (void)graphs.take_last_error();
  } catch (const std::exception& error) {
    log_event(LogLevel::kError, "graph_memory_lost bytes={} error=\"{}\"", storage_.bytes(),
              error.what());
  }

  const Graph graph_;  // while it exists, no other memory gets the address
  ContextMemory& memory_;
  const std::shared_ptr<const bool> is_freed_;
  Storage storage_;
};

}  // namespace

Code find_left_allocations(Recording& recording, ContextMemory& memory,
                           std::vector<StorageRef>* left) {
  // Allocations of a graph with disjoint lifetimes may have the same address.
  struct Allocation {
    const Graph* graph = nullptr;
    std::size_t bytes = 0;
    int lives = 0;
  };
  std::map<std::uintptr_t, Allocation> allocations;
  Code code = Code::kSuccess;
  recording.for_each_graph([&](const Graph& graph, const GraphExec&) {
    std::vector<NodeContents> nodes;
    if (ok(code)) code = memory.stream().graphs().read_nodes(graph.handle(), &nodes);
    for (const NodeContents& node : nodes) {
      const bool is_allocation = node.type == NodeType::kAllocation;
      if (!is_allocation && node.type != NodeType::kFree) continue;
      if (node.memory.empty()) return void(code = Code::kNotSupported);
      Allocation& allocation = allocations[node.memory[0].address];
      if (is_allocation) allocation.graph = &graph;
      allocation.bytes = std::max(allocation.bytes, node.memory[0].bytes);
      allocation.lives += is_allocation ? 1 : -1;
    }
  });
  for (const auto& [address, allocation] : allocations) {
    if (allocation.lives < 0 && ok(code)) code = Code::kStreamCaptureUnsupported;
    if (allocation.lives <= 0 || !ok(code)) continue;
    auto* const owner =
        new LeftMemory(*allocation.graph, memory, recording.frees_left, address, allocation.bytes);
    StorageRef storage(owner->storage());
    left->push_back(std::move(storage));
  }
  return code;
}

}  // namespace cgtree
