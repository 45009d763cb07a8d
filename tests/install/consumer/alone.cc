// A program with the core only: calls replay, and an option of an extension is refused by name.
#include <cstdio>
#include <string>

#include "cgtree/cgtree.h"
#include "interop/tensor/copy.h"

int main() {
  using namespace cgtree;
  Context context(Device::host());
  const auto twice = compile(context, "twice", [](Tensor x) {
    Tensor y = empty(x.shape(), x.dtype(), x.device());
    copy(y, x);
    return y;
  });
  const Tensor x = from_host<float>({2}, {1, 2}, Device::host());
  for (int call = 0; call < 5; ++call)
    (void)twice(x);
  std::string refused = "nothing";
  try {
    (void)compile(context, "moved", [](Tensor y) { return y; },
                  {.inputs = {{.rebind = Rebind::kAuto}}});
  } catch (const InvalidArgument& error) {
    if (std::string(error.what()).find("InputOptions::rebind") != std::string::npos) {
      refused = "rebind";
    }
  }
  std::printf("%d of 5 calls are replays; %s is refused\n", static_cast<int>(twice.stats().replays),
              refused.c_str());
}
