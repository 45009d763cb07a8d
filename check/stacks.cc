// Unwinds stacks, and reads frames of Python by the functions of its C API that a process has.
#include "check/stacks.h"

#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <array>
#include <functional>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "interop/device/node_contents.h"

namespace cgtree::graph_check {
namespace {

constexpr int kMostFrames = 32;

// No destructor: a thread's first use would wait for the linker.
thread_local const std::string* given_frames = nullptr;

// Source: Python's C API, "Initialization, Finalization, and Threads", "Reflection", "Frame
// Objects"; all are there since 3.9. Objects are opaque here.
struct Python {
  int (*is_initialized)() = nullptr;
  void* (*state_of_thread)() = nullptr;  // of this thread, or null
  void* (*current_state)() = nullptr;    // of the thread that holds the lock
  void* (*error_occurred)() = nullptr;
  void (*clear_error)() = nullptr;
  void* (*current_frame)() = nullptr;    // borrowed
  void* (*back)(void* frame) = nullptr;  // new, or null
  void* (*code)(void* frame) = nullptr;  // new
  int (*line)(void* frame) = nullptr;
  void* (*attribute)(void* object, const char* name) = nullptr;  // new, or null
  const char* (*utf8)(void* text) = nullptr;
  void (*add_reference)(void* object) = nullptr;
  void (*drop_reference)(void* object) = nullptr;  // null if one is missing
};

template <typename Function>
bool find(const char* name, Function* function) noexcept {
  *function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  return *function != nullptr;
}

Python find_python() noexcept {
  Python found;
  const bool is_there =
      find("Py_IsInitialized", &found.is_initialized) &&
      find("PyGILState_GetThisThreadState", &found.state_of_thread) &&
      (find("PyThreadState_GetUnchecked", &found.current_state) ||  // since 3.13
       find("_PyThreadState_UncheckedGet", &found.current_state)) &&
      find("PyErr_Occurred", &found.error_occurred) && find("PyErr_Clear", &found.clear_error) &&
      find("PyEval_GetFrame", &found.current_frame) && find("PyFrame_GetBack", &found.back) &&
      find("PyFrame_GetCode", &found.code) && find("PyFrame_GetLineNumber", &found.line) &&
      find("PyObject_GetAttrString", &found.attribute) && find("PyUnicode_AsUTF8", &found.utf8) &&
      find("Py_IncRef", &found.add_reference) && find("Py_DecRef", &found.drop_reference);
  return is_there ? found : Python();
}

std::string attribute(const Python& python, void* object, const char* name) {
  void* const value = python.attribute(object, name);
  const char* const text = value != nullptr ? python.utf8(value) : nullptr;
  std::string copied = text != nullptr ? text : "?";
  if (text == nullptr) python.clear_error();
  if (value != nullptr) python.drop_reference(value);
  return copied;
}

// Only a thread that holds the interpreter's lock may look at frames. To wait for the lock here
// could wait for ever: its owner may wait for a lock of the caller's. PyGILState_Check() says yes
// to all threads once there is a second interpreter. An exception that is on its way stays.
std::string python_frames() {
  static const Python python = find_python();
  std::string frames;
  if (python.drop_reference == nullptr || python.is_initialized() == 0) return frames;
  void* const state = python.state_of_thread();
  if (state == nullptr || state != python.current_state() || python.error_occurred() != nullptr)
    return frames;
  void* frame = python.current_frame();
  if (frame != nullptr) python.add_reference(frame);
  for (int i = 0; frame != nullptr && i < kMostFrames; ++i) {
    void* const code = python.code(frame);
    frames += str_format("{} at {}:{}\n", attribute(python, code, "co_name"),
                         attribute(python, code, "co_filename"), python.line(frame));
    python.drop_reference(code);
    void* const back = python.back(frame);
    python.drop_reference(frame);
    frame = back;
  }
  if (frame != nullptr) python.drop_reference(frame);
  return frames;
}

std::string_view file_name(const char* path) noexcept {
  std::string_view name = path != nullptr ? path : "?";
  return name.substr(name.rfind('/') + 1);
}

// Returns whether a library's frames say nothing of the program.
bool is_of_cuda(std::string_view file) noexcept {
  constexpr std::array kNames = {"libcuda.so", "libcudart.so", "libcgtree_check.so"};
  return std::ranges::any_of(kNames, [&](const char* name) { return file.starts_with(name); });
}

}  // namespace

StackId Stacks::take() {
  Stack stack;
  stack.addresses.resize(kMostFrames);
  stack.addresses.resize(static_cast<std::size_t>(backtrace(stack.addresses.data(), kMostFrames)));
  stack.python = given_frames == nullptr ? python_frames() : *given_frames;
  std::uint64_t hash = 0;
  for (void* const address : stack.addresses)
    hash = hash * 31 + reinterpret_cast<std::uintptr_t>(address);
  hash = hash * 31 + std::hash<std::string>()(stack.python);
  const std::lock_guard lock(mutex_);
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto same = begin; same != end; ++same)
    if (stacks_[static_cast<std::size_t>(same->second) - 1] == stack) return same->second;
  stacks_.push_back(std::move(stack));
  const auto id = static_cast<StackId>(stacks_.size());
  by_hash_.emplace(hash, id);
  return id;
}

std::vector<std::string> Stacks::frames(StackId stack) const {
  if (stack == StackId::kNone) return {};
  std::unique_lock lock(mutex_);
  const Stack& found = stacks_[static_cast<std::size_t>(stack) - 1];
  lock.unlock();
  std::vector<std::string> frames;
  std::istringstream python(found.python);
  for (std::string line; std::getline(python, line);)
    frames.push_back(line);
  for (void* const address : found.addresses) {
    Dl_info info = {};
    // A return address is behind its call, which may be the last instruction of a function.
    const bool is_known = dladdr(static_cast<char*>(address) - 1, &info) != 0;
    const std::string_view file = file_name(is_known ? info.dli_fname : nullptr);
    if (is_of_cuda(file)) continue;
    const auto offset = reinterpret_cast<std::uintptr_t>(address) -
                        reinterpret_cast<std::uintptr_t>(info.dli_fbase);
    frames.push_back(is_known && info.dli_sname != nullptr
                         ? str_format("{} in {}", demangled(info.dli_sname), file)
                         : str_format("{}+{:#x}", file, offset));
  }
  return frames;
}

void set_python_frames(const char* lines) {
  delete std::exchange(given_frames, *lines == '\0' ? nullptr : new std::string(lines));
}

}  // namespace cgtree::graph_check
