// Draws flows, and runs them on both sides.
#include "tests/support/flow_steps.h"

#include <cmath>
#include <functional>

#include "cgtree/control_flow.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"
#include "tests/support/flags.h"
#include "tests/support/steps.h"

namespace cgtree::testing {
namespace {

constexpr int kMostDeep = 3;

// Factors are powers of two and shifts multiples of 1/4: both sides round alike.
Flow draw(std::mt19937& random, int depth) {
  const auto pick = [&](int count) {
    return static_cast<int>(random() % static_cast<unsigned>(count));
  };
  Flow flow;
  flow.scale = (pick(2) == 0 ? 0.5F : -0.5F) * static_cast<float>(1 + pick(2));
  flow.shift = static_cast<float>(pick(9) - 4) / 4;
  flow.limit = static_cast<float>(pick(5) - 2) / 4;
  flow.rounds = 1 + pick(4);
  flow.is_flag_outside = pick(2) == 0;
  flow.kind = static_cast<Flow::Kind>(pick(depth < kMostDeep ? 8 : 3));
  int parts = 0;
  if (flow.kind == Flow::Kind::kBoth) parts = 2;
  if (flow.kind == Flow::Kind::kBranch) parts = 1 + pick(2);
  if (flow.kind == Flow::Kind::kChoose) parts = 1 + pick(4);
  if (flow.kind == Flow::Kind::kLoop || flow.kind == Flow::Kind::kResult) parts = 1;
  for (int i = 0; i < parts; ++i)
    flow.parts.push_back(draw(random, depth + (flow.kind == Flow::Kind::kBoth ? 0 : 1)));
  return flow;
}

Tensor make_flag() {
  return empty(Shape(), DType::kInt32);
}

}  // namespace

Flow draw_flow(std::mt19937& random) {
  Flow flow;
  flow.kind = Flow::Kind::kBoth;
  flow.parts.push_back(draw(random, 0));
  Flow last;
  do
    last = draw(random, 0);
  while (last.kind < Flow::Kind::kBranch);
  flow.parts.push_back(std::move(last));
  return flow;
}

std::vector<Stream> flow_sides(Device device) {
  std::vector<Stream> sides;
  for (int depth = 0; depth <= kMostDeep; ++depth)
    sides.emplace_back(device);
  return sides;
}

void run_flow(const Flow& flow, const Tensor& x, std::span<const Stream> sides) {
  const auto part = [&](std::size_t i) {
    const auto inner = flow.kind == Flow::Kind::kBoth ? sides : sides.subspan(1);
    return [&flow, &x, inner, i] { run_flow(flow.parts[i], x, inner); };
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
      }
      return main.wait_for(sides[0]);
    }
    case Flow::Kind::kBoth:
      part(0)();
      return part(1)();
    case Flow::Kind::kBranch: {
      const Tensor flag = make_flag();
      compare(x, flow.limit, flag);
      return branch(flag, part(0),
                    flow.parts.size() > 1 ? std::function<void()>(part(1)) : nullptr);
    }
    case Flow::Kind::kChoose: {
      const Tensor index = make_flag();
      round_down(affine(x, 4, 0), index);
      std::vector<std::function<void()>> bodies;
      for (std::size_t i = 0; i < flow.parts.size(); ++i)
        bodies.emplace_back(part(i));
      return choose(index, bodies);
    }
    case Flow::Kind::kLoop: {
      const Tensor outside = flow.is_flag_outside ? make_flag() : Tensor();
      (void)loop(flow.rounds, [&] {
        part(0)();
        const Tensor flag = outside.defined() ? outside : make_flag();
        compare(x, flow.limit, flag);
        return flag;
      });
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
          });
      return copy_elements(current_stream(), x, y);
    }
  }
}

void run_flow(const Flow& flow, std::vector<float>& values) {
  switch (flow.kind) {
    case Flow::Kind::kUpdate:
    case Flow::Kind::kScratch:
    case Flow::Kind::kFork:
      for (float& value : values)
        value = flow.scale * value + flow.shift;
      return;
    case Flow::Kind::kBoth:
      run_flow(flow.parts[0], values);
      return run_flow(flow.parts[1], values);
    case Flow::Kind::kBranch: {
      const std::size_t number = values[0] > flow.limit ? 0 : 1;
      if (number < flow.parts.size()) run_flow(flow.parts[number], values);
      return;
    }
    case Flow::Kind::kChoose: {
      const float number = std::floor(4 * values[0]);
      if (number >= 0 && number < static_cast<float>(flow.parts.size()))
        run_flow(flow.parts[static_cast<std::size_t>(number)], values);
      return;
    }
    case Flow::Kind::kLoop:
      for (int round = 0; round == 0 || (round < flow.rounds && values[0] > flow.limit); ++round)
        run_flow(flow.parts[0], values);
      return;
    case Flow::Kind::kResult: {
      if (!(values[0] > flow.limit)) return run_flow(flow.parts[0], values);
      for (float& value : values)
        value = flow.scale * value + flow.shift;
      return;
    }
  }
}

}  // namespace cgtree::testing
