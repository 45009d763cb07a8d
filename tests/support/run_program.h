// run_program(): a program's exit status and output.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace cgtree::testing {

struct ProgramRun {
  int status = -1;
  std::string output;  // standard output and standard error
};

// `command`: for the shell. Bazel and the bundle both start a test in the root of its files.
inline ProgramRun run_program(const std::string& command) {
  std::FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  ProgramRun run;
  std::array<char, 4096> chunk;
  for (std::size_t n; (n = fread(chunk.data(), 1, chunk.size(), pipe)) > 0;)
    run.output.append(chunk.data(), n);
  const int status = pclose(pipe);
  run.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return run;
}

}  // namespace cgtree::testing
