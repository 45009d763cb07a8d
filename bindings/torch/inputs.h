// TorchInputs: the at::Tensors of a call as inputs of the core. It keeps parts of the last call,
// which make the next call faster.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "bindings/torch/tensors.h"
#include "cgtree/values/input_list.h"
#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"

namespace cgtree::detail {

// Thread safety: one thread.
class TorchInputs {
 public:
  // `is_static`: by position; inputs beyond it are not static. A static input is kept until a call
  // with another one, so that calls only compare it.
  explicit TorchInputs(std::vector<bool> is_static = {}) : is_static_(std::move(is_static)) {}

  // Begins a list of `count` tensors.
  void begin(std::size_t count) {
    known_.resize(count);
    made_.resize(count);
    addresses_.resize(count);
  }
  // Adds the tensor at position i of the list.
  void add(std::size_t i, const at::Tensor& tensor, StreamRef stream) {
    Known& known = known_[i];
    if (known.memory != nullptr && is_same(tensor, known)) {
      addresses_[i] = &known.kept;
      return;
    }
    made_[i] = from_torch(tensor, stream, &known.shape);
    addresses_[i] = &made_[i];
    if (!tensor.defined()) return;
    known.shape = made_[i].shape();
    if (i < is_static_.size() && is_static_[i]) keep(known, tensor, made_[i]);
  }
  void add(std::size_t i, const Tensor& tensor, StreamRef) { addresses_[i] = &tensor; }

  // Valid until the next call.
  InputList list(std::size_t buffers) const noexcept { return InputList(addresses_, buffers); }
  // Releases all but static inputs.
  void end() noexcept {
    for (Tensor& tensor : made_)
      tensor = Tensor();
  }

 private:
  struct Known {
    Shape shape;  // of the last call
    // For a static input: its memory in PyTorch, kept alive by `kept`, so that no other memory has
    // this address. Null for others.
    const c10::StorageImpl* memory = nullptr;
    Tensor kept;
    at::ScalarType type = at::kFloat;
  };

  static bool is_same(const at::Tensor& tensor, const Known& known) {
    if (!tensor.defined() || !tensor.has_storage()) return false;
    const c10::Storage& memory = tensor.storage();
    return memory.unsafeGetStorageImpl() == known.memory &&
           reinterpret_cast<std::uintptr_t>(memory.data()) == known.kept.storage()->address() &&
           memory.nbytes() == known.kept.storage()->bytes() && tensor.scalar_type() == known.type &&
           !tensor.is_conj() && !tensor.is_neg() &&
           static_cast<std::size_t>(tensor.storage_offset()) * tensor.itemsize() ==
               known.kept.byte_offset() &&
           std::ranges::equal(known.shape.dims(), as_span(tensor.sizes())) &&
           std::ranges::equal(known.shape.strides(), as_span(tensor.strides()));
  }
  static void keep(Known& known, const at::Tensor& tensor, const Tensor& made) {
    known.memory = nullptr;
    known.kept = Tensor();
    if (LentStorage::find(tensor.storage().data_ptr()) != nullptr) return;
    known.memory = tensor.storage().unsafeGetStorageImpl();
    known.type = tensor.scalar_type();
    known.kept = made;
  }

  const std::vector<bool> is_static_;
  std::vector<Known> known_;
  std::vector<Tensor> made_;
  std::vector<const Tensor*> addresses_;
};

}  // namespace cgtree::detail
