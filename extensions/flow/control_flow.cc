// Decides on the host while work runs eagerly, and has the device decide while it is recorded.
#include "extensions/flow/control_flow.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "extensions/flow/body.h"
#include "extensions/flow/condition_kernels.h"
#include "extensions/flow/conditional.h"
#include "extensions/flow/flag.h"
#include "extensions/flow/loop.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"

namespace cgtree {
namespace {

// The results of a choice, which lie outside of its bodies, since one of them runs.
class Results {
 public:
  // Throws InvalidArgument unless the body has returned what the first one did.
  void expect(const Body& body, std::span<const Tensor> returned) {
    for (std::size_t i = 0; i < returned.size(); ++i)
      expect_on_device(body, i, returned[i]);
    if (first_.empty()) {
      first_ = body.name;
      for (const Tensor& one : returned)
        like_.push_back({Shape(one.shape().dims()), one.dtype(), describe(one)});
      return;
    }
    if (returned.size() != like_.size()) {
      throw InvalidArgument(fmt::format("{} returns {} tensors, and {} returns {}", body.name,
                                        returned.size(), first_, like_.size()));
    }
    for (std::size_t i = 0; i < returned.size(); ++i) {
      const Shape shape(returned[i].shape().dims());
      if (shape == like_[i].shape && returned[i].dtype() == like_[i].dtype) continue;
      throw InvalidArgument(
          fmt::format("result {} of {} is {}, and that of {} is {}: all bodies must return the "
                      "same shapes and types",
                      i, body.name, describe(returned[i]), first_, like_[i].text));
    }
  }
  // Allocates them. Requires: expect() was called.
  void make() {
    for (const Like& one : like_)
      made_.push_back(empty(one.shape, one.dtype, current_stream().device()));
  }
  // Copies what a body has returned.
  void write(std::span<const Tensor> returned) const {
    const StreamRef stream = current_stream();
    for (std::size_t i = 0; i < returned.size(); ++i) {
      copy_elements(stream, made_[i], returned[i]);
      note_use(returned[i].storage(), stream);
      note_use(made_[i].storage(), stream);
    }
  }
  std::vector<Tensor> take() { return std::move(made_); }

 private:
  struct Like {
    Shape shape;
    DType dtype;
    std::string text;
  };
  static void expect_on_device(const Body& body, std::size_t i, const Tensor& one) {
    const Device device = current_stream().device();
    if (one.defined() && one.device() == device) return;
    throw InvalidArgument(fmt::format("result {} of {} is {}, and must be on {}", i, body.name,
                                      describe(one), to_string(device)));
  }

