// Keeps the list of a step's storages.
#include "cgtree/memory/step_memory.h"

#include <algorithm>

#include "interop/device/stream.h"

namespace cgtree {

void StepAllocations::begin() noexcept {
  thread = std::this_thread::get_id();
  scopes_before = stream_scopes_opened();
}

bool StepAllocations::defers_frees() const noexcept {
  return has_side_work || std::this_thread::get_id() != thread ||
         stream_scopes_opened() != scopes_before;
}

bool StepAllocations::is_output(std::uint32_t number) const noexcept {
  return output_allocations != nullptr &&
         std::binary_search(output_allocations->begin(), output_allocations->end(), number);
}

void StepAllocations::add(Storage& storage) {
  ranges.reserve(ranges.size() + 1);
  alive.push_back(&storage);
  ranges.push_back({storage.address(), storage.bytes()});
  storage.tag.position = static_cast<std::uint32_t>(alive.size() - 1);
}

bool StepAllocations::contains(const Storage& storage) const noexcept {
  const std::uint32_t position = storage.tag.position;
  return position < alive.size() && alive[position] == &storage;
}

void StepAllocations::remove(const Storage& storage) noexcept {
  const std::uint32_t position = storage.tag.position;
  alive[position] = alive.back();
  alive[position]->tag.position = position;
  alive.pop_back();
}

void StepAllocations::reserve_deferred(std::size_t more) {
  const std::size_t most = deferred.size() + alive.size() + more;
  if (deferred.capacity() < most) deferred.reserve(2 * most);
}

}  // namespace cgtree
