// The builder, the engine and execution contexts of TensorRT, with device memory from cgtree.
#include "integrations/tensorrt/tensorrt_model.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <utility>

#include <NvInfer.h>

#include "integrations/tensorrt/network.h"
#include "interop/device/device_api.h"

namespace cgtree_tensorrt {
namespace {

constexpr const char* kLibrary = "libnvinfer.so.";  // followed by the major version

// Errors and warnings go to standard error, and the last error into exceptions. Thread safety: any
// thread.
class Logger : public nvinfer1::ILogger {
 public:
  void log(Severity severity, const char* message) noexcept override {
    if (severity > Severity::kWARNING) return;
    std::fprintf(stderr, "TensorRT: %s\n", message);
    if (severity == Severity::kWARNING) return;
    try {
      const std::lock_guard lock(mutex_);
      ++errors_;
      last_error_ = message;
    } catch (const std::exception&) {
      // The message was printed.
    }
  }

  std::size_t errors() {
    const std::lock_guard lock(mutex_);
    return errors_;
  }

  [[noreturn]] void fail(const std::string& what) {
    const std::lock_guard lock(mutex_);
    throw TensorRtError(what + (last_error_.empty() ? "" : ": " + last_error_));
  }

 private:
  std::mutex mutex_;
  std::size_t errors_ = 0;
  std::string last_error_;
};

// All device memory that TensorRT allocates, to know the ranges that its work may use. Thread
// safety: any thread.
class Memory : public nvinfer1::IGpuAsyncAllocator {
 public:
  explicit Memory(cgtree::Device device) : device_(device) {}

  void* allocateAsync(std::uint64_t size, std::uint64_t alignment, nvinfer1::AllocatorFlags,
                      cudaStream_t) noexcept override {
    if (size == 0 || alignment > cgtree::kDataSpaceAlignment) return nullptr;
    try {
      void* const data = cgtree::allocate_device_memory(device_, size);
      try {
        const std::lock_guard lock(mutex_);
        live_[data] = size;
      } catch (...) {
        cgtree::free_device_memory(device_, data);
        throw;
      }
      return data;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return nullptr;
    }
  }

  bool deallocateAsync(void* data, cudaStream_t) noexcept override {
    const std::lock_guard lock(mutex_);
    if (live_.erase(data) == 0) return data == nullptr;
    cgtree::free_device_memory(device_, data);
    return true;
  }

  std::map<const void*, std::size_t> live() const {
    const std::lock_guard lock(mutex_);
    return live_;
  }

