// World: outputs that are kept or outlive their context, and the end of contexts and generations.
#include "cgtree/memory/context_memory.h"
#include "tests/system/world.h"

#include <fmt/format.h>

#include <thread>

#include "allocator/device/device_memory.h"
#include "base/error.h"
#include "interop/tensor/copy.h"
#include "tests/support/inside.h"
#include "tests/support/steps.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {

void World::keep_output(const WorldOperation& operation) {
  Variable& x = variables_[static_cast<std::size_t>(operation.x) % kVariables];
  if (!x.tensor.defined()) return;
  for (const auto& made_in : contexts_) {
    Context& context = made_in->context();
    if (x.tensor.storage()->domain() != &memory_of(context)) continue;
    context.keep(x.tensor);
    for (Variable& other : variables_)
      other.is_kept = other.is_kept || other.tensor.storage() == x.tensor.storage();
  }
}

void World::end_context(int number) {
  const auto i = static_cast<std::size_t>(number);
  StreamRef own;
  if (contexts_[i] != nullptr) {
    count(contexts_[i]->context());
    all_wait_for(contexts_[i]->context().stream());
    if (!program_.has(Feature::kContexts)) settle();
    if (program_.has(Feature::kThreads)) {
      std::thread([gone = std::move(contexts_[i])] {}).join();
    }
  }
  contexts_[i].reset();
  for (Variable& variable : variables_) {
    if (variable.ends_with == number) variable.ends_with = -1;
  }
  for (Captured& captured : captured_) {
    if (captured.context == number) captured.drop_graph();  // the graph's memory is freed
  }
  const bool has_budget = program_.has(Feature::kBudgets);
  const bool has_hook = program_.has(Feature::kHooks) || program_.has(Feature::kDraws);
  const std::size_t verify_every =
      program_.has(Feature::kVerifying) ? 1 + static_cast<std::size_t>(options_[i]) % 3 : 0;
  if (options_[i] == kOwnStreams) own = own_streams_.emplace_back(device_).ref();
  if (options_[i] == kOwnStreams && program_.has(Feature::kPerThread)) {
    try {
      const StreamRef per_thread(device_, StreamHandle::kPerThread);
      contexts_[i] = std::make_unique<WorldContext>(device_, options_[i], has_budget, per_thread,
                                                    verify_every, has_hook);
    } catch (const InvalidArgument&) {  // the context may refuse
    }
  }
  if (contexts_[i] == nullptr) {
    contexts_[i] = std::make_unique<WorldContext>(device_, options_[i], has_budget, own,
                                                  verify_every, has_hook);
  }
  wait_for_all(contexts_[i]->context().stream());  // for callers' memory that it wrote
  tables_[i] = {};
}

// Only the segment of the held output stays in use.
void World::outlive(const WorldOperation& operation) {
  const bool grows_in_place = operation.y % 4 == 0;
  const Variable x = fresh_of(kRow);
  const std::shared_ptr<DeviceMemory> shared = DeviceMemory::shared(device_);
  const auto in_use = [&] { return shared->cache().statistics().bytes_in_use; };
  const std::size_t before = in_use();
  Tensor held;
  {
    Context gone(device_, {.pools_grow_in_place = grows_in_place});
    const CompiledFunction small =
        compile(gone, "small", [](const Tensor& x) { return affine(x, 0.5f, 1); });
    const CompiledFunction large = compile(gone, "large", [](const Tensor& x) {
      const Tensor wide = empty({300'000}, DType::kFloat32);
      copy_elements(current_stream(), Tensor(wide.storage(), 0, kRow, DType::kFloat32), x);
      note_use(wide.storage(), current_stream());
      return wide;
    });
    for (int call = 0; call <= operation.y % 3; ++call) {
      held = small(x.tensor);
      (void)large(x.tensor);
    }
    held = small(x.tensor);
    if (operation.to % 2 == 0) gone.mark_step();
    if (held.storage()->state() == Storage::State::kStale) held = Tensor();
  }
  if (!grows_in_place && in_use() > before + (held.defined() ? kSmallSegment : 0)) {
    throw Difference(fmt::format("{} bytes outlive a context for an output of {}",
                                 in_use() - before, x.tensor.bytes()));
  }
  if (held.defined()) put(operation.to, {held, affine_of(x.model, 0.5f, 1)});
}

bool World::is_managed(const Tensor& tensor, int context) const {
  Context& made_in = contexts_[static_cast<std::size_t>(context)]->context();
  return manages(made_in, tensor);
}

// Keeps every result, as an evaluation loop does.
void World::hoard(const WorldOperation& operation) {
  constexpr std::size_t kMost = 80;
  constexpr int kCalls = 8;
  if (hoard_.size() > kMost) hoard_.clear();
  const WorldOperation what = without_fault(operation);
  for (int i = 0; i < kCalls; ++i) {
    const bool is_fed_back = i > 0 && operation.choice % 3 == 0;
    const Variable x = is_fed_back ? hoard_.back() : fresh_of(kRow);
    std::vector<Tensor> outputs;
    if (!run_call(what, context(what).function(Deed::kChain), {&x.tensor, 1}, {}, false, outputs))
      return;
    if (ends_with_ >= 0 && !is_managed(outputs.at(0), ends_with_))
      ++totals_.done["a result that is kept is copied"];
    hoard_.push_back({outputs.at(0), results_of(Deed::kChain, x.model, {}, 0)[0],
                      caller_number(operation), StreamRef(), false, ends_with_});
  }
}

void World::mark_step(int number) {
  use(number).context().mark_step();
  std::erase_if(hoard_, [](const Variable& one) { return is_stale(one.tensor); });
  for (Variable& variable : variables_) {
    if (!variable.tensor.defined()) continue;
    if (!is_stale(variable.tensor)) {
      if (variable.ends_with != number % static_cast<int>(contexts_.size())) continue;
      if (variable.is_kept) continue;
      throw Difference("mark_step() has not ended an output");
    }
    if (variable.is_kept) throw Difference("mark_step() has ended an output that was kept");
    if (stale_.size() == 4) stale_.erase(stale_.begin());
    stale_.push_back(variable.tensor);
    variable = {};
  }
}

}  // namespace cgtree::testing
