// Writes reports of this process.
#include "check/reporter.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/format.h"

namespace cgtree::graph_check {
namespace {

// Signal handlers, handlers of fork() and of exit() reach nothing else.
struct OfProcess {
  std::atomic<Reporter*> reporter{nullptr};
  std::atomic<pid_t> watched{0};
  int wake = -1;  // the writing end of a pipe to the thread that reports
};
constinit OfProcess of_process;

void write_all(int file, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Readers see all of the file, or none of it.
void write_file(const std::string& path, const std::string& text) {
  const std::string part = path + ".part";
  std::ofstream file(part, std::ios::binary);
  file << text;
  file.close();
  if (!file || std::rename(part.c_str(), path.c_str()) != 0)
    say(str_format("{} cannot be written", path));
}

std::string file_in(const std::string& folder, std::string_view end) {
  return str_format("{}/{}{}", folder, getpid(), end);
}

void on_signal(int) {
  const int before = errno;
  static_cast<void>(!write(of_process.wake, "", 1));
  errno = before;
}

// A program that has a handler of its own keeps it.
void install_handler() {
  struct sigaction before = {};
  if (sigaction(SIGUSR1, nullptr, &before) != 0) return;
  if (before.sa_handler != SIG_DFL)
    return say("SIGUSR1 is the program's: there is a report at the end alone");
  struct sigaction ours = {};
  ours.sa_handler = on_signal;
  ours.sa_flags = SA_RESTART;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGUSR1, &ours, nullptr);
}

}  // namespace

void say(std::string_view line) noexcept try {
  write_all(STDERR_FILENO, str_format("cgtree-check: {}\n", line));
} catch (...) {  // no memory
}

Reporter::Reporter(Make make)
    : make_(std::move(make)),
      folder_(environment("CGTREE_CHECK_DIR")),
      file_(environment("CGTREE_CHECK_JSON")) {
  of_process.reporter = this;
  of_process.watched = getpid();
  std::atexit([] {
    if (of_process.watched == getpid()) return of_process.reporter.load()->report(/*is_end=*/true);
    say(str_format("process {} is a fork of {}, and is not watched", getpid(),
                   of_process.watched.load()));
  });
  int ends[2] = {};
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  of_process.wake = ends[1];
  // The thread takes no signal of the program's.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([this, end = ends[0]] {
    char byte = 0;
    while (read(end, &byte, 1) == 1)
      report(/*is_end=*/false);
  }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  install_handler();
}

void Reporter::tell(const std::string& finding) noexcept try {
  if (folder_.empty()) return;
  if (findings_ < 0) {
    findings_ =
        open(file_in(folder_, ".jsonl").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  }
  write_all(findings_, finding + "\n");
} catch (...) {  // no memory
}

void Reporter::report(bool is_end) noexcept try {
  const Report report = make_(is_end);
  if (!folder_.empty()) write_file(file_in(folder_, ".json"), report.json);
  if (!file_.empty()) write_file(file_, report.json);
  write_all(STDERR_FILENO, report.table);
} catch (...) {  // no memory
}

}  // namespace cgtree::graph_check
