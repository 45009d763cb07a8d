// Lists the devices under test.
#include "tests/support/devices.h"

#include <cstdlib>
#include <string_view>
#include <variant>

#include "interop/host/host_device.h"
#ifdef CGTREE_WITH_CUDA
#include "interop/cuda/cuda_device.h"
#endif

namespace cgtree::testing {

std::vector<DeviceUnderTest> devices_under_test() {
  std::vector<DeviceUnderTest> devices{{"host", Device::host(), &host_device_api(), ""}};
#ifdef CGTREE_WITH_CUDA
  DeviceAPI& cuda = cuda_device_api();
  const AttributeValue exists = cuda.attribute(0, DeviceAttribute::kExists);
  const bool is_there = exists == AttributeValue{std::int64_t{1}};
  devices.push_back({"cuda", Device::cuda(), &cuda, is_there ? "" : "no GPU, or no driver for it"});
#endif
  return devices;
}

bool requires_gpu() {
  const char* const value = std::getenv("CGTREE_REQUIRE_GPU");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace cgtree::testing
