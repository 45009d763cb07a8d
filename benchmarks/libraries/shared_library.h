// SharedLibrary: a library that is loaded on demand, and stays loaded.
#pragma once

#include <dlfcn.h>

#include <initializer_list>
#include <string>

#include "base/error.h"

namespace cgtree::benchmarks {

class SharedLibrary {
 public:
  // The address of a symbol, as a function of the required type.
  struct Symbol {
    void* address;
    template <typename F>
    operator F*() const {
      return reinterpret_cast<F*>(address);
    }
  };

  // Loads the first file that exists, by its name or from the toolkit's folder. Throws
  // InvalidArgument.
  explicit SharedLibrary(std::initializer_list<const char*> files) {
    for (const char* const file : files) {
      for (const std::string folder : {"", "/usr/local/cuda/lib64/"}) {
        library_ = dlopen((folder + file).c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library_ != nullptr) return;
      }
    }
    throw InvalidArgument(std::string("cannot load ") + *files.begin() + " (" + dlerror() +
                          "): add its folder to LD_LIBRARY_PATH");
  }

  // Throws InvalidArgument.
  Symbol find(const char* name) const {
    if (void* const address = dlsym(library_, name)) return {address};
    throw InvalidArgument(std::string("the library has no ") + name);
  }

 private:
  void* library_ = nullptr;
};

}  // namespace cgtree::benchmarks
