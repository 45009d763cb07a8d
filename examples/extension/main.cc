// An extension of a context outside of the library: it counts the bytes that replays copy.
//
// A function with a copied input is called with two sizes, and then with an input at a stable
// address. The table at the end has a line for each recording.
#include <cinttypes>
#include <cstdio>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "cgtree/cgtree.h"
#include "cgtree/tree/extension.h"
#include "interop/tensor/copy.h"

namespace {

// The copies of one recording.
struct Copies {
  std::string function;
  std::string key;
  std::uint64_t replays = 0;
  std::uint64_t bytes = 0;
};
using CopyTable = std::map<std::uint32_t, Copies>;  // by the number of the recording

class CopyCounter final : public cgtree::Extension {
 public:
  explicit CopyCounter(std::shared_ptr<CopyTable> table) noexcept : table_(std::move(table)) {}

  Wants wants() const noexcept override { return {.replays = true}; }

  void after(const cgtree::CallEvent& event) noexcept override {
    if (event.kind == cgtree::CallEvent::kRecord) add(*event.node);
    if (event.kind == cgtree::CallEvent::kReplay) count(*event.node);
  }

 private:
  void add(const cgtree::Node& node) noexcept try {
    table_->insert({number(node), {std::string(function_name(node)), key_in_words(node)}});
  } catch (const std::bad_alloc&) {  // the table gets no line for it
  }
  void count(const cgtree::Node& node) noexcept {
    const auto found = table_->find(number(node));
    if (found == table_->end()) return;
    ++found->second.replays;
    found->second.bytes += copied_bytes(node);
  }

  const std::shared_ptr<CopyTable> table_;
};

// A context that has it in its list fills the table. Read the table between calls.
cgtree::ExtensionFactory count_copies(std::shared_ptr<CopyTable> table) {
  return
      [table = std::move(table)](cgtree::Engine&) { return std::make_unique<CopyCounter>(table); };
}

void print(const CopyTable& table) {
  std::printf("%-10s %-16s %8s %8s\n", "function", "key", "replays", "bytes");
  for (const auto& [number, copies] : table) {
    std::printf("%-10s %-16s %8" PRIu64 " %8" PRIu64 "\n", copies.function.c_str(),
                copies.key.c_str(), copies.replays, copies.bytes);
  }
}

void run(cgtree::Device device) {
  const auto table = std::make_shared<CopyTable>();
  cgtree::Context context(device, {.name = "copies", .extensions = {count_copies(table)}});
  const auto step = [](cgtree::Tensor x) {
    cgtree::Tensor y = cgtree::empty(x.shape(), x.dtype(), x.device());
    copy(y, x);
    return y;
  };
  const auto moving = compile(context, "moving", step);
  const auto fixed = compile(context, "fixed", step, {.inputs = {{.is_static = true}}});
  for (const std::int64_t size : {256, 1024}) {
    const std::vector<float> values(static_cast<std::size_t>(size), 1.0F);
    const cgtree::Tensor x = cgtree::from_host<float>({size}, values, device);
    for (int call = 0; call < 10; ++call) {
      context.mark_step();
      (void)moving(x);
      if (size == 1024) (void)fixed(x);
    }
  }
  print(*table);
}

}  // namespace

// usage: extension [auto|host|cuda|cuda:N]
int main(int argc, char** argv) {
  try {
    run(cgtree::parse_device(argc > 1 ? argv[1] : "auto"));
    return 0;
  } catch (const cgtree::Error& error) {
    std::fprintf(stderr, "extension: %s\n", error.what());
    return 2;
  }
}
