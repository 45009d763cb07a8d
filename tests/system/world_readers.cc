// World: what reads outputs on streams of its own.
#include "tests/system/world.h"

#include "interop/tensor/copy.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {

// On the stream of the call that made x, so that nothing is waited for.
void World::read(const WorldOperation& operation) {
  const Variable x = ready(operation.x);
  if (x.caller < 0) return;
  const StreamRef stream = streams_[static_cast<std::size_t>(x.caller)]->ref();
  Variable made = fresh_of(Shape(x.tensor.shape().dims()));
  copy_elements(stream, made.tensor, x.tensor);
  note_use(x.tensor.storage(), stream);  // the context may work elsewhere by now
  model_copy(made.model, x.model);
  made.writer = stream;
  put(operation.x, {});
  put(operation.to, made);
}

void World::copy_out(const WorldOperation& operation) {
  const Variable x = ready(operation.x);
  if (!x.tensor.is_contiguous()) return;
  const StreamRef stream = streams_[operation.stream % kStreams]->ref();
  wait_for_all(stream);
  stream.wait_for(producer_->ref());  // an import is ordered for calls, not for plain copies
  if (x.tensor.storage()->domain() != nullptr) {  // of a context that may be gone
    stream.wait_for(x.tensor.storage()->stream());
  }
  const Shape dense(x.tensor.shape().dims());
  Variable made = operation.y % 2 == 0 ? Variable{pinned_->empty(dense, DType::kFloat32),
                                                  ModelTensor::make(dense, kNobodys)}
                                       : fresh_of(dense);
  cgtree::copy(made.tensor, x.tensor, stream);
  model_copy(made.model, x.model);
  made.writer = stream;
  put(operation.x, {});
  if (operation.y % 2 != 0) return put(operation.to, made);
  graveyard_.push_back(made.tensor);  // pinned memory is no input; it is compared when checked
  captured_.push_back({{}, {}, {}, made});
}

}  // namespace cgtree::testing
