// Two convolutional networks of cuDNN, one after the other, as a server runs detection and
// recognition: without graphs, with a hand-written map of graphs, and between cgs_begin() and
// cgs_end().
//
// usage: pipeline [--requests=N] [--json=FILE]
//
// Requests have random batches and sizes, and buffers that move. All three modes get the same
// requests, and must give the same bytes. The workspace of the convolutions grows when a larger
// request comes, and then has another address.
#include <cgtree_steps.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace {

void must(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "pipeline: %s: %s\n", call, cudaGetErrorString(status));
  std::exit(1);
}

void must(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::fprintf(stderr, "pipeline: %s: %s\n", call, cudnnGetErrorString(status));
  std::exit(1);
}

// Device memory that grows, and has another address after it has grown.
struct Buffer {
  ~Buffer() { (void)cudaFree(data); }

  float* reserve(std::size_t wanted) {
    if (wanted > bytes) {
      must(cudaFree(data), "cudaFree()");
      must(cudaMalloc(&data, wanted), "cudaMalloc()");
      bytes = wanted;
    }
    return static_cast<float*>(data);
  }

  void* data = nullptr;
  std::size_t bytes = 0;
};

struct Size {
  int batch, side;  // images of side x side

  bool operator<(const Size& other) const {
    return std::tie(batch, side) < std::tie(other.batch, other.side);
  }
};

// y = relu(conv3x3(x) + bias), of channels to channels.
class Layer {
 public:
  Layer(int in, int out, std::mt19937& random) : in_(in), out_(out) {
    std::normal_distribution<float> normal(0, 1.0F / static_cast<float>(std::sqrt(9.0 * in)));
    std::vector<float> weights(static_cast<std::size_t>(out) * in * 9);
    for (float& weight : weights)
      weight = normal(random);
    must(cudaMalloc(&weights_, weights.size() * sizeof(float)), "cudaMalloc()");
    must(cudaMemcpy(weights_, weights.data(), weights.size() * sizeof(float), cudaMemcpyDefault),
         "cudaMemcpy()");
    must(cudaMalloc(&bias_, out * sizeof(float)), "cudaMalloc()");
    must(cudaMemset(bias_, 0, out * sizeof(float)), "cudaMemset()");
    must(cudnnCreateFilterDescriptor(&filter_), "filter");
    must(cudnnSetFilter4dDescriptor(filter_, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, out, in, 3, 3),
         "filter");
    must(cudnnCreateConvolutionDescriptor(&convolution_), "convolution");
    must(cudnnSetConvolution2dDescriptor(convolution_, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                         CUDNN_DATA_FLOAT),
         "convolution");
    must(cudnnCreateActivationDescriptor(&relu_), "activation");
    must(cudnnSetActivationDescriptor(relu_, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0),
         "activation");
    must(cudnnCreateTensorDescriptor(&bias_shape_), "tensor");
    must(cudnnSetTensor4dDescriptor(bias_shape_, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, out, 1, 1),
         "tensor");
  }
  ~Layer() {
    (void)cudaFree(weights_);
    (void)cudaFree(bias_);
    (void)cudnnDestroyFilterDescriptor(filter_);
    (void)cudnnDestroyConvolutionDescriptor(convolution_);
    (void)cudnnDestroyActivationDescriptor(relu_);
    (void)cudnnDestroyTensorDescriptor(bias_shape_);
  }
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  std::size_t workspace(cudnnHandle_t cudnn, Size size) const {
    const Shape x(size, in_), y(size, out_);
    std::size_t bytes = 0;
    must(cudnnGetConvolutionForwardWorkspaceSize(cudnn, x.tensor, filter_, convolution_, y.tensor,
                                                 kAlgorithm, &bytes),
         "workspace");
    return bytes;
  }

  void enqueue(cudnnHandle_t cudnn, Size size, const float* from, float* to, void* workspace,
               std::size_t bytes) const {
    const Shape x(size, in_), y(size, out_);
    const float one = 1, zero = 0;
    must(cudnnConvolutionBiasActivationForward(
             cudnn, &one, x.tensor, from, filter_, weights_, convolution_, kAlgorithm, workspace,
             bytes, &zero, y.tensor, to, bias_shape_, bias_, relu_, y.tensor, to),
         "convolution");
  }

 private:
  // Adds in the same order each time.
  static constexpr cudnnConvolutionFwdAlgo_t kAlgorithm =
      CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;

