// The C ABI with owners and exceptions, for programs in C++17; those in C++20 have cgtree/cgtree.h.
//
//   cgt::Context context(cgt::best_device());
//   cgt::Steps decode(context, "decode",
//                     {{"tokens", CGT_INPUT_COPIED}, {"kv", CGT_INPUT_MUTATED}});
//   for (cgt::Step step = decode.begin({{"batch", n}}, bindings, stream); step.must_run();
//        step.end()) {
//     engine.forward(step.address(0), stream);
//   }
//
// It consists of this header and libcgtree.so. bindings/c/c_api.h describes functions, flags and
// options, and the rules for threads. Every failure is thrown as an Error. Each owner has get(),
// which returns the handle for functions of c_api.h that have no counterpart here.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings/c/c_api.h"

namespace cgt {

// A call failed with a status that is not CGT_OK. what() is the library's message.
class Error : public std::runtime_error {
 public:
  // Copies the text of `last`. check() throws it; callbacks may throw one to return its status.
  Error(cgt_status status, const cgt_error& last)
      : std::runtime_error(last.message),
        status_(status),
        cuda_code_(last.cuda_code),
        capture_(last.capture) {}

  // The status of the call, at least CGT_USER_STATUS if a step function chose it.
  cgt_status status() const noexcept { return status_; }
  std::int32_t cuda_code() const noexcept { return cuda_code_; }  // 0: no device was involved
  // The state of the thread's current stream when the call failed.
  cgt_capture_state capture() const noexcept { return capture_; }

 private:
  cgt_status status_;
  std::int32_t cuda_code_;
  cgt_capture_state capture_;
};

// Throws Error unless the status is CGT_OK.
inline void check(cgt_status status) {
  if (status == CGT_OK) return;
  cgt_error last = {};
  last.struct_size = sizeof(last);
  cgt_last_error(&last);
  throw Error(status, last);
}

// Makes a struct of c_api.h that states its size, with the defaults.
template <typename Struct>
Struct sized() {
  Struct made = {};
  made.struct_size = sizeof(made);
  return made;
}

// A Span is an array that the caller keeps.
template <typename T>
class Span {
 public:
  Span() = default;
  // Borrows the elements. A list in braces ends with the full expression, so use a Span of a list
  // only as an argument.
  Span(const T* data, std::size_t size) : data_(data), size_(size) {}
  Span(std::initializer_list<T> list) : Span(list.begin(), list.size()) {}
  template <typename Array, typename = decltype(std::data(std::declval<const Array&>()))>
  Span(const Array& array) : Span(std::data(array), std::size(array)) {}

  // The next two are those of the array; data() is null for an empty Span made without an array.
  const T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  // Requires: i < size().
  const T& operator[](std::size_t i) const noexcept { return data_[i]; }

 private:
  const T* data_ = nullptr;
  std::size_t size_ = 0;
};

namespace detail {

// An Owner destroys its handle.
template <typename Handle, cgt_status (*kDestroy)(Handle)>
class Owner {
 public:
  Owner() = default;
  explicit Owner(Handle handle) noexcept : handle_(handle) {}
  Owner(Owner&& other) noexcept : handle_(other.release()) {}
  Owner& operator=(Owner&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owner() { kDestroy(handle_); }

  Handle get() const noexcept { return handle_; }
  Handle release() noexcept { return std::exchange(handle_, Handle()); }

 private:
  Handle handle_ = {};
};

// Returns the status of a callback that runs `code`. The call gets the text of an exception: the
// exception itself would lose it on the way through a library that contains another C++ library.
// `thrown` receives an exception that is not an Error.
template <typename Code>
cgt_status status_of(const Code& code, std::exception_ptr* thrown = nullptr) {
  try {
    code();
    return CGT_OK;
  } catch (const Error& error) {
    return error.status();
  } catch (const std::exception& error) {
    if (thrown != nullptr) *thrown = std::current_exception();
    cgt_set_error(error.what());
    return CGT_STEP_THREW;
  }
}

// Returns the address of a given stream, and NULL for the default stream.
inline const cgt_stream* given(const cgt_stream& stream) noexcept {
  return stream.device.type == 0 ? nullptr : &stream;
}

inline std::int32_t rank(Span<std::int64_t> shape) noexcept {
  return static_cast<std::int32_t>(shape.size());
}

// Returns the value that a function of c_api.h writes into its last parameter.
template <typename... Parameters, typename... Arguments>
auto result(cgt_status (*function)(Parameters...), const Arguments&... arguments) {
  using Last = std::tuple_element_t<sizeof...(Arguments), std::tuple<Parameters...>>;
  std::remove_pointer_t<Last> value = {};
  check(function(arguments..., &value));
  return value;
}

}  // namespace detail

// ---- Devices and streams ------------------------------------------------------------------------

// Returns the first GPU if this program can use it, and the host device otherwise.
inline cgt_device best_device() {
  return detail::result(cgt_device_parse, "auto");
}

// A Stream is made and destroyed here. Streams of other libraries are values: {device, native}.
// Without a stream argument, the thread's current stream is used, or else the context's.
class Stream : public detail::Owner<cgt_stream, cgt_stream_destroy> {
 public:
  // A blocking stream is ordered with the legacy stream.
  explicit Stream(cgt_device device, bool is_blocking = false)
      : Owner(detail::result(cgt_stream_create, device, is_blocking)) {}