 private:
  const cgtree::Device device_;
  mutable std::mutex mutex_;
  std::map<const void*, std::size_t> live_;
};

// An object of TensorRT with a public destructor.
template <typename Object>
std::unique_ptr<Object> expect(Object* object, Logger& logger, const char* what) {
  if (object == nullptr) logger.fail(std::string("TensorRT could not make ") + what);
  return std::unique_ptr<Object>(object);
}

// Loads a library on demand, so that the program can name the missing file.
void* load(const std::string& file) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw TensorRtError("cannot load TensorRT: " + std::string(dlerror()) +
                        ". Put the folder of TensorRT " + std::to_string(NV_TENSORRT_MAJOR) +
                        "'s libraries into LD_LIBRARY_PATH, or name the file with --library");
  return library;
}

template <typename Function>
Function* function(void* library, const char* name) {
  void* const found = dlsym(library, name);
  if (found == nullptr)
    throw TensorRtError(
        "the library is not the whole TensorRT, which builds networks, too: it has no function " +
        std::string(name));
  return reinterpret_cast<Function*>(found);
}

std::string version_in_words(int major, int minor, int patch) {
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

void check_version(void* library) {
  const auto get = [&](const char* name) { return function<int()>(library, name)(); };
  const int major = get("getInferLibMajorVersion"), minor = get("getInferLibMinorVersion"),
            patch = get("getInferLibPatchVersion");
  if (major == NV_TENSORRT_MAJOR && minor == NV_TENSORRT_MINOR) return;
  throw TensorRtError(
      "the library is TensorRT " + version_in_words(major, minor, patch) +
      ", and the program was compiled for " +
      version_in_words(NV_TENSORRT_MAJOR, NV_TENSORRT_MINOR, NV_TENSORRT_PATCH) +
      ": compile it with the headers of the library, or name another library with --library");
}

class TensorRtExecution : public Execution {
 public:
  TensorRtExecution(nvinfer1::ICudaEngine& engine, Logger& logger, int profile,
                    const Buffers& buffers, cgtree::StreamRef stream)
      : context_(expect(engine.createExecutionContext(
                            nvinfer1::ExecutionContextAllocationStrategy::kUSER_MANAGED),
                        logger, "an execution context")) {
    // All executions of a worker share one scratch memory: its work is in the order of one stream.
    context_->setDeviceMemoryV2(buffers.scratch, engine.getDeviceMemorySizeForProfileV2(profile));
    if (!context_->setOptimizationProfileAsync(profile,
                                               static_cast<cudaStream_t>(stream.native())) ||
        !context_->setInputTensorAddress(kTokens, buffers.tokens) ||
        !context_->setOutputTensorAddress(kScores, buffers.scores))
      logger.fail("TensorRT refused the profile or an address");
  }

  bool enqueue(Shape shape, cgtree::StreamRef stream) override {
    if (shape != shape_) {
      const nvinfer1::Dims2 dims{shape.batch, shape.length};
      if (!context_->setInputShape(kTokens, dims)) return false;
      shape_ = shape;
    }
    return context_->enqueueV3(static_cast<cudaStream_t>(stream.native()));
  }

 private:
  std::unique_ptr<nvinfer1::IExecutionContext> context_;
  Shape shape_;
};

void check(const NetworkOptions& options) {
  if (options.heads < 1 || options.width % options.heads != 0)
    throw cgtree::InvalidArgument("--width must be a multiple of --heads, and they are " +
                                  std::to_string(options.width) + " and " +
                                  std::to_string(options.heads));
  if (options.max_batch < 2)
    throw cgtree::InvalidArgument(
        "--max_batch must be at least 2, so that there are two profiles, "
        "and is " +
        std::to_string(options.max_batch));
}

}  // namespace

// Destroyed from the last member to the first: TensorRT before its memory.
struct TensorRtModel::TensorRt {
  TensorRt(const NetworkOptions& options, cgtree::Device on, const std::string& file)
      : network(options),
        library(load(file.empty() ? kLibrary + std::to_string(NV_TENSORRT_MAJOR) : file)),
        memory(on) {
    check_version(library);
    make_builder = function<void*(void*, std::int32_t)>(library, "createInferBuilder_INTERNAL");
    make_runtime = function<void*(void*, std::int32_t)>(library, "createInferRuntime_INTERNAL");
  }

  // A TensorRT 11 that cannot use the driver logs an error, and returns a pointer that is neither
  // null nor an object.
  template <typename Object>
  std::unique_ptr<Object> create(void* (*make)(void*, std::int32_t), const char* what) {
    const std::size_t errors = logger.errors();
    void* const made = make(&logger, NV_TENSORRT_VERSION);
    if (logger.errors() != errors) logger.fail(std::string("TensorRT could not make ") + what);
    return expect(static_cast<Object*>(made), logger, what);
  }

  // The largest batch of the first profile.
  int split() const { return std::max(1, network.max_batch / 4); }

