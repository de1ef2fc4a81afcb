#include "flower/federation/fleet_metrics.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/plain/error.h"
#include "base/plain/files.h"

namespace evenkeel::flower {
namespace {

TEST(FleetMetrics, BucketsCountWhatIsAtMostTheirLimit) {
  SecondsHistogram histogram;
  for (const double seconds : {0.5, 1.0, 4.0, 60.0, 61.0, 1e6}) histogram.observe(seconds);
  const auto text = histogram.text("round_seconds", "help");
  EXPECT_EQ(text,
            "# HELP evenkeel_round_seconds help\n# TYPE evenkeel_round_seconds histogram\n"
            "evenkeel_round_seconds_bucket{le=\"1\"} 2\nevenkeel_round_seconds_bucket{le=\"5\"} 3\n"
            "evenkeel_round_seconds_bucket{le=\"15\"} 3\nevenkeel_round_seconds_bucket{le=\"60\"} 4\n"
            "evenkeel_round_seconds_bucket{le=\"300\"} 5\nevenkeel_round_seconds_bucket{le=\"900\"} 5\n"
            "evenkeel_round_seconds_bucket{le=\"3600\"} 5\nevenkeel_round_seconds_bucket{le=\"14400\"} 5\n"
            "evenkeel_round_seconds_bucket{le=\"86400\"} 5\nevenkeel_round_seconds_bucket{le=\"+Inf\"} 6\n"
            "evenkeel_round_seconds_sum 1.00013e+06\nevenkeel_round_seconds_count 6\n");
}

TEST(FleetMetrics, TheBuildIsNamed) {
  EXPECT_NE(prometheus_text({}).find(concat("evenkeel_build_info{version=\"", version(), "\",compiler=\"")),
            std::string::npos);
}

TEST(FleetMetrics, AtMostAHundredClientsHaveLines) {
  FleetStatus status;
  for (int64_t client = 299; client >= 0; --client) {
    SessionReport report;
    report.client = client;
    report.outcome = "reply";
    status.last.push_back(report);
  }
  const auto text = prometheus_text(status);
  EXPECT_NE(text.find("evenkeel_client_replied{client=\"99\"} 1\n"), std::string::npos);
  EXPECT_EQ(text.find("{client=\"100\"}"), std::string::npos);
  EXPECT_LT(std::ranges::count(text, '\n'), 350);
}

}  // namespace
}  // namespace evenkeel::flower
