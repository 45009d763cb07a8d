// Takes and gives back tensors of another library.
#include "python/extension/borrowed.h"

#include <memory>
#include <utility>

#include "base/error.h"
#include "interop/exchange/dlpack_tensor.h"
#include "interop/exchange/foreign_array.h"

namespace cgtree::python {

// A BorrowedStorage has no owner during a call, and one afterwards if it is still referenced.
class BorrowedStorage final : private StorageOwner {
 public:
  BorrowedStorage(StreamRef stream, Device device, void* data, std::size_t bytes) noexcept
      : storage_(*this, device, stream, data, bytes) {}

  Storage& storage() noexcept { return storage_; }
  void keep(std::shared_ptr<void> owner) noexcept { owner_ = std::move(owner); }

 private:
  void release(Storage&) noexcept override { delete this; }

  Storage storage_;
  std::shared_ptr<void> owner_;
};

void BorrowedTensor::take(const dlpack::TensorView& view, StreamRef stream, Tensor& tensor) {
  auto* const first = static_cast<std::byte*>(view.data) + view.byte_offset;
  if (storage_ != nullptr && stream == stream_) [[likely]] {
    if (tensor.elements() != 0) move_to(first, tensor);
    return;
  }
  const ForeignArray array = read_view(view, /*needs_strides=*/false, stream);
  const bool is_empty = array.data == nullptr;
  if (!is_empty) check_alignment(reinterpret_cast<std::uintptr_t>(first), array.dtype);
  storage_ =
      new BorrowedStorage(stream, stream.device(), array.data,
                          static_cast<std::size_t>(array.shape.extent()) * size_of(array.dtype));
  tensor = Tensor::known_to_fit(StorageRef(storage_->storage()), 0, array.shape, array.dtype);
  other_ = nullptr;
  other_tensor_ = {};
  stream_ = stream;
}

// Moving a storage makes calls check each static input again, and the tensors of a loop alternate
// between two places: each place has its own storage.
void BorrowedTensor::move_to(std::byte* first, Tensor& tensor) {
  const auto place = reinterpret_cast<std::uintptr_t>(first);
  if (storage_->storage().address() == place) return;
  check_alignment(place, tensor.dtype());
  std::swap(storage_, other_);
  if (storage_ == nullptr) {
    storage_ = new BorrowedStorage(stream_, stream_.device(), first, other_->storage().bytes());
    other_tensor_ = std::exchange(tensor, Tensor::known_to_fit(StorageRef(storage_->storage()), 0,
                                                               tensor.shape(), tensor.dtype()));
    return;
  }
  std::swap(tensor, other_tensor_);
  if (storage_->storage().address() != place) storage_->storage().move_to(first);
}

bool BorrowedTensor::give_back(PyObject* object, Tensor& tensor) {
  if (storage_ == nullptr) return false;
  if (storage_->storage().references() == 1) return true;
  storage_->keep(keep_object(object));
  storage_ = other_ = nullptr;
  tensor = other_tensor_ = {};
  return false;
}

}  // namespace cgtree::python
