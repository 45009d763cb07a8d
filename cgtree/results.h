// Results: how a step function's return type becomes a list of output tensors, and back.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "interop/tensor/tensor.h"

namespace cgtree {

// Throws InvalidArgument, with both counts, if they differ.
void check_input_count(std::size_t given, std::size_t expected);
[[noreturn]] void refuse_output_count(std::size_t given, std::size_t expected);
inline void check_output_count(std::size_t given, std::size_t expected) {
  if (given != expected) [[unlikely]] {
    refuse_output_count(given, expected);
  }
}

// Results<R> converts: collect(run) calls run() and returns what it returned as a list,
// take(outputs) moves a list into an R.
template <typename R>
struct Results;

template <>
struct Results<void> {
  template <typename Run>
  static std::vector<Tensor> collect(Run&& run) {
    run();
    return {};
  }
  static void take(std::span<Tensor> outputs) { check_output_count(outputs.size(), 0); }
};

template <>
struct Results<Tensor> {
  template <typename Run>
  static std::vector<Tensor> collect(Run&& run) {
    std::vector<Tensor> outputs;
    outputs.push_back(run());
    return outputs;
  }
  static Tensor take(std::span<Tensor> outputs) {
    check_output_count(outputs.size(), 1);
    return std::move(outputs[0]);
  }
};

template <>
struct Results<std::vector<Tensor>> {
  template <typename Run>
  static std::vector<Tensor> collect(Run&& run) {
    return run();
  }
  static std::vector<Tensor> take(std::span<Tensor> outputs) {
    return {std::make_move_iterator(outputs.begin()), std::make_move_iterator(outputs.end())};
  }
};

// std::array, std::pair and std::tuple of Tensor.
template <typename R>
requires requires {
  std::tuple_size<R>::value;
}
struct Results<R> {
  static constexpr std::size_t kCount = std::tuple_size_v<R>;

  template <typename Run>
  static std::vector<Tensor> collect(Run&& run) {
    return std::apply(
        [](auto&&... tensor) {
          std::vector<Tensor> outputs;
          outputs.reserve(kCount);
          (outputs.push_back(std::forward<decltype(tensor)>(tensor)), ...);
          return outputs;
        },
        run());
  }
  static R take(std::span<Tensor> outputs) {
    check_output_count(outputs.size(), kCount);
    return take(outputs, std::make_index_sequence<kCount>{});
  }

 private:
  template <std::size_t... I>
  static R take(std::span<Tensor> outputs, std::index_sequence<I...>) {
    return R{std::move(outputs[I])...};
  }
};

}  // namespace cgtree