  struct Shape {
    Shape(Size size, int channels) {
      must(cudnnCreateTensorDescriptor(&tensor), "tensor");
      must(cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, size.batch,
                                      channels, size.side, size.side),
           "tensor");
    }
    ~Shape() { (void)cudnnDestroyTensorDescriptor(tensor); }

    cudnnTensorDescriptor_t tensor;
  };

  int in_, out_;
  float *weights_ = nullptr, *bias_ = nullptr;
  cudnnFilterDescriptor_t filter_;
  cudnnConvolutionDescriptor_t convolution_;
  cudnnActivationDescriptor_t relu_;
  cudnnTensorDescriptor_t bias_shape_;
};

// Two networks with eight layers each: images of three channels to `kOut` channels of the same
// size.
class Pipeline {
 public:
  static constexpr int kWidth = 16, kOut = 4;

  explicit Pipeline(unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 16; ++i)
      layers_.push_back(new Layer(i == 0 ? 3 : kWidth, i == 15 ? kOut : kWidth, random));
    must(cudnnCreate(&cudnn_), "cudnnCreate()");
  }
  ~Pipeline() {
    for (Layer* layer : layers_)
      delete layer;
    (void)cudnnDestroy(cudnn_);
  }

  static std::size_t bytes(Size size, int channels) {
    return sizeof(float) * size.batch * channels * size.side * size.side;
  }

  // Grows the memory that all requests share. Returns whether its address changed.
  bool reserve(Size size) {
    const auto [known, is_new] = workspaces_.try_emplace(size, 0);
    std::size_t& most = known->second;
    if (is_new) {
      for (const Layer* layer : layers_)
        most = std::max(most, layer->workspace(cudnn_, size));
    }
    const void* const before[] = {workspace_.data, maps_[0].data, maps_[1].data};
    workspace_.reserve(most);
    for (Buffer& map : maps_)
      map.reserve(bytes(size, kWidth));
    return before[0] != workspace_.data || before[1] != maps_[0].data || before[2] != maps_[1].data;
  }

  void enqueue(Size size, const float* from, float* to, cudaStream_t stream) {
    must(cudnnSetStream(cudnn_, stream), "cudnnSetStream()");
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      float* const next = i + 1 == layers_.size() ? to : static_cast<float*>(maps_[i % 2].data);
      layers_[i]->enqueue(cudnn_, size, from, next, workspace_.data, workspace_.bytes);
      from = next;
    }
  }

  cgs_range shared(int i) const {
    const Buffer& buffer = i == 0 ? workspace_ : maps_[i - 1];
    return {buffer.data, buffer.bytes};
  }

 private:
  cudnnHandle_t cudnn_;
  std::vector<Layer*> layers_;
  std::map<Size, std::size_t> workspaces_;  // bytes; cuDNN takes long to answer
  Buffer workspace_, maps_[2];
};

struct Request {
  Size size;
  std::vector<float> image;
};

// How a request is run.
class Mode {
 public:
  virtual ~Mode() = default;
  virtual void run(Pipeline& pipeline, Size size, const float* from, float* to,
                   cudaStream_t stream) = 0;
  // Called before the stream is destroyed.
  virtual void end_stream(cudaStream_t) {}
  virtual std::string says() const { return "{}"; }
};

class Eagerly final : public Mode {
 public:
  void run(Pipeline& pipeline, Size size, const float* from, float* to,
           cudaStream_t stream) override {
    pipeline.reserve(size);
    pipeline.enqueue(size, from, to, stream);
  }
};

// As in servers: a graph for each size, staging buffers at fixed addresses, and all graphs dropped
// when shared memory moves.
class ByHand final : public Mode {
 public:
  ~ByHand() override { clear(); }

