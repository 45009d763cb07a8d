// Recordings of ggml's graphs: equality of graphs, and the destinations of their copies.
#include "integrations/common/cgtree_ggml.cu"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "interop/device/kernel.h"
#include "interop/device/stream.h"

namespace {

void store_on_host(const cgtree::LaunchDims&, const float* from, char* const* to) {
  *reinterpret_cast<float*>(*to) = *from;
}
constexpr auto kStore = cgtree::make_kernel<store_on_host>("store");

// A graph of two nodes: one that copies `from` to a cell of a cache, and one that reads the cache.
class CgtreeGgmlTest : public ::testing::Test {
 protected:
  CgtreeGgmlTest() : stream_(cgtree::Device::host(), cgtree::StreamKind::kNonBlocking) {
    source_.data = &from_;
    copy_.op = GGML_OP_CPY;
    copy_.src[0] = &source_;
    copy_.src[1] = &cell_;
    cache_.data = cells_.data();
    add_.op = GGML_OP_ADD;
    add_.src[0] = &cache_;
    add_.data = &sum_;
    write_to(0);
  }

  void write_to(std::size_t cell) { copy_.data = cell_.data = &cells_[cell]; }

  // Copies `value` to the cell as ik_llama.cpp does. Returns the number of launches of the nodes.
  int copy_by_given_table(float value) {
    from_ = value;
    std::vector<char*> destinations;
    if (has_copy_) destinations.push_back(static_cast<char*>(cell_.data));
    int runs = 0;
    EXPECT_TRUE(
        cgtree_ggml::compute(recordings_, stream(), graph(), destinations, [&](char** table) {
          ++runs;
          EXPECT_EQ(table != nullptr, has_copy_);
          if (table != nullptr) launch(stream_.ref(), kStore, {}, &from_, table);
        }));
    stream_.ref().synchronize();
    return runs;
  }

  // Copies `value` to the cell as ggml does.
  int copy_by_own_table(float value) {
    from_ = value;
    int runs = 0;
    EXPECT_TRUE(cgtree_ggml::compute(recordings_, stream(), graph(), [&] {
      ++runs;
      if (char* const* const entry = cgtree_ggml::entry_for(recordings_.get(), source_, cell_))
        launch(stream_.ref(), kStore, {}, &from_, entry);
    }));
    stream_.ref().synchronize();
    return runs;
  }

  const ggml_cgraph& graph() {
    nodes_.clear();
    if (has_copy_) nodes_.push_back(&copy_);
    nodes_.push_back(&add_);
    graph_.nodes = nodes_.data();
    graph_.n_nodes = static_cast<int>(nodes_.size());
    return graph_;
  }

  cudaStream_t stream() const { return reinterpret_cast<cudaStream_t>(stream_.ref().handle()); }

