// The code generators by kind, and the modules that were built.
#include "targets/code_generator.h"

#include <future>
#include <map>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "base/mutex.h"
#include "targets/append_table.h"
#ifdef CGTREE_WITH_CUDA
#include "targets/cuda/cuda_module.h"
#endif

namespace cgtree {
namespace {

constexpr int kUserGenerators = 32;
constinit AppendTable<CodeGenerator, kUserGenerators> user_generators;

std::vector<ModuleFunction> bind_host(const KernelSet& kernels, const Target&) {
  std::vector<ModuleFunction> functions;
  for (const NamedKernel& kernel : kernels.kernels) {
    if (kernel.host == nullptr) {
      throw InvalidArgument(str_format(
          "kernel '{}' has no host body: add one to the set, or build for a GPU", kernel.name));
    }
    functions.push_back({kernel.name, kernel.host, nullptr, kernel.parameter_bytes});
  }
  return functions;
}

const CodeGenerator* find_generator(std::string_view kind) {
  static const auto* const host = new CodeGenerator{"host", &bind_host, nullptr};
  if (kind == "host") return host;
#ifdef CGTREE_WITH_CUDA
  static const auto* const cuda =
      new CodeGenerator{"cuda", &cuda::build_with_nvrtc, &cuda::build_with_nvrtc_problem};
  if (kind == "cuda") return cuda;
#endif
  return user_generators.find(kind);
}

std::string names_of_generators() {
  std::string names = "host";
  if (find_generator("cuda") != nullptr) names += ", cuda";
  user_generators.for_each([&](const CodeGenerator& g) { names += ", " + g.name; });
  return names;
}

void expect_sound(const KernelSet& kernels) {
  std::set<std::string_view> names;
  for (const NamedKernel& kernel : kernels.kernels) {
    if (kernel.name.empty() || !names.insert(kernel.name).second) {
      throw InvalidArgument(str_format("kernel '{}' has no name of its own", kernel.name));
    }
  }
  if (names.empty()) throw InvalidArgument("build_module() of no kernels: add some to the set");
}

// Returns all data that determine a module. Lengths separate neighbouring fields.
std::string key_of(const KernelSet& kernels, const Target& target) {
  const std::string json = target.to_json();
  std::string key =
      str_format("{}:{}{}:{}", json.size(), json, kernels.cuda_source.size(), kernels.cuda_source);
  for (const NamedKernel& kernel : kernels.kernels) {
    key += str_format("{}:{}{}", kernel.name.size(), kernel.name,
                      reinterpret_cast<const void*>(kernel.host));
  }
  return key;
}

// Never destroyed, because recordings launch its kernels. A set of kernels is built once, by the
// first thread that needs it; the others wait for that thread, and none holds the lock meanwhile:
// the driver loads the code, and may wait for work on the device.
struct Built {
  Mutex<LockRank::kLeaf> mutex;
  std::map<std::string, std::shared_future<Module::Contents>> modules;
};

Built& built() {
  static auto* const built = new Built;
  return *built;
}

}  // namespace

Module build_module(const KernelSet& kernels, const Target& target) {
  const CodeGenerator* const generator = find_generator(target.kind().name);
  if (generator == nullptr) {
    throw InvalidArgument(str_format("target.build.{} is not enabled; there are {}",
                                     target.kind().name, names_of_generators()));
  }
  expect_sound(kernels);
  std::string key = key_of(kernels, target);
  Built& before = built();
  std::promise<Module::Contents> promise;
  std::shared_future<Module::Contents> module = promise.get_future().share();
  bool is_first = false;
  {
    const std::lock_guard lock(before.mutex);
    const auto [known, is_new] = before.modules.try_emplace(key, module);
    module = known->second;
    is_first = is_new;
  }
  if (!is_first) return Module(module.get());
  try {
    promise.set_value({target, generator->generate(kernels, target)});
    return Module(module.get());
  } catch (...) {
    {
      const std::lock_guard lock(before.mutex);
      before.modules.erase(key);
    }
    promise.set_exception(std::current_exception());
    throw;
  }
}

std::string build_problem(std::string_view kind) {
  const CodeGenerator* const generator = find_generator(kind);
  if (generator == nullptr) {
    return str_format("target.build.{} is not enabled; there are {}", kind, names_of_generators());
  }
  return generator->problem == nullptr ? std::string() : generator->problem();
}

void register_code_generator(CodeGenerator generator) {
  const std::string name = generator.name;
  using Added = decltype(user_generators)::Added;
  const Added added =
      name == "host" || name == "cuda" ? Added::kTaken : user_generators.add(std::move(generator));
  if (added == Added::kYes) return;
  throw InvalidArgument(
      added == Added::kTaken
          ? str_format("target.build.{} is registered already", name)
          : str_format("target.build.{} cannot be registered: there is room for {}", name,
                       kUserGenerators));
}

}  // namespace cgtree
