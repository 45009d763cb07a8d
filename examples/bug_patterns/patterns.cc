// The six engines.
#include "examples/bug_patterns/patterns.h"

#include <array>
#include <cstddef>
#include <utility>

#include "examples/bug_patterns/engine_memory.h"
#include "examples/bug_patterns/kernels.h"
#include "interop/device/device_api.h"
#include "interop/tensor/empty.h"

namespace cgtree::bug_patterns {
namespace {

using Floats = std::vector<float>;
using Kind = EngineMemory::Kind;

constexpr std::size_t kBytes = kCount * sizeof(float);  // of a block: floats, or int32s

Floats all(float value) {
  return Floats(kCount, value);
}

Floats product(std::span<const float> x, std::span<const float> weights) {
  Floats y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = x[i] * weights[i];
  return y;
}

// Runs `enqueue(stream, x, y)` with a new y inside a step function.
template <typename Enqueue>
Tensor with_output(const Tensor& x, const Enqueue& enqueue) {
  Tensor y = empty(x.shape(), x.dtype());
  enqueue(current_stream(), x.data<float>(), y.data<float>());
  return y;
}

// A compiled function is move-only, and a std::function is copyable.
template <typename F>
std::function<Tensor(const Tensor&)> shared(F function) {
  return [function = std::make_shared<F>(std::move(function))](const Tensor& x) {
    return (*function)(x);
  };
}

// A library takes its workspace from the engine for each call, and gives it back when the work is
// enqueued. In the order of one stream this is right. A graph writes there at each launch.
class FreedWorkspace final : public Pattern {
 public:
  explicit FreedWorkspace(Device device) : memory_(device, Kind::kDevice, kBytes) {}

  void enqueue(StreamRef stream, const float* x, float* y) override {
    void* const workspace = memory_.allocate();
    launch_through_workspace(stream, x, static_cast<float*>(workspace), y, kCount);
    memory_.free(workspace);
  }
  void go_on() override { table_ = memory_.allocate_with<float>(all(7)); }
  Floats expected(std::span<const float> x) const override { return product(x, all(2)); }
  bool is_intact() override {
    if (table_ == nullptr) return true;
    Floats table(kCount);
    memory_.read(table_, table.data(), kBytes);
    return table == all(7);
  }
  std::function<Tensor(const Tensor&)> repaired(Context& context) override {
    return shared(compile(context, "step", [](Tensor x) {
      const Workspace workspace(x.device(), kBytes);
      return with_output(x, [&](StreamRef stream, const float* from, float* to) {
        launch_through_workspace(stream, from, static_cast<float*>(workspace.data()), to, kCount);
      });
    }));
  }

 private:
  EngineMemory memory_;
  float* table_ = nullptr;
};

// New weights come in a new block, and the old block serves others. A graph multiplies by the
// contents of the old block.
class MovedWeights final : public Pattern {
 public:
  explicit MovedWeights(Device device)
      : device_(device), memory_(device, Kind::kDevice, kBytes), values_(all(3)) {
    weights_ = memory_.allocate_with<float>(values_);
    tensor_ = from_host<float>({kCount}, values_, device);
  }

  void enqueue(StreamRef stream, const float* x, float* y) override {
    launch_scale(stream, x, weights_, y, kCount);
  }
  void go_on() override {
    values_ = all(5);
    float* const old = std::exchange(weights_, memory_.allocate_with<float>(values_));
    memory_.free(old);
    static_cast<void>(memory_.allocate_with<float>(all(-1)));  // the old block is reused
    tensor_ = from_host<float>({kCount}, values_, device_);
  }
  Floats expected(std::span<const float> x) const override { return product(x, values_); }
  std::function<Tensor(const Tensor&)> repaired(Context& context) override {
    const auto step = [](Tensor x, Tensor weights) {
      return with_output(x, [&](StreamRef stream, const float* from, float* to) {
        launch_scale(stream, from, weights.data<float>(), to, kCount);
      });
    };
    return shared([this, f = compile(context, "step", step, {.inputs = {{}, {.is_static = true}}})](
                      const Tensor& x) { return f(x, tensor_); });
  }

