// ProgramRunner: runs a StepProgram through two contexts, and in plain arithmetic on the host.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/system/model_tensor.h"
#include "tests/system/step_context.h"
#include "tests/system/step_program.h"

namespace cgtree::testing {

// Counts over any number of programs.
struct ProgramTotals {
  std::uint64_t calls = 0;
  std::uint64_t recordings = 0;
  std::uint64_t replays = 0;
  std::uint64_t faults = 0;
};

class ProgramRunner {
 public:
  // `enabled`: with false, all calls run eagerly.
  ProgramRunner(Device device, bool enabled);

  // Returns a description of the failure; empty without one.
  std::string run(const StepProgram& program, ProgramTotals& totals);

 private:
  static constexpr int kVariables = 4;
  static constexpr int kStatics = 2;
  static constexpr int kContexts = 2;

  struct Variable {
    Tensor tensor;
    ModelTensor model;
  };

  void execute(const Operation& operation);
  void call(const Operation& operation);
  Variable& ready(int variable);
  Variable fresh(int choice);
  Variable fresh_of(const Shape& shape);
  Variable static_like(int number, const Shape& shape) const;
  static Variable some_rows(const Variable& x, int choice);
  int same_dims(int variable, int wanted);
  Variable buffer_for(const Variable& x, int wanted);
  StepContext& use(int context);
  void mark_step(int context);
  void write_static(int number);
  void copy(Variable& to, const Variable& from);
  void check();
  void check_end(ProgramTotals& totals);
  float next_value();

  const Device device_;
  const bool enabled_;
  std::array<std::unique_ptr<StepContext>, kContexts> contexts_;
  std::array<Variable, kStatics> statics_;
  std::array<Variable, kVariables> variables_;
  int last_context_ = 0;
  std::uint32_t values_made_ = 0;
  std::uint64_t faults_ = 0;
};

}  // namespace cgtree::testing
