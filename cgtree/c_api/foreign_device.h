// ForeignDevice: a device whose verbs are C functions.
#pragma once

#include <string>

#include "cgtree/c_api.h"
#include "interop/device/device_api.h"

namespace cgtree::capi {

// Functions that throw, or give memory that is not aligned, answer kUnknown and kInvalidValue, and
// a line of the log says so. No graphs.
class ForeignDevice final : public DeviceAPI {
 public:
  // Throws InvalidArgument: no name, or a function that is missing.
  explicit ForeignDevice(const cgt_device_api& api);

  std::string_view name() const noexcept override { return name_; }
  AttributeValue attribute(int id, DeviceAttribute attribute) noexcept override;
  Code alloc_data_space(int id, std::size_t bytes, void** data) override;
  Code free_data_space(int id, void* data) override;
  Code alloc_pinned(std::size_t bytes, void** data) override;
  Code free_pinned(void* data) override;
  Code copy(StreamHandle stream, void* destination, const void* source, std::size_t bytes) override;
  Code create_stream(int id, StreamKind kind, StreamHandle* stream) override;
  Code destroy_stream(StreamHandle stream) override;
  Code synchronize_stream(StreamHandle stream) override;
  Code query_stream(StreamHandle stream) override;
  Code synchronize_device(int id) override;

 private:
  template <typename Verb>
  Code ask(std::string_view verb, const Verb& call) const noexcept;

  const std::string name_;
  const cgt_device_api api_;
};

}  // namespace cgtree::capi