 private:
  const Device device_;
  EngineMemory memory_;
  Floats values_;
  float* weights_;
  Tensor tensor_;  // the same weights
};

// The host passes data to a step through pinned memory, which serves the next copy as soon as this
// copy is done. A graph copies the memory's present contents at each launch.
class ReusedStaging final : public Pattern {
 public:
  explicit ReusedStaging(Device device) : staging_(device, Kind::kPinned, kBytes) {}

  void enqueue(StreamRef stream, const float* x, float* y) override {
    auto* const block = static_cast<float*>(staging_.allocate());
    for (std::int64_t i = 0; i < kCount; ++i)
      block[i] = kScale;
    check(stream.api().copy(stream.handle(), y, block, kBytes), "copy");
    launch_scale(stream, x, y, y, kCount);
    staging_.free(block);  // an engine would wait for an event, which a capture does not delay
  }
  void go_on() override { static_cast<void>(staging_.allocate_with<float>(all(9))); }
  Floats expected(std::span<const float> x) const override { return product(x, all(kScale)); }
  std::function<Tensor(const Tensor&)> repaired(Context& context) override {
    const auto step = [](Tensor x, Tensor scales) {
      return with_output(x, [&](StreamRef stream, const float* from, float* to) {
        launch_scale(stream, from, reinterpret_cast<const float*>(scales.data<std::uint8_t>()), to,
                     kCount);
      });
    };
    return shared([f = compile(context, "step", step)](const Tensor& x) {
      std::array<float, kCount> scales;
      scales.fill(kScale);
      return f(x, step_block(scales));
    });
  }

 private:
  static constexpr float kScale = 4;

  EngineMemory staging_;
};

// A planner writes which rows the step reads, before each step, into a block that it replaces when
// the batch grows. A graph follows the old plan.
class MovedPlan final : public Pattern {
 public:
  explicit MovedPlan(Device device)
      : device_(device), memory_(device, Kind::kDevice, kCount * sizeof(std::int32_t)) {
    plan(0);
  }

  void enqueue(StreamRef stream, const float* x, float* y) override {
    launch_gather(stream, x, plan_, y, kCount);
  }
  void go_on() override { plan(1); }
  Floats expected(std::span<const float> x) const override {
    Floats y;
    for (const std::int32_t row : rows_)
      y.push_back(x[static_cast<std::size_t>(row)]);
    return y;
  }
  std::function<Tensor(const Tensor&)> repaired(Context& context) override {
    const auto step = [](Tensor x, Tensor rows) {
      return with_output(x, [&](StreamRef stream, const float* from, float* to) {
        launch_gather(stream, from, rows.data<std::int32_t>(), to, kCount);
      });
    };
    return shared([this, f = compile(context, "step", step)](const Tensor& x) {
      return f(x, from_host<std::int32_t>({kCount}, rows_, device_));
    });
  }

 private:
  void plan(std::int32_t first) {
    rows_.clear();
    for (std::int32_t i = 0; i < kCount; ++i)
      rows_.push_back((first + i) % static_cast<std::int32_t>(kCount));
    std::int32_t* const old = std::exchange(plan_, memory_.allocate_with<std::int32_t>(rows_));
    if (old != nullptr) memory_.free(old);
  }

  const Device device_;
  EngineMemory memory_;
  std::vector<std::int32_t> rows_;
  std::int32_t* plan_ = nullptr;
};

// An encoder works on a separate stream, with separate memory. Its output is freed when the encoder
// is done with it, and nothing tells its allocator that steps on another stream read it.
class RecycledOutput final : public Pattern {
 public:
  explicit RecycledOutput(Device device)
      : memory_(device, Kind::kDevice, kBytes), encoder_(device), source_(encode(6)) {
    encoder_.synchronize();
    features_ = output_;
    tensor_ = from_host<float>({kCount}, all(6), device);
    memory_.free(features_);
  }

  void enqueue(StreamRef stream, const float* x, float* y) override {
    launch_scale(stream, x, features_, y, kCount);
  }
  void go_on() override {  // the encoder's next output, for another request
    static_cast<void>(encode(8));
    encoder_.synchronize();
  }
  Floats expected(std::span<const float> x) const override { return product(x, all(6)); }
  std::function<Tensor(const Tensor&)> repaired(Context& context) override {
    const auto step = [](Tensor x, Tensor features) {
      return with_output(x, [&](StreamRef stream, const float* from, float* to) {
        launch_scale(stream, from, features.data<float>(), to, kCount);
      });
    };
    return shared(
        [this, f = compile(context, "step", step)](const Tensor& x) { return f(x, tensor_); });
  }

