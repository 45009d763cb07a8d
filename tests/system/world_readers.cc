// World: readers of outputs on other streams.
#include "tests/system/world.h"

#include <optional>

#include "interop/tensor/copy.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {

// Reads x on the stream of the call that made it, without a wait.
void World::read(const WorldOperation& operation) {
  const Variable x = ready(operation.x);
  if (x.caller < 0) return;
  const StreamRef stream = streams_[static_cast<std::size_t>(x.caller)]->ref();
  Variable made = fresh_of(Shape(x.tensor.shape().dims()));
  copy_elements(stream, made.tensor, x.tensor);
  note_use(x.tensor.storage(), stream);  // the context may have moved to another stream
  model_copy(made.model, x.model);
  made.writer = stream;
  put(operation.x, {});
  put(operation.to, made);
}

void World::copy_out(const WorldOperation& operation) {
  const Variable x = ready(operation.x);
  if (!x.tensor.is_contiguous()) return;
  const StreamRef stream = streams_[operation.stream % kStreams]->ref();
  wait_for_writers(stream, x);
  const Shape dense(x.tensor.shape().dims());
  Variable made = operation.y % 2 == 0 ? Variable{pinned_->empty(dense, DType::kFloat32),
                                                  ModelTensor::make(dense, kNobodys)}
                                       : fresh_of(dense);
  cgtree::copy(made.tensor, x.tensor, stream);
  model_copy(made.model, x.model);
  made.writer = stream;
  put(operation.x, {});
  if (operation.y % 2 != 0) return put(operation.to, made);
  graveyard_.push_back(made.tensor);  // pinned memory is never an input; checked as a capture
  captured_.push_back({{}, {}, {}, made});
}

// Another context reads the same output and then writes it, until those calls are predicted.
void World::read_and_write(const WorldOperation& operation) {
  WorldOperation next = without_fault(operation);
  next.deed = Deed::kChain;
  next.to = next.x;
  call(next);
  const Variable x = ready(operation.x);
  if (!x.tensor.is_contiguous() || x.tensor.storage()->domain() == nullptr) return;
  next.context = static_cast<std::uint8_t>((operation.context + 1u) % contexts_.size());
  next.deed = Deed::kBump;
  next.to = static_cast<std::uint8_t>((operation.x + 1) % kVariables);
  for (int i = 0; i < 5; ++i) {
    if (i == 3 && program_.has(Feature::kFaults)) misfit(next);
    Variable made = fresh_of(Shape(x.tensor.shape().dims()));
    wait_for_writers(reader_->ref(), x);
    cgtree::copy(made.tensor, x.tensor, reader_->ref());
    model_copy(made.model, x.model);
    made.writer = reader_->ref();
    put(operation.x + 2 + i % 3, made);
    call(next);
    if (!variables_[operation.x % kVariables].tensor.defined()) return;  // a call lacked memory
  }
  ++totals_.done["another context writes again and again what is read"];
}

// The source stays a variable, and a call may write it at once, since the copy is announced.
void World::read_beside(const WorldOperation& operation) {
  if (operation.choice % 4 == 2 && contexts_.size() > 1) return read_and_write(operation);
  const Variable x = ready(operation.x);
  if (!x.tensor.is_contiguous()) return;
  Variable made = fresh_of(Shape(x.tensor.shape().dims()));
  const bool is_short_lived = operation.choice % 4 == 0;
  const bool waits = operation.choice % 8 == 0;
  const int copies = !is_short_lived ? 1 : waits ? 40 : 10;  // after a wait, no event stays
  for (int i = 0; i < copies; ++i) {
    std::optional<Stream> short_lived;
    if (is_short_lived) short_lived.emplace(device_);
    const StreamRef stream = short_lived ? short_lived->ref() : reader_->ref();
    wait_for_writers(stream, x);
    cgtree::copy(made.tensor, x.tensor, stream);
    if (!short_lived) continue;
    reader_->ref().wait_for(stream);
    if (waits) short_lived->synchronize();
  }
  ++totals_.done[is_short_lived ? "readers whose streams end" : "a reader on another stream"];
  model_copy(made.model, x.model);
  made.writer = reader_->ref();
  put(operation.to, made);
  if (operation.choice % 4 != 1 || operation.to % kVariables == operation.x % kVariables) return;
  WorldOperation next = operation;
  next.deed = Deed::kBump;
  next.to = static_cast<std::uint8_t>((operation.to + 1) % kVariables);
  call(next);
}

}  // namespace cgtree::testing