  // Valid while the Stream lives.
  operator cgt_stream() const noexcept { return get(); }
  // Waits, on the calling thread, until all work on the stream is done.
  void synchronize() const { check(cgt_stream_synchronize(get())); }
};

// A StreamScope makes a stream the current one of this thread.
class StreamScope {
 public:
  // Borrows the stream until the scope ends. Scopes nest.
  explicit StreamScope(cgt_stream stream) { check(cgt_stream_push(stream)); }
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;
  ~StreamScope() { cgt_stream_pop(); }
};

// Returns the stream on which a step function must launch its work. Throws outside of step
// functions, unless a stream is in scope.
inline cgt_stream current_stream() {
  return detail::result(cgt_current_stream);
}

// ---- Tensors ------------------------------------------------------------------------------------

class Tensor;

// A TensorRef is a tensor that is owned elsewhere, such as an input of a step function.
class TensorRef {
 public:
  // Borrows the handle.
  TensorRef(cgt_tensor handle) noexcept : handle_(handle) {}

  // The handle, which stays where it is owned.
  cgt_tensor get() const noexcept { return handle_; }
  // Returns the layout and the address of the data. Its pointers are valid as long as the handle.
  cgt_tensor_info info() const {
    auto info = sized<cgt_tensor_info>();
    check(cgt_tensor_describe(handle_, &info));
    return info;
  }
  // The address of the first element, on the tensor's device. Requires: T is the element type,
  // which is not checked.
  template <typename T>
  T* data() const {
    return static_cast<T*>(info().data);
  }
  // The next two wait for the copy. Requires: the tensor is dense, with so many elements of this
  // type.
  template <typename T>
  void copy_from_host(Span<T> values) const {
    check(cgt_tensor_copy_from_host(handle_, values.data(), values.size() * sizeof(T)));
  }
  template <typename T>
  std::vector<T> copy_to_host() const {
    std::vector<T> values(static_cast<std::size_t>(info().elements));
    check(cgt_tensor_copy_to_host(handle_, values.data(), values.size() * sizeof(T)));
    return values;
  }
  // Returns another handle of the same tensor.
  inline Tensor share() const;
  // The next three return views, which move no data. They keep the memory.
  inline Tensor reshape(Span<std::int64_t> shape) const;
  inline Tensor slice(std::int32_t axis, std::int64_t begin, std::int64_t end) const;
  inline Tensor transpose(std::int32_t axis, std::int32_t other) const;
  // Must be called after work that uses the tensor was enqueued on another stream than that of the
  // calls; see cgt_tensor_note_use().
  void note_use(cgt_stream stream = {}) const {
    check(cgt_tensor_note_use(handle_, detail::given(stream)));
  }

 protected:
  cgt_tensor handle_;
};

// A Tensor owns a handle, and may be moved. It is null if it was default-constructed or moved from.
class Tensor : public TensorRef {
 public:
  Tensor() noexcept : TensorRef(nullptr) {}
  // Takes the handle over.
  explicit Tensor(cgt_tensor taken) noexcept : TensorRef(taken) {}
  Tensor(Tensor&& other) noexcept : TensorRef(other.release()) {}
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Tensor() { cgt_tensor_destroy(handle_); }