 private:
  // Enqueues an output of `value` on the encoder's stream. Returns the features from which it is
  // computed.
  Tensor encode(float value) {
    Tensor source = from_host<float>({kCount}, all(value / 2), encoder_.ref().device());
    output_ = static_cast<float*>(memory_.allocate());
    launch_through_workspace(encoder_, source.data<float>(), output_, output_, kCount);
    return source;
  }

  EngineMemory memory_;
  Stream encoder_;
  float* output_ = nullptr;    // of the last encode()
  float* features_ = nullptr;  // read by the step
  Tensor source_;
  Tensor tensor_;  // the same features
};

// The length of a sequence is an argument of a kernel. A graph keeps the length of its capture.
class LengthByValue final : public Pattern {
 public:
  explicit LengthByValue(Device) {}

  void enqueue(StreamRef stream, const float* x, float* y) override {
    launch_mask(stream, x, length_, y, kCount);
  }
  void go_on() override { ++length_; }
  Floats expected(std::span<const float> x) const override {
    Floats y(x.begin(), x.end());
    for (auto i = static_cast<std::size_t>(length_); i < y.size(); ++i)
      y[i] = 0;
    return y;
  }
  std::function<Tensor(const Tensor&)> repaired(Context& context) override {
    const auto step = [](Tensor x, Tensor length) {
      return with_output(x, [&](StreamRef stream, const float* from, float* to) {
        launch_mask(stream, from, length.data<std::int64_t>(), to, kCount);
      });
    };
    return shared([this, f = compile(context, "step", step)](const Tensor& x) {
      return f(x, scalar(length_));
    });
  }

 private:
  std::int64_t length_ = 3;
};

template <typename Engine>
std::unique_ptr<Pattern> make(Device device) {
  return std::make_unique<Engine>(device);
}

}  // namespace

std::span<const PatternInfo> patterns() {
  static constexpr std::array<PatternInfo, 6> kPatterns = {{
      {"a workspace freed after capture",
       "a Workspace, which belongs to the recording",
       {"NVIDIA/TensorRT-LLM#15534", "flashinfer-ai/flashinfer#4553", "pytorch/pytorch#193402",
        "NVIDIA/TensorRT-LLM#16319"},
       "pass",
       "parameter 1",
       false,
       &make<FreedWorkspace>},
      {"weights that were allocated anew",
       "a static input, whose address is checked",
       {"vllm-project/vllm#48941", "vllm-project/vllm#48312", "sgl-project/sglang#27140",
        "vllm-project/vllm-ascend#13902"},
       "scale",
       "parameter 1",
       true,
       &make<MovedWeights>},
      {"a host staging buffer reused",
       "a step block, which is read at each call",
       {"microsoft/onnxruntime#32121", "pytorch/pytorch#172156", "pytorch/pytorch#167508",
        "PaddlePaddle/Paddle#78568"},
       "a copy",
       "the source",
       true,
       &make<ReusedStaging>},
      {"a plan buffer that moved",
       "an input, which is copied from where it is",
       {"sgl-project/sglang#26019", "NVIDIA/TensorRT-LLM#16290", "alibaba/rtp-llm#1259",
        "NVIDIA/TensorRT-LLM#18436"},
       "gather",
       "parameter 1",
       true,
       &make<MovedPlan>},
      {"an output of another stream recycled",
       "an input, which the caller holds",
       {"NVIDIA/TensorRT-LLM#15265", "local-inference-lab/vllm#93", "NVIDIA/warp#1418",
        "ggml-org/llama.cpp#21897"},
       "scale",
       "parameter 1",
       false,
       &make<RecycledOutput>},
      {"metadata captured by value",
       "a scalar() input, which is passed at each call",
       {"facebookresearch/xformers#968", "vllm-project/vllm#40961", "sgl-project/sglang#21987",
        "pytorch/torchtitan#3893"},
       "",
       "",
       true,
       &make<LengthByValue>},
  }};
  return kPatterns;
}

}  // namespace cgtree::bug_patterns
