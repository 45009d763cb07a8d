// ForeignDlpack: another library's tensor in a DLPack struct, which counts its deletions.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "interop/exchange/dlpack.h"

namespace cgtree::testing {

template <typename Managed>
struct ForeignDlpack {
  ForeignDlpack(void* data, dlpack::DeviceRef device, std::vector<std::int64_t> dims,
                std::vector<std::int64_t> steps)
      : shape(std::move(dims)), strides(std::move(steps)) {
    if constexpr (requires { managed.version; }) managed.version = {1, 3};
    managed.context = this;
    managed.deleter = [](Managed* self) { ++static_cast<ForeignDlpack*>(self->context)->deleted; };
    managed.tensor = {data,
                      device,
                      static_cast<std::int32_t>(shape.size()),
                      {2, 32, 1},
                      shape.data(),
                      strides.data(),
                      /*byte_offset=*/0};
  }
  ForeignDlpack(const ForeignDlpack&) = delete;
  ForeignDlpack& operator=(const ForeignDlpack&) = delete;

  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  Managed managed = {};
  std::atomic<int> deleted = 0;
};

using ForeignVersioned = ForeignDlpack<dlpack::ManagedVersioned>;
using ForeignUnversioned = ForeignDlpack<dlpack::Managed>;

}  // namespace cgtree::testing