  // Gives up the handle, for the outputs of a step function.
  cgt_tensor release() noexcept { return std::exchange(handle_, nullptr); }
};

inline Tensor TensorRef::share() const {
  return Tensor(detail::result(cgt_tensor_share, handle_));
}
inline Tensor TensorRef::reshape(Span<std::int64_t> shape) const {
  return Tensor(detail::result(cgt_tensor_reshape, handle_, detail::rank(shape), shape.data()));
}
inline Tensor TensorRef::slice(std::int32_t axis, std::int64_t begin, std::int64_t end) const {
  return Tensor(detail::result(cgt_tensor_slice, handle_, axis, begin, end));
}
inline Tensor TensorRef::transpose(std::int32_t axis, std::int32_t other) const {
  return Tensor(detail::result(cgt_tensor_transpose, handle_, axis, other));
}

// Makes a tensor without setting its contents: in memory of the context, inside a step function.
inline Tensor empty(Span<std::int64_t> shape, cgt_dtype dtype) {
  return Tensor(
      detail::result(cgt_tensor_empty, dtype, detail::rank(shape), shape.data(), nullptr));
}
inline Tensor empty(Span<std::int64_t> shape, cgt_dtype dtype, cgt_device device) {
  return Tensor(
      detail::result(cgt_tensor_empty, dtype, detail::rank(shape), shape.data(), &device));
}

// Makes a number that is passed to a call by value; T has the size of the type.
template <typename T>
Tensor scalar(T value, cgt_dtype dtype) {
  return Tensor(detail::result(cgt_tensor_by_value, dtype, 0, nullptr, &value));
}

// Makes a struct that is passed to a call by value.
template <typename T>
Tensor step_block(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>, "a step block is copied byte by byte");
  const std::int64_t bytes = sizeof(value);
  return Tensor(detail::result(cgt_tensor_by_value, CGT_UINT8, 1, &bytes, &value));
}

// Makes a tensor of the caller's device memory, dense and row-major. `stream` is the stream of the
// first use; the caller orders earlier work on the contents. The memory is kept alive by `owner`,
// or else by the caller for as long as the tensor may be used.
inline Tensor import_tensor(void* data, Span<std::int64_t> shape, cgt_dtype dtype,
                            cgt_stream stream, std::shared_ptr<void> owner = nullptr) {
  auto array = sized<cgt_cai>();
  array.version = 3;
  array.ndim = static_cast<std::int32_t>(shape.size());
  array.shape = shape.data();
  array.data = reinterpret_cast<std::uintptr_t>(data);
  auto options = sized<cgt_cai_import_options>();
  options.consumer = detail::given(stream);
  options.dtype = dtype;
  void (*const release)(void*) = [](void* kept) {
    delete static_cast<std::shared_ptr<void>*>(kept);
  };
  void* const kept = owner ? new std::shared_ptr<void>(std::move(owner)) : nullptr;
  return Tensor(detail::result(cgt_tensor_from_cai, &array, kept,
                               kept != nullptr ? release : nullptr, &options));
}

// ---- Contexts -----------------------------------------------------------------------------------

// A ProgressWatch says where replays hang: see cgt_progress_watch_create(). Contexts that have it
// keep it.
class ProgressWatch : public detail::Owner<cgt_progress_watch, cgt_progress_watch_destroy> {
 public:
  // Makes a watch; without options it has the defaults.
  explicit ProgressWatch(const cgt_progress_options* options = nullptr)
      : Owner(detail::result(cgt_progress_watch_create, options)) {}

  // The next two return the progress of unfinished replays, as text and as JSON. Any thread.
  std::string report() const { return detail::result(cgt_progress_watch_report, get()); }
  std::string report_json() const { return detail::result(cgt_progress_watch_json, get()); }
};

// A Context owns the handle of a context. Its functions and steps may outlive it.
class Context : public detail::Owner<cgt_context, cgt_context_destroy> {
 public:
  // Makes a context; without options it has the defaults.
  explicit Context(cgt_device device, const cgt_context_options* options = nullptr)
      : Owner(detail::result(cgt_context_create, device, options)) {}

  // The next nine are the functions of c_api.h with their names. Functions that drop or free return
  // the amount.
  void mark_step() const { check(cgt_context_mark_step(get())); }
  void keep(const Tensor& output) const { check(cgt_tensor_keep(output.get(), get())); }
  void declare(const char* name, const void* address, std::size_t bytes) const {
    check(cgt_context_declare(get(), name, address, bytes));
  }
  void undeclare(const char* name) const { check(cgt_context_undeclare(get(), name)); }
  std::size_t invalidate(const void* address, std::size_t bytes) const {
    return detail::result(cgt_context_invalidate, get(), address, bytes);
  }
  std::size_t trim() const { return detail::result(cgt_context_trim, get()); }
  std::size_t release_memory() const { return detail::result(cgt_context_release_memory, get()); }
  void synchronize() const { check(cgt_context_synchronize(get())); }
  cgt_stream stream() const { return detail::result(cgt_context_stream, get()); }
  // The next five are the reports of c_api.h, for any thread.
  std::string stats_json() const { return detail::result(cgt_context_stats_json, get()); }
  std::string snapshot_json() const { return detail::result(cgt_context_snapshot_json, get()); }
  std::string metrics_text() const {
    const cgt_context context = get();
    return detail::result(cgt_metrics_text, &context, std::size_t{1});
  }
  std::string recent_events() const { return detail::result(cgt_context_recent_events, get()); }
  void dump_events(const char* path) const { check(cgt_context_dump_events(get(), path)); }
  // The next two are cgt_context_watch_progress(), with a watch and without.
  void watch_progress(const ProgressWatch& watch) const {
    check(cgt_context_watch_progress(get(), watch.get()));
  }
  void watch_no_progress() const { check(cgt_context_watch_progress(get(), nullptr)); }
};

// Options of a function, or of steps.
struct Options {
  // The options of one input, or of one binding of steps.
  struct Input : cgt_input_options {
    // `flags` are CGT_INPUT_..., and host_bytes is for step blocks of steps. The name is borrowed
    // until the function or the steps are made.
    Input(const char* name = nullptr, std::uint32_t flags = 0, std::size_t host_bytes = 0)
        : cgt_input_options(sized<cgt_input_options>()) {
      this->name = name;
      this->flags = flags;
      this->host_bytes = host_bytes;
    }
  };

