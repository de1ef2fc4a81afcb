#include "flower/federation/fleet_metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>

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

fed::AuditEvent reply(int64_t client, fed::AuditWork work) {
  return {.kind = fed::AuditKind::kReply, .client = client, .work = work, .outcome = "reply"};
}

TEST(FleetMetrics, AtMostAHundredClientsHaveLines) {
  FleetStatus status;
  for (int64_t client = 299; client >= 0; --client) {
    status.work.add(reply(client, fed::AuditWork::kTrain));
    status.work.add(reply(client, fed::AuditWork::kScore));
  }
  const auto text = prometheus_text(status);
  EXPECT_NE(text.find("evenkeel_client_replied{client=\"99\",work=\"train\"} 1\n"), std::string::npos);
  EXPECT_EQ(text.find("{client=\"100\""), std::string::npos);
  EXPECT_LT(std::ranges::count(text, '\n'), 1100) << "five values of two works of a hundred clients";
}

TEST(FleetMetrics, ScoresDoNotReplaceWhatIsShownOfTraining) {
  FleetStatus status;
  auto trained = reply(3, fed::AuditWork::kTrain), scored = reply(3, fed::AuditWork::kScore);
  trained.round = 5, trained.bytes_down = 700, trained.bytes_up = 600, trained.seconds = 2.5;
  scored.round = 5, scored.bytes_down = 40, scored.bytes_up = 30, scored.seconds = 0.5;
  auto lost = scored;
  lost.kind = fed::AuditKind::kLost, lost.outcome = "late";
  for (const auto& event : {trained, scored, lost}) status.work.add(event);
  const auto text = prometheus_text(status);
  for (const auto* line :
       {"client_bytes_up{client=\"3\",work=\"train\"} 600", "client_bytes_down{client=\"3\",work=\"train\"} 700",
        "client_bytes_up{client=\"3\",work=\"score\"} 30", "client_round{client=\"3\",work=\"train\"} 5",
        "client_round{client=\"3\",work=\"score\"} 5", "client_seconds{client=\"3\",work=\"train\"} 2.5",
        "client_replied{client=\"3\",work=\"train\"} 1", "client_replied{client=\"3\",work=\"score\"} 0",
        "traffic_bytes_total{work=\"train\",direction=\"up\"} 600",
        "traffic_bytes_total{work=\"score\",direction=\"down\"} 80",
        "exchanges_total{work=\"score\",outcome=\"lost\"} 1"})
    EXPECT_NE(text.find(concat("evenkeel_", line, "\n")), std::string::npos) << line << "\n" << text;
}

// A run can protect its clients ([privacy] unit = "client"), so a metric may depend on times and sizes of messages,
// and on no row.
TEST(FleetMetrics, NoneDependsOnRows) {
  FleetStatus status;
  status.work.add(reply(0, fed::AuditWork::kTrain));
  std::istringstream text(prometheus_text(status));
  std::set<std::string> names;
  for (std::string line; std::getline(text, line);)
    if (line.starts_with("# TYPE evenkeel_")) names.insert(line.substr(16, line.rfind(' ') - 16));
  EXPECT_EQ(names, (std::set<std::string>{"build_info", "rounds_done", "rounds", "clients", "clients_joined",
                                          "round_seconds", "traffic_bytes_total", "exchanges_total", "client_replied",
                                          "client_round", "client_seconds", "client_bytes_down", "client_bytes_up"}));
}

}  // namespace
}  // namespace evenkeel::flower
