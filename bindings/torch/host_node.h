// HostNode: a step function of PyTorch on the host device. PyTorch works synchronously there, so
// the function is one node of a graph, which copies its results into memory of the context.
#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/frame.h"
#include "base/mutex.h"
#include "bindings/torch/tensors.h"
#include "cgtree/values/key.h"
#include "interop/device/code.h"
#include "interop/device/graph_api.h"
#include "interop/device/stream.h"
#include "interop/exchange/foreign_array.h"
#include "interop/exchange/foreign_memory.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/tensor.h"

namespace cgtree::detail {

// Thread safety: as a context; nodes run on threads of the device.
class HostNode {
 public:
  using Function = std::function<std::vector<at::Tensor>(std::span<const Tensor>)>;

  explicit HostNode(Function function) : state_(std::make_shared<State>()) {
    state_->function = std::move(function);
  }

  // Runs the function at once, or adds it to the graph while the current stream is captured; then
  // the sizes of its outputs must be known from an earlier run. Throws CaptureError otherwise.
  std::vector<Tensor> run(std::span<const Tensor> inputs) {
    const StreamRef stream = current_stream();
    const std::string signature = signature_of(inputs);
    if (stream.is_capturing()) return enqueue(stream, inputs, signature);
    stream.synchronize();
    std::vector<Tensor> outputs;
    for (const at::Tensor& made : state_->function(inputs))
      outputs.push_back(keep(made));
    known_[signature] = outputs_of(outputs);
    return outputs;
  }

  // True while the calling thread runs a node, which must not call the device: compiled functions
  // called there are a part of it.
  static bool is_running_here() noexcept { return runs_here(); }

  // Rethrows the exception that the function threw in a node since the last call, if any.
  void rethrow_failure() const {
    std::exception_ptr failure;
    {
      const std::lock_guard lock(state_->mutex);
      std::swap(failure, state_->failure);
    }
    if (failure) std::rethrow_exception(failure);
  }

 private:
  struct State {
    Function function;
    Mutex<LockRank::kLeaf> mutex;  // guards failure
    std::exception_ptr failure;
  };
  struct Call {
    std::shared_ptr<State> state;
    // Inputs in memory that belongs to the recording.
    std::vector<ForeignArray> inputs;
    std::vector<ForeignArray> outputs;
  };
  struct Output {
    Shape shape;
    DType dtype;
  };

  static std::string signature_of(std::span<const Tensor> inputs) {
    std::string text(current_key().text());
    for (const Tensor& input : inputs)
      text += "|" + (input.defined() ? describe(input) : std::string());
    return text;
  }
  static std::vector<Output> outputs_of(const std::vector<Tensor>& tensors) {
    std::vector<Output> outputs;
    for (const Tensor& tensor : tensors)
      outputs.push_back({tensor.shape(), tensor.dtype()});
    return outputs;
  }

  // Returns a copy of a tensor in memory of the step.
  static Tensor keep(const at::Tensor& made) {
    const Shape shape(as_span(made.sizes()));
    Tensor output = empty(shape, from_torch_type(made.scalar_type()));
    to_torch(output).copy_(made.detach());
    return output;
  }

  std::vector<Tensor> enqueue(StreamRef stream, std::span<const Tensor> inputs,
                              const std::string& signature) {
    const auto known = known_.find(signature);
    if (known == known_.end()) {
      throw CaptureError(static_cast<int>(Code::kStreamCaptureUnsupported),
                         "the sizes of what the function returns are not known yet: it has not run "
                         "with such inputs");
    }
    auto call = std::make_shared<Call>(Call{state_, {}, {}});
    std::vector<Tensor> outputs;
    for (const Tensor& input : inputs) {
      call->inputs.push_back(array_of(input));
      note_use(input.storage(), stream);
    }
    for (const Output& output : known->second) {
      outputs.push_back(empty(output.shape, output.dtype));
      call->outputs.push_back(array_of(outputs.back()));
      note_use(outputs.back().storage(), stream);
    }
    check(stream.graphs().launch_host_function(stream.handle(), &run_call, call.get()),
          "launch a function of PyTorch");
    // The recording keeps the node's call alive.
    note_use(import_memory({stream.device(), nullptr, 0, std::move(call), {}, false}, {}), stream);
    return outputs;
  }

  struct OnThread {
    bool runs = false;
  };
  static bool& runs_here() noexcept { return of_thread<OnThread>().runs; }
  // While a Running lives, its thread runs a node.
  struct Running {
    Running() noexcept { runs_here() = true; }
    ~Running() { runs_here() = before; }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    const bool before = runs_here();
  };
  static void run_call(void* data) {
    const Call& call = *static_cast<const Call*>(data);
    const Running running;
    try {
      run_now(call);
    } catch (...) {
      const std::lock_guard lock(call.state->mutex);
      if (!call.state->failure) call.state->failure = std::current_exception();
    }
  }
  static void run_now(const Call& call) {
    std::vector<Tensor> inputs;
    for (const ForeignArray& input : call.inputs)
      inputs.push_back(wrap_array(ForeignArray(input), {}, {}));
    const std::vector<at::Tensor> made = call.state->function(inputs);
    if (made.size() != call.outputs.size()) {
      throw InvalidArgument("a function of PyTorch returned " + std::to_string(made.size()) +
                            " tensors, and " + std::to_string(call.outputs.size()) +
                            " when it was warmed up");
    }
    for (std::size_t i = 0; i < made.size(); ++i)
      to_torch(wrap_array(ForeignArray(call.outputs[i]), {}, {})).copy_(made[i].detach());
  }

  const std::shared_ptr<State> state_;
  std::map<std::string, std::vector<Output>> known_;
};

}  // namespace cgtree::detail
