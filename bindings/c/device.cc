// Devices, streams and launches on the host device, in C.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <variant>

#include "bindings/c/convert.h"
#include "bindings/c/status.h"
#include "interop/device/device.h"
#include "interop/device/kernel_function.h"
#include "interop/device/stream.h"
#include "interop/tensor/stream_synchronization.h"

namespace cgtree::capi {
namespace {

std::string text_of(const AttributeValue& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return "";
}

PushedStreams& pushed_streams() {
  return marks.frame != nullptr ? marks.frame->pushed : thread_state().pushed;
}

// Returns the API also for a device that does not exist, because that is one of the attributes.
DeviceAPI& api_of(cgt_device device) {
  DeviceAPI* const api = find_device_api(static_cast<DeviceType>(device.type));
  return api != nullptr ? *api : device_api(device_of_c(device));  // throws
}

// The C function is the first argument of the kernel.
void run_body(const LaunchDims& dims, const void* const* arguments) {
  cgt_host_body body = nullptr;
  std::memcpy(&body, arguments[0], sizeof(body));
  const cgt_dims given = {{dims.grid.x, dims.grid.y, dims.grid.z},
                          {dims.block.x, dims.block.y, dims.block.z},
                          dims.shared_bytes};
  body(&given, arguments + 1);
}

LaunchDims dims_of_c(const cgt_dims& dims) {
  return {{dims.grid[0], dims.grid[1], dims.grid[2]},
          {dims.block[0], dims.block[1], dims.block[2]},
          dims.shared_bytes};
}

void launch_host(StreamRef stream, const char* name, cgt_host_body body, const cgt_dims& dims,
                 std::span<const cgt_argument> arguments) {
  if (stream.device().type != DeviceType::kHost) {
    throw InvalidArgument(
        fmt::format("'{}' is a function of the host, and the stream is one of "
                    "{}: launch a kernel of that device",
                    name, to_string(stream.device())));
  }
  if (arguments.size() >= kMaxKernelArguments) {
    throw InvalidArgument(fmt::format("'{}' has {} arguments: expected at most {}", name,
                                      arguments.size(), kMaxKernelArguments - 1));
  }
  std::array<KernelArgument, kMaxKernelArguments> list;
  list[0] = {&body, sizeof(body)};
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    list[i + 1] = {&required(static_cast<const char*>(arguments[i].data), "an argument"),
                   arguments[i].bytes};
  }
  check(stream.graphs().launch_kernel(stream.handle(), {name, &run_body, nullptr}, dims_of_c(dims),
                                      std::span(list).first(arguments.size() + 1)),
        name);
}

}  // namespace
}  // namespace cgtree::capi

using namespace cgtree;
using namespace cgtree::capi;

extern "C" {

cgt_status cgt_device_best(cgt_device* out) {
  return guarded([&] { required(out, "the place for the device") = to_c(Device::best()); });
}

cgt_status cgt_device_parse(const char* text, cgt_device* out) {
  return guarded([&] {
    required(out, "the place for the device") = to_c(parse_device(&required(text, "the text")));
  });
}

cgt_status cgt_device_attribute(cgt_device device, int32_t kind, char* buffer, size_t capacity,
                                size_t* length) {
  return guarded([&] {
    const AttributeValue value =
        api_of(device).attribute(device.id, static_cast<DeviceAttribute>(kind));
    write_text(text_of(value), buffer, capacity, length);
  });
}

cgt_status cgt_stream_create(cgt_device device, int32_t is_blocking, cgt_stream* out) {
  return guarded([&] {
    required(out, "the place for the stream");
    const Device where = device_of_c(device);
    StreamHandle handle = StreamHandle::kNull;
    check(
        device_api(where).create_stream(
            where.id, is_blocking != 0 ? StreamKind::kBlocking : StreamKind::kNonBlocking, &handle),
        "create a stream");
    *out = to_c(StreamRef(where, handle));
  });
}

cgt_status cgt_stream_destroy(cgt_stream stream) {
  return guarded([&] {
    if (stream.native == 0) return;
    const StreamRef gone = stream_of_c(stream);
    retire_stream(gone);
    check(gone.api().destroy_stream(gone.handle()), "destroy a stream");
  });
}

cgt_status cgt_stream_retire(cgt_stream stream) {
  return guarded([&] { retire_stream(stream_of_c(stream)); });
}

cgt_status cgt_stream_synchronize(cgt_stream stream) {
  return guarded([&] { stream_of_c(stream).synchronize(); });
}

cgt_status cgt_stream_capture_state(cgt_stream stream, cgt_capture_state* out) {
  return guarded([&] {
    const StreamRef asked = stream_of_c(stream);
    CaptureInfo info;
    check(asked.graphs().capture_info(asked.handle(), &info), "ask a stream for its capture");
    required(out, "the place for the state") = static_cast<cgt_capture_state>(info.status);
  });
}

cgt_status cgt_stream_capture_id(cgt_stream stream, std::uint64_t* out) {
  return guarded([&] { required(out, "the place for the id") = capture_of(stream_of_c(stream)); });
}

cgt_status cgt_stream_wait(cgt_stream stream, cgt_stream other) {
  return guarded([&] { stream_of_c(stream).wait_for(stream_of_c(other)); });
}

cgt_status cgt_current_stream(cgt_stream* out) {
  return guarded([&] { required(out, "the place for the stream") = to_c(current_stream()); });
}

cgt_status cgt_stream_push(cgt_stream stream) {
  return guarded([&] { pushed_streams().push(stream_of_c(stream)); });
}

cgt_status cgt_stream_pop(void) {
  return guarded([&] {
    if (pushed_streams().is_empty()) {
      throw InvalidArgument(
          "cgt_stream_pop(): no cgt_stream_push() is open, on this thread and in this callback");
    }
    pushed_streams().pop();
  });
}

cgt_status cgt_launch_host(cgt_stream stream, const char* name, cgt_host_body body,
                           const cgt_dims* dims, const cgt_argument* arguments,
                           size_t argument_count) {
  return guarded([&] {
    required(name, "the name");
    required(body, "the body");
    if (argument_count > 0) required(arguments, "the array of arguments");
    launch_host(stream_of_c(stream), name, body, required(dims, "the dims"),
                {arguments, argument_count});
  });
}

}  // extern "C"