  cgtree::Stream stream_;
  std::vector<float> cells_ = std::vector<float>(8, -1);
  float from_ = 0, sum_ = 0;
  ggml_tensor source_, cell_, copy_, cache_, add_;
  bool has_copy_ = true;
  std::vector<ggml_tensor*> nodes_;
  ggml_cgraph graph_;
  std::shared_ptr<cgtree_ggml::Recordings> recordings_;
};

TEST_F(CgtreeGgmlTest, AReplayWritesWhereItsOwnCallSays) {
  for (std::size_t cell = 0; cell < cells_.size(); ++cell) {
    write_to(cell);
    EXPECT_EQ(copy_by_given_table(static_cast<float>(cell)), cell < 2 ? 1 : 0) << cell;
    for (std::size_t i = 0; i < cells_.size(); ++i)
      EXPECT_EQ(cells_[i], i <= cell ? static_cast<float>(i) : -1) << cell;
  }
}

TEST_F(CgtreeGgmlTest, CopiesToHalfPrecisionAreFoundInTheGraph) {
  cell_.type = copy_.type = GGML_TYPE_F16;
  for (std::size_t cell = 0; cell < cells_.size(); ++cell) {
    write_to(cell);
    EXPECT_EQ(copy_by_own_table(static_cast<float>(cell)), cell < 2 ? 1 : 0) << cell;
    EXPECT_EQ(cells_[cell], static_cast<float>(cell));
  }
  EXPECT_EQ(cgtree_ggml::entry_for(recordings_.get(), source_, cell_), nullptr)
      << "no graph is evaluated";
}

TEST_F(CgtreeGgmlTest, EachCopyHasTheEntryOfItsAddress) {
  ggml_tensor second_cell = cell_, second = copy_, third_cell = cell_;
  for (ggml_tensor* const half : {&cell_, &copy_, &second_cell, &second, &third_cell})
    half->type = GGML_TYPE_F16;
  second.data = second_cell.data = &cells_[1];
  second.src[1] = &second_cell;
  third_cell.data = &cells_[2];
  std::vector<ggml_tensor*> nodes = {&copy_, &second, &copy_};  // replays tell them apart
  graph_.nodes = nodes.data();
  graph_.n_nodes = 3;
  EXPECT_TRUE(cgtree_ggml::compute(recordings_, stream(), graph_, [&] {
    const auto entry = [&](const ggml_tensor& to) {
      return cgtree_ggml::entry_for(recordings_.get(), source_, to);
    };
    char* const* const first = entry(cell_);
    EXPECT_EQ(entry(second_cell), first + 1);
    EXPECT_EQ(entry(third_cell), nullptr) << "no node of the graph";
    EXPECT_EQ(entry(cell_), first + 2);
    EXPECT_EQ(entry(second_cell), first + 1);
  }));
}

TEST_F(CgtreeGgmlTest, OtherCopiesArePartOfTheGraph) {
  for (const bool is_contiguous : {true, false}) {  // floats, and strided halves
    cell_.type = copy_.type = is_contiguous ? GGML_TYPE_F32 : GGML_TYPE_F16;
    cell_.is_contiguous = is_contiguous;
    for (std::size_t cell = 0; cell < 4; ++cell) {
      write_to(cell);
      EXPECT_EQ(copy_by_own_table(1), 1) << cell;
      EXPECT_EQ(cells_[cell], -1) << "the table has it";
    }
  }
}

TEST_F(CgtreeGgmlTest, AGraphThatReadsElsewhereIsAnother) {
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(copy_by_given_table(1), call < 2 ? 1 : 0);
  cache_.data = &cells_[1];
  EXPECT_EQ(copy_by_given_table(1), 1);
  cache_.data = cells_.data();
  EXPECT_EQ(copy_by_given_table(1), 0);
}

TEST_F(CgtreeGgmlTest, ShapesTypesParametersAndFlagsMakeAnotherGraph) {
  const ggml_tensor add = add_, cache = cache_;
  const auto restore = [&] {
    add_ = add;
    cache_ = cache;
  };
  for (int call = 0; call < 3; ++call)
    copy_by_given_table(1);
  const std::vector<std::function<void()>> changes = {
      [&] { cache_.ne[3] = 2; },
      [&] { cache_.nb[1] = 8; },
      [&] { cache_.type = GGML_TYPE_F16; },
      [&] { add_.op_params[15] = 1; },
      [&] { add_.flags = 1; },
      [&] { add_.data = &from_; },
      [&] { add_.src[1] = &source_; },
      [&] { has_copy_ = false; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    restore();
    changes[i]();
    EXPECT_EQ(copy_by_given_table(1), 1) << "change " << i;
  }
  restore();
  has_copy_ = true;
  EXPECT_EQ(copy_by_given_table(1), 0);
}

// Overlapping kernels in a graph would give different results from run to run.
TEST(KernelsTest, WaitForOneAnother) {
  EXPECT_STREQ(std::getenv("GGML_CUDA_PDL"), "0");
}

TEST_F(CgtreeGgmlTest, AFreedPoolDropsAllRecordings) {
  for (int call = 0; call < 3; ++call)
    copy_by_given_table(1);
  cgtree_ggml::pool_was_freed();
  EXPECT_EQ(copy_by_given_table(1), 1);
}

// As with a target and a draft, or prompts and tokens: each graph is recorded once, and none is
// evicted.
TEST_F(CgtreeGgmlTest, GraphsThatTakeTurnsAreRecordedOnceEach) {
  int runs = 0;
  for (int call = 0; call < 60; ++call) {
    add_.ne[1] = 1 + call % 3;
    runs += copy_by_given_table(1);
  }
  EXPECT_EQ(runs, 3 * 2);
}

TEST_F(CgtreeGgmlTest, TablesOfAnotherSizeHaveRecordingsOfTheirOwn) {
  int runs = 0;
  for (int call = 0; call < 12; ++call) {
    has_copy_ = call % 2 == 0;
    runs += copy_by_given_table(1);
  }
  EXPECT_EQ(runs, 2 * 2);
}

// Computes a graph while another one is being computed.
TEST_F(CgtreeGgmlTest, AnErrorIsReturnedAndTheCallAroundItIsRight) {
  int runs = 0;
  const auto compute = [&](const std::function<void()>& evaluate) {
    return cgtree_ggml::compute(recordings_, stream(), graph(), std::vector<char*>(),
                                [&](char**) { evaluate(); });
  };
  EXPECT_TRUE(compute([&] { EXPECT_FALSE(compute([&] { ++runs; })); }));
  EXPECT_EQ(runs, 0);
  EXPECT_TRUE(compute([&] { ++runs; }));
  EXPECT_TRUE(compute([&] { ++runs; }));
  EXPECT_EQ(runs, 1);
}

TEST_F(CgtreeGgmlTest, CallsThatAreNoReplaysAreLinesOfTheFileOfEvents) {
  const std::string file = std::filesystem::path(::testing::TempDir()) / "events";
  setenv("GGML_CUDA_CGTREE_EVENTS", file.c_str(), 1);
  for (int call = 0; call < 5; ++call)
    copy_by_given_table(1);
  cache_.ne[0] = 2;
  copy_by_given_table(1);
  recordings_.reset();
  unsetenv("GGML_CUDA_CGTREE_EVENTS");
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);)
    lines.push_back(line);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].rfind("warm_up: ", 0), 0u) << lines[0];
  EXPECT_EQ(lines[1].rfind("record: ", 0), 0u) << lines[1];
  EXPECT_EQ(lines[2].rfind("warm_up: key [nodes=2 graph=", 0), 0u) << lines[2];
  EXPECT_EQ(lines[3], "dropped: 1 recordings after 6 calls, 3 replays");
}

TEST_F(CgtreeGgmlTest, ANumberedGraphHasItsKeyUntilTheNumberChanges) {
  graph_.uid = 7;
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(copy_by_given_table(1), call < 2 ? 1 : 0);
  cache_.ne[0] = 2;
  for (const std::uint64_t number : {8, 8 + 16, 8 + 32}) {  // the same key is used again
    graph_.uid = number;
    cache_.nb[3] = number;
    EXPECT_EQ(copy_by_given_table(1), 1) << number;
  }
}

}  // namespace
