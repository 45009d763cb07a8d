// Devices, options of contexts and launches through C: results and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "interop/device/device_api.h"
#include "simulator/host_device.h"
#include "tests/c_api/c_tools.h"
#include "tests/support/forwarding_device.h"
#include "tests/support/host_slot.h"

namespace cgtree::testing {
namespace {

// The host device without mapped memory.
class DeviceWithoutMapping final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  AttributeValue attribute(int id, DeviceAttribute attribute) noexcept override {
    if (attribute == DeviceAttribute::kSupportsMapping) return std::int64_t{0};
    return ForwardingDevice::attribute(id, attribute);
  }
};

TEST(CApiDeviceTest, OptionsAndLaunchesThatAreWrongAreRefused) {
  const cgt_device host = {CGT_DEVICE_HOST, 0};
  OwnedContext none;
  cgt_context_options options = {};
  EXPECT_FAILS(cgt_context_create(host, &options, none.out()), CGT_INVALID_ARGUMENT,
               "cgt_context_options: struct_size is 0");
  options.struct_size = sizeof(options);
  options.flags = 64;
  EXPECT_FAILS(cgt_context_create(host, &options, none.out()), CGT_INVALID_ARGUMENT, "flags are");
  CallHook hook;
  DeviceWithoutMapping device(host_device_api(), hook);
  HostSlot::instance().put(device);
  const cgt_device slot = c_device(HostSlot::instance().device());
  options.flags = CGT_CONTEXT_POOLS_GROW_IN_PLACE;
  EXPECT_FAILS(cgt_context_create(slot, &options, none.out()), CGT_INVALID_ARGUMENT,
               "cannot map memory");
  options.flags = 0;
  options.at_limit = 5;
  EXPECT_FAILS(cgt_context_create(host, &options, none.out()), CGT_INVALID_ARGUMENT,
               "at_limit is 5");
  EXPECT_FAILS(cgt_context_create({CGT_DEVICE_HOST, 77}, nullptr, none.out()), CGT_INVALID_ARGUMENT,
               "host:77 cannot be used");
  EXPECT_FAILS(cgt_context_create(host, nullptr, nullptr), CGT_INVALID_ARGUMENT, "is NULL");
  const cgt_dims dims = {{1, 1, 1}, {1, 1, 1}, 0};
  const cgt_stream elsewhere = {slot, 17};
  const cgt_host_body body = [](const cgt_dims*, const void* const*) {};
  EXPECT_FAILS(cgt_launch_host(elsewhere, "f", body, &dims, nullptr, 0), CGT_INVALID_ARGUMENT,
               "the stream is one of ");
  EXPECT_FAILS(cgt_launch_host({host, 1}, "f", nullptr, &dims, nullptr, 0), CGT_INVALID_ARGUMENT,
               "the body is NULL");
  const std::vector<cgt_argument> many(64, {&dims, 4});
  EXPECT_FAILS(cgt_launch_host({host, 1}, "f", body, &dims, many.data(), many.size()),
               CGT_INVALID_ARGUMENT, "64 arguments: expected at most 63");
  cgt_stream stream = {};
  EXPECT_FAILS(cgt_current_stream(&stream), CGT_INVALID_ARGUMENT, "");
  HostSlot::instance().put(host_device_api());
}

}  // namespace
}  // namespace cgtree::testing
