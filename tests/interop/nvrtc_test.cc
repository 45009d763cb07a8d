// Compiling CUDA C++ at run time, and the cache of compiled code. Needs no GPU.
#include "targets/cuda/nvrtc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "targets/cuda/code_cache.h"
#include "targets/cuda/cuda_module.h"

namespace cgtree::cuda {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class NvrtcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!nvrtc_problem().empty()) GTEST_SKIP() << nvrtc_problem();
    request_.source =
        "template <typename T> __global__ void set(T* x, T value) { *x = value; }\n"
        "extern \"C\" __global__ void zero(float* x) { *x = 0; }\n";
    request_.names = {"set<float>", "zero"};
    request_.architecture = "sm_90";
    folder_ = fs::path(::testing::TempDir()) /
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
  }
  CompileRequest cached() const {
    CompileRequest request = request_;
    request.cache_folder = folder_.string();
    return request;
  }
  std::string refusal(const CompileRequest& request) const {
    try {
      (void)compile(request);
    } catch (const InvalidArgument& error) {
      return std::string(error.message());
    }
    return "nothing was thrown";
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder_))
      files.push_back(entry.path());
    return files;
  }

  CompileRequest request_;
  fs::path folder_;
};

TEST_F(NvrtcTest, MakesACubinForAGpuAndFindsTheKernelsNames) {
  const CompiledCode code = compile(request_);
  EXPECT_THAT(code.image, StartsWith("\x7f"
                                     "ELF"));
  ASSERT_EQ(code.lowered_names.size(), 2u);
  EXPECT_THAT(code.lowered_names[0], HasSubstr("3setIf"));
  EXPECT_EQ(code.lowered_names[1], "zero");
  EXPECT_FALSE(code.is_cached);
}

TEST_F(NvrtcTest, MakesPtxForItAndLaterOnes) {
  request_.architecture = "compute_75";
  const CompiledCode code = compile(request_);
  EXPECT_THAT(code.image, HasSubstr(".target sm_75"));
  EXPECT_EQ(code.image.back(), '\0');  // the driver requires it
}

TEST_F(NvrtcTest, AnErrorShowsTheLogTheKernelsAndTheArchitecture) {
  request_.source = "extern \"C\" __global__ void zero(float* x) { *x = nothing; }";
  request_.names = {"zero"};
  const std::string message = refusal(request_);
  EXPECT_THAT(message, HasSubstr("kernels 'zero' do not compile for sm_90"));
  EXPECT_THAT(message, HasSubstr("kernels.cu(1): error: identifier \"nothing\" is undefined"));
}

TEST_F(NvrtcTest, AKernelThatTheSourceDoesNotHaveIsAnError) {
  request_.names = {"turn"};
  EXPECT_THAT(refusal(request_), HasSubstr("turn"));
}

TEST_F(NvrtcTest, AnUnknownArchitectureIsAnError) {
  request_.architecture = "sm_11";
  EXPECT_THAT(refusal(request_), HasSubstr("sm_11"));
}

TEST_F(NvrtcTest, CompiledCodeIsFoundAgain) {
  const CompiledCode first = compile(cached());
  const CompiledCode second = compile(cached());
  EXPECT_FALSE(first.is_cached);
  EXPECT_TRUE(second.is_cached);
  EXPECT_EQ(second.image, first.image);
  EXPECT_EQ(second.lowered_names, first.lowered_names);
  EXPECT_EQ(second.log, first.log);
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(NvrtcTest, TheKeyHasAllInputsOfTheCompilation) {
  (void)compile(cached());
  CompileRequest other = cached();
  other.architecture = "sm_80";
  EXPECT_FALSE(compile(other).is_cached);
  other = cached();
  other.source += "\n";
  EXPECT_FALSE(compile(other).is_cached);
  other = cached();
  other.names.pop_back();
  EXPECT_FALSE(compile(other).is_cached);
  other = cached();
  other.options = {"--use_fast_math"};
  EXPECT_FALSE(compile(other).is_cached);
  EXPECT_TRUE(compile(other).is_cached);
  other.options = {"-I."};  // included files are not in the key
  EXPECT_FALSE(compile(other).is_cached);
  EXPECT_FALSE(compile(other).is_cached);
}

TEST_F(NvrtcTest, ADamagedFileIsCompiledAgain) {
  const std::string image = compile(cached()).image;
  const fs::path file = files().front();
  const auto size = fs::file_size(file);
  for (const std::uintmax_t at : {std::uintmax_t{0}, size / 4, size / 2, size - 1}) {
    std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekg(static_cast<std::streamoff>(at));
    const char before = static_cast<char>(stream.peek());
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(static_cast<char>(before ^ 1));
    stream.close();
    const CompiledCode code = compile(cached());
    EXPECT_FALSE(code.is_cached) << at;
    EXPECT_EQ(code.image, image);
  }
  fs::resize_file(file, size / 2);
  EXPECT_FALSE(compile(cached()).is_cached);
  EXPECT_TRUE(compile(cached()).is_cached);
}

TEST_F(NvrtcTest, AFolderThatCannotBeMadeIsNoError) {
  CompileRequest request = cached();
  request.cache_folder = "/dev/null/cgtree";
  EXPECT_FALSE(compile(request).is_cached);
  EXPECT_FALSE(compile(request).is_cached);
}

TEST(CudaModuleTest, TheTargetDecidesTheArchitectureAndTheOptions) {
  KernelSet kernels{.cuda_source = "x"};
  kernels.add("a").add("b");
  const CompileRequest request =
      request_of(kernels, Target(R"({"kind": "cuda", "arch": "sm_80", "fast_math": true,
                          "nvrtc_options": ["-G"]})"));
  EXPECT_EQ(request.architecture, "sm_80");
  EXPECT_EQ(request.options, (std::vector<std::string>{"--use_fast_math", "-G"}));
  EXPECT_EQ(request.names, (std::vector<std::string>{"a", "b"}));
}

TEST(CudaModuleTest, TheCacheIsWhereTheEnvironmentSays) {
  setenv("CGTREE_CACHE_DIR", "/a", 1);
  EXPECT_EQ(default_cache_folder(), "/a");
  setenv("CGTREE_CACHE_DIR", "", 1);
  EXPECT_EQ(default_cache_folder(), "");
  unsetenv("CGTREE_CACHE_DIR");
  setenv("XDG_CACHE_HOME", "/b", 1);
  EXPECT_EQ(default_cache_folder(), "/b/cgtree");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", "/c", 1);
  EXPECT_EQ(default_cache_folder(), "/c/.cache/cgtree");
  unsetenv("HOME");
  EXPECT_EQ(default_cache_folder(), "");
}

}  // namespace
}  // namespace cgtree::cuda
