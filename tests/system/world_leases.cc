// World: steps that lease their memory to another library, which cannot see that a step has failed
// or that an output has moved.
#include <string_view>
#include <utility>

#include "base/error.h"
#include "tests/support/steps.h"
#include "tests/system/world.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {
namespace {

constexpr std::size_t kMostLeases = 3;

// A function whose next run leases its output, or its intermediate tensor.
struct Lessor {
  enum Next : std::uint8_t { kNothing, kOutput, kBetween };

  explicit Lessor(WorldContext& with)
      : function(with.make("lessor", [this](std::span<const Tensor> inputs) {
          const Tensor between = affine(inputs[0], 0.5f, 1);
          Tensor output = affine(between, -1, 0);
          if (next != kNothing) lease = Lease((next == kOutput ? output : between).storage());
          next = kNothing;
          return std::vector<Tensor>{std::move(output)};
        })) {}

  Next next = kNothing;
  Lease lease;
  WorldContext::Function function;
};

}  // namespace

// Leased memory belongs to the other library, which writes it right after the call.
void World::lease(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  Lessor& lessor = with.family<Lessor>();
  const bool has_all = leased_.size() == kMostLeases;
  if (has_all || (operation.choice % 5 == 0 && !leased_.empty())) leased_.erase(leased_.begin());
  lessor.next = static_cast<Lessor::Next>(operation.y % 3);
  const Variable x = of_dims(operation.x, kRow);
  std::vector<Tensor> outputs;
  bool done = false;
  try {
    done = run_call(operation, lessor.function, {&x.tensor, 1}, {}, false, outputs);
  } catch (const InvalidArgument& error) {
    const std::string_view what = error.what();
    if (what.find("of the tensors it allocated") == std::string_view::npos) throw;
    ++totals_.done["a capture fails whose memory another library holds"];
  }
  lessor.next = Lessor::kNothing;
  if (lessor.lease.storage()) {
    outputs.clear();
    settle();
    Leased one{std::exchange(lessor.lease, Lease()), ModelTensor::make(kRow, kNobodys)};
    for (float& value : one.model.buffer->values)
      value = next_value();
    const Tensor tensor(one.lease.storage(), 0, kRow, DType::kFloat32);
    tensor.copy_from_host(one.model.buffer->values.data(), tensor.bytes(), with.context().stream());
    settle();
    leased_.push_back(std::move(one));
    ++totals_.done["another library holds memory of a step"];
  } else if (done) {
    put(operation.to, {outputs.at(0), results_of(Deed::kLease, x.model, {}, 0)[0],
                       caller_number(operation), StreamRef(), false, ends_with_});
  }
}

void World::check_leased() {
  for (const Leased& one : leased_) {
    const Tensor tensor(one.lease.storage(), 0, kRow, DType::kFloat32);
    expect(tensor, one.model, "what another library holds");
  }
}

}  // namespace cgtree::testing
