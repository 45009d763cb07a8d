// Looks compiled code up in the cache, else compiles it with NVRTC, which is loaded at run time.
#include "targets/cuda/nvrtc.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "targets/cuda/code_cache.h"

namespace cgtree::cuda {
namespace {

// The library stays loaded. Throws InvalidArgument if it is not found.
void* open_library() {
  const std::string name = str_format("libnvrtc.so.{}", CUDART_VERSION / 1000);
  if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  const std::string reason = dlerror();
  // CGTREE_CUDA_ROOT comes from the build.
  const std::string beside = str_format("{}/lib64/{}", CGTREE_CUDA_ROOT, name);
  if (void* library = dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  throw InvalidArgument(str_format(
      "cannot load NVRTC ({}): add the toolkit's library folder to LD_LIBRARY_PATH", reason));
}

// A Symbol is a function of a library, of the type to which it is converted.
struct Symbol {
  Symbol(void* library, const char* name) : address(dlsym(library, name)) {
    if (address != nullptr) return;
    throw InvalidArgument(str_format("the NVRTC library has no function {}", name));
  }
  template <typename Function>
  operator Function*() const {  // NOLINT(google-explicit-constructor)
    return reinterpret_cast<Function*>(address);
  }

  void* address;
};

// NVRTC's functions. They are loaded at run time, so that a machine without NVRTC can run all other
// code.
struct NvrtcLibrary {
  void* library = open_library();
  decltype(&nvrtcVersion) version = Symbol(library, "nvrtcVersion");
  decltype(&nvrtcGetErrorString) error_string = Symbol(library, "nvrtcGetErrorString");
  decltype(&nvrtcCreateProgram) create = Symbol(library, "nvrtcCreateProgram");
  decltype(&nvrtcDestroyProgram) destroy = Symbol(library, "nvrtcDestroyProgram");
  decltype(&nvrtcAddNameExpression) add_name = Symbol(library, "nvrtcAddNameExpression");
  decltype(&nvrtcCompileProgram) compile = Symbol(library, "nvrtcCompileProgram");
  decltype(&nvrtcGetLoweredName) lowered_name = Symbol(library, "nvrtcGetLoweredName");
  decltype(&nvrtcGetProgramLogSize) log_size = Symbol(library, "nvrtcGetProgramLogSize");
  decltype(&nvrtcGetProgramLog) log = Symbol(library, "nvrtcGetProgramLog");
  decltype(&nvrtcGetCUBINSize) cubin_size = Symbol(library, "nvrtcGetCUBINSize");
  decltype(&nvrtcGetCUBIN) cubin = Symbol(library, "nvrtcGetCUBIN");
  decltype(&nvrtcGetPTXSize) ptx_size = Symbol(library, "nvrtcGetPTXSize");
  decltype(&nvrtcGetPTX) ptx = Symbol(library, "nvrtcGetPTX");
};

const NvrtcLibrary& nvrtc() {
  static const NvrtcLibrary library;  // retried at the next call if it throws
  return library;
}

void expect(nvrtcResult result, const char* action) {
  if (result == NVRTC_SUCCESS) return;
  throw InvalidArgument(str_format("NVRTC could not {}: {}", action, nvrtc().error_string(result)));
}

// A Program owns a program of NVRTC.
class Program {
 public:
  explicit Program(const std::string& source) {
    // The log uses this name for the source.
    expect(nvrtc().create(&program_, source.c_str(), "kernels.cu", 0, nullptr, nullptr),
           "take the source");
  }
  ~Program() { (void)nvrtc().destroy(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  nvrtcProgram get() const noexcept { return program_; }

  template <typename Size, typename Get>
  std::string text(Size size, Get get) const {
    std::size_t bytes = 0;
    expect(size(program_, &bytes), "tell a size");
    std::string text(bytes, '\0');
    if (bytes > 0) expect(get(program_, text.data()), "give a result");
    return text;
  }
  std::string log() const {
    std::string log = text(nvrtc().log_size, nvrtc().log);
    while (!log.empty() && (log.back() == '\0' || log.back() == '\n'))
      log.pop_back();
    return log;
  }

 private:
  nvrtcProgram program_ = nullptr;
};

std::vector<std::string> all_options(const CompileRequest& request) {
  std::vector<std::string> options = {"--gpu-architecture=" + request.architecture, "--std=c++20"};
  options.insert(options.end(), request.options.begin(), request.options.end());
  return options;
}

std::string version_text() {
  int major = 0;
  int minor = 0;
  expect(nvrtc().version(&major, &minor), "tell its version");
  return str_format("{}.{}", major, minor);
}

CompiledCode run_compiler(const CompileRequest& request) {
  const Program program(request.source);
  for (const std::string& name : request.names)
    expect(nvrtc().add_name(program.get(), name.c_str()), "take a name");
  const std::vector<std::string> options = all_options(request);
  std::vector<const char*> pointers;
  for (const std::string& option : options)
    pointers.push_back(option.c_str());
  const nvrtcResult result =
      nvrtc().compile(program.get(), static_cast<int>(pointers.size()), pointers.data());
  CompiledCode code;
  code.log = program.log();
  if (result != NVRTC_SUCCESS) {
    throw InvalidArgument(str_format("kernels '{}' do not compile for {} (NVRTC {}, {}):\n{}",
                                     joined(request.names, "', '"), request.architecture,
                                     version_text(), nvrtc().error_string(result), code.log));
  }
  for (const std::string& name : request.names) {
    const char* lowered = nullptr;
    expect(nvrtc().lowered_name(program.get(), name.c_str(), &lowered), "find a kernel");
    code.lowered_names.emplace_back(lowered);
  }
  code.image = request.architecture.starts_with("sm_")
                   ? program.text(nvrtc().cubin_size, nvrtc().cubin)
                   : program.text(nvrtc().ptx_size, nvrtc().ptx);
  return code;
}

// Returns whether the request alone determines the result; included files would also matter.
bool is_self_contained(const CompileRequest& request) {
  return std::ranges::none_of(request.options, [](const std::string& option) {
    return option.starts_with("-I") || option.starts_with("--include-path") ||
           option.starts_with("-include") || option.starts_with("--pre-include");
  });
}

std::vector<std::string> key_of(const CompileRequest& request) {
  std::vector<std::string> key = {version_text(), request.source};
  for (const auto& list : {all_options(request), request.names}) {
    key.push_back(str_format("{}", list.size()));
    key.insert(key.end(), list.begin(), list.end());
  }
  return key;
}

}  // namespace

CompiledCode compile(const CompileRequest& request) {
  if (request.cache_folder.empty() || !is_self_contained(request)) return run_compiler(request);
  const std::vector<std::string> key = key_of(request);
  if (std::optional<CompiledCode> code = find_code(request.cache_folder, key)) {
    return *std::move(code);
  }
  CompiledCode code = run_compiler(request);
  keep_code(request.cache_folder, key, code);
  return code;
}

std::string nvrtc_problem() {
  try {
    (void)nvrtc();
  } catch (const InvalidArgument& error) {
    return std::string(error.message());
  }
  return "";
}

}  // namespace cgtree::cuda
