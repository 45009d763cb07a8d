// run_program(): a program's exit status and what it says, from outside.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace cgtree::testing {

struct Outcome {
  int status = -1;
  std::string output;  // standard output and standard error
};

// `command` is the shell's. Bazel and the bundle both start a test in the root of its files.
inline Outcome run_program(const std::string& command) {
  std::FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  Outcome outcome;
  std::array<char, 4096> chunk;
  for (std::size_t n; (n = fread(chunk.data(), 1, chunk.size(), pipe)) > 0;)
    outcome.output.append(chunk.data(), n);
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

}  // namespace cgtree::testing
