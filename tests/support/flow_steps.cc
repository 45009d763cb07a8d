// Draws flows, and runs them on a device and in plain arithmetic.
#include "tests/support/flow_steps.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "extensions/flow/condition_kernels.h"
#include "extensions/flow/control_flow.h"
#include "interop/random/random.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"
#include "tests/support/flags.h"
#include "tests/support/steps.h"

namespace cgtree::testing {
namespace {

constexpr int kMostDeep = 3;

// Factors are powers of two and shifts multiples of 1/4: device and host round alike.
Flow draw(std::mt19937& random, int depth, bool draws) {
  const auto pick = [&](int count) {
    return static_cast<int>(random() % static_cast<unsigned>(count));
  };
  Flow flow;
  flow.scale = (pick(2) == 0 ? 0.5F : -0.5F) * static_cast<float>(1 + pick(2));
  flow.shift = static_cast<float>(pick(9) - 4) / 4;
  flow.limit = static_cast<float>(pick(5) - 2) / 4;
  flow.rounds = 1 + pick(4);
  flow.is_flag_outside = pick(2) == 0;
  flow.kind = static_cast<Flow::Kind>(pick(depth < kMostDeep ? 9 : 3));
  flow.draws = draws;
  if (draws && pick(4) == 0) flow.kind = Flow::Kind::kDraw;
  int parts = 0;
  if (flow.kind == Flow::Kind::kBoth) parts = 2;
  if (flow.kind == Flow::Kind::kBranch) parts = 1 + pick(2);
  if (flow.kind == Flow::Kind::kChoose) parts = 1 + pick(4);
  const bool has_one = flow.kind == Flow::Kind::kLoop || flow.kind == Flow::Kind::kResult ||
                       flow.kind == Flow::Kind::kBeside;
  if (has_one) parts = 1;
  for (int i = 0; i < parts; ++i)
    flow.parts.push_back(draw(random, depth + (flow.kind == Flow::Kind::kBoth ? 0 : 1), draws));
  return flow;
}

void add_uniform(const Tensor& x, const Generator& generator) {
  copy_elements(current_stream(), x, add(x, uniform(x.shape(), generator)));
}

void add_uniform(std::vector<float>& values, PhiloxPosition& at) {
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] += to_uniform(philox(at.seed, at.offset, i / 4).words[i % 4]);
  at.offset += (values.size() + 3) / 4;
}

Tensor make_flag() {
  return empty(Shape(), DType::kInt32);
}

}  // namespace

Flow draw_flow(std::mt19937& random, bool draws) {
  Flow flow;
  flow.kind = Flow::Kind::kBoth;
  flow.draws = draws;
  flow.parts.push_back(draw(random, 0, draws));
  Flow last;
  do
    last = draw(random, 0, draws);
  while (last.kind < Flow::Kind::kBranch || last.kind == Flow::Kind::kDraw);
  flow.parts.push_back(std::move(last));
  return flow;
}

std::vector<Stream> flow_sides(Device device) {
  std::vector<Stream> sides;
  for (int depth = 0; depth <= kMostDeep; ++depth)
    sides.emplace_back(device);
  return sides;
}

bool has_loop(const Flow& flow) {
  return flow.kind == Flow::Kind::kLoop || std::ranges::any_of(flow.parts, has_loop);
}

