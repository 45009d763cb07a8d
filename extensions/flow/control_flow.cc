// Decides on the host while work runs eagerly, and has the device decide while it is recorded.
#include "extensions/flow/control_flow.h"

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "extensions/flow/body.h"
#include "extensions/flow/conditional.h"
#include "extensions/flow/loop.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"

namespace cgtree {
namespace {

// The results of a choice. They lie outside of its bodies, of which only one runs.
class Results {
 public:
  // Throws InvalidArgument unless the results have the shapes and types of the first body's.
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
      throw InvalidArgument(str_format("{} returns {} tensors, and {} returns {}", body.name,
                                       returned.size(), first_, like_.size()));
    }
    for (std::size_t i = 0; i < returned.size(); ++i) {
      const Shape shape(returned[i].shape().dims());
      if (shape == like_[i].shape && returned[i].dtype() == like_[i].dtype) continue;
      throw InvalidArgument(
          str_format("result {} of {} is {}, and that of {} is {}: all bodies must return the "
                     "same shapes and types",
                     i, body.name, describe(returned[i]), first_, like_[i].text));
    }
  }
  // Allocates the results at the first call. Requires: expect() was called.
  void make() {
    if (!made_.empty()) return;
    for (const Like& one : like_)
      made_.push_back(empty(one.shape, one.dtype, current_stream().device()));
  }
  // Copies the results of a body.
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
    throw InvalidArgument(str_format("result {} of {} is {}, and must be on {}", i, body.name,
                                     describe(one), to_string(device)));
  }

  std::string first_;  // the name of the body that returned them; empty: no body yet
  std::vector<Like> like_;
  std::vector<Tensor> made_;
};

using BodyCode = std::function<std::vector<Tensor>()>;

BodyCode without_results(const std::function<void()>& body) {
  if (!body) return nullptr;
  return [&body] {
    body();
    return std::vector<Tensor>();
  };
}

std::vector<Body> bodies_of(ConditionalKind kind, std::span<const BodyCode> given,
                            const FlowDraws& draws) {
  std::vector<Body> bodies;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::string name = kind == ConditionalKind::kSwitch ? str_format("body {} of choose()", i)
                             : i == 0                         ? "then() of branch()"
                                                              : "otherwise() of branch()";
    if (!given[i]) throw InvalidArgument(name + " is missing");
    bodies.push_back({name, draws, given[i]});
  }
  return bodies;
}

// `last`: the number of the body that runs if no body has the number in `index`, or -1.
std::vector<Tensor> choose_one(ConditionalKind kind, const Tensor& index,
                               std::span<const BodyCode> given,
                               const std::vector<Generator>& generators, std::int32_t last = -1) {
  const bool is_switch = kind == ConditionalKind::kSwitch;
  const std::string_view call = is_switch ? "choose()" : "branch()";
  FlowDraws draws(generators);
  const std::vector<Body> bodies = bodies_of(kind, given, draws);
  const StreamRef stream = current_stream();
  expect_flag(is_switch ? "the index of choose()" : "the predicate of branch()", index, stream,
              /*may_be_bool=*/!is_switch);
  Results results;
  if (is_captured(call, stream)) {
    collect_refusals([&] {
      draws.reserve();
      expect_use(index.storage(), stream);
      add_conditional(
          call, kind, bodies,
          [&](const Body& body, std::span<const Tensor> returned) {
            results.expect(body, returned);
          },
          [&](StreamRef own, ConditionHandle condition) {
            results.make();
            launch_set_condition(own, flag_of(index), last, condition);
            note_use(index.storage(), own);
          },
          [&](StreamRef, ConditionHandle, std::span<const Tensor> returned) {
            results.write(returned);
          });
      results.make();  // in a trial
    });
    return results.take();
  }
  draws.reserve();
  const std::int32_t value = read_flag(index, stream);
  std::size_t number = value == 0 ? 1 : 0;
  if (is_switch) {
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

// Returns rounds that continue while a flag, the first tensor that the body returns, is not 0, at
// most `most` times. `count`: int32, on the device; borrowed.
Rounds counted_rounds(const Tensor& count, std::int32_t most) {
  return {.begin =
              [&count](StreamRef stream, ConditionHandle condition) {
                launch_begin_loop(stream, count.data<std::int32_t>(), condition);
                note_use(count.storage(), stream);
              },
          .end_round =
              [&count, most](StreamRef stream, ConditionHandle condition,
                             std::span<const Tensor> returned) {
                launch_end_round(stream, flag_of(returned[0]), count.data<std::int32_t>(), most,
                                 condition);
                note_use(returned[0].storage(), stream);
                note_use(count.storage(), stream);
              },
          .goes_on =
              [most, rounds = 0](StreamRef stream, std::span<const Tensor> returned) mutable {
                return read_flag(returned[0], stream) != 0 && ++rounds < most;
              }};
}

}  // namespace

void branch(const Tensor& predicate, const std::function<void()>& then,
            const std::function<void()>& otherwise, const std::vector<Generator>& generators) {
  std::vector<BodyCode> bodies{without_results(then)};
  if (otherwise) bodies.push_back(without_results(otherwise));
  (void)choose_one(ConditionalKind::kIf, predicate, bodies, generators);
}

void choose(const Tensor& index, std::span<const std::function<void()>> given,
            const std::vector<Generator>& generators) {
  if (given.empty()) throw InvalidArgument("choose() without bodies");
  std::vector<BodyCode> bodies;
  for (const std::function<void()>& body : given)
    bodies.push_back(without_results(body));
  (void)choose_one(ConditionalKind::kSwitch, index, bodies, generators);
}

std::vector<Tensor> branch_results(const Tensor& predicate,
                                   const std::function<std::vector<Tensor>()>& then,
                                   const std::function<std::vector<Tensor>()>& otherwise,
                                   const std::vector<Generator>& generators) {
  const BodyCode bodies[] = {then, otherwise};
  return choose_one(ConditionalKind::kIf, predicate, bodies, generators);
}

std::vector<Tensor> choose_results(const Tensor& index,
                                   std::span<const std::function<std::vector<Tensor>()>> given,
                                   const std::vector<Generator>& generators) {
  if (given.empty()) throw InvalidArgument("choose() without bodies");
  return choose_one(ConditionalKind::kSwitch, index, given, generators,
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
  return run_counted(draws,
                     [&](const Tensor& count) { run_loop(body, counted_rounds(count, most)); });
}

}  // namespace cgtree
