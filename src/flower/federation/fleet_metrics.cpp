#include "flower/federation/fleet_metrics.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>

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

constexpr std::array kWorks{fed::AuditWork::kTrain, fed::AuditWork::kGradients, fed::AuditWork::kScore};

/// Writes a value of the last exchanges of the first kMostLabelledClients clients, with lines by client and work.
template <typename Value>
void write_clients(std::ostream& out, std::string_view name, std::string_view help, const fed::AuditSummary& work,
                   const Value& value) {
  write_head(out, name, help, "gauge");
  size_t clients = 0;
  for (const auto& [client, last] : work.last) {
    if (++clients > kMostLabelledClients) return;
    for (const auto& [kind, event] : last)
      out << "evenkeel_" << name << "{client=\"" << client << "\",work=\"" << config::name_of(kind) << "\"} "
          << value(event) << "\n";
  }
}

void write_traffic(std::ostream& out, const fed::AuditSummary& work) {
  write_head(out, "traffic_bytes_total", "bytes of messages with nodes, headers and payloads, of the whole run",
             "counter");
  for (const auto kind : kWorks)
    for (const auto& [direction, bytes] :
         {std::pair("down", work.of(kind).bytes_down), std::pair("up", work.of(kind).bytes_up)})
      out << "evenkeel_traffic_bytes_total{work=\"" << config::name_of(kind) << "\",direction=\"" << direction << "\"} "
          << bytes << "\n";
  write_head(out, "exchanges_total", "tasks of nodes that ended, of the whole run", "counter");
  for (const auto kind : kWorks)
    for (const auto& [outcome, count] :
         {std::pair("reply", work.of(kind).replies), std::pair("lost", work.of(kind).lost)})
      out << "evenkeel_exchanges_total{work=\"" << config::name_of(kind) << "\",outcome=\"" << outcome << "\"} "
          << count << "\n";
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
  write_traffic(out, status.work);
  write_clients(out, "client_replied", "1 when its last exchange of this work ended with a reply", status.work,
                [](const fed::AuditEvent& event) { return event.kind == fed::AuditKind::kReply ? 1 : 0; });
  write_clients(out, "client_round", "round of its last exchange of this work; of a score, the rounds done before",
                status.work, [](const fed::AuditEvent& event) { return event.round.value_or(0); });
  write_clients(out, "client_seconds", "seconds from its last task of this work to the reply", status.work,
                [](const fed::AuditEvent& event) { return event.seconds.value_or(0); });
  write_clients(out, "client_bytes_down", "bytes sent to it in that exchange", status.work,
                [](const fed::AuditEvent& event) { return event.bytes_down.value_or(0); });
  write_clients(out, "client_bytes_up", "bytes received from it in that exchange", status.work,
                [](const fed::AuditEvent& event) { return event.bytes_up.value_or(0); });
  return out.str();
}

}  // namespace evenkeel::flower
