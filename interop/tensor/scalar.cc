// A storage with its eight bytes beside it.
#include "interop/tensor/scalar.h"

#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "interop/device/registry.h"

namespace cgtree {
namespace {

struct ScalarStorage : Storage {
  ScalarStorage(StorageOwner& owner, std::uint64_t value, std::size_t bytes)
      : Storage(owner, Device::host(),
                StreamRef(device_api(Device::host()), Device::host(), StreamHandle::kLegacy), &word,
                bytes),
        word(value) {}

  std::uint64_t word;
};

// Has no state: one serves all.
class ScalarOwner final : public StorageOwner {
 public:
  void release(Storage& storage, bool) noexcept override {
    delete static_cast<ScalarStorage*>(&storage);
  }
  void throw_stale(const Storage&) const override {
    throw StaleTensor("a scalar's memory is never given up");
  }
};

ScalarOwner& scalar_owner() {
  static ScalarOwner* const owner = new ScalarOwner;  // outlives every static tensor
  return *owner;
}

}  // namespace

Tensor scalar_of(DType dtype, const void* value, std::size_t bytes) {
  CGTREE_CHECK(bytes == size_of(dtype) && bytes <= sizeof(std::uint64_t));
  std::uint64_t word = 0;
  std::memcpy(&word, value, bytes);
  auto* const made = new ScalarStorage(scalar_owner(), word, bytes);
  return Tensor(StorageRef(*made), 0, Shape(), dtype);
}

bool is_scalar(const Tensor& tensor) noexcept {
  return tensor.rank() == 0 && &tensor.storage()->owner() == &scalar_owner();
}

std::uint64_t scalar_word(const Tensor& scalar) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, reinterpret_cast<const void*>(scalar.address()), size_of(scalar.dtype()));
  return word;
}

}  // namespace cgtree
