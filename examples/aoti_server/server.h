// Server: serves batches of requests with a package of AOTInductor, eagerly and through cgtree.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include "bindings/torch/torch.h"
#include "cgtree/cgtree.h"

namespace cgtree::aoti_server {

// Thread safety: one thread. Work is on PyTorch's current stream.
class Server {
 public:
  // `buckets`: ascending sizes to which batches are padded. Throws c10::Error if the package cannot
  // be loaded.
  Server(const std::string& package, Device device, const std::vector<std::int64_t>& buckets);

  // Records every bucket. `length`: tokens of a request.
  void prepare(std::int64_t length);

  // Return the likeliest next token of each request, int64 {batch}, for tokens of int64 {batch,
  // length}.
  at::Tensor eager(const at::Tensor& tokens);
  at::Tensor replayed(const at::Tensor& tokens) { return step_(tokens); }

  FunctionStats stats() const { return step_.stats(); }

 private:
  // A model that only one thread runs needs no events, which a capture would not allow.
  torch::inductor::AOTIModelPackageLoader loader_;
  Context context_;
  CompiledTorchFunction<at::Tensor(at::Tensor)> step_;
};

}  // namespace cgtree::aoti_server
