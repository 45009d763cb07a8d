// TorchStep: runs a step function of PyTorch with its stream, memory and random numbers routed to
// the context.
#pragma once

#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bindings/torch/host_node.h"
#include "bindings/torch/inputs.h"
#include "bindings/torch/tensors.h"
#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"

// PyTorch for CPUs has no CUDA headers. Define it as 0 to compile without them.
#ifndef CGTREE_TORCH_CUDA
#if __has_include(<c10/cuda/impl/cuda_cmake_macros.h>) && __has_include(<cuda_runtime_api.h>)
// Nonzero if the GPU parts of this header are compiled.
#define CGTREE_TORCH_CUDA 1
#else
#define CGTREE_TORCH_CUDA 0
#endif
#endif

#if CGTREE_TORCH_CUDA
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAGuard.h>

#include "bindings/torch/allocator.h"
#include "bindings/torch/draws.h"
#endif

namespace cgtree::detail {

// While an AutocastCacheOff lives, weights that autocast casts are not kept: memory of a step must
// not be found after it.
class AutocastCacheOff {
 public:
  AutocastCacheOff() : before_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~AutocastCacheOff() { at::autocast::set_autocast_cache_enabled(before_); }
  AutocastCacheOff(const AutocastCacheOff&) = delete;
  AutocastCacheOff& operator=(const AutocastCacheOff&) = delete;

 private:
  const bool before_;
};

#if CGTREE_TORCH_CUDA

// While a CudaStepScope lives, PyTorch works on the step's stream. Workspaces of cuBLAS would
// outlive the step that they were allocated in.
class CudaStepScope {
 public:
  explicit CudaStepScope(StreamRef stream) : stream_(to_torch_stream(stream)) {
    at::cuda::clearCublasWorkspaces();
  }
  ~CudaStepScope() { at::cuda::clearCublasWorkspaces(); }
  CudaStepScope(const CudaStepScope&) = delete;
  CudaStepScope& operator=(const CudaStepScope&) = delete;

 private:
  const c10::cuda::CUDAStreamGuard stream_;
};

#endif

// A TorchStep belongs to one compiled function. In the step function PyTorch's thread modes
// (gradients, inference, autocast) are those of the thread that made the TorchStep.
//
// Thread safety: as a context; a second caller, which the core refuses, changes nothing.
class TorchStep {
 public:
  using Function = std::function<std::vector<at::Tensor>(std::span<const Tensor>)>;

  // Makes cgtree's allocator PyTorch's, for memory of a GPU. `is_static`: see TorchInputs.
  // Requires: no stream is captured.
  TorchStep(Device device, std::vector<bool> is_static, Function function)
      : device_(device), function_(std::move(function)), inputs_(std::move(is_static)) {
    if (device.type == DeviceType::kHost) {
      host_stream_.emplace(device);
      host_node_.emplace(HostNode::Function(
          [this](std::span<const Tensor> inputs) { return run_function(inputs); }));
      return;
    }
#if CGTREE_TORCH_CUDA
    if (device.type == DeviceType::kCuda) {
      TorchAllocator::install();
      const c10::cuda::CUDAGuard current(to_torch_device(device));
      draws_.emplace(static_cast<c10::DeviceIndex>(device.id));
      return;
    }
#endif
    throw InvalidArgument("PyTorch, as this program is built with it, does not work on " +
                          to_string(device));
  }
  TorchStep(const TorchStep&) = delete;
  TorchStep& operator=(const TorchStep&) = delete;

  // Runs the step function, for the core.
  std::vector<Tensor> run(std::span<const Tensor> inputs) {
    if (host_node_) return host_node_->run(inputs);
#if CGTREE_TORCH_CUDA
    const CudaStepScope scope(current_stream());
    TorchDraws::Run draws(*draws_);
    std::vector<Tensor> outputs;
    for (const at::Tensor& tensor : run_function(inputs))
      outputs.push_back(from_torch(tensor, current_stream()));
    draws.finish();
    return outputs;
#else
    return {};
#endif
  }

  // Runs the step function as a part of the node that is running.
  std::vector<at::Tensor> run_in_node(std::span<const Tensor> inputs) {
    return run_function(inputs);
  }

  // Makes a call of the core: call(stream, inputs), on the stream where PyTorch works. On the CPU
  // it waits for the results, as PyTorch does there.
  template <typename MakeCall>
  void call(const MakeCall& call) {
    if (current_allocator() != nullptr) {  // inside a step function
      TorchInputs inputs;
      return call(current_stream(), inputs);
    }
    const StreamRef stream = this->stream();
    const StreamScope scope(stream);
    if (is_busy_.test_and_set(std::memory_order_acquire)) {
      TorchInputs inputs;
      return call(stream, inputs);
    }
    const Turn turn(*this);
    call(stream, inputs_);
    if (!host_node_) return;
    stream.synchronize();
    host_node_->rethrow_failure();
  }

 private:
  // A Turn is the time in which one caller uses the inputs and draws of the step.
  class Turn {
   public:
    explicit Turn(TorchStep& step) : step_(step) {
#if CGTREE_TORCH_CUDA
      if (step.draws_) draws_.emplace(*step.draws_);
#endif
    }
    ~Turn() {
      step_.inputs_.end();
#if CGTREE_TORCH_CUDA
      draws_.reset();
#endif
      step_.is_busy_.clear(std::memory_order_release);
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    TorchStep& step_;
#if CGTREE_TORCH_CUDA
    std::optional<TorchDraws::Call> draws_;
#endif
  };

  // Returns the stream of calls that are made now.
  StreamRef stream() const {
#if CGTREE_TORCH_CUDA
    if (!host_node_) {
      return from_torch_stream(
          c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device_.id)));
    }
#endif
    return *host_stream_;
  }

  std::vector<at::Tensor> run_function(std::span<const Tensor> inputs) {
    const at::ThreadLocalStateGuard modes(modes_);
    const AutocastCacheOff no_cache;
    return function_(inputs);
  }

  const Device device_;
  const Function function_;
  const at::ThreadLocalState modes_;
  TorchInputs inputs_;  // of the caller for which is_busy_ is set
  std::atomic_flag is_busy_;
  std::optional<Stream> host_stream_;
  std::optional<HostNode> host_node_;
#if CGTREE_TORCH_CUDA
  std::optional<TorchDraws> draws_;
#endif
};

}  // namespace cgtree::detail
