// branch(), choose() and loop(): control flow on the device, inside of a recording.
//
//   cgtree::Tensor goes_on = cgtree::empty({}, cgtree::DType::kInt32);
//   cgtree::loop(64, [&] {
//     launch_decode(cgtree::current_stream(), tokens, kv_cache, goes_on);  // writes goes_on
//     return goes_on;                                                     // 0: the last round
//   });
//
// A step that runs eagerly reads the predicate, index or flag on the host, and enqueues the work of
// the selected body. A recording has all bodies, in conditional nodes, and each replay decides on
// the device.
//
// A body only enqueues work: its code runs whenever a recording is made or tried, and must enqueue
// the same work each time. It launches on current_stream(), which in a body may be another stream
// than outside, or on streams that wait for it; it may contain branches and loops. Memory that it
// allocates with empty() is scratch memory that ends with it: results are written to tensors from
// outside, or returned to branch_results() and similar functions. It may not read back, wait for
// the device, call host functions, allocate stream-ordered memory, call eager_break(), or ask for
// the position of a generator. Violations that show while it runs (breaks, generators, kept memory)
// are refused when the step is warmed up. Violations that show only in a capture, such as other
// work in the second run, keep the step from being recorded, with the name of the body: it runs
// eagerly. The call throws exceptions of a body.
//
// `generators`: those from which bodies may draw random numbers. The call takes one block of each,
// whichever body runs, and each run of a body, in each round of a loop, draws different numbers
// that follow from the block, the same eagerly and in a replay. A branch or loop inside a body must
// be given them, too, if its bodies draw. Each costs a small kernel in each body.
//
// All throw InvalidArgument for a missing body, a flag that is not one element of the required type
// on the device of current_stream(), and a body that breaks the rules; CaptureError while the
// stream is captured by other code, and, while the step is recorded, if the device has no
// conditional nodes (CUDA before 12.8), so that the step runs eagerly. docs/control_flow.md has the
// costs.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <vector>

#include "interop/random/generator.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// Runs then() if the predicate is not 0, else otherwise(), if it exists. `predicate`: int32 or
// bool.
void branch(const Tensor& predicate, const std::function<void()>& then,
            const std::function<void()>& otherwise = nullptr,
            const std::vector<Generator>& generators = {});

// Runs the body whose number is the value of `index`, int32. As in CUDA, no body runs if none has
// that number.
void choose(const Tensor& index, std::span<const std::function<void()>> bodies,
            const std::vector<Generator>& generators = {});
inline void choose(const Tensor& index, std::initializer_list<std::function<void()>> bodies,
                   const std::vector<Generator>& generators = {}) {
  choose(index, std::span(bodies.begin(), bodies.size()), generators);
}

// As branch(), with bodies that return tensors, of the same shapes and element types: returns
// copies of the results of the body that ran, which may be tensors that it made. Throws
// InvalidArgument also for results that differ from those of the first body; in a body that does
// not run, they keep the step from being recorded.
std::vector<Tensor> branch_results(const Tensor& predicate,
                                   const std::function<std::vector<Tensor>()>& then,
                                   const std::function<std::vector<Tensor>()>& otherwise,
                                   const std::vector<Generator>& generators = {});
// The same for choose(). If no body has the number in `index`, the last one runs.
std::vector<Tensor> choose_results(const Tensor& index,
                                   std::span<const std::function<std::vector<Tensor>()>> bodies,
                                   const std::vector<Generator>& generators = {});

// branch_results() with one tensor: y = branch(predicate, [&] { return a; }, [&] { return b; });
template <typename Then, typename Otherwise>
requires std::same_as<std::invoke_result_t<Then&>, Tensor> &&
    std::same_as<std::invoke_result_t<Otherwise&>, Tensor>
        Tensor branch(const Tensor& predicate, Then&& then, Otherwise&& otherwise,
                      const std::vector<Generator>& generators = {}) {
  return branch_results(
      predicate, [&] { return std::vector<Tensor>{then()}; },
      [&] { return std::vector<Tensor>{otherwise()}; }, generators)[0];
}

// Runs the body until the flag that it returns, int32 or bool, is 0, or until max_rounds rounds
// ran, which is not an error. The first round always runs. Returns the number of rounds, int32, as
// a tensor on the device. Throws InvalidArgument unless 1 <= max_rounds < 2^31.
Tensor loop(std::int64_t max_rounds, const std::function<Tensor()>& body,
            const std::vector<Generator>& generators = {});

}  // namespace cgtree
