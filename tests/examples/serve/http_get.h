// Sends a request to a server on this machine, as a scraper does, and returns the whole answer.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>

namespace cgtree::testing {

// Returns "" if the port does not answer.
inline std::string ask(int port, std::string_view request) {
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    (void)!send(client, request.data(), request.size(), MSG_NOSIGNAL);
    char part[4096];
    for (ssize_t got = 0; (got = recv(client, part, sizeof part, 0)) > 0;)
      answer.append(part, static_cast<std::size_t>(got));
  }
  close(client);
  return answer;
}

inline std::string get_metrics(int port) {
  return ask(port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

}  // namespace cgtree::testing
