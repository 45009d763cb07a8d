// MetricsEndpoint: answers `GET /metrics` of a monitoring system, on a separate thread.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace cgtree::serve {

// A MetricsEndpoint listens on 127.0.0.1 as long as it lives. It serves one request at a time, and
// waits at most two seconds for a silent client. It implements only the part of HTTP/1.1 that a
// scrape needs, so that the example depends on no library for it.
class MetricsEndpoint {
 public:
  // `page` returns the text of a scrape; it is called on the endpoint's thread, and its exceptions
  // are answered with status 500. Port 0 takes any free port. Throws InvalidArgument if the port
  // cannot be listened on, for instance because it is in use.
  MetricsEndpoint(int port, std::function<std::string()> page);
  ~MetricsEndpoint();
  MetricsEndpoint(const MetricsEndpoint&) = delete;
  MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;

  int port() const noexcept { return port_; }

 private:
  void run();
  void answer(int client) const;

  const std::function<std::string()> page_;
  int listener_ = -1;
  int ended_[2] = {-1, -1};  // a pipe whose writing end is closed to end the thread
  int port_ = 0;
  std::thread thread_;
};

}  // namespace cgtree::serve
