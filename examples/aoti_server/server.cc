// Compiles the model as a step function whose batch is padded to buckets.
#include "examples/aoti_server/server.h"

#include <ATen/ATen.h>

namespace cgtree::aoti_server {

Server::Server(const std::string& package, Device device, const std::vector<std::int64_t>& buckets)
    : loader_(package, "model", /*run_single_threaded=*/true, /*num_runners=*/1,
              static_cast<c10::DeviceIndex>(device.type == DeviceType::kHost ? -1 : device.id)),
      context_(device),
      step_(compile(context_, "decode", [this](at::Tensor tokens) { return eager(tokens); },
                    {.inputs = {{.name = "tokens", .dynamic = {{0, "batch"}}}},
                     .buckets = {{"batch", buckets}},
                     .outputs = {{.name = "next", .dynamic = {{0, "batch"}}}}})) {
}

void Server::prepare(std::int64_t length) {
  precapture(step_, {}, [&](const CallSizes& sizes) {
    const Device device = context_.stream().device();
    const at::Tensor tokens = at::zeros(
        {sizes["batch"], length}, at::TensorOptions(to_torch_device(device)).dtype(at::kLong));
    return std::vector<Tensor>{from_torch(tokens, current_stream())};
  });
}

at::Tensor Server::eager(const at::Tensor& tokens) {
  return loader_.run({tokens})[0].argmax(-1);
}

}  // namespace cgtree::aoti_server
