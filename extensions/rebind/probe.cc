// Captures a step with its inputs at the caller's addresses.
#include "extensions/rebind/probe.h"

#include <algorithm>

#include "cgtree/record/outputs.h"

namespace cgtree {
namespace {

// A StandIn owns its storage, and ends with its last reference.
class StandIn final : public StorageOwner {
 public:
  StandIn(const Tensor& tensor, ContextMemory& memory)
      : stream_(memory.stream()),
        storage_(*this, memory.device(), StreamRef(), reinterpret_cast<void*>(tensor.address()),
                 extent_bytes(tensor), &memory) {}

  StorageRef ref() { return StorageRef(storage_); }

  // StorageOwner.
  void release(Storage&) noexcept override { delete this; }
  void used(Storage&, StreamRef) override {}
  StreamRef stream(const Storage&) const noexcept override { return stream_; }

 private:
  const StreamRef stream_;
  Storage storage_;
};

// Returns a tensor at the address of `tensor` with another storage, so that the step leaves no
// trace in the caller's storage. Borrows the memory.
Tensor stand_in(const Tensor& tensor, ContextMemory& memory) {
  return Tensor((new StandIn(tensor, memory))->ref(), 0, tensor.shape(), tensor.dtype());
}

StandIns stand_ins_of(const Call& call, ContextMemory& memory, const Probe& probe) {
  const InputList& inputs = call.inputs();
  StandIns made;
  for (std::size_t i = 0; i < inputs.step_size(); ++i) {
    made.inputs.push_back(call.rebind(i) == Rebind::kNever ? Tensor()
                                                           : stand_in(inputs[i], memory));
  }
  for (const auto& [number, i] : probe.buffers)
    made.allocations.emplace_back(number, stand_in(inputs[i], memory).storage());
  return made;
}

void find_buffers(const Call& call, const ContextMemory& memory, std::span<const Tensor> outputs,
                  Probe& probe) {
  const InputList& inputs = call.inputs();
  for (std::size_t i = 0; i < std::min(inputs.buffers(), outputs.size()); ++i) {
    const auto input = static_cast<std::uint32_t>(inputs.step_size() + i);
    if (call.rebind(input) == Rebind::kNever || !outputs[i].defined()) continue;
    const auto number = memory.number_in_step(*outputs[i].storage());
    if (number && is_replaceable(outputs, i, inputs.buffer(i))) {
      probe.buffers.emplace_back(*number, input);
    }
  }
}

}  // namespace

// If the probe fails, the cost is only that of the copies that it would have saved.
Probe make_probe(const Call& call, ContextMemory& memory, Recorder& recorder,
                 const std::vector<std::uint32_t>& output_allocations) {
  Probe probe;
  // A further run is needed if the pools grew meanwhile, because allocations are then placed
  // elsewhere, and when it becomes known which allocations the buffers replace.
  constexpr int kMostRuns = 3;
  for (int run = 0; run < kMostRuns; ++run) {
    const std::size_t reserved = memory.reserved_bytes();
    const auto look = [&](const Recording& recording, std::span<const Tensor> outputs) {
      if (!recording.further.empty()) {
        probe.failure = kBreakIsOpaque;
        return;
      }
      probe.contents = read_graph(memory.stream().api(), recording.graph);
      if (probe.buffers.empty()) find_buffers(call, memory, outputs, probe);
    };
    const std::string failure =
        recorder.try_capture(call, output_allocations, stand_ins_of(call, memory, probe), look);
    if (!failure.empty()) probe.failure = failure;
    const bool has_new_buffers = run == 0 && !probe.buffers.empty();
    if (!probe.failure.empty() || (memory.reserved_bytes() == reserved && !has_new_buffers)) break;
  }
  return probe;
}

}  // namespace cgtree
