// Writes reports of this process.
#include "check/reporter.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
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

// Signal handlers, handlers of fork() and of exit() reach nothing else. No file stays open:
// programs close files that they do not know, and get the number for another.
struct OfProcess {
  std::atomic<Reporter*> reporter{nullptr};
  std::atomic<pid_t> watched{0};
  sem_t wake = {};  // the thread that reports
};
constinit OfProcess of_process;

// The end of a thread by pthread_cancel() passes no function that throws nothing.
struct NoCancellation {
  int before = 0;
  NoCancellation() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before); }
  ~NoCancellation() { pthread_setcancelstate(before, nullptr); }
};

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
  static_cast<void>(is_fork ? raise(number) : sem_post(&of_process.wake));
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
  const NoCancellation here;
  write_all(STDERR_FILENO, str_format("cgtree-check: {}\n", line));
} catch (...) {  // no memory
}

Reporter::Reporter(Make make) : make_(std::move(make)) {
  const auto time = std::chrono::system_clock::now().time_since_epoch().count();
  if (const char* const folder = std::getenv("CGTREE_CHECK_DIR"))
    stem_ = str_format("{}/{}.{}", folder, getpid(), time);
  if (const char* const file = std::getenv("CGTREE_CHECK_JSON")) file_ = file;
  tell("");  // the process has used CUDA, however it ends
  of_process.reporter = this;
  of_process.watched = getpid();
  std::atexit([] {
    if (of_process.watched == getpid()) return of_process.reporter.load()->report(/*is_end=*/true);
    say(str_format("process {} is a fork of {}, and is not watched", getpid(),
                   of_process.watched.load()));
  });
  sem_init(&of_process.wake, 0, 0);
  // The thread takes no signal of the program's.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([this] {
      for (;;)  // a debugger interrupts the wait
        if (sem_wait(&of_process.wake) == 0) report(/*is_end=*/false);
    }).detach();
    install_handler();
  } catch (const std::system_error&) {  // no report but that at the end
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Reporter::tell(const std::string& finding) noexcept try {
  if (stem_.empty()) return;
  const NoCancellation here;
  const int to = open((stem_ + ".jsonl").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  write_all(to, finding + "\n");
  close(to);
} catch (...) {  // no memory
}

void Reporter::report(bool is_end) noexcept try {
  const NoCancellation here;
  const Report report = make_(is_end);
  if (is_end && !stem_.empty()) write_file(stem_ + ".json", report.json);
  if (!file_.empty()) write_file(file_, report.json);
  write_all(STDERR_FILENO, report.table);
} catch (...) {  // no memory
}

}  // namespace cgtree::graph_check
