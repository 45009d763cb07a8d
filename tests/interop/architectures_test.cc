// kernel_code(): the kernels that a GPU runs.
#include "interop/device/cuda/architectures.h"

#include <gtest/gtest.h>

#include <optional>
#include <string_view>

namespace cgtree::cuda {
namespace {

struct Row {
  std::string_view architectures;
  ComputeCapability gpu;
  KernelCode code;
};

TEST(ArchitecturesTest, AGpuRunsMachineCodeOfItsMajorNumberAndEarlierPtx) {
  const Row rows[] = {
      {"90-real", {9, 0}, KernelCode::kMachine},   {"90-real", {10, 0}, KernelCode::kNone},
      {"90-real", {8, 9}, KernelCode::kNone},      {"80-real", {8, 9}, KernelCode::kMachine},
      {"89-real", {8, 6}, KernelCode::kNone},      {"75-virtual", {7, 5}, KernelCode::kPtx},
      {"75-virtual", {12, 0}, KernelCode::kPtx},   {"75-virtual", {7, 0}, KernelCode::kNone},
      {"80", {8, 0}, KernelCode::kMachine},        {"80", {9, 0}, KernelCode::kPtx},
      {"120-real", {12, 1}, KernelCode::kMachine}, {"90a-real", {9, 0}, KernelCode::kMachine},
      {"90a", {10, 0}, KernelCode::kNone},         {"100f", {10, 3}, KernelCode::kMachine},
      {"100f", {12, 0}, KernelCode::kNone},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(kernel_code(row.architectures, row.gpu), row.code)
        << row.architectures << " on " << row.gpu.major << "." << row.gpu.minor;
  }
}

TEST(ArchitecturesTest, TheBestOfAListCounts) {
  constexpr std::string_view kAll = "75-real,80-real,90-real,90-virtual";
  EXPECT_EQ(kernel_code(kAll, {7, 0}), KernelCode::kNone);
  EXPECT_EQ(kernel_code(kAll, {7, 5}), KernelCode::kMachine);
  EXPECT_EQ(kernel_code(kAll, {8, 6}), KernelCode::kMachine);
  EXPECT_EQ(kernel_code(kAll, {12, 0}), KernelCode::kPtx);
  EXPECT_EQ(kernel_code("75-virtual,90-real", {9, 0}), KernelCode::kMachine);
}

// Equals "all" in cmake/kernels.cmake and bazel/cuda/local_cuda.bzl, with CUDA 13.
TEST(ArchitecturesTest, TheDefaultIsForEachGpuFromTuringOn) {
  constexpr std::string_view kDefault =
      "75-virtual,75-real,80-real,86-real,89-real,90-real,100-real,120-real,120-virtual";
  for (const ComputeCapability gpu : {ComputeCapability{7, 5},
                                      {8, 0},
                                      {8, 6},
                                      {8, 7},
                                      {8, 8},
                                      {8, 9},
                                      {9, 0},
                                      {10, 0},
                                      {10, 3},
                                      {12, 0},
                                      {12, 1}}) {
    EXPECT_EQ(kernel_code(kDefault, gpu), KernelCode::kMachine) << to_string(gpu);
  }
  EXPECT_EQ(kernel_code(kDefault, {11, 0}), KernelCode::kPtx);
  EXPECT_EQ(kernel_code(kDefault, {13, 0}), KernelCode::kPtx);
}

TEST(ArchitecturesTest, AGpuThatRunsNoKernelIsNamedWithWhatTheyWereCompiledForAndWhatToDo) {
  constexpr std::string_view kVersions = "the driver has CUDA 12.0, and this program 13.0";
  EXPECT_EQ(why_no_kernels("75-virtual,90-real", ComputeCapability{7, 0}, kVersions),
            "the GPU has compute capability 7.0, and cgtree needs 7.5 or later");
  EXPECT_EQ(why_no_kernels("90-real", ComputeCapability{8, 0}, kVersions),
            "the GPU has compute capability 8.0, and cgtree's kernels were compiled for 90-real: "
            "compile them for it "
            "with CGTREE_CUDA_ARCHS or --//bazel/cuda:archs");
  EXPECT_EQ(why_no_kernels("75-virtual,90-real", ComputeCapability{8, 0}, kVersions),
            "the GPU has compute capability 8.0, and cgtree's kernels were compiled for "
            "75-virtual,90-real; of these "
            "only PTX suits it, for which the driver has CUDA 12.0, and this program 13.0: update "
            "the driver, or "
            "compile them for it with CGTREE_CUDA_ARCHS or --//bazel/cuda:archs");
  EXPECT_TRUE(
      why_no_kernels("90-real", std::nullopt, kVersions)
          .starts_with("the GPU does not tell its compute capability, and cgtree's kernels"));
}

TEST(ArchitecturesTest, OtherTextHasNoCode) {
  for (const std::string_view text : {"", ",", "native", "-real", "90-real,,"}) {
    EXPECT_EQ(kernel_code(text, {8, 0}), KernelCode::kNone) << text;
  }
  EXPECT_EQ(kernel_code(",,80", {8, 0}), KernelCode::kMachine);
}

}  // namespace
}  // namespace cgtree::cuda
