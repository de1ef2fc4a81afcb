/// \file  Formats the state of a served run as metrics in the text format of Prometheus.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fed/store/audit_summary.h"

namespace evenkeel::flower {

/// Counts observations in buckets with fixed upper limits, as a Prometheus histogram.
class SecondsHistogram {
 public:
  /// Upper limits of the buckets in seconds, from a second to a day. One more bucket has no limit.
  static const std::vector<double>& limits();

  void observe(double seconds);
  /// Returns the lines of the metric `name`, with HELP and TYPE.
  std::string text(std::string_view name, std::string_view help) const;

 private:
  std::vector<int64_t> counts_ = std::vector<int64_t>(limits().size() + 1);  // of each bucket alone
  double sum_ = 0;
};

/// Holds the state of a served run for monitoring.
struct FleetStatus {
  int64_t round = 0, rounds = 0;     ///< rounds that are committed, rounds of the run
  int64_t clients = 0, members = 0;  ///< clients that the run needs, clients that have a node
  fed::AuditSummary work{};          ///< traffic of the run and the last exchanges with each client
  /// Seconds from one commit to the next in this process, with the evaluations between them. The first round of a run
  /// counts from the moment when all clients have joined.
  SecondsHistogram round_seconds{};
};

/// Largest number of clients with lines of their own. It bounds the number of time series.
inline constexpr size_t kMostLabelledClients = 100;

/// Formats `status`. Only the kMostLabelledClients clients with the lowest ids have lines of their own.
std::string prometheus_text(const FleetStatus& status);

}  // namespace evenkeel::flower
