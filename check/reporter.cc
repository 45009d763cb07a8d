// Writes reports of this process.
#include "check/reporter.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <system_error>
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

// A pipe without a reader ends no program by SIGPIPE that would not have written there.
void write_all(int file, std::string_view text) noexcept {
  sigset_t pipe, before;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno != EINTR) break;
    text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
  }
  const timespec at_once = {};
  if (!text.empty()) sigtimedwait(&pipe, nullptr, &at_once);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Readers see all of the file of a process, or none of it. A device or a pipe stays at its place.
void write_file(const std::string& path, const std::string& text) {
  struct stat there = {};
  const bool is_kept = stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode);
  const std::string part = is_kept ? path : str_format("{}.{}.part", path, getpid());
  std::ofstream file(part, std::ios::binary);
  file << text << std::flush;
  if (!file || (!is_kept && std::rename(part.c_str(), path.c_str()) != 0))
    say(str_format("{} cannot be written", path));
}

// A fork ends by the signal, as without the check.
void on_signal(int number) {
  const int before = errno;
  const bool is_fork = of_process.watched != getpid();
  if (is_fork) signal(number, SIG_DFL);
  static_cast<void>(is_fork ? raise(number) != 0 : !write(of_process.wake, "", 1));
  errno = before;
}

// A handler of the program stays.
void install_handler() {
  struct sigaction before = {};
  if (sigaction(SIGUSR1, nullptr, &before) != 0) return;
  if (before.sa_handler != SIG_DFL)
    return say("SIGUSR1 is the program's: there is a report at the end alone");
  signal(SIGUSR1, on_signal);  // calls of the system go on behind it
}

}  // namespace

void say(std::string_view line) noexcept try {
  write_all(STDERR_FILENO, str_format("cgtree-check: {}\n", line));
} catch (...) {  // no memory
}

Reporter::Reporter(Make make) : make_(std::move(make)) {
  const auto time = std::chrono::system_clock::now().time_since_epoch().count();
  if (const char* const folder = std::getenv("CGTREE_CHECK_DIR"))
    stem_ = str_format("{}/{}.{}", folder, getpid(), time);
  if (const char* const file = std::getenv("CGTREE_CHECK_JSON")) file_ = file;
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
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([this, end = ends[0]] {
      for (char byte = 0; read(end, &byte, 1) == 1;)
        report(/*is_end=*/false);
    }).detach();
    install_handler();
  } catch (const std::system_error&) {  // no report but that at the end
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Reporter::tell(const std::string& finding) noexcept try {
  if (stem_.empty()) return;
  if (findings_ < 0)
    findings_ = open((stem_ + ".jsonl").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  write_all(findings_, finding + "\n");
} catch (...) {  // no memory
}

void Reporter::report(bool is_end) noexcept try {
  const Report report = make_(is_end);
  if (is_end && !stem_.empty()) write_file(stem_ + ".json", report.json);
  if (!file_.empty()) write_file(file_, report.json);
  write_all(STDERR_FILENO, report.table);
} catch (...) {  // no memory
}

}  // namespace cgtree::graph_check