  Options() = default;
  // Takes the inputs by position.
  Options(std::initializer_list<Input> given) : inputs(given) {}

  std::vector<Input> inputs;  // by position, as cgt_function_options::inputs
  cgt_function_options rest = sized<cgt_function_options>();

  // Returns the options for C, which borrow `inputs`.
  cgt_function_options get() const {
    cgt_function_options made = rest;
    static_assert(sizeof(Input) == sizeof(cgt_input_options),
                  "an array of one is one of the other");
    if (!inputs.empty()) made.inputs = inputs.data(), made.input_count = inputs.size();
    return made;
  }
};

// ---- Keys ---------------------------------------------------------------------------------------

// A KeyPart is a name with a number or a text. The caller keeps both texts while it is used.
struct KeyPart : cgt_key_part {
  // Takes any integer of at most 64 bits, or a text, which need not end with a 0.
  template <typename Integer, typename = std::enable_if_t<std::is_integral_v<Integer>>>
  KeyPart(const char* name, Integer value) : cgt_key_part(sized<cgt_key_part>()) {
    static_assert(sizeof(Integer) <= sizeof(number), "integers of a key have 64 bits");
    this->name = name;
    number = static_cast<std::int64_t>(value);
    flags = std::is_unsigned_v<Integer> ? CGT_KEY_UNSIGNED : 0;
  }
  KeyPart(const char* name, std::string_view value) : cgt_key_part(sized<cgt_key_part>()) {
    this->name = name;
    text = value.empty() ? "" : value.data();
    text_bytes = value.size();
  }
};
static_assert(sizeof(KeyPart) == sizeof(cgt_key_part), "an array of one is one of the other");

// ---- Step functions -----------------------------------------------------------------------------

// A FunctionHandle is the base of a Function and of Steps. Any thread may call its functions.
class FunctionHandle : public detail::Owner<cgt_function, cgt_function_destroy> {
 public:
  // The outcome of the last ended call, CGT_FAILED for an abandoned step, or CGT_NO_CALL.
  cgt_outcome last_outcome() const {
    cgt_outcome outcome = 0;
    check(cgt_function_last_outcome(get(), &outcome, nullptr));
    return outcome;
  }
  // The next two are cgt_function_freeze() and cgt_function_unfreeze().
  void freeze(cgt_when_frozen when) const { check(cgt_function_freeze(get(), when)); }
  void unfreeze() const { check(cgt_function_unfreeze(get())); }
  // The counters of the calls.
  std::string stats_json() const { return detail::result(cgt_function_stats_json, get()); }

 protected:
  using Owner::Owner;
};

namespace detail {

// The results of a callback: none, a Tensor, or a std::array of them.
template <typename Result>
struct Results {
  static_assert(std::is_same_v<Tensor, Result>,
                "a body returns nothing, a cgt::Tensor, or a std::array of them");
  static constexpr std::size_t kCount = 1;
  static void give(Result result, cgt_tensor* to) { to[0] = result.release(); }
  static Result take(const cgt_tensor* from) { return Tensor(from[0]); }
};
template <>
struct Results<void> {
  static constexpr std::size_t kCount = 0;
  static void take(const cgt_tensor*) {}
};
template <std::size_t count>
struct Results<std::array<Tensor, count>> {
  static constexpr std::size_t kCount = count;
  static void give(std::array<Tensor, count> result, cgt_tensor* to) {
    for (std::size_t i = 0; i < count; ++i)
      to[i] = result[i].release();
  }
  static std::array<Tensor, count> take(const cgt_tensor* from) {
    std::array<Tensor, count> result;
    for (std::size_t i = 0; i < count; ++i)
      result[i] = Tensor(from[i]);
    return result;
  }
};

}  // namespace detail

// A Function is a step function of a context: a callable that takes Span<TensorRef> and returns a
// Tensor, or a std::array<Tensor, outputs>. It is kept until the context and all calls are done
// with it. Its call throws an Error that leaves it with the same status; another exception becomes
// an Error with CGT_STEP_THREW and its text.
template <std::size_t outputs = 1>
class Function : public FunctionHandle {
 public:
  // The outputs of a call, in order.
  using Result = std::conditional_t<outputs == 1, Tensor, std::array<Tensor, outputs>>;

  // Makes a function from `body`, which is moved into it. `name` is its name in messages.
  template <typename Body>
  Function(const Context& context, const char* name, Body body, const Options& options = {})
      : FunctionHandle(make(context, name, std::move(body), options)) {}

