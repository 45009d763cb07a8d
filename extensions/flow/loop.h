// run_loop(): the rounds of a loop, however the work of its step runs.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "extensions/flow/body.h"
#include "interop/device/conditional_api.h"
#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// The Rounds of a loop are counted on the device, where it is decided whether there is another one.
class Rounds {
 public:
  // Each launches its kernel. `condition`: null in an eager run.
  virtual void begin(StreamRef stream, ConditionHandle condition) = 0;
  // Behind the work of a round, with what the body has returned.
  virtual void end_round(StreamRef stream, ConditionHandle condition,
                         std::span<const Tensor> returned) = 0;
  // Reads on the host whether there is another round. Called in an eager run, after end_round().
  virtual bool goes_on(StreamRef stream, std::span<const Tensor> returned) = 0;

 protected:
  ~Rounds() = default;
};

// Rounds that go on while a flag is not 0, `most` times at most.
class CountedRounds final : public Rounds {
 public:
  // `count`: int32, where the rounds are counted; borrowed.
  CountedRounds(const Tensor& count, std::int32_t most) noexcept : count_(count), most_(most) {}

  // Rounds. The flag is the first tensor of those that the body returns.
  void begin(StreamRef stream, ConditionHandle condition) override;
  void end_round(StreamRef stream, ConditionHandle condition,
                 std::span<const Tensor> returned) override;
  bool goes_on(StreamRef stream, std::span<const Tensor> returned) override;

 private:
  const Tensor& count_;
  const std::int32_t most_;
  std::int32_t rounds_ = 0;  // of an eager run
};

// Returns max_rounds. Throws InvalidArgument unless 1 <= max_rounds < 2^31.
std::int32_t expect_max_rounds(std::int64_t max_rounds);

// Makes the tensor that counts the rounds of a loop on current_stream(), takes the blocks of its
// draws, and calls run(count), which is to call run_loop(). Returns the tensor. Throws what these
// throw.
Tensor run_counted(FlowDraws& draws, const std::function<void(const Tensor& count)>& run);

// Runs the body round by round on current_stream(), or adds the loop to the recording. Throws what
// flow_mode() and add_conditional() throw.
void run_loop(const Body& body, Rounds& rounds);

}  // namespace cgtree
