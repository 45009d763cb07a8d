// Lease and find_lent(): find the storage of an address that another library returns.
//
// A step function gives memory of its context to a library, which returns an array that only
// contains the address. As memory of another library it would be recorded as a constant; but it is
// an input, or memory of the step itself, and its storage tells.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "interop/device/device.h"
#include "interop/tensor/storage.h"

namespace cgtree {

// A Lease keeps a storage for another library, and lets find_lent() find it meanwhile. Thread
// safety: any thread.
class Lease {
 public:
  Lease() = default;
  explicit Lease(StorageRef storage);
  Lease(Lease&& other) noexcept { *this = std::move(other); }
  Lease& operator=(Lease&& other) noexcept;
  ~Lease();

  const StorageRef& storage() const noexcept { return storage_; }

 private:
  StorageRef storage_;
  std::multimap<std::uintptr_t, Storage*>::iterator entry_;  // if there is a storage
};

// Returns the storage with a lease that holds these bytes, or null; never an invalidated one.
// Thread safety: any thread.
// Without a device, assumes that addresses differ between devices.
StorageRef find_lent(std::optional<Device> device, std::uintptr_t address,
                     std::size_t bytes) noexcept;

}  // namespace cgtree