  // Calls the function. Each input is a Tensor, a TensorRef or a handle.
  template <typename... Inputs>
  Result operator()(const Inputs&... inputs) const {
    return keyed({}, inputs...);
  }
  // A call with a key.
  template <typename... Inputs>
  Result keyed(Span<KeyPart> key, const Inputs&... inputs) const {
    const cgt_tensor given[] = {TensorRef(inputs).get()..., nullptr};
    return call(key, given, sizeof...(inputs));
  }
  // A call with inputs in an array. Requires: `count` handles.
  Result call(Span<KeyPart> key, const cgt_tensor* inputs, std::size_t count) const {
    cgt_tensor made[outputs + 1] = {};
    check(cgt_call_keyed(get(), key.data(), key.size(), inputs, count, nullptr, 0, made, outputs));
    return detail::Results<Result>::take(made);
  }
  // Returns the predicted outcome of a call with these arguments, and the reason, as lines of text.
  std::string explain(Span<TensorRef> inputs, Span<KeyPart> key = {}) const {
    return detail::result(cgt_function_explain, get(), key.data(), key.size(),
                          reinterpret_cast<const cgt_tensor*>(inputs.data()), inputs.size());
  }
  // The next three inspect the recording that a call with these arguments would replay, and return
  // lines of text; see c_api.h.
  std::string inspect(Span<TensorRef> inputs, Span<KeyPart> key = {}) const {
    return detail::result(cgt_function_inspect, get(), key.data(), key.size(),
                          reinterpret_cast<const cgt_tensor*>(inputs.data()), inputs.size());
  }
  std::string compare_captures(Span<TensorRef> inputs, Span<KeyPart> key = {}) const {
    return detail::result(cgt_function_compare_captures, get(), key.data(), key.size(),
                          reinterpret_cast<const cgt_tensor*>(inputs.data()), inputs.size());
  }
  std::string compare_runs(Span<TensorRef> inputs, Span<KeyPart> key = {}) const {
    return detail::result(cgt_function_compare_runs, get(), key.data(), key.size(),
                          reinterpret_cast<const cgt_tensor*>(inputs.data()), inputs.size());
  }

 private:
  static_assert(sizeof(TensorRef) == sizeof(cgt_tensor), "an array of one is one of the other");
  template <typename Body>
  static cgt_status run(void* user, const cgt_tensor* inputs, std::size_t input_count,
                        cgt_tensor* made, std::size_t) {
    return detail::status_of([&] {
      detail::Results<Result>::give((*static_cast<Body*>(user))(Span<TensorRef>(
                                        reinterpret_cast<const TensorRef*>(inputs), input_count)),
                                    made);
    });
  }

  template <typename Body>
  static cgt_function make(const Context& context, const char* name, Body body,
                           const Options& options) {
    auto step = sized<cgt_step>();
    step.output_count = outputs;
    step.body = run<Body>;
    step.user = new Body(std::move(body));
    step.release = [](void* user) { delete static_cast<Body*>(user); };
    const cgt_function_options all = options.get();
    return detail::result(cgt_compile, context.get(), name, &step, &all);
  }
};

// ---- Steps of an engine -------------------------------------------------------------------------

// A Binding is memory that the work of a step uses.
struct Binding : cgt_binding {
  // Borrows the memory, which is on the device, or on the host for a step block.
  Binding(const void* address, std::size_t bytes)
      : cgt_binding{sizeof(cgt_binding), 0, address, bytes} {}
};
static_assert(sizeof(Binding) == sizeof(cgt_binding), "an array of one is one of the other");

// A Step is one call. A Step destroyed while must_run() has no effect. Requires: its Steps live.
class Step {
 public:
  Step(Step&& other) noexcept
      : steps_(other.steps_), must_run_(std::exchange(other.must_run_, 0)) {}
  Step& operator=(Step&& other) noexcept {
    std::swap(steps_, other.steps_);
    std::swap(must_run_, other.must_run_);
    return *this;
  }
  ~Step() {
    if (must_run()) cgt_step_leave(steps_);
  }

  // True if the caller must enqueue the work and then call end().
  bool must_run() const noexcept { return must_run_ != 0; }
  // Returns the address of binding `i` for the work. Throws std::logic_error unless must_run().
  void* address(std::size_t i) const {
    check_open("address()");
    return detail::result(cgt_step_address, steps_, i);
  }
  // If it throws, the call has ended, except on another thread than begin(), and inside a function
  // that the step calls. Throws std::logic_error if there is nothing to end: another step may be
  // open by now, which this one must not end.
  void end() {
    check_open("end()");
    check(cgt_step_end(steps_, &must_run_));
  }

 private:
  friend class Steps;
  void check_open(const char* what) const {
    if (must_run()) return;
    throw std::logic_error(std::string(what) +
                           " of a cgt::Step that was replayed, has ended, or was moved from");
  }
  Step(cgt_function steps, std::int32_t must_run) noexcept : steps_(steps), must_run_(must_run) {}

