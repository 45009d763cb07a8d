// TorchDraws: random numbers of PyTorch's default generator of a GPU, in calls of one function.
//
// What PyTorch's kernels draw under capture begins at a seed and an offset that they read from the
// device. The root node of a recording writes such a pair for each generator of ours at each
// replay. So during a capture PyTorch's generator is told to use the place of a generator of ours,
// which stands for it: a replay draws what an eager call would have drawn, and launches nothing
// more for it. The position goes from PyTorch's generator to ours before a call, and back after it.
#pragma once

#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/from_blob.h>

#include <cstdint>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "interop/device/code.h"
#include "interop/device/stream.h"
#include "interop/random/generator.h"

namespace cgtree::detail {

// Thread safety: as a context. Another thread must not draw from the same generator during a call.
// Requires: the generator is never given the state object of another one (graphsafe_set_state()).
class TorchDraws {
 public:
  // Requires: no stream is captured.
  explicit TorchDraws(c10::DeviceIndex device)
      : generator_(at::cuda::detail::getDefaultCUDAGenerator(device)), place_(generator_) {}
  TorchDraws(const TorchDraws&) = delete;
  TorchDraws& operator=(const TorchDraws&) = delete;

  // A Call encloses a call that is made outside of step functions.
  class Call {
   public:
    explicit Call(TorchDraws& draws) : draws_(draws) {
      before_ = draws_.position();
      draws_.own_.set_state({before_.seed, before_.offset, nullptr});
      draws_.is_in_call_ = true;
    }
    ~Call() {
      draws_.is_in_call_ = false;
      const GeneratorState after = draws_.own_.state();
      if (after.seed != before_.seed || after.offset != before_.offset) draws_.set(after);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    TorchDraws& draws_;
    PhiloxPosition before_;
  };

  // A Run encloses one run of the step function. finish() notes what was drawn.
  class Run {
   public:
    explicit Run(TorchDraws& draws) : draws_(draws) {
      if (!draws.is_in_call_) return;  // a call of a step function, which has a Run of its own
      first_ = draws.own_.state();
      is_recorded_ = first_.recording != nullptr;
      is_active_ = is_recorded_ || !current_stream().is_capturing();
      if (is_recorded_) {
        begin_recording();
      } else if (is_active_) {
        draws.set(first_);
      }
    }
    ~Run() {
      if (is_recorded_) end_recording();
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    // Throws CaptureError if a recording draws, and no run before it did.
    void finish() {
      if (!is_active_) return;
      if (is_recorded_) return finish_recording();
      const PhiloxPosition now = draws_.position();
      if (now.seed != first_.seed || now.offset < first_.offset) {
        draws_.own_.set_state({now.seed, now.offset, nullptr});
      } else if (now.offset != first_.offset) {
        (void)draws_.own_.reserve(now.offset - first_.offset);
      } else {
        return;
      }
      draws_.is_known_to_draw_ = true;
    }

   private:
    at::CUDAGeneratorState& state() { return draws_.place_.state(); }

    void begin_recording() {
      seed_ = state().seed_extragraph_;
      offset_ = state().offset_extragraph_;
      if (draws_.is_known_to_draw_) {
        // The unit of offsets is PyTorch's, four to a block, on both sides.
        const PhiloxPosition* const origin = draws_.own_.reserve(1).origin();
        state().seed_extragraph_ = view(&origin->seed);
        state().offset_extragraph_ = view(&origin->offset);
      }
      state().offset_intragraph_ = 0;
      state().capturing_ = true;
    }
    void finish_recording() {
      const std::uint64_t drawn = state().offset_intragraph_;
      if (draws_.is_known_to_draw_) {
        first_.offset += drawn;
        return draws_.own_.set_state(first_);
      }
      if (drawn == 0) return;
      draws_.is_known_to_draw_ = true;
      throw CaptureError(static_cast<int>(Code::kStreamCaptureUnsupported),
                         "the function draws random numbers of PyTorch, and did not when it was "
                         "warmed up: it is recorded at a later call");
    }
    void end_recording() noexcept {
      state().capturing_ = false;
      state().seed_extragraph_ = seed_;
      state().offset_extragraph_ = offset_;
    }
    at::TensorBase view(const std::uint64_t* data) const {
      return at::from_blob(const_cast<std::uint64_t*>(data), {1},
                           at::TensorOptions(draws_.generator_.device()).dtype(at::kLong));
    }

    TorchDraws& draws_;
    GeneratorState first_;
    bool is_recorded_ = false;
    bool is_active_ = false;
    at::TensorBase seed_, offset_;  // where PyTorch's own graphs have them
  };

 private:
  // A Place is a graph of PyTorch's without nodes. Only graphs see the state of a generator.
  class Place : public at::cuda::CUDAGraph {
   public:
    explicit Place(const at::Generator& generator) { register_generator_state(generator); }
    at::CUDAGeneratorState& state() { return *captured_generator_states_.begin()->first; }
  };

  PhiloxPosition position() {
    const std::lock_guard lock(generator_.mutex());
    return {place_.state().seed_, place_.state().philox_offset_per_thread_};
  }
  void set(const GeneratorState& state) {
    const std::lock_guard lock(generator_.mutex());
    place_.state().seed_ = state.seed;
    place_.state().philox_offset_per_thread_ = state.offset;
  }

  at::Generator generator_;
  Place place_;
  const Generator own_;
  bool is_known_to_draw_ = false;
  bool is_in_call_ = false;
};

}  // namespace cgtree::detail
