#include "flower/federation/fleet_metrics.h"

#include <algorithm>
#include <sstream>

#include "base/plain/files.h"

namespace evenkeel::flower {
namespace {

void write_head(std::ostream& out, std::string_view name, std::string_view help, std::string_view kind) {
  out << "# HELP evenkeel_" << name << " " << help << "\n# TYPE evenkeel_" << name << " " << kind << "\n";
}

void write_gauge(std::ostream& out, std::string_view name, std::string_view help, int64_t value) {
  write_head(out, name, help, "gauge");
  out << "evenkeel_" << name << " " << value << "\n";
}

/// Returns the sessions that get lines of their own, by client.
std::vector<SessionReport> labelled(std::vector<SessionReport> sessions) {
  std::ranges::sort(sessions, {}, &SessionReport::client);
  if (sessions.size() > kMostLabelledClients) sessions.resize(kMostLabelledClients);
  return sessions;
}

template <typename Value>
void write_clients(std::ostream& out, std::string_view name, std::string_view help,
                   const std::vector<SessionReport>& sessions, const Value& value) {
  write_head(out, name, help, "gauge");
  for (const auto& session : sessions)
    out << "evenkeel_" << name << "{client=\"" << session.client << "\"} " << value(session) << "\n";
}

void write_build(std::ostream& out) {
  write_head(out, "build_info", "Version of the program and of the compiler; always 1.", "gauge");
  out << "evenkeel_build_info{version=\"" << version() << "\",compiler=\"" << __VERSION__ << "\"} 1\n";
}

}  // namespace

const std::vector<double>& SecondsHistogram::limits() {
  static const std::vector<double> values{1, 5, 15, 60, 300, 900, 3600, 14400, 86400};
  return values;
}

void SecondsHistogram::observe(double seconds) {
  const auto bucket = std::ranges::lower_bound(limits(), seconds) - limits().begin();
  ++counts_.at(static_cast<size_t>(bucket));
  sum_ += seconds;
}

std::string SecondsHistogram::text(std::string_view name, std::string_view help) const {
  std::ostringstream out;
  write_head(out, name, help, "histogram");
  int64_t count = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    count += counts_[i];
    out << "evenkeel_" << name << "_bucket{le=\"";
    i < limits().size() ? out << limits()[i] : out << "+Inf";
    out << "\"} " << count << "\n";
  }
  out << "evenkeel_" << name << "_sum " << sum_ << "\nevenkeel_" << name << "_count " << count << "\n";
  return out.str();
}

std::string prometheus_text(const FleetStatus& status) {
  std::ostringstream out;
  write_build(out);
  write_gauge(out, "rounds_done", "rounds that are committed", status.round);
  write_gauge(out, "rounds", "rounds of the run", status.rounds);
  write_gauge(out, "clients", "clients that the run needs", status.clients);
  write_gauge(out, "clients_joined", "clients that have a node", status.members);
  out << status.round_seconds.text("round_seconds", "seconds from one committed round to the next, with evaluations");
  const auto sessions = labelled(status.last);
  write_clients(out, "client_replied", "1 when its last exchange ended with a reply", sessions,
                [](const SessionReport& session) { return session.outcome == "reply" ? 1 : 0; });
  write_clients(out, "client_seconds", "from its last task to its reply", sessions,
                [](const SessionReport& session) { return session.seconds; });
  write_clients(out, "client_bytes_up", "payload of its last reply", sessions,
                [](const SessionReport& session) { return session.bytes_up; });
  return out.str();
}

}  // namespace evenkeel::flower
