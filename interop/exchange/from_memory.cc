// Checks foreign memory, and makes a tensor of it.
#include "interop/exchange/from_memory.h"

#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "interop/exchange/foreign_array.h"

namespace cgtree {

Tensor from_memory(Device device, void* data, const Shape& shape, DType dtype,
                   std::shared_ptr<void> owner, StreamRef stream) {
  const StreamRef given = stream ? stream : current_stream_or_none();
  if (given && given.device() != device) {
    throw BoundaryError(BoundaryFault::kWrongValue,
                        str_format("from_memory() on {} with a stream of {}: give a stream of the "
                                   "memory's device",
                                   to_string(device), to_string(given.device())));
  }
  ForeignArray array{.device = device, .data = data, .shape = shape, .dtype = dtype};
  array.owner = std::move(owner);
  return import_array(std::move(array), {.consumer = given});
}

}  // namespace cgtree
