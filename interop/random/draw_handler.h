// DrawHandler: what generators ask while a step function runs on the thread.
#pragma once

#include "interop/random/generator.h"

namespace cgtree {

// See Generator for what each is to do.
class DrawHandler {
 public:
  virtual PhiloxRange reserve(const PhiloxSequenceRef& sequence, std::uint64_t blocks) = 0;
  virtual void set_seed(const PhiloxSequenceRef& sequence, std::uint64_t seed) = 0;
  virtual GeneratorState state(const PhiloxSequenceRef& sequence) = 0;
  virtual void set_state(const PhiloxSequenceRef& sequence, const GeneratorState& state) = 0;

 protected:
  ~DrawHandler() = default;
};

// Makes `handler` answer for every generator on this thread until the scope ends. Scopes nest.
class DrawHandlerScope {
 public:
  explicit DrawHandlerScope(DrawHandler& handler) noexcept;
  ~DrawHandlerScope();
  DrawHandlerScope(const DrawHandlerScope&) = delete;
  DrawHandlerScope& operator=(const DrawHandlerScope&) = delete;

 private:
  DrawHandler* previous_;
};

// Throws InvalidArgument if the current stream is being captured: numbers reserved now would be
// frozen in the graph.
void expect_no_capture();

// The position of a state; throws InvalidArgument if it was taken while recording.
PhiloxPosition position_of(const GeneratorState& state);

}  // namespace cgtree
