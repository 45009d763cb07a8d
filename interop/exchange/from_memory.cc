// Checks the memory of others, and makes a tensor of it.
#include "interop/exchange/from_memory.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "base/error.h"
#include "interop/device/device_api.h"
#include "interop/exchange/foreign_memory.h"

namespace cgtree {

Tensor from_memory(Device device, void* data, const Shape& shape, DType dtype,
                   std::shared_ptr<void> owner, StreamRef stream) {
  DeviceAPI& api = device_api(device);
  const std::size_t bytes = static_cast<std::size_t>(shape.extent()) * size_of(dtype);
  if (bytes > 0) {
    if (data == nullptr) {
      throw BoundaryError(BoundaryFault::kWrongValue,
                          fmt::format("from_memory() of {} {} at a null address: give that of its "
                                      "first element",
                                      name(dtype), to_string(shape)));
    }
    (void)locate(api, device, data, /*is_wanted=*/true);
    check_alignment(reinterpret_cast<std::uintptr_t>(data), dtype);
  }
  const StreamRef given = consumer_or_current(stream);
  if (given && given.device() != device) {
    throw BoundaryError(BoundaryFault::kWrongValue,
                        fmt::format("from_memory() on {} with a stream of {}: give a stream of the "
                                    "memory's device",
                                    to_string(device), to_string(given.device())));
  }
  ImportedMemory memory{.device = device, .data = data, .bytes = bytes, .owner = std::move(owner)};
  return imported(std::move(memory), given ? given : StreamRef(api, device, StreamHandle::kLegacy),
                  0, shape, dtype);
}

}  // namespace cgtree