  cgt_function steps_;
  std::int32_t must_run_;
};

// A Steps makes graphs around work that the caller enqueues itself. Used by one thread at a time.
class Steps : public FunctionHandle {
 public:
  // The inputs of the options are the bindings, by position. `name` is the name in messages.
  Steps(const Context& context, const char* name, const Options& options = {},
        cgt_capture_mode mode = CGT_CAPTURE_MODE_THREAD_LOCAL)
      : FunctionHandle(make(context, name, options.get(), mode)) {}

  // Begins a call, or replays it. At most one step is open at a time. If this throws, none is open.
  Step begin(Span<KeyPart> key, Span<Binding> bindings, cgt_stream stream = {}) const {
    return Step(get(), detail::result(cgt_step_begin, get(), key.data(), key.size(),
                                      bindings.data(), bindings.size(), detail::given(stream)));
  }
  // Drops the recordings that refer to the range, and returns how many.
  std::size_t invalidate(const void* address, std::size_t bytes) const {
    return detail::result(cgt_steps_invalidate, get(), address, bytes);
  }
  // Returns the predicted outcome of a call with these arguments, and the reason, as lines of text.
  std::string explain(Span<KeyPart> key, Span<Binding> bindings) const {
    return detail::result(cgt_steps_explain, get(), key.data(), key.size(), bindings.data(),
                          bindings.size());
  }
  // The next two inspect the recording that a call with these arguments would replay, and return
  // lines of text; see c_api.h. The second captures work(addresses), with the address of each
  // binding.
  std::string inspect(Span<KeyPart> key, Span<Binding> bindings, cgt_stream stream = {}) const {
    return detail::result(cgt_steps_inspect, get(), key.data(), key.size(), bindings.data(),
                          bindings.size(), detail::given(stream));
  }
  template <typename Work>
  std::string compare_captures(Span<KeyPart> key, Span<Binding> bindings, Work work,
                               cgt_stream stream = {}) const {
    const cgt_step_work enqueue = [](void* user, void* const* addresses, std::size_t) {
      return detail::status_of([&] { (*static_cast<Work*>(user))(addresses); });
    };
    return detail::result(cgt_steps_compare_captures, get(), key.data(), key.size(),
                          bindings.data(), bindings.size(), detail::given(stream), enqueue,
                          static_cast<void*>(&work));
  }

 private:
  static cgt_function make(const Context& context, const char* name,
                           const cgt_function_options& options, cgt_capture_mode mode) {
    return detail::result(cgt_steps_create, context.get(), name, &options, mode);
  }
};

// ---- Eager breaks -------------------------------------------------------------------------------

// The by-value inputs or bindings of the present call. Valid while the function of the break runs.
class StepValues {
 public:
  // Borrows the values, which are those of the callback.
  explicit StepValues(const cgt_step_values* values) noexcept : values_(values) {}

  // Returns the value of input, or binding, `i`.
  template <typename T>
  const T& get(std::size_t i) const {
    const void* data = nullptr;
    std::size_t bytes = 0;
    check(cgt_step_value(values_, i, &data, &bytes));
    if (bytes != sizeof(T)) throw std::invalid_argument("a step value of another size");
    return *static_cast<const T*>(data);
  }

 private:
  const cgt_step_values* values_;
};

// Calls body(StepValues) at this point of the step, and in each replay.
template <typename Body>
void eager_break(Body body) {
  const cgt_break_body run = [](void* user, const cgt_step_values* values) {
    return detail::status_of([&] { (*static_cast<Body*>(user))(StepValues(values)); });
  };
  check(cgt_eager_break(run, new Body(std::move(body)),
                        [](void* user) { delete static_cast<Body*>(user); }));
}

// See cgt_refuse_capture().
inline void refuse_capture(const std::string& why) {
  check(cgt_refuse_capture(why.c_str()));
}

// Returns the function's result, an int64_t, now and before each replay; see cgt_decide(). The
// function is copied, and must not throw.
template <typename Ask>
std::int64_t decide(const std::string& name, Ask ask) {
  std::int64_t answer = 0;
  check(cgt_decide(
      name.c_str(), [](void* user) -> std::int64_t { return (*static_cast<Ask*>(user))(); },
      new Ask(std::move(ask)), [](void* user) { delete static_cast<Ask*>(user); }, &answer));
  return answer;
}

// A Scope is open on its thread from its constructor to its destructor; see cgt_scope_open().
class Scope {
 public:
  // The name is copied.
  explicit Scope(const char* name) : scope_(detail::result(cgt_scope_open, name)) {}
  ~Scope() { (void)cgt_scope_close(scope_); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  std::uint64_t scope_;
};

// ---- Random numbers -----------------------------------------------------------------------------

// A Generator is a seed and a position in its sequence; see cgt_generator_create().
class Generator : public detail::Owner<cgt_generator, cgt_generator_destroy> {
 public:
  // Begins at the first block of the sequence of `seed`.
  explicit Generator(std::uint64_t seed) : Owner(detail::result(cgt_generator_create, seed)) {}