  void run(Pipeline& pipeline, Size size, const float* from, float* to,
           cudaStream_t stream) override {
    const std::size_t in = Pipeline::bytes(size, 3), out = Pipeline::bytes(size, Pipeline::kOut);
    const void* const before[] = {from_.data, to_.data};
    from_.reserve(in);
    to_.reserve(out);
    const bool has_moved = pipeline.reserve(size);
    if (has_moved || before[0] != from_.data || before[1] != to_.data) clear();
    must(cudaMemcpyAsync(from_.data, from, in, cudaMemcpyDefault, stream), "cudaMemcpyAsync()");
    cudaGraphExec_t& graph = graphs_[size];
    if (graph == nullptr) {
      pipeline.enqueue(size, static_cast<float*>(from_.data), static_cast<float*>(to_.data),
                       stream);  // loads kernels
      cudaGraph_t captured;
      must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
           "cudaStreamBeginCapture()");
      pipeline.enqueue(size, static_cast<float*>(from_.data), static_cast<float*>(to_.data),
                       stream);
      must(cudaStreamEndCapture(stream, &captured), "cudaStreamEndCapture()");
      must(cudaGraphInstantiate(&graph, captured, 0), "cudaGraphInstantiate()");
      must(cudaGraphDestroy(captured), "cudaGraphDestroy()");
      ++captures_;
    }
    must(cudaGraphLaunch(graph, stream), "cudaGraphLaunch()");
    must(cudaMemcpyAsync(to, to_.data, out, cudaMemcpyDefault, stream), "cudaMemcpyAsync()");
  }
  std::string says() const override { return "{\"captures\": " + std::to_string(captures_) + "}"; }

 private:
  void clear() {
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize()");
    for (auto& [size, graph] : graphs_)
      (void)cudaGraphExecDestroy(graph);
    graphs_.clear();
  }

  std::map<Size, cudaGraphExec_t> graphs_;
  Buffer from_, to_;
  int captures_ = 0;
};

// The shared memory is checked: when it has moved, no earlier graph fits.
class InSteps final : public Mode {
 public:
  InSteps() {
    static const cgs_binding bindings[] = {{"image", CGS_COPIED, 0},
                                           {"scores", CGS_COPIED | CGS_WRITTEN, 0},
                                           {"workspace", CGS_WRITTEN, 0},
                                           {"map 0", CGS_WRITTEN, 0},
                                           {"map 1", CGS_WRITTEN, 0}};
    cgs_options options = {};
    options.struct_size = sizeof options;
    options.key_names = "batch side";
    if (cgs_open(&steps_, "pipeline", 0, bindings, 5, &options) != CGS_DONE) fail(nullptr);
  }
  ~InSteps() override { cgs_close(steps_); }

  void run(Pipeline& pipeline, Size size, const float* from, float* to,
           cudaStream_t stream) override {
    // The old memory is freed here, and may be reused for another purpose.
    const cgs_range before[] = {pipeline.shared(0), pipeline.shared(1), pipeline.shared(2)};
    if (pipeline.reserve(size)) {
      for (const cgs_range& range : before)
        if (range.bytes > 0 && cgs_invalidate(steps_, range.address, range.bytes) != CGS_DONE)
          fail(steps_);
    }
    const std::int64_t key[] = {size.batch, size.side};
    const cgs_range memory[] = {{from, Pipeline::bytes(size, 3)},
                                {to, Pipeline::bytes(size, Pipeline::kOut)},
                                pipeline.shared(0),
                                pipeline.shared(1),
                                pipeline.shared(2)};
    int run = cgs_begin(steps_, key, sizeof key, memory, 5, stream);
    for (; run == CGS_RUN; run = cgs_end(steps_))
      pipeline.enqueue(size, static_cast<float*>(cgs_address(steps_, 0)),
                       static_cast<float*>(cgs_address(steps_, 1)), stream);
    if (run != CGS_DONE) fail(steps_);
  }
  void end_stream(cudaStream_t stream) override {
    if (cgs_retire_stream(0, stream) != CGS_DONE) fail(nullptr);
  }
  std::string says() const override {
    cgs_stats stats = {};
    stats.struct_size = sizeof stats;
    cgs_get_stats(steps_, &stats);
    char text[256];
    std::snprintf(text, sizeof text,
                  "{\"replays\": %llu, \"recordings\": %llu, \"warm_ups\": %llu, \"eager\": %llu, "
                  "\"kept\": %llu}",
                  static_cast<unsigned long long>(stats.replays),
                  static_cast<unsigned long long>(stats.recordings),
                  static_cast<unsigned long long>(stats.warm_ups),
                  static_cast<unsigned long long>(stats.eager),
                  static_cast<unsigned long long>(stats.kept));
    return text;
  }

 private:
  [[noreturn]] static void fail(cgs_steps* steps) {
    std::fprintf(stderr, "pipeline: %s\n", cgs_why(steps));
    std::exit(1);
  }

  cgs_steps* steps_ = nullptr;
};

struct Result {
  std::vector<std::vector<float>> scores;
  std::vector<double> host_us, all_us;  // for each request: until it is enqueued, until it is done
};

