// The endpoint answers scrapes, refuses other requests, and survives clients that misbehave.
#include "examples/serve/metrics_endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "base/error.h"
#include "tests/examples/serve/http_get.h"

namespace cgtree::serve {
namespace {

using ::cgtree::testing::ask;
using ::cgtree::testing::get_metrics;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

TEST(MetricsEndpointTest, AScrapeGetsThePageAsItIsThen) {
  int scrapes = 0;
  const MetricsEndpoint endpoint(0, [&] { return "scrapes " + std::to_string(++scrapes) + "\n"; });
  EXPECT_THAT(get_metrics(endpoint.port()), EndsWith("\r\n\r\nscrapes 1\n"));
  const std::string second = ask(endpoint.port(), "GET /metrics?name=x HTTP/1.0\r\n\r\n");
  EXPECT_THAT(second, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(second, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(second, HasSubstr("Content-Length: 10\r\n"));
  EXPECT_THAT(second, EndsWith("\r\n\r\nscrapes 2\n"));
}

TEST(MetricsEndpointTest, OtherRequestsAreRefused) {
  const MetricsEndpoint endpoint(0, [] { return std::string("page"); });
  EXPECT_THAT(ask(endpoint.port(), "GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(ask(endpoint.port(), "POST /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(ask(endpoint.port(), std::string(20'000, 'x')), Not(HasSubstr("200 OK")));
  EXPECT_THAT(get_metrics(endpoint.port()), EndsWith("page"));
}

TEST(MetricsEndpointTest, APageThatCannotBeMadeIsAnErrorOfThatScrape) {
  bool fails = true;
  const MetricsEndpoint endpoint(
      0, [&] { return fails ? throw std::runtime_error("no page") : std::string("page"); });
  EXPECT_THAT(get_metrics(endpoint.port()), StartsWith("HTTP/1.1 500"));
  fails = false;
  EXPECT_THAT(get_metrics(endpoint.port()), EndsWith("page"));
}

TEST(MetricsEndpointTest, APortInUseIsSaid) {
  const MetricsEndpoint first(0, [] { return std::string(); });
  EXPECT_THAT([&] { MetricsEndpoint(first.port(), [] { return std::string(); }); },
              ThrowsMessage<InvalidArgument>(HasSubstr("cannot be served on port")));
}

}  // namespace
}  // namespace cgtree::serve
