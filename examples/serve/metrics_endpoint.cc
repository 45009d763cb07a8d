// Listens with the sockets of POSIX.
#include "examples/serve/metrics_endpoint.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace cgtree::serve {
namespace {

constexpr std::size_t kMaxRequest = 8192;  // bytes

// Returns the request up to the empty line, or the part that was received.
std::string read_request(int client) {
  std::string request;
  char part[1024];
  while (request.size() < kMaxRequest && request.find("\r\n\r\n") == std::string::npos) {
    const ssize_t got = recv(client, part, sizeof part, 0);
    if (got <= 0) break;
    request.append(part, static_cast<std::size_t>(got));
  }
  return request;
}

void send_all(int client, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = send(client, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
}

std::string response(std::string_view status, std::string_view body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: "
      "{}\r\nConnection: close\r\n\r\n{}",
      status, body.size(), body);
}

}  // namespace

MetricsEndpoint::MetricsEndpoint(int port, std::function<std::string()> page)
    : page_(std::move(page)) {
  const auto refuse = [&] {
    const std::string why = std::strerror(errno);
    for (const int open : {listener_, ended_[0], ended_[1]}) {
      if (open >= 0) close(open);
    }
    throw InvalidArgument(fmt::format("metrics cannot be served on port {}: {}", port, why));
  };
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (listener_ < 0 || setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      bind(listener_, generic, bytes) != 0 || listen(listener_, 8) != 0 ||
      getsockname(listener_, generic, &bytes) != 0 || pipe2(ended_, O_CLOEXEC) != 0) {
    refuse();
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { run(); });
}

MetricsEndpoint::~MetricsEndpoint() {
  close(ended_[1]);
  thread_.join();
  close(ended_[0]);
  close(listener_);
}

void MetricsEndpoint::run() {
  while (true) {
    pollfd waited[] = {{listener_, POLLIN, 0}, {ended_[0], POLLIN, 0}};
    (void)poll(waited, 2, -1);
    if (waited[1].revents != 0) return;
    const int client = accept(listener_, nullptr, nullptr);
    if (client < 0) continue;
    const timeval patience = {.tv_sec = 2, .tv_usec = 0};
    (void)setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    (void)setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    try {
      answer(client);
    } catch (const std::exception&) {  // out of memory; the next scrape may succeed
    }
    close(client);
  }
}

void MetricsEndpoint::answer(int client) const {
  const std::string request = read_request(client);
  if (!request.starts_with("GET ")) {
    return send_all(client, response("405 Method Not Allowed", "only GET is answered\n"));
  }
  const std::string_view target = std::string_view(request).substr(4, request.find(' ', 4) - 4);
  if (target.substr(0, target.find('?')) != "/metrics") {
    return send_all(client, response("404 Not Found", "metrics are at /metrics\n"));
  }
  std::string text;
  try {
    text = response("200 OK", page_());
  } catch (const std::exception& error) {
    text = response("500 Internal Server Error", error.what());
  }
  send_all(client, text);
}

}  // namespace cgtree::serve
