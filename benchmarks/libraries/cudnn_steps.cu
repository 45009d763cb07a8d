// cuDNN: a convolution and a softmax. Without its headers there are no steps.
#include "base/error.h"
#include "benchmarks/libraries/library_steps.h"

#if __has_include(<cudnn.h>)
#include <cudnn.h>

#include <memory>
#include <string>

#include "benchmarks/libraries/shared_library.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"

namespace cgtree::benchmarks {
namespace {

// {batch, channels, side, side} with 3 x 3 filters, which keep the size; fits the input.
constexpr int kBatch = 4, kChannels = 64, kSide = 32;

void expect_success(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw DeviceError(status, std::string("cuDNN cannot ") + what);
}

struct Cudnn {
  Cudnn() {
    expect_success(create(&handle), "create");
    expect_success(make_tensor(&tensor), "describe a tensor");
    expect_success(
        set_tensor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, kBatch, kChannels, kSide, kSide),
        "describe a tensor");
    expect_success(make_filter(&filter), "describe a filter");
    expect_success(
        set_filter(filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, kChannels, kChannels, 3, 3),
        "describe a filter");
    expect_success(make_convolution(&convolution), "describe a convolution");
    expect_success(
        set_convolution(convolution, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
        "describe a convolution");
  }

  SharedLibrary library{"libcudnn.so.9"};
  decltype(&cudnnCreate) create = library.find("cudnnCreate");
  decltype(&cudnnSetStream) set_stream = library.find("cudnnSetStream");
  decltype(&cudnnCreateTensorDescriptor) make_tensor = library.find("cudnnCreateTensorDescriptor");
  decltype(&cudnnSetTensor4dDescriptor) set_tensor = library.find("cudnnSetTensor4dDescriptor");
  decltype(&cudnnCreateFilterDescriptor) make_filter = library.find("cudnnCreateFilterDescriptor");
  decltype(&cudnnSetFilter4dDescriptor) set_filter = library.find("cudnnSetFilter4dDescriptor");
  decltype(&cudnnCreateConvolutionDescriptor) make_convolution =
      library.find("cudnnCreateConvolutionDescriptor");
  decltype(&cudnnSetConvolution2dDescriptor) set_convolution =
      library.find("cudnnSetConvolution2dDescriptor");
  decltype(&cudnnGetConvolutionForwardWorkspaceSize) workspace_bytes =
      library.find("cudnnGetConvolutionForwardWorkspaceSize");
  decltype(&cudnnConvolutionForward) convolve = library.find("cudnnConvolutionForward");
  decltype(&cudnnSoftmaxForward) softmax = library.find("cudnnSoftmaxForward");
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t tensor = nullptr;
  cudnnFilterDescriptor_t filter = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
};

constexpr float kOne = 1;
constexpr float kZero = 0;

Tensor make_output(const Cudnn& cudnn) {
  expect_success(
      cudnn.set_stream(cudnn.handle, static_cast<cudaStream_t>(current_stream().native())),
      "set a stream");
  return empty({kBatch, kChannels, kSide, kSide}, DType::kFloat32);
}

Tensor convolve(const Cudnn& cudnn, const Tensor& x, cudnnConvolutionFwdAlgo_t algorithm) {
  Tensor y = make_output(cudnn);
  std::size_t bytes = 0;
  expect_success(cudnn.workspace_bytes(cudnn.handle, cudnn.tensor, cudnn.filter, cudnn.convolution,
                                       cudnn.tensor, algorithm, &bytes),
                 "size a workspace");
  const Workspace workspace(x.device(), bytes);
  expect_success(cudnn.convolve(cudnn.handle, &kOne, cudnn.tensor, x.data(), cudnn.filter, x.data(),
                                cudnn.convolution, algorithm, workspace.data(), bytes, &kZero,
                                cudnn.tensor, y.data()),
                 "convolve");
  return y;
}

Tensor softmax(const Cudnn& cudnn, const Tensor& x) {
  Tensor y = make_output(cudnn);
  expect_success(cudnn.softmax(cudnn.handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL,
                               &kOne, cudnn.tensor, x.data(), &kZero, cudnn.tensor, y.data()),
                 "compute a softmax");
  return y;
}

}  // namespace

std::vector<LibraryStep> cudnn_steps() {
  const auto cudnn = std::make_shared<const Cudnn>();
  const std::string own = "a word of its parameters that cuDNN has left unset, by its look";
  const auto convolution = [&](const char* name, cudnnConvolutionFwdAlgo_t algorithm) {
    return LibraryStep{"cuDNN", name,
                       [=](const Tensor& x) { return convolve(*cudnn, x, algorithm); }, own};
  };
  return {
      convolution("convolution by implicit gemm", CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM),
      convolution("convolution by Winograd", CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED),
      {"cuDNN", "softmax", [=](const Tensor& x) { return softmax(*cudnn, x); }, own}};
}

}  // namespace cgtree::benchmarks
#else
namespace cgtree::benchmarks {

std::vector<LibraryStep> cudnn_steps() {
  throw InvalidArgument("built without cuDNN's headers");
}

}  // namespace cgtree::benchmarks
#endif
