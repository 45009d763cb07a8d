// TorchDraws: random numbers of PyTorch's default generator of a GPU, in calls of one function.
//
// During a capture PyTorch's kernels draw from a seed and an offset that they read from the device.
// At each replay the root node of a recording writes such a pair for each cgtree generator that it
// uses. So during a capture PyTorch's generator uses the place of a cgtree generator, which
// represents it: a replay draws the numbers of an eager call, without another launch. The position
// is copied from PyTorch's generator to the cgtree generator before a call, and back after it.
#pragma once

#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/from_blob.h>

#include <cstdint>
#include <mutex>
#include <utility>

#include "base/mutex.h"
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

  // A Call encloses a call made outside of step functions.
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

  // A Run encloses one run of the step function. finish() notes how far the run drew. PyTorch
  // refuses a recording that draws though no run before it did; the call then runs eagerly.
  class Run {
   public:
    explicit Run(TorchDraws& draws) : draws_(draws) {
      if (!draws.is_in_call_) return;  // a call of a step function, which has another Run
      first_ = draws.own_.state();
      const bool is_recorded = first_.recording != nullptr;
      if (is_recorded && draws.is_known_to_draw_) {
        begin_recording();
      } else if (!is_recorded && !current_stream().is_capturing()) {
        is_eager_ = true;
        draws.set(first_);
      }
    }
    ~Run() {
      if (turn_.owns_lock()) end_recording();
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    void finish() {
      if (turn_.owns_lock()) {
        first_.offset += state().offset_intragraph_;
        return draws_.own_.set_state(first_);
      }
      if (!is_eager_) return;
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
    // PyTorch's generators support one capture at a time.
    using Turn = Mutex<LockRank::kTorchRecording>;
    static Turn& one_recording() {
      static Turn mutex;
      return mutex;
    }
    at::CUDAGeneratorState& state() { return draws_.place_.state(); }

    // The unit of offsets is PyTorch's, four to a block, on both sides.
    void begin_recording() {
      const PhiloxPosition* const origin = draws_.own_.reserve(1).origin();
      const at::TensorBase seed = view(&origin->seed), offset = view(&origin->offset);
      turn_ = std::unique_lock(one_recording());
      seed_ = std::exchange(state().seed_extragraph_, seed);
      offset_ = std::exchange(state().offset_extragraph_, offset);
      state().offset_intragraph_ = 0;
      state().capturing_ = true;
    }
    void end_recording() noexcept {
      state().capturing_ = false;
      state().seed_extragraph_ = seed_;
      state().offset_extragraph_ = offset_;
    }
    at::TensorBase view(const std::uint64_t* data) const {
      const c10::Device device = draws_.generator_.device();  // otherwise the driver is asked
      return at::for_blob(const_cast<std::uint64_t*>(data), {1})
          .options(at::TensorOptions(device).dtype(at::kLong))
          .target_device(device)
          .make_tensor();
    }

    TorchDraws& draws_;
    GeneratorState first_;
    bool is_eager_ = false;
    std::unique_lock<Turn> turn_;   // held by a recording that draws
    at::TensorBase seed_, offset_;  // the pair that PyTorch's own graphs read
  };

 private:
  // A Place is a graph of PyTorch's without nodes. Only graphs can read the state of a generator.
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