  void build() {
    const auto begin = std::chrono::steady_clock::now();
    const auto builder = create<nvinfer1::IBuilder>(make_builder, "a builder");
#if NV_TENSORRT_MAJOR >= 11
    constexpr nvinfer1::NetworkDefinitionCreationFlags kFlags = 0;  // types are always strong
#else
    constexpr nvinfer1::NetworkDefinitionCreationFlags kFlags =
        1U << static_cast<unsigned>(nvinfer1::NetworkDefinitionCreationFlag::kSTRONGLY_TYPED);
#endif
    const auto definition = expect(builder->createNetworkV2(kFlags), logger, "a network");
    Weights weights;
    add_layers(*definition, network, weights);
    const auto config = expect(builder->createBuilderConfig(), logger, "a configuration");
    const int batches[] = {1, split(), split() + 1, network.max_batch};
    for (int i = 0; i < 4; i += 2) {
      nvinfer1::IOptimizationProfile* const profile = builder->createOptimizationProfile();
      using nvinfer1::OptProfileSelector;
      const nvinfer1::Dims2 least{batches[i], 1}, most{batches[i + 1], network.max_length},
          usual{batches[i + 1], std::max(1, network.max_length / 2)};
      if (profile == nullptr || !profile->setDimensions(kTokens, OptProfileSelector::kMIN, least) ||
          !profile->setDimensions(kTokens, OptProfileSelector::kOPT, usual) ||
          !profile->setDimensions(kTokens, OptProfileSelector::kMAX, most) ||
          config->addOptimizationProfile(profile) < 0)
        logger.fail("TensorRT refused an optimization profile");
    }
    const auto plan = expect(builder->buildSerializedNetwork(*definition, *config), logger,
                             "an engine of the network");
    plan_bytes = plan->size();
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

    runtime = create<nvinfer1::IRuntime>(make_runtime, "a runtime");
    runtime->setGpuAllocator(&memory);
    engine = expect(runtime->deserializeCudaEngine(plan->data(), plan->size()), logger,
                    "an engine on the device");
  }

  const NetworkOptions network;
  void* const library;  // stays loaded, because TensorRT has its own threads and state
  void* (*make_builder)(void* logger, std::int32_t version) = nullptr;
  void* (*make_runtime)(void* logger, std::int32_t version) = nullptr;
  Logger logger;
  Memory memory;
  std::size_t plan_bytes = 0;
  double seconds = 0;
  std::unique_ptr<nvinfer1::IRuntime> runtime;
  std::unique_ptr<nvinfer1::ICudaEngine> engine;
  std::mutex makes_execution;
};

TensorRtModel::TensorRtModel(const NetworkOptions& options, cgtree::Device device,
                             const std::string& library) {
  check(options);
  tensorrt_ = std::make_unique<TensorRt>(options, device, library);
  const cgtree::DeviceScope scope(cgtree::device_api(device), device.id);
  tensorrt_->build();
}

TensorRtModel::~TensorRtModel() = default;

int TensorRtModel::classes() const {
  return tensorrt_->network.classes;
}

Shape TensorRtModel::largest() const {
  return {tensorrt_->network.max_batch, tensorrt_->network.max_length};
}

std::size_t TensorRtModel::scratch_bytes() const {
  return static_cast<std::size_t>(std::max(tensorrt_->engine->getDeviceMemorySizeForProfileV2(0),
                                           tensorrt_->engine->getDeviceMemorySizeForProfileV2(1)));
}

int TensorRtModel::profile_of(Shape shape) const {
  return shape.batch > tensorrt_->split() ? 1 : 0;
}

std::unique_ptr<Execution> TensorRtModel::make_execution(int profile, const Buffers& buffers,
                                                         cgtree::StreamRef stream) {
  const cgtree::DeviceScope scope = stream.make_device_current();
  const std::lock_guard lock(tensorrt_->makes_execution);
  return std::make_unique<TensorRtExecution>(*tensorrt_->engine, tensorrt_->logger, profile,
                                             buffers, stream);
}

std::map<const void*, std::size_t> TensorRtModel::memory() const {
  return tensorrt_->memory.live();
}

std::string TensorRtModel::version() const {
  return version_in_words(NV_TENSORRT_MAJOR, NV_TENSORRT_MINOR, NV_TENSORRT_PATCH);
}

std::size_t TensorRtModel::plan_bytes() const {
  return tensorrt_->plan_bytes;
}

double TensorRtModel::build_seconds() const {
  return tensorrt_->seconds;
}

int TensorRtModel::auxiliary_streams() const {
  return tensorrt_->engine->getNbAuxStreams();
}

}  // namespace cgtree_tensorrt
