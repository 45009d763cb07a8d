// StepProgram: a program of calls as data, so that it can be drawn, run, shrunk, printed and read.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace cgtree::testing {

// The action of an operation. Operands are taken modulo the number of variables, so that any
// sequence of operations is a program, and stays one if some are removed.
enum class Action : std::uint8_t {
  // Calls; `x` and `y` name variables, results go to variables `to` and `to` + 1.
  kChain,       // two kernels, one output
  kAlias,       // returns its input beside a new output
  kSum,         // two inputs of the same dims: the same tensor twice, or overlapping views
  kAccumulate,  // writes into static input number `y`
  kBump,        // writes into its input, of any kind
  kFork,        // a side stream, forked and joined
  kViews,       // two views of one allocation
  kNested,      // calls another compiled function
  kBlend,       // writes into its first input; the second may be the same, or overlap
  kInto,        // as kChain, into a buffer: variable `y` if it has the dims and shares no memory
  kBuckets,     // padded to a bucket; one output is sliced, if `to` is odd into a buffer, the other
                // shows the padding; `y` chooses the size
  kBucketBump,  // as kBump, padded to a bucket; `y` chooses the size
  kFlow,        // branches and loops, nested
  // The rest.
  kDrop,         // variable `to`
  kView,         // variable `to` becomes a view of `x`; `y` chooses which
  kFresh,        // variable `to` becomes an eager tensor; `y` chooses its shape
  kMarkStep,     //
  kWriteStatic,  // static input number `y` gets other contents
  kCopy,         // variable `to` becomes an eager copy of `x`, made on the context's stream
  kCheck,        // compares all variables
};
inline constexpr int kActions = 20;

struct Operation {
  Action action = Action::kCheck;
  std::uint8_t x = 0;
  std::uint8_t y = 0;
  std::uint8_t to = 0;
  std::uint8_t context = 0;
  // For calls: 1 throws at the start of the step function, 2 at its end, if it runs at all.
  std::uint8_t fault = 0;
};

struct StepProgram {
  int rounds = 1;  // how often the operations are repeated
  std::vector<Operation> operations;
};

StepProgram draw_program(std::mt19937& random);

// "4: 0.1.2.3.0.0 8.0.0.1.0.0": rounds, then the fields of each operation.
std::string to_text(const StepProgram& program);
// Throws InvalidArgument.
StepProgram parse_program(const std::string& text);

// Returns a smaller program for which `fails` still holds, and from which no operation and no round
// can be removed.
StepProgram shrink(StepProgram program, const std::function<bool(const StepProgram&)>& fails);

}  // namespace cgtree::testing
