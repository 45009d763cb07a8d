// The README's example; readme_test.py compares the text between the marks with the README.
// clang-format off
// README begins
#include "cgtree/cgtree.h"
// README ends
// clang-format on

#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

#include "interop/device/device_api.h"

namespace {

// Stands for any work on the stream: copies tokens to the logits and to the cache.
void launch_decode(const cgtree::Tensor& tokens, const cgtree::Tensor& kv_cache,
                   const cgtree::Tensor& logits, cgtree::StreamRef stream) {
  for (const cgtree::Tensor& destination : {kv_cache, logits}) {
    cgtree::check(
        stream.api().copy(stream.handle(), destination.data(), tokens.data(), tokens.bytes()),
        "copy tokens");
  }
}

TEST(ReadmeExampleTest, RunsAndReplays) {
  const cgtree::Device device = cgtree::Device::best();
  const cgtree::Tensor kv_cache = cgtree::empty({4}, cgtree::DType::kFloat32, device);
  std::vector<cgtree::Tensor> batches;
  for (int i = 0; i < 5; ++i) {
    const std::vector<float> values(4, static_cast<float>(i));
    batches.push_back(cgtree::from_host<float>({4}, values, device));
  }
  // README begins
  cgtree::Context context(cgtree::Device::best());  // a GPU, else the embedded host device
  cgtree::CompiledFunction decode = cgtree::compile(
      context, "decode",
      [](cgtree::Tensor tokens, cgtree::Tensor kv_cache) {
        cgtree::Tensor logits = cgtree::empty(tokens.shape(), cgtree::DType::kFloat32);
        launch_decode(tokens, kv_cache, logits, cgtree::current_stream());
        return logits;
      },
      {.inputs = {{}, {.is_static = true, .is_mutated = true}}});

  for (const cgtree::Tensor& tokens : batches) {
    context.mark_step();  // outputs of the last step may now be overwritten
    cgtree::Tensor logits = decode(tokens, kv_cache);
    // README ends
    EXPECT_EQ(logits.to_vector<float>(), tokens.to_vector<float>());
    EXPECT_EQ(kv_cache.to_vector<float>(), tokens.to_vector<float>());
    // README begins
  }
  std::puts(to_string(decode.stats()).c_str());  // calls, recordings, replays, skips by reason
  // README ends
  EXPECT_EQ(decode.stats().replays, 3u);
}

}  // namespace