  // Begins the sequence of `seed` at the next draw or replay. Throws inside a step function that is
  // being recorded.
  void set_seed(std::uint64_t seed) const { check(cgt_generator_set_seed(get(), seed)); }
  // Reserves the next `blocks` blocks of four words for kernels on current_stream().
  cgt_philox_range reserve(std::uint64_t blocks) const {
    return detail::result(cgt_generator_reserve, get(), blocks);
  }
};

// A GeneratorRef is a generator that is owned elsewhere.
class GeneratorRef {
 public:
  // The next two borrow the generator.
  GeneratorRef(const Generator& generator) noexcept : handle_(generator.get()) {}
  GeneratorRef(cgt_generator handle) noexcept : handle_(handle) {}

  // The handle, which stays where it is owned.
  cgt_generator get() const noexcept { return handle_; }

 private:
  cgt_generator handle_;
};

// ---- Branches and loops -------------------------------------------------------------------------

// The result of the body of a loop that hands out rows.
struct LoopRound {
  Tensor goes_on;  // the flag, as for loop()
  Tensor row;      // contiguous; a multiple of 4 bytes, at most those of the LoopStream's rows
};

namespace detail {

template <typename Body>
using IfBody = std::enable_if_t<std::is_invocable_v<Body&>>;

static_assert(sizeof(GeneratorRef) == sizeof(cgt_generator), "an array of one is one of the other");
inline const cgt_generator* handles(Span<GeneratorRef> generators) noexcept {
  return reinterpret_cast<const cgt_generator*>(generators.data());
}

// The flag of a loop may also be a tensor that lives outside of the body.
template <>
struct Results<TensorRef> {
  static void give(TensorRef result, cgt_tensor* to) { to[0] = result.get(); }
};
template <>
struct Results<LoopRound> {
  static void give(LoopRound result, cgt_tensor* to) {
    to[0] = result.goes_on.release();
    to[1] = result.row.release();
  }
};

// A LambdaBody is a callable as a body of c_api.h. It borrows the callable and `thrown`.
template <typename Lambda>
struct LambdaBody {
  using Result = std::invoke_result_t<Lambda&>;

  Lambda& lambda;
  std::exception_ptr& thrown;  // receives an exception of the lambda that is not an Error

