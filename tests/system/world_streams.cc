// World: streams that end, and tensors of another library, which works on another stream.
#include "tests/system/world.h"

#include <memory>
#include <vector>

#include "allocator/device/device_streams.h"
#include "base/error.h"
#include "caching/device_allocator.h"
#include "interop/device/device_api.h"
#include "interop/exchange/dlpack_tensor.h"
#include "tests/support/steps.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {
namespace {

// A tensor of another library, which overwrites the memory as soon as it may.
struct Foreign {
  dlpack::ManagedVersioned managed = {};
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> strides;
  Tensor memory;
  StreamRef producer;
  std::vector<Tensor>* graveyard = nullptr;
};

}  // namespace

void World::import(const WorldOperation& operation) {
  put(operation.to, import_of(fresh(operation.y)));
}

World::Variable World::import_of(Variable x) {
  auto* const foreign = new Foreign;
  const auto dims = x.tensor.shape().dims();
  foreign->dims.assign(dims.begin(), dims.end());
  const auto strides = x.tensor.shape().strides();
  foreign->strides.assign(strides.begin(), strides.end());
  foreign->memory = x.tensor;
  foreign->producer = producer_->ref();
  foreign->graveyard = &graveyard_;
  foreign->managed.version = {1, 3};
  foreign->managed.context = foreign;
  foreign->managed.tensor = {x.tensor.data(),
                             to_dlpack_device(device_),
                             static_cast<std::int32_t>(dims.size()),
                             {dlpack::kFloat, 32, 1},
                             foreign->dims.data(),
                             foreign->strides.data(),
                             0};
  foreign->managed.deleter = [](dlpack::ManagedVersioned* self) {
    auto* const library = static_cast<Foreign*>(self->context);
    {
      const StreamScope scope(library->producer);
      update(library->memory, 0, -1);
    }
    library->graveyard->push_back(library->memory);
    delete library;
  };
  {
    const StreamScope scope(foreign->producer);
    update(x.tensor, 0.5f, 1);
  }
  model_update(x.model, 0.5f, 1);
  x.tensor = from_dlpack(&foreign->managed, {.producer = foreign->producer});
  return x;
}

// A stream ends with work in flight, and memory that was allocated on it is freed before the work
// ends. A later stream, which may have the same handle, overwrites all memory that it gets.
void World::recycle(const WorldOperation& operation) {
  const Variable x = ready(operation.x);
  if (!x.tensor.is_contiguous()) return;
  const std::shared_ptr<DeviceAllocator> memory = DeviceAllocator::shared(device_);
  CachingAllocator& allocator = memory->allocator();
  DeviceAPI& api = device_api(device_);
  const std::size_t bytes = x.tensor.bytes();
  Variable made = fresh_of(Shape(x.tensor.shape().dims()));
  const Variable other = fresh_of(Shape(x.tensor.shape().dims()));
  {
    const Stream gone(device_);
    wait_for_writers(gone, x);
    void* const between = allocator.allocate(bytes, stream_id(gone));
    cgtree::check(api.copy(gone.ref().handle(), between, x.tensor.data(), bytes), "copy");
    note_use(x.tensor.storage(), gone);
    cgtree::check(api.copy(gone.ref().handle(), made.tensor.data(), between, bytes), "copy");
    allocator.free(between);
    all_wait_for(gone);
  }
  model_copy(made.model, x.model);
  ++totals_.done["a stream ends with work under way"];
  const Stream later(device_);
  void* const given = allocator.allocate(bytes, stream_id(later));
  cgtree::check(api.copy(later.ref().handle(), given, other.tensor.data(), bytes), "copy");
  allocator.free(given);
  if (operation.choice % 2 == 0) put(operation.x, {});
  put(operation.to, made);
}

void World::end_stream(int number) {
  const auto i = static_cast<std::size_t>(number);
  all_wait_for(streams_[i]->ref());
  for (Variable& variable : variables_) {
    if (variable.caller == number) variable.caller = -1;
    if (variable.writer == streams_[i]->ref()) variable.writer = {};
  }
  for (Captured& captured : captured_) {
    if (captured.y.writer == streams_[i]->ref()) captured.y.writer = {};
  }
  streams_[i].reset();
  streams_[i].emplace(device_);
}

}  // namespace cgtree::testing