  std::string first_;  // the name of the body that has returned them; empty: none yet
  std::vector<Like> like_;
  std::vector<Tensor> made_;
};

// As choose_one(), in a capture.
void capture_choice(FlowMode mode, std::string_view call, ConditionalKind kind, const Tensor& index,
                    std::span<const Body> bodies, FlowDraws& draws, std::int32_t last,
                    Results& results) {
  const auto expect = [&](const Body& body, std::span<const Tensor> returned) {
    results.expect(body, returned);
  };
  draws.reserve();
  expect_use(index.storage(), current_stream());
  if (mode == FlowMode::kTrial) {
    try_bodies(bodies, expect);
    return results.make();
  }
  add_conditional(
      call, kind, bodies, expect,
      [&](StreamRef own, ConditionHandle condition) {
        results.make();
        launch_set_condition(own, flag_of(index), last, condition);
        note_use(index.storage(), own);
      },
      [&](StreamRef, ConditionHandle, std::span<const Tensor> returned) {
        results.write(returned);
      });
}

// `last`: the number of the body that runs where there is none with the number of `index`, or -1.
std::vector<Tensor> choose_one(std::string_view call, ConditionalKind kind, const Tensor& index,
                               std::span<const Body> bodies, FlowDraws& draws,
                               std::int32_t last = -1) {
  const StreamRef stream = current_stream();
  const FlowMode mode = flow_mode(call, stream);
  Results results;
  if (mode != FlowMode::kEager) {
    collect_refusals(
        [&] { capture_choice(mode, call, kind, index, bodies, draws, last, results); });
    return results.take();
  }
  draws.reserve();
  const std::int32_t value = read_flag(index, stream);
  std::size_t number = value == 0 ? 1 : 0;
  if (kind == ConditionalKind::kSwitch) {
    const bool is_outside = last >= 0 && (value < 0 || value > last);
    number = static_cast<std::uint32_t>(is_outside ? last : value);
  }
  if (number < bodies.size()) {
    run_eagerly(bodies[number], /*round=*/0, [&](std::span<const Tensor> returned) {
      results.expect(bodies[number], returned);
      results.make();
      results.write(returned);
    });
  }
  return results.take();
}

void expect_body(std::string_view name, bool is_there) {
  if (!is_there) throw InvalidArgument(fmt::format("{} is missing", name));
}

Body plain(std::string name, const FlowDraws& draws, const std::function<void()>& body) {
  expect_body(name, static_cast<bool>(body));
  return {std::move(name), draws, [&body] {
            body();
            return std::vector<Tensor>();
          }};
}

Body with_results(std::string name, const FlowDraws& draws,
                  const std::function<std::vector<Tensor>()>& body) {
  expect_body(name, static_cast<bool>(body));
  return {std::move(name), draws, body};
}

constexpr std::string_view kPredicate = "the predicate of branch()";
constexpr std::string_view kIndex = "the index of choose()";

}  // namespace

void branch(const Tensor& predicate, const std::function<void()>& then,
            const std::function<void()>& otherwise, const std::vector<Generator>& generators) {
  FlowDraws draws(generators);
  std::vector<Body> bodies{plain("then() of branch()", draws, then)};
  if (otherwise) bodies.push_back(plain("otherwise() of branch()", draws, otherwise));
  expect_flag(kPredicate, predicate, current_stream());
  (void)choose_one("branch()", ConditionalKind::kIf, predicate, bodies, draws);
}

void choose(const Tensor& index, std::span<const std::function<void()>> given,
            const std::vector<Generator>& generators) {
  if (given.empty()) throw InvalidArgument("choose() without bodies");
  FlowDraws draws(generators);
  std::vector<Body> bodies;
  for (std::size_t i = 0; i < given.size(); ++i)
    bodies.push_back(plain(fmt::format("body {} of choose()", i), draws, given[i]));
  expect_flag(kIndex, index, current_stream(), /*may_be_bool=*/false);
  (void)choose_one("choose()", ConditionalKind::kSwitch, index, bodies, draws);
}

std::vector<Tensor> branch_results(const Tensor& predicate,
                                   const std::function<std::vector<Tensor>()>& then,
                                   const std::function<std::vector<Tensor>()>& otherwise,
                                   const std::vector<Generator>& generators) {
  FlowDraws draws(generators);
  const Body bodies[] = {with_results("then() of branch()", draws, then),
                         with_results("otherwise() of branch()", draws, otherwise)};
  expect_flag(kPredicate, predicate, current_stream());
  return choose_one("branch()", ConditionalKind::kIf, predicate, bodies, draws);
}

std::vector<Tensor> choose_results(const Tensor& index,
                                   std::span<const std::function<std::vector<Tensor>()>> given,
                                   const std::vector<Generator>& generators) {
  if (given.empty()) throw InvalidArgument("choose() without bodies");
  FlowDraws draws(generators);
  std::vector<Body> bodies;
  for (std::size_t i = 0; i < given.size(); ++i)
    bodies.push_back(with_results(fmt::format("body {} of choose()", i), draws, given[i]));
  expect_flag(kIndex, index, current_stream(), /*may_be_bool=*/false);
  return choose_one("choose()", ConditionalKind::kSwitch, index, bodies, draws,
                    static_cast<std::int32_t>(given.size()) - 1);
}

Tensor loop(std::int64_t max_rounds, const std::function<Tensor()>& given,
            const std::vector<Generator>& generators) {
  if (!given) throw InvalidArgument("the body of loop() is missing");
  const std::int32_t most = expect_max_rounds(max_rounds);
  FlowDraws draws(generators);
  const Body body{"the body of loop()", draws, [&] {
                    Tensor flag = given();
                    expect_flag("what the body of loop() returns", flag, current_stream());
                    return std::vector<Tensor>{std::move(flag)};
                  }};
  return run_counted(draws, [&](const Tensor& count) {
    CountedRounds rounds(count, most);
    run_loop(body, rounds);
  });
}

}  // namespace cgtree