  static cgt_status enqueue(void* user, cgt_tensor* results, std::size_t) {
    const LambdaBody& self = *static_cast<const LambdaBody*>(user);
    return status_of(
        [&] {
          if constexpr (std::is_void_v<Result>) {
            self.lambda();
          } else {
            Results<Result>::give(self.lambda(), results);
          }
        },
        &self.thrown);
  }
  cgt_body get() { return {enqueue, this}; }
};

// Calls function(bodies), and throws the exception of a lambda, or Error for another failure.
template <typename Function, typename... Lambdas>
void with_bodies(const Function& function, Lambdas&... lambdas) {
  std::exception_ptr thrown;
  std::tuple<LambdaBody<Lambdas>...> bodies{LambdaBody<Lambdas>{lambdas, thrown}...};
  const auto given = std::apply(
      [](auto&... each) { return std::array<cgt_body, sizeof...(each)>{each.get()...}; }, bodies);
  const cgt_status status = function(given.data());
  if (status == CGT_STEP_THREW && thrown != nullptr) std::rethrow_exception(thrown);
  check(status);
}

// Returns the results of the body that function(bodies, results, count) runs.
template <typename Function, typename First, typename... Others>
auto results_of(const Function& function, First& first, Others&... others) {
  using Result = std::invoke_result_t<First&>;
  static_assert((std::is_same_v<Result, std::invoke_result_t<Others&>> && ...),
                "all bodies return the same");
  constexpr std::size_t kCount = Results<Result>::kCount;
  cgt_tensor made[kCount + 1] = {};
  with_bodies([&](const cgt_body* bodies) { return function(bodies, made, kCount); }, first,
              others...);
  return Results<Result>::take(made);
}

}  // namespace detail

// The next four are cgt_branch() and cgt_choose() with callables, which all return nothing, a
// Tensor, or a std::array of them; a branch without results may lack its second body. They throw
// exceptions of a callable. The generators that bodies may draw from come before the callables.
//
//   cgt::branch(predicate, [&] { update(x); }, [&] { reset(x); });
//   cgt::Tensor y = cgt::choose(index, [&] { return small(x); }, [&] { return large(x); });
//   cgt::branch(predicate, {generator}, [&] { add_noise(x, generator); });
template <typename Then, typename... Otherwise>
auto branch(TensorRef predicate, Span<GeneratorRef> generators, Then&& then,
            Otherwise&&... otherwise) {
  static_assert(sizeof...(otherwise) == 1 || std::is_void_v<std::invoke_result_t<Then&>>,
                "a branch with results needs a second way");
  static_assert(sizeof...(otherwise) <= 1, "a branch has two ways at most");
  return detail::results_of(
      [&](const cgt_body* bodies, cgt_tensor* results, std::size_t count) {
        return cgt_branch(predicate.get(), bodies, sizeof...(otherwise) == 1 ? bodies + 1 : nullptr,
                          detail::handles(generators), generators.size(), results, count);
      },
      then, otherwise...);
}
template <typename Then, typename... Otherwise, typename = detail::IfBody<Then>>
auto branch(TensorRef predicate, Then&& then, Otherwise&&... otherwise) {
  return branch(predicate, {}, then, otherwise...);
}
template <typename First, typename... Others>
auto choose(TensorRef index, Span<GeneratorRef> generators, First&& first, Others&&... others) {
  return detail::results_of(
      [&](const cgt_body* bodies, cgt_tensor* results, std::size_t count) {
        return cgt_choose(index.get(), bodies, 1 + sizeof...(others), detail::handles(generators),
                          generators.size(), results, count);
      },
      first, others...);
}
template <typename First, typename... Others, typename = detail::IfBody<First>>
auto choose(TensorRef index, First&& first, Others&&... others) {
  return choose(index, {}, first, others...);
}

// The next two are cgt_loop() with a callable, which returns the flag: a Tensor, or a TensorRef of
// a tensor that lives longer. They return the number of rounds, and throw as branch().
template <typename Body>
Tensor loop(std::int64_t max_rounds, Span<GeneratorRef> generators, Body&& body) {
  cgt_tensor rounds = nullptr;
  detail::with_bodies(
      [&](const cgt_body* bodies) {
        return cgt_loop(max_rounds, bodies, detail::handles(generators), generators.size(),
                        &rounds);
      },
      body);
  return Tensor(rounds);
}
template <typename Body>
Tensor loop(std::int64_t max_rounds, Body&& body) {
  return loop(max_rounds, {}, body);
}

// A LoopStream holds rows that a loop hands out while it runs, one row for each round; see
// cgt_loop_stream_create(). Loops of one LoopStream must not run at the same time.
//
//   std::vector<std::int32_t> ids(rows);
//   while (const auto row = tokens.next(ids.data(), 4 * rows, std::chrono::seconds(1))) {
//     send_to_clients(ids);
//     if (client_has_gone) tokens.stop();
//     if (row->is_last) break;
//   }
class LoopStream : public detail::Owner<cgt_loop_stream, cgt_loop_stream_destroy> {
 public:
  // Rows of up to `row_bytes`, a multiple of 4, that are kept while the host is up to `rows` rows
  // behind.
  LoopStream(cgt_device device, std::size_t row_bytes, std::size_t rows)
      : Owner(detail::result(cgt_loop_stream_create, device, row_bytes, rows)) {}

  // Waits for the next row, for `limit` at most, and copies it to the front of `to`. Returns
  // nothing if there is no row by then. Throws if rows were lost, and continues with the oldest row
  // that is left; throws for a row larger than `bytes`, which stays. One thread at a time.
  std::optional<cgt_loop_row> next(void* to, std::size_t bytes,
                                   std::chrono::microseconds limit) const {
    auto row = sized<cgt_loop_row>();
    const auto most = static_cast<std::uint64_t>(limit.count() < 0 ? 0 : limit.count());
    check(cgt_loop_stream_next(get(), to, bytes, most, &row));
    if (row.loop == 0) return std::nullopt;
    return row;
  }
  // Ends the loop of the next row with its present round, or if it has not begun, with its first.
  // Any thread.
  void stop() const { check(cgt_loop_stream_stop(get())); }
};

// The next two are loop() with a callable that returns a LoopRound. Each round hands out its row.
//
//   cgt::loop(64, tokens, [&] {
//     decode(next.get(), goes_on.get());
//     return cgt::LoopRound{goes_on.share(), next.share()};
//   });
template <typename Body>
Tensor loop(std::int64_t max_rounds, const LoopStream& rows, Span<GeneratorRef> generators,
            Body&& body) {
  static_assert(std::is_same_v<std::invoke_result_t<Body&>, LoopRound>,
                "the body of a loop that hands out rows returns a cgt::LoopRound");
  cgt_tensor rounds = nullptr;
  detail::with_bodies(
      [&](const cgt_body* bodies) {
        return cgt_loop_rows(max_rounds, rows.get(), bodies, detail::handles(generators),
                             generators.size(), &rounds);
      },
      body);
  return Tensor(rounds);
}
template <typename Body>
Tensor loop(std::int64_t max_rounds, const LoopStream& rows, Body&& body) {
  return loop(max_rounds, rows, {}, body);
}

}  // namespace cgt
