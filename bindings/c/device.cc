// Devices, streams and launches on the host device, in C.

#include <array>
#include <cstdint>
#include <cstring>

#include "base/format.h"
#include "bindings/c/convert.h"
#include "bindings/c/status.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "interop/device/kernel_function.h"
#include "interop/device/stream.h"
#include "interop/tensor/stream_synchronization.h"

namespace cgtree::capi {
namespace {

PushedStreams& pushed_streams() {
  return marks().frame != nullptr ? marks().frame->pushed : thread_state().pushed;
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
        str_format("'{}' is a function of the host, and the stream is one of "
                   "{}: launch a kernel of that device",
                   name, to_string(stream.device())));
  }
  if (arguments.size() >= kMaxKernelArguments) {
    throw InvalidArgument(str_format("'{}' has {} arguments: expected at most {}", name,
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

cgt_status cgt_device_parse(const char* text, cgt_device* out) {
  return write_result(out, [&] { return to_c(parse_device(&required(text, "the text"))); });
}

cgt_status cgt_stream_create(cgt_device device, int32_t is_blocking, cgt_stream* out) {
  return write_result(out, [&] {
    const Device where = device_of_c(device);
    const StreamKind kind = is_blocking != 0 ? StreamKind::kBlocking : StreamKind::kNonBlocking;
    StreamHandle handle = StreamHandle::kNull;
    check(device_api(where).create_stream(where.id, kind, &handle), "create a stream");
    return to_c(StreamRef(where, handle));
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

cgt_status cgt_stream_wait(cgt_stream stream, cgt_stream other) {
  return guarded([&] { stream_of_c(stream).wait_for(stream_of_c(other)); });
}

cgt_status cgt_current_stream(cgt_stream* out) {
  return write_result(out, [] { return to_c(current_stream()); });
}

cgt_status cgt_stream_push(cgt_stream stream) {
  return guarded([&] { pushed_streams().emplace_front(stream_of_c(stream)); });
}

cgt_status cgt_stream_pop(void) {
  return guarded([&] {
    if (pushed_streams().empty()) {
      throw InvalidArgument(
          "cgt_stream_pop(): no cgt_stream_push() is open, on this thread and in this callback");
    }
    pushed_streams().pop_front();
  });
}

cgt_status cgt_launch_host(cgt_stream stream, const char* name, cgt_host_body body,
                           const cgt_dims* dims, const cgt_argument* arguments,
                           size_t argument_count) {
  return guarded([&] {
    required(name, "the name");
    required(body, "the body");
    launch_host(stream_of_c(stream), name, body, required(dims, "the dims"),
                span_of_c(arguments, argument_count, "the array of arguments"));
  });
}

}  // extern "C"