Result serve(Mode& mode, const std::vector<Request>& requests) {
  using Clock = std::chrono::steady_clock;
  const auto us = [](Clock::duration time) {
    return std::chrono::duration<double, std::micro>(time).count();
  };
  cudaStream_t stream;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate()");
  Result result;
  {
    Pipeline pipeline(1);
    float *from[2], *to[2];  // for alternate requests
    std::size_t most = 0;
    for (const Request& request : requests)
      most = std::max(most, Pipeline::bytes(request.size, Pipeline::kWidth));
    for (int i = 0; i < 2; ++i) {
      must(cudaMalloc(&from[i], most), "cudaMalloc()");
      must(cudaMalloc(&to[i], most), "cudaMalloc()");
    }
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const Request& request = requests[i];
      const std::size_t out = Pipeline::bytes(request.size, Pipeline::kOut);
      must(cudaMemcpy(from[i % 2], request.image.data(), request.image.size() * sizeof(float),
                      cudaMemcpyDefault),
           "cudaMemcpy()");
      must(cudaMemset(to[i % 2], 0xff, out), "cudaMemset()");
      must(cudaDeviceSynchronize(), "cudaDeviceSynchronize()");
      const Clock::time_point begin = Clock::now();
      mode.run(pipeline, request.size, from[i % 2], to[i % 2], stream);
      result.host_us.push_back(us(Clock::now() - begin));
      must(cudaStreamSynchronize(stream), "cudaStreamSynchronize()");
      result.all_us.push_back(us(Clock::now() - begin));
      result.scores.emplace_back(out / sizeof(float));
      must(cudaMemcpy(result.scores.back().data(), to[i % 2], out, cudaMemcpyDefault),
           "cudaMemcpy()");
    }
    for (int i = 0; i < 2; ++i) {
      (void)cudaFree(from[i]);
      (void)cudaFree(to[i]);
    }
  }
  mode.end_stream(stream);
  (void)cudaStreamDestroy(stream);
  return result;
}

double quantile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
}

std::vector<Request> requests_of(int count, unsigned seed) {
  std::mt19937 random(seed);
  const int batches[] = {1, 2, 4, 8}, sides[] = {16, 24, 32};
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    const Size size = {batches[random() % 4], sides[random() % 3]};
    std::vector<float> image(Pipeline::bytes(size, 3) / sizeof(float));
    for (float& value : image)
      value = static_cast<float>(random() % 1000) / 1000;
    requests.push_back({size, std::move(image)});
  }
  return requests;
}

}  // namespace

int main(int argc, char** argv) {
  int count = 1000;
  const char* json = nullptr;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--requests=", 11) == 0) {
      count = std::max(1, std::atoi(argv[i] + 11));
    } else if (std::strncmp(argv[i], "--json=", 7) == 0) {
      json = argv[i] + 7;
    } else {
      std::printf("usage: pipeline [--requests=1000] [--json=FILE]\n");
      return std::strcmp(argv[i], "--help") == 0 ? 0 : 2;
    }
  }
  const unsigned seed = std::random_device()();
  const std::vector<Request> requests = requests_of(count, seed);
  Eagerly eagerly;
  ByHand by_hand;
  InSteps in_steps;
  const std::pair<const char*, Mode*> modes[] = {
      {"eager", &eagerly}, {"by hand", &by_hand}, {"cgtree", &in_steps}};
  Result results[3];
  int differing = 0;
  std::string text = "{\"program\": \"pipeline\", \"cudnn\": " + std::to_string(cudnnGetVersion()) +
                     ", \"requests\": " + std::to_string(count) +
                     ", \"seed\": " + std::to_string(seed) + ", \"modes\": {";
  for (int i = 0; i < 3; ++i) {
    results[i] = serve(*modes[i].second, requests);
    int wrong = 0;
    for (int request = 0; request < count; ++request)
      wrong += std::memcmp(results[i].scores[request].data(), results[0].scores[request].data(),
                           results[0].scores[request].size() * sizeof(float)) != 0;
    differing += wrong;
    char line[512];
    std::snprintf(line, sizeof line,
                  "%s\"%s\": {\"host_us\": %.2f, \"host_us_p99\": %.2f, \"request_us\": %.2f, "
                  "\"differing\": %d, \"graphs\": %s}",
                  i == 0 ? "" : ", ", modes[i].first, quantile(results[i].host_us, 0.5),
                  quantile(results[i].host_us, 0.99), quantile(results[i].all_us, 0.5), wrong,
                  modes[i].second->says().c_str());
    text += line;
  }
  text += "}}\n";
  std::fputs(text.c_str(), stdout);
  if (json != nullptr) {
    std::FILE* const file = std::fopen(json, "w");
    if (file == nullptr || std::fputs(text.c_str(), file) < 0 || std::fclose(file) != 0) {
      std::perror(json);
      return 1;
    }
  }
  return differing == 0 ? 0 : 1;
}
