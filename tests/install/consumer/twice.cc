// Two copies of libcgtree.so in one process: each has separate handles, open steps and errors.
//
// usage: twice LIBRARY LIBRARY local|global
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "bindings/c/c_api.h"

namespace {

// From dlpack/dlpack.h 1.2.
struct ExchangeApi {
  std::uint32_t version[2];
  void* earlier;
  int (*allocate)(void*, void**, void*, void (*)(void*, const char*, const char*));
  int (*from_object)(void*, DLManagedTensorVersioned**);
  int (*to_object)(DLManagedTensorVersioned*, void**);
};

const cgt_device kHost = {CGT_DEVICE_HOST, 0};
const std::int64_t kShape[] = {4};

class Library {
 public:
  Library(const char* path, int visibility) : handle_(dlopen(path, RTLD_NOW | visibility)) {
    if (handle_ == nullptr) throw std::runtime_error(dlerror());
  }
#define CALL(name) get<decltype(&::name)>(#name)
  template <typename Function>
  Function get(const char* name) const {
    void* const found = dlsym(handle_, name);
    if (found == nullptr) throw std::runtime_error(dlerror());
    return reinterpret_cast<Function>(found);
  }

  void check(cgt_status status, const char* what) const {
    if (status == CGT_OK) return;
    cgt_error error{};
    error.struct_size = sizeof(error);
    CALL(cgt_last_error)(&error);
    throw std::runtime_error(std::string(what) + ": " + error.message);
  }

  cgt_tensor empty() const {
    cgt_tensor made{};
    check(CALL(cgt_tensor_empty)(CGT_INT32, 1, kShape, &kHost, &made), "empty");
    return made;
  }

 private:
  void* handle_;
};

void add_one(const cgt_dims*, const void* const* arguments) {
  ++**static_cast<std::int32_t* const*>(arguments[0]);
}

// Steps of one library, with steps of the other library between their begin and end.
class Counter {
 public:
  explicit Counter(const Library& library) : library_(library), cache_(library.empty()) {
    const std::int32_t zeros[4] = {};
    const Library& l = library_;
    l.check(l.CALL(cgt_context_create)(kHost, nullptr, &context_), "context");
    l.check(l.CALL(cgt_stream_create)(kHost, 0, &stream_), "stream");
    l.check(l.CALL(cgt_tensor_copy_from_host)(cache_, zeros, sizeof(zeros)), "from host");
    l.check(l.CALL(cgt_steps_create)(context_, "count", nullptr, CGT_CAPTURE_MODE_THREAD_LOCAL,
                                     &steps_),
            "steps");
    info_.struct_size = sizeof(info_);
    l.check(l.CALL(cgt_tensor_describe)(cache_, &info_), "describe");
  }
  Counter(const Counter&) = delete;

  bool begin() {
    const cgt_binding bindings[] = {CGT_BINDING(info_.data, info_.bytes)};
    library_.check(
        library_.CALL(cgt_step_begin)(steps_, nullptr, 0, bindings, 1, &stream_, &must_run_),
        "begin");
    return must_run_ != 0;
  }
  void run() {
    const cgt_dims one = {{1, 1, 1}, {1, 1, 1}, 0};
    void* address = nullptr;
    const Library& l = library_;
    l.check(l.CALL(cgt_step_address)(steps_, 0, &address), "address");
    const cgt_argument arguments[] = {{&address, sizeof(address)}};
    l.check(l.CALL(cgt_launch_host)(stream_, "add_one", &add_one, &one, arguments, 1), "launch");
    l.check(l.CALL(cgt_step_end)(steps_, &must_run_), "end");
  }
  bool must_run() const { return must_run_ != 0; }

  std::int32_t finish() {
    std::int32_t values[4] = {-1};
    const Library& l = library_;
    l.check(l.CALL(cgt_stream_synchronize)(stream_), "synchronize");
    l.check(l.CALL(cgt_tensor_copy_to_host)(cache_, values, sizeof(values)), "to host");
    l.check(l.CALL(cgt_tensor_destroy)(cache_), "destroy");
    l.check(l.CALL(cgt_function_destroy)(steps_), "destroy");
    l.check(l.CALL(cgt_context_destroy)(context_), "destroy");
    l.check(l.CALL(cgt_stream_destroy)(stream_), "destroy");
    return values[0];
  }

 private:
  const Library& library_;
  cgt_tensor cache_;
  cgt_context context_{};
  cgt_stream stream_{};
  cgt_function steps_{};
  cgt_tensor_info info_{};
  std::int32_t must_run_ = 0;
};

// Converts a tensor of one library into one of the other.
void exchange(const Library& from, const Library& to) {
  const cgt_tensor given = from.empty();
  DLManagedTensorVersioned* managed = nullptr;
  from.check(from.CALL(cgt_tensor_to_dlpack)(given, nullptr, &managed), "export");
  const auto* const api = reinterpret_cast<const ExchangeApi*>(to.CALL(cgt_dlpack_exchange_api)());
  const auto before = to.CALL(cgt_live_handles)();
  void* object = nullptr;
  if (api->to_object(managed, &object) != 0) throw std::runtime_error("the import fails");
  if (to.CALL(cgt_live_handles)() != before + 1)
    throw std::runtime_error("the tensor is the other library's");
  to.check(to.CALL(cgt_tensor_destroy)(reinterpret_cast<cgt_tensor>(object)), "destroy");
  from.check(from.CALL(cgt_tensor_destroy)(given), "destroy");
}

void run(const char* first_path, const char* second_path, int visibility) {
  const Library first(first_path, visibility);
  const Library second(second_path, visibility);
  if (first.CALL(cgt_tensor_empty) == second.CALL(cgt_tensor_empty))
    throw std::runtime_error("one copy was loaded twice");
  Counter outer(first), inner(second);
  for (int call = 0; call < 5; ++call) {
    outer.begin();
    do {
      for (inner.begin(); inner.must_run();)
        inner.run();
      if (outer.must_run()) outer.run();
    } while (outer.must_run());
  }
  exchange(first, second);
  exchange(second, first);
  const std::int32_t outer_count = outer.finish(), inner_count = inner.finish();
  std::printf("%d and %d, %d and %d handles left\n", static_cast<int>(outer_count),
              static_cast<int>(inner_count), static_cast<int>(first.CALL(cgt_live_handles)()),
              static_cast<int>(second.CALL(cgt_live_handles)()));
}

}  // namespace

int main(int, char** arguments) {
  try {
    run(arguments[1], arguments[2],
        std::string(arguments[3]) == "global" ? RTLD_GLOBAL : RTLD_LOCAL);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  return 0;
}
