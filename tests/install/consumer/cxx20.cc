// An engine in C++20: steps and a step function on the host device.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "cgtree/cgtree.h"
#include "interop/device/device_api.h"

namespace {

struct Add {
  const std::int32_t* from;
  std::int32_t* to;
  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const { to[i] += from[i]; }
};

using Row = std::vector<std::int32_t>;

cgtree::Tensor row(const Row& values) {
  return cgtree::from_host<std::int32_t>({4}, values, {cgtree::DeviceType::kHost, 0});
}

Row run_steps(cgtree::Context& context) {
  const cgtree::Stream stream(context.device());
  cgtree::Steps steps(
      context, "decode",
      {.bindings = {{.name = "tokens", .is_copied = true}, {.name = "cache", .is_mutated = true}}});
  const cgtree::Tensor cache = row({0, 0, 0, 0});
  std::vector<cgtree::Tensor> tokens;
  for (int call = 0; call < 5; ++call) {
    tokens.push_back(row({call, 1, 2, 3}));
    const cgtree::Binding bindings[] = {{tokens.back().data(), tokens.back().bytes()},
                                        {cache.data(), cache.bytes()}};
    for (cgtree::Step step = steps.begin({{"batch", 4}}, bindings, stream); step.must_run();
         step.end()) {
      cgtree::parallel_for(stream, 4,
                           Add{static_cast<std::int32_t*>(step.address(0)),
                               static_cast<std::int32_t*>(step.address(1))});
    }
  }
  stream.synchronize();
  std::printf("%d replays of steps, ", static_cast<int>(steps.stats().replays));
  return cache.to_vector<std::int32_t>();
}

Row run_function(cgtree::Context& context) {
  cgtree::CompiledFunction sum =
      cgtree::compile(context, "sum", [](cgtree::Tensor x, cgtree::Tensor y) {
        cgtree::Tensor made = cgtree::empty(x.shape(), x.dtype());
        cgtree::check(cgtree::current_stream().api().copy(cgtree::current_stream().handle(),
                                                          made.data(), x.data(), x.bytes()),
                      "copy");
        cgtree::parallel_for(cgtree::current_stream(), 4,
                             Add{y.data<std::int32_t>(), made.data<std::int32_t>()});
        return made;
      });
  Row last;
  for (int call = 0; call < 5; ++call) {
    context.mark_step();
    last = sum(row({call, 1, 2, 3}), row({10, 10, 10, 10})).to_vector<std::int32_t>();
  }
  std::printf("%d of the function\n", static_cast<int>(sum.stats().replays));
  return last;
}

}  // namespace

int main() {
  cgtree::Context context({cgtree::DeviceType::kHost, 0});
  if (run_steps(context) != Row{10, 5, 10, 15}) return 1;
  if (run_function(context) != Row{14, 11, 12, 13}) return 2;
  return 0;
}