void run_flow(const Flow& flow, const Tensor& x, std::span<const Stream> sides,
              const Generator* generator, LoopStream* rows) {
  std::vector<Generator> generators;
  if (flow.draws) generators.push_back(*generator);
  LoopStream* const rows_inside = flow.kind == Flow::Kind::kLoop ? nullptr : rows;
  const auto part = [&](std::size_t i) {
    const auto inner = flow.kind == Flow::Kind::kBoth ? sides : sides.subspan(1);
    return [&flow, &x, inner, generator, rows_inside, i] {
      run_flow(flow.parts[i], x, inner, generator, rows_inside);
    };
  };
  switch (flow.kind) {
    case Flow::Kind::kUpdate:
      return update(x, flow.scale, flow.shift);
    case Flow::Kind::kScratch: {
      const Tensor y = affine(affine(x, 1, 0), flow.scale, flow.shift);
      return copy_elements(current_stream(), x, y);
    }
    case Flow::Kind::kFork: {
      const StreamRef main = current_stream();
      sides[0].ref().wait_for(main);
      {
        const StreamScope scope(sides[0]);
        update(x, flow.scale, flow.shift);
        if (flow.draws) add_uniform(x, *generator);
      }
      return main.wait_for(sides[0]);
    }
    case Flow::Kind::kBoth:
      part(0)();
      return part(1)();
    case Flow::Kind::kBranch: {
      const Tensor flag = make_flag();
      compare(x, flow.limit, flag);
      return branch(flag, part(0), flow.parts.size() > 1 ? std::function<void()>(part(1)) : nullptr,
                    generators);
    }
    case Flow::Kind::kChoose: {
      const Tensor index = make_flag();
      round_down(affine(x, 4, 0), index);
      std::vector<std::function<void()>> bodies;
      for (std::size_t i = 0; i < flow.parts.size(); ++i)
        bodies.emplace_back(part(i));
      return choose(index, bodies, generators);
    }
    case Flow::Kind::kLoop: {
      const Tensor outside = flow.is_flag_outside ? make_flag() : Tensor();
      const auto body = [&] {
        part(0)();
        const Tensor flag = outside.defined() ? outside : make_flag();
        compare(x, flow.limit, flag);
        return flag;
      };
      if (rows == nullptr) {
        (void)loop(flow.rounds, body, generators);
      } else {
        (void)loop(
            flow.rounds, *rows,
            [&] {
              return LoopRound{body(), x};
            },
            generators);
      }
      return;
    }
    case Flow::Kind::kResult: {
      const Tensor flag = make_flag();
      compare(x, flow.limit, flag);
      const Tensor y = branch(
          flag, [&] { return affine(x, flow.scale, flow.shift); },
          [&] {
            part(0)();
            return x;
          },
          generators);
      return copy_elements(current_stream(), x, y);
    }
    case Flow::Kind::kBeside: {
      const StreamRef main = current_stream();
      const Tensor flag = make_flag();
      compare(x, flow.limit, flag);
      const Tensor before = affine(x, 1, 0);
      sides[0].ref().wait_for(main);
      Tensor made;
      {
        const StreamScope scope(sides[0]);
        made = affine(affine(affine(before, 0.5F, 0), 1, 0.25F), flow.scale, flow.shift);
      }
      branch(flag, part(0), nullptr, generators);
      main.wait_for(sides[0]);
      return copy_elements(main, x, add(x, made));
    }
    case Flow::Kind::kDraw:
      return add_uniform(x, *generator);
  }
}

void run_flow(const Flow& flow, std::vector<float>& values, PhiloxPosition* at,
              std::vector<std::vector<float>>* rows, bool* is_stopped) {
  const bool is_call = flow.kind >= Flow::Kind::kBranch && flow.kind != Flow::Kind::kDraw;
  PhiloxBlock call = {};
  if (is_call && flow.draws) call = philox(at->seed, at->offset++, 0);
  const auto body = [&](std::size_t number, int round) {
    PhiloxPosition own = draws_of_round(call, round);
    run_flow(flow.parts[number], values, &own, flow.kind == Flow::Kind::kLoop ? nullptr : rows,
             is_stopped);
  };
  switch (flow.kind) {
    case Flow::Kind::kUpdate:
    case Flow::Kind::kScratch:
    case Flow::Kind::kFork:
      for (float& value : values)
        value = flow.scale * value + flow.shift;
      if (flow.kind == Flow::Kind::kFork && flow.draws) add_uniform(values, *at);
      return;
    case Flow::Kind::kBoth:
      run_flow(flow.parts[0], values, at, rows, is_stopped);
      return run_flow(flow.parts[1], values, at, rows, is_stopped);
    case Flow::Kind::kBranch: {
      const std::size_t number = values[0] > flow.limit ? 0 : 1;
      if (number < flow.parts.size()) body(number, 0);
      return;
    }
    case Flow::Kind::kChoose: {
      const float number = std::floor(4 * values[0]);
      if (number >= 0 && number < static_cast<float>(flow.parts.size()))
        body(static_cast<std::size_t>(number), 0);
      return;
    }
    case Flow::Kind::kLoop:
      for (int round = 0; round == 0 || (round < flow.rounds && values[0] > flow.limit); ++round) {
        body(0, round);
        if (rows == nullptr) continue;
        rows->push_back(values);
        if (is_stopped != nullptr && std::exchange(*is_stopped, false)) break;
      }
      return;
    case Flow::Kind::kResult: {
      if (!(values[0] > flow.limit)) return body(0, 0);
      for (float& value : values)
        value = flow.scale * value + flow.shift;
      return;
    }
    case Flow::Kind::kBeside: {
      const std::vector<float> before = values;
      if (values[0] > flow.limit) body(0, 0);
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] += flow.scale * (0.5F * before[i] + 0.25F) + flow.shift;
      return;
    }
    case Flow::Kind::kDraw:
      return add_uniform(values, *at);
  }
}

}  // namespace cgtree::testing
